//! The origin check: a browser says where a POST comes from, and a form of another site is refused.
//!
//! Deliberately not tower-http's `csrf` layer: that one lets a listed origin through whatever `Sec-Fetch-Site` says,
//! and the host's name beside it; here the header the browser sets by itself decides alone wherever it is sent.

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::app::App;

use super::pages::Message;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses what changes something and was sent by a page of another origin.
pub async fn check(State(app): State<App>, request: Request, next: Next) -> Response {
    if request.method().is_safe() || ours(request.headers(), app.config.public_origin.as_deref()) {
        next.run(request).await
    } else {
        Message::ForeignOrigin.into_response()
    }
}

/// Whether the request comes from a page of our own, or from no page (then the form token decides).
fn ours(headers: &HeaderMap, public_origin: Option<&str>) -> bool {
    let mut sites = headers.get_all(SEC_FETCH_SITE).iter().peekable();
    if sites.peek().is_some() {
        return sites.all(|site| site == "same-origin" || site == "none");
    }
    headers.get_all(ORIGIN).iter().all(|origin| {
        let Ok(origin) = origin.to_str() else { return false };
        match public_origin {
            Some(own) => origin.eq_ignore_ascii_case(own),
            None => headers.get(HOST).and_then(|h| h.to_str().ok()).is_some_and(|host| is_host(origin, host)),
        }
    })
}

/// Whether an origin names this host, whichever of the two web schemes it has. A port that is the scheme's own may be
/// written in `Host`; browsers leave it out of both.
fn is_host(origin: &str, host: &str) -> bool {
    [("http://", ":80"), ("https://", ":443")].iter().any(|(scheme, port)| {
        origin
            .strip_prefix(scheme)
            .is_some_and(|named| named.eq_ignore_ascii_case(host.strip_suffix(port).unwrap_or(host)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(pairs: &[(&'static str, &'static str)], public: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        ours(&headers, public)
    }

    #[test]
    fn what_the_browser_says_of_itself_decides_before_the_origin() {
        assert!(asked(&[("sec-fetch-site", "same-origin"), ("origin", "https://elsewhere.example")], None));
        assert!(asked(&[("sec-fetch-site", "none")], None));
        for site in ["cross-site", "same-site", "", "SAME-ORIGIN"] {
            assert!(!asked(&[("sec-fetch-site", site), ("origin", "http://shop"), ("host", "shop")], None), "{site}");
        }
        assert!(!asked(&[("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")], None));
    }

    #[test]
    fn without_it_the_origin_must_be_the_host_or_the_public_one() {
        let host = ("host", "shop.example:3000");
        assert!(asked(&[("origin", "http://shop.example:3000"), host], None));
        assert!(asked(&[("origin", "https://Shop.example"), ("host", "shop.example:443")], None));
        for origin in ["null", "http://shop.example", "http://shop.example:3000.evil", "ftp://shop.example:3000", ""] {
            assert!(!asked(&[("origin", origin), host], None), "{origin}");
        }
        assert!(!asked(&[("origin", "http://shop.example")], None), "no host to compare with");
        assert!(asked(&[("origin", "https://public.example"), host], Some("https://public.example")));
        assert!(!asked(&[("origin", "http://shop.example:3000"), host], Some("https://public.example")));
    }

    #[test]
    fn with_neither_header_the_token_decides() {
        assert!(asked(&[("host", "shop.example")], None));
    }
}
