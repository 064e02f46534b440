use std::task::{Context, Poll};

use axum::http::{HeaderName, HeaderValue};
use http_body::Frame;

use super::*;

const JSON: (&str, &str) = ("content-type", "application/json");

fn request(headers: &[(&str, &[u8])], body: impl Into<Body>) -> Request {
    let mut request = Request::new(body.into());
    for (name, value) in headers {
        let name: HeaderName = name.parse().unwrap();
        request.headers_mut().append(name, HeaderValue::from_bytes(value).unwrap());
    }
    request
}

async fn refusal(headers: &[(&str, &[u8])], body: impl Into<Body>) -> String {
    match submission(request(headers, body)).await {
        Ok(read) => format!("taken: {}", read.key),
        Err(failure) => failure.body.kind.trim_start_matches("/problems/").to_owned(),
    }
}

async fn key_of(line: &[u8]) -> Option<String> {
    let headers: &[(&str, &[u8])] = &[("idempotency-key", line), (JSON.0, JSON.1.as_bytes())];
    match submission(request(headers, "{}")).await {
        Ok(read) => Some(read.key.as_str().to_owned()),
        Err(failure) => {
            assert_eq!((failure.body.status, failure.body.kind.as_str()), (400, "/problems/idempotency-key-malformed"));
            None
        }
    }
}

