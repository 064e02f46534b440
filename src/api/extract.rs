//! What is read of a request, step by step in the order in which wrongs are answered: key 400, media type 415, size
//! 413, broken body 400. What comes before (401, 403, 404, 405) is the router's, what comes after (422, record) the
//! handler's. One place and one order, hence no extractors whose order hides in a list of arguments.
//!
//! `application/json` is the one media type taken. `application/*+json` is not: such a type says that the body means
//! something else than what we would read into it (a patch, linked data).

use std::pin::Pin;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use sfv::{Item, Parser};

use super::failure::Failure;
use super::problem::Problem;
use crate::order::request::Wrong;
use crate::order::values::Key;

/// The header that names an intent (draft-ietf-httpapi-idempotency-key-header).
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The largest body that is taken, in bytes.
pub const MAX_BODY: usize = 64 * 1024;
/// How much of a body that is too large is read and thrown away, in bytes: answering and closing in the middle of it
/// resets the connection, and the client may never see why.
const MAX_DISCARDED: u64 = 1024 * 1024;

/// A request that changes something, as far as it could be read without knowing what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// The intent's key.
    pub key: Key,
    /// The body, at most [`MAX_BODY`] bytes.
    pub body: Bytes,
}

/// Reads key and JSON body; the first wrong in the order of the module head is the one answered.
///
/// # Errors
/// `idempotency-key-missing`, `idempotency-key-malformed`, `unsupported-media-type`, `too-large`, `malformed-request`.
pub async fn submission(request: Request) -> Result<Submission, Failure> {
    let (parts, body) = request.into_parts();
    let key = idempotency_key(&parts.headers)?;
    json_media_type(&parts.headers)?;
    let body = whole_body(body).await?;
    Ok(Submission { key, body })
}

/// Like [`submission`], of a request that may say all it has to say by its path: an empty body needs no media type, and an
/// empty object none where none is declared.
///
/// # Errors
/// As [`submission`].
pub async fn wish(request: Request) -> Result<Submission, Failure> {
    let (parts, body) = request.into_parts();
    let key = idempotency_key(&parts.headers)?;
    let Err(undeclared) = json_media_type(&parts.headers) else {
        return Ok(Submission { key, body: whole_body(body).await? });
    };
    match whole_body(body).await {
        Ok(body) if body.is_empty() => Ok(Submission { key, body }),
        Ok(body) if body.trim_ascii() == b"{}" && !parts.headers.contains_key(CONTENT_TYPE) => {
            Ok(Submission { key, body })
        }
        _ => Err(undeclared),
    }
}

/// The key, bare or as a quoted string; both spellings name the same one.
fn idempotency_key(headers: &HeaderMap) -> Result<Key, Failure> {
    let mut lines = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(line) = lines.next() else {
        let detail =
            "Send an Idempotency-Key header: a new key (best a UUID) for each order, the same for its retries.";
        return Err(Failure::new(Problem::KeyMissing, detail));
    };
    let malformed = |detail: &str| Failure::new(Problem::KeyMalformed, detail);
    if lines.next().is_some() {
        return Err(malformed("There is more than one Idempotency-Key header."));
    }
    read_key(line.as_bytes())
        .ok_or_else(|| malformed("A key has 1 to 255 visible ASCII characters, bare or as a quoted string."))
}

/// Reads one line of the header: a bare key, or a quoted string (RFC 8941) without parameters. `None`: neither.
#[must_use]
pub fn read_key(line: &[u8]) -> Option<Key> {
    if line.starts_with(b"\"") {
        let item: Item = Parser::new(line).parse().ok()?;
        let text = item.bare_item.as_string()?;
        return item.params.is_empty().then(|| Key::parse(text.as_str()))?;
    }
    let text = std::str::from_utf8(line).ok()?;
    // Structure of other header fields: taken as part of a key, one spelling of a list would be another's key.
    let structured = text.contains(['"', ',', ';', '\\']);
    if structured { None } else { Key::parse(text) }
}

fn json_media_type(headers: &HeaderMap) -> Result<(), Failure> {
    let mut lines = headers.get_all(CONTENT_TYPE).iter();
    let declared = match (lines.next(), lines.next()) {
        (Some(line), None) => line.to_str().is_ok_and(is_json),
        _ => false,
    };
    let plain =
        headers.get_all(CONTENT_ENCODING).iter().all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    if declared && plain {
        return Ok(());
    }
    Err(Failure::new(
        Problem::UnsupportedMediaType,
        "Send the body as Content-Type: application/json, in UTF-8, not compressed.",
    ))
}

fn is_json(line: &str) -> bool {
    let mut parts = line.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    essence.eq_ignore_ascii_case("application/json")
        && parts.filter_map(|parameter| parameter.split_once('=')).all(|(name, value)| {
            !name.eq_ignore_ascii_case("charset") || value.trim_matches('"').eq_ignore_ascii_case("utf-8")
        })
}

/// The body, at most [`MAX_BODY`] bytes.
///
/// # Errors
/// `too-large`, `malformed-request`.
pub async fn whole_body(mut body: Body) -> Result<Bytes, Failure> {
    if body.size_hint().lower() > MAX_DISCARDED {
        return Err(too_large());
    }
    let mut taken = Vec::new();
    let mut arrived: u64 = 0;
    while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame =
            frame.map_err(|_| Failure::new(Problem::Malformed, "The body did not arrive whole and in time."))?;
        let Ok(data) = frame.into_data() else { continue };
        arrived += data.len() as u64;
        if arrived > MAX_DISCARDED {
            break;
        }
        if arrived <= MAX_BODY as u64 {
            taken.extend_from_slice(&data);
        }
    }
    if arrived > MAX_BODY as u64 { Err(too_large()) } else { Ok(taken.into()) }
}

fn too_large() -> Failure {
    Failure::new(Problem::TooLarge, "The body is larger than 64 KiB.")
}

/// The named parameters of a query string; others are ignored.
///
/// # Errors
/// `validation-failed`, for a parameter that is there twice.
pub fn query<const N: usize>(query: Option<&str>, names: [&str; N]) -> Result<[Option<String>; N], Failure> {
    let mut found = [const { None }; N];
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let Some(at) = names.iter().position(|known| *known == name) else { continue };
        if found[at].replace(value.into_owned()).is_some() {
            return Err(Failure::field(names[at], Wrong::Repeated));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
