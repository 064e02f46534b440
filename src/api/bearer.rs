//! Making bearer tokens that [`auth`](super::auth) takes: for `oncegate token`, and for whoever plays an API client.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::errors::Error;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Serialize;

/// What a token says (RFC 7519, section 4.1); times in whole seconds since 1970.
#[derive(Serialize)]
struct Claims<'a> {
    sub: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'a str>,
    iat: u64,
    exp: u64,
}

/// A token for this caller, valid from now on for `ttl`, signed with the service's secret.
///
/// # Errors
/// When the secret cannot sign.
pub fn issue(secret: &[u8], sub: &str, role: Option<&str>, ttl: Duration) -> Result<String, Error> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let claims = Claims { sub, role, iat: now.as_secs(), exp: (now + ttl).as_secs() };
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(secret)?)
}