#[tokio::test]
async fn a_quoted_and_a_bare_key_are_the_same_key() {
    let longest = "k".repeat(255);
    for (line, key) in [
        (r"8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324"),
        (r#""8e03978e-40d5-43dd-bc93-6894a57f9324""#, "8e03978e-40d5-43dd-bc93-6894a57f9324"),
        (r#""\"quoted\",;\\""#, r#""quoted",;\"#),
        ("?1", "?1"),
        (":YWJj:", ":YWJj:"),
        ("(a)", "(a)"),
        ("!~", "!~"),
        (&longest, &longest),
        (&format!("\"{longest}\""), &longest),
    ] {
        assert_eq!(key_of(line.as_bytes()).await.as_deref(), Some(key), "{line}");
    }
}

#[tokio::test]
async fn a_key_that_breaks_the_rules_is_malformed() {
    let long = "a".repeat(256);
    let random: String = (0..9600_u32).map(|n| char::from(b'a' + u8::try_from(n * 7919 % 26).unwrap())).collect();
    let huge = "a".repeat(100_000);
    for line in [
        "",
        r#""""#,
        r#"" ""#,
        "a b",
        r#""a b""#,
        r#""with \"quotes\" and blanks""#,
        "a\tb",
        &long,
        &format!("\"{long}\""),
        &random,
        &huge,
        "a,b",
        "a, b",
        r#""a", "b""#,
        "a;b",
        r#""a";p=1"#,
        r#""a" ;p"#,
        r"a\b",
        r#"a"b"#,
        r#"a""#,
        r#""a"#,
        r#""a"b"#,
        r#""a\x""#,
        r#""\"#,
        r#"""#,
    ] {
        assert_eq!(key_of(line.as_bytes()).await, None, "{line:.60}");
    }
    for line in ["é".as_bytes(), b"\xff", b"\"\xc3\xa9\""] {
        assert_eq!(key_of(line).await, None, "{line:?}");
    }
}

#[tokio::test]
async fn no_key_is_missing_and_two_are_malformed_even_when_equal() {
    let json = (JSON.0, JSON.1.as_bytes());
    assert_eq!(refusal(&[json], "{}").await, "idempotency-key-missing");
    let key: (&str, &[u8]) = ("idempotency-key", b"k");
    assert_eq!(refusal(&[key, key, json], "{}").await, "idempotency-key-malformed");
}

#[tokio::test]
async fn only_declared_uncompressed_utf8_json_is_taken() {
    let key: (&str, &[u8]) = ("idempotency-key", b"k");
    for content_type in [
        "application/json",
        "APPLICATION/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=\"UTF-8\"",
        "application/json; version=2",
    ] {
        assert_eq!(refusal(&[key, (JSON.0, content_type.as_bytes())], "{}").await, "taken: k", "{content_type}");
    }
    for content_type in [
        "",
        "text/plain",
        "text/json",
        "application/jsonp",
        "application/problem+json",
        "application/merge-patch+json",
        "application/x-www-form-urlencoded",
        "application/json; charset=latin1",
        "application/json, text/plain",
    ] {
        let answer = refusal(&[key, (JSON.0, content_type.as_bytes())], "{}").await;
        assert_eq!(answer, "unsupported-media-type", "{content_type}");
    }
    let json = (JSON.0, JSON.1.as_bytes());
    assert_eq!(refusal(&[key], "{}").await, "unsupported-media-type");
    assert_eq!(refusal(&[key, json, json], "{}").await, "unsupported-media-type");
    assert_eq!(refusal(&[key, json, ("content-encoding", b"gzip")], "{}").await, "unsupported-media-type");
    assert_eq!(refusal(&[key, json, ("content-encoding", b"identity")], "{}").await, "taken: k");
}

#[tokio::test]
async fn a_body_may_have_64_kib_and_not_one_byte_more() {
    let headers: &[(&str, &[u8])] = &[("idempotency-key", b"k"), (JSON.0, JSON.1.as_bytes())];
    let taken = submission(request(headers, vec![b' '; MAX_BODY])).await.unwrap();
    assert_eq!(taken.body.len(), MAX_BODY);
    for size in [MAX_BODY + 1, 10 * MAX_BODY, 100 * MAX_BODY] {
        assert_eq!(refusal(headers, vec![b' '; size]).await, "too-large", "{size}");
    }
}

/// A body of undeclared length, and what its connection does.
struct Chunks(std::vec::IntoIter<std::io::Result<Bytes>>);

impl HttpBody for Chunks {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        Poll::Ready(self.0.next().map(|chunk| chunk.map(Frame::data)))
    }
}

fn chunks(chunks: Vec<std::io::Result<&'static [u8]>>) -> Body {
    let chunks: Vec<_> = chunks.into_iter().map(|chunk| chunk.map(Bytes::from_static)).collect();
    Body::new(Chunks(chunks.into_iter()))
}

#[tokio::test]
async fn a_body_of_undeclared_length_is_counted_as_it_comes() {
    const KIB: &[u8] = &[b' '; 1024];
    let headers: &[(&str, &[u8])] = &[("idempotency-key", b"k"), (JSON.0, JSON.1.as_bytes())];
    let of = |kib: usize| chunks((0..kib).map(|_| Ok(KIB)).collect());
    assert_eq!(submission(request(headers, of(64))).await.unwrap().body.len(), MAX_BODY);
    assert_eq!(refusal(headers, of(65)).await, "too-large");
    assert_eq!(refusal(headers, of(5000)).await, "too-large");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_malformed_and_not_taken_for_a_shorter_one() {
    let headers: &[(&str, &[u8])] = &[("idempotency-key", b"k"), (JSON.0, JSON.1.as_bytes())];
    let broken = || Err(std::io::Error::other("connection reset"));
    assert_eq!(refusal(headers, chunks(vec![Ok(b"{}"), broken()])).await, "malformed-request");
    assert_eq!(refusal(headers, chunks(vec![broken()])).await, "malformed-request");
}

#[tokio::test]
async fn of_several_wrongs_the_first_in_the_order_of_the_contract_is_answered() {
    let large = || vec![b'{'; MAX_BODY + 1];
    let bad_key: (&str, &[u8]) = ("idempotency-key", b"a,b");
    let key: (&str, &[u8]) = ("idempotency-key", b"k");
    let text: (&str, &[u8]) = ("content-type", b"text/plain");
    let json = (JSON.0, JSON.1.as_bytes());
    assert_eq!(refusal(&[text], large()).await, "idempotency-key-missing");
    assert_eq!(refusal(&[bad_key, text], large()).await, "idempotency-key-malformed");
    assert_eq!(refusal(&[key, text], large()).await, "unsupported-media-type");
    assert_eq!(refusal(&[key, json], large()).await, "too-large");
}

#[test]
fn a_query_parameter_twice_is_named_and_an_unknown_one_ignored() {
    let [limit, cursor] = query(Some("limit=5&utm=a&utm=b&cursor=a%2Bb"), ["limit", "cursor"]).unwrap();
    assert_eq!((limit.as_deref(), cursor.as_deref()), (Some("5"), Some("a+b")));
    assert_eq!(query(None, ["limit"]).unwrap(), [None]);
    let twice = query(Some("limit=5&cursor=x&limit=5"), ["limit", "cursor"]).unwrap_err();
    assert_eq!((twice.body.status, twice.body.errors[0].field.as_str()), (422, "limit"));
}
