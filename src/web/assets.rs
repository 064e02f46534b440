//! The static files, carried in the binary, each under an address that changes with its content: browsers keep them for
//! a year and never ask again.

use std::collections::HashMap;
use std::sync::LazyLock;

use axum::extract::{Path, Query};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use rust_embed::{EmbeddedFile, RustEmbed};

use super::pages::Message;

/// The part of the hash that is written into addresses: 64 bits, plenty to tell versions of one file apart.
const VERSION_BYTES: usize = 8;

#[derive(RustEmbed)]
#[folder = "static/"]
struct Files;

static ADDRESSES: LazyLock<HashMap<String, String>> = LazyLock::new(|| {
    Files::iter()
        .filter_map(|name| {
            let file = Files::get(&name)?;
            Some((name.to_string(), format!("/static/{name}?v={}", version(&file))))
        })
        .collect()
});

fn version(file: &EmbeddedFile) -> String {
    hex::encode(&file.metadata.sha256_hash()[..VERSION_BYTES])
}

/// The address of a file of `static/` in its present version; that of no file for an unknown name.
#[must_use]
pub fn href(name: &str) -> &'static str {
    ADDRESSES.get(name).map_or("/static/", String::as_str)
}

/// `GET /static/{*name}`: kept for good under its present version, asked for again under any other.
pub async fn serve(
    Path(name): Path<String>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    let Some(file) = Files::get(&name) else { return Message::NotFound.into_response() };
    let (version, tag) = (version(&file), format!("\"{}\"", hex::encode(file.metadata.sha256_hash())));
    let kept = if query.get("v") == Some(&version) { "public, max-age=31536000, immutable" } else { "no-cache" };
    let known = headers.get(IF_NONE_MATCH).and_then(|tags| tags.to_str().ok()).is_some_and(|tags| tags.contains(&tag));
    let head = [(CACHE_CONTROL, kept.to_owned()), (ETAG, tag)];
    if known {
        return (StatusCode::NOT_MODIFIED, head).into_response();
    }
    (head, [(CONTENT_TYPE, file.metadata.mimetype().to_owned())], file.data).into_response()
}
