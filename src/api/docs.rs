//! `/api/docs`: a page to read the description with. Swagger UI out of this binary; nothing is asked of any other host.
//!
//! The page is our own, because the one that comes along only works behind a slash at the end. Its policy lets no
//! inline script run; inline styles it needs.

use std::sync::Arc;

use axum::extract::Path;
use axum::http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{Html, IntoResponse, Response};
use utoipa_swagger_ui::{Config, serve};

use super::failure::Failure;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const PAGE: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>oncegate API</title>
<link rel="stylesheet" href="/api/docs/swagger-ui.css">
<link rel="stylesheet" href="/api/docs/index.css">
<link rel="icon" type="image/png" href="/api/docs/favicon-32x32.png" sizes="32x32">
</head>
<body>
<div id="swagger-ui"></div>
<noscript><p>This page needs JavaScript. The description itself: <a href="/api/openapi.json">openapi.json</a></p></noscript>
<script src="/api/docs/swagger-ui-bundle.js"></script>
<script src="/api/docs/swagger-ui-standalone-preset.js"></script>
<script src="/api/docs/swagger-initializer.js"></script>
</body>
</html>
"#;

/// What the page asks for; the other files of the package are not served.
const FILES: [&str; 6] = [
    "swagger-ui.css",
    "index.css",
    "favicon-32x32.png",
    "swagger-ui-bundle.js",
    "swagger-ui-standalone-preset.js",
    "swagger-initializer.js",
];

/// `GET /api/docs`.
pub async fn page() -> Response {
    ([(CONTENT_SECURITY_POLICY, POLICY)], Html(PAGE)).into_response()
}

/// `GET /api/docs/{file}`.
///
/// # Errors
/// `not-found` for a file that the page does not ask for.
pub async fn file(Path(name): Path<String>) -> Result<Response, Failure> {
    if !FILES.contains(&name.as_str()) {
        return Err(Failure::not_found());
    }
    // "none" keeps the page from sending the description to a public validator.
    let config = Config::new(["/api/openapi.json"]).validator_url("none");
    let file = serve(&name, Arc::new(config)).map_err(|e| Failure::internal(&e.to_string()))?;
    let file = file.ok_or_else(Failure::not_found)?;
    let headers = [(CONTENT_TYPE, file.content_type.as_str()), (CACHE_CONTROL, "max-age=3600")];
    let mut response = (headers, file.bytes.into_owned()).into_response();
    if file.gzpipped {
        response.headers_mut().insert(CONTENT_ENCODING, axum::http::HeaderValue::from_static("gzip"));
    }
    Ok(response)
}
