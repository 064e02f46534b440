//! Bad input: always a clear 4xx, the key stays unused, and nothing is written.

use axum::body::Body;
use axum::http::Method;
use serde_json::json;

use super::{Client, shop, teas};
use crate::harness::shop::Shop;

async fn nothing_is_written(shop: &Shop) {
    for table in ["orders", "order_lines", "idempotency_records", "payments", "outbox"] {
        assert_eq!(shop.under.sql.int(&format!("SELECT count(*) FROM {table}")).await, 0, "{table}");
    }
}

/// An order whose one line has this quantity, or whose members are these.
fn quantity(text: &str) -> String {
    format!(r#"{{"lines":[{{"sku":"tea","quantity":{text}}}],"payment":"balance"}}"#)
}

fn with(members: &str) -> String {
    format!(r#"{{"lines":[{{"sku":"tea","quantity":1}}],"payment":"balance",{members}}}"#)
}

fn lines(text: &str) -> String {
    format!(r#"{{"lines":{text},"payment":"balance"}}"#)
}

#[tokio::test]
async fn every_wrong_value_is_named_by_its_pointer() {
    let shop = shop().await;
    let client = Client::of(&shop, "anna");
    let huge_sku = "A".repeat(41);
    let line = r#"{"sku":"tea","quantity":1}"#;
    let too_many = lines(&format!("[{}]", [line; 51].join(",")));
    let long = |n: usize| "x".repeat(n);
    for (body, field) in [
        ("{}".to_owned(), "/lines"),
        (r#"{"lines":[{"sku":"tea","quantity":1}]}"#.to_owned(), "/payment"),
        ("[]".to_owned(), ""),
        ("null".to_owned(), ""),
        ("1".to_owned(), ""),
        (lines("null"), "/lines"),
        (lines("{}"), "/lines"),
        (lines("\"tea\""), "/lines"),
        (lines("[]"), "/lines"),
        (lines("[null]"), "/lines/0"),
        (lines("[{}]"), "/lines/0/sku"),
        (lines(r#"[{"sku":"tea"}]"#), "/lines/0/quantity"),
        (lines(r#"[{"quantity":1}]"#), "/lines/0/sku"),
        (lines(r#"[{"sku":"tea","quantity":1,"price":1}]"#), "/lines/0/price"),
        (lines(r#"[{"sku":"","quantity":1}]"#), "/lines/0/sku"),
        (lines(r#"[{"sku":7,"quantity":1}]"#), "/lines/0/sku"),
        (lines(r#"[{"sku":"a b","quantity":1}]"#), "/lines/0/sku"),
        (lines(r#"[{"sku":"té","quantity":1}]"#), "/lines/0/sku"),
        (lines(r#"[{"sku":"tea\u0000","quantity":1}]"#), "/lines/0/sku"),
        (lines(&format!(r#"[{{"sku":"{huge_sku}","quantity":1}}]"#)), "/lines/0/sku"),
        (lines(r#"[{"sku":"tea","quantity":9999},{"sku":"tea","quantity":2}]"#), "/lines/1/quantity"),
        (too_many, "/lines"),
        (quantity("0"), "/lines/0/quantity"),
        (quantity("-1"), "/lines/0/quantity"),
        (quantity("1.5"), "/lines/0/quantity"),
        (quantity("10001"), "/lines/0/quantity"),
        (quantity("1e400"), "/lines/0/quantity"),
        (quantity("99999999999999999999"), "/lines/0/quantity"),
        (quantity("\"1\""), "/lines/0/quantity"),
        (quantity("true"), "/lines/0/quantity"),
        (quantity("null"), "/lines/0/quantity"),
        (quantity("[1]"), "/lines/0/quantity"),
        (with(r#""total":1"#), "/total"),
        (with(r#""status":"paid""#), "/status"),
        (with(r#""~/":1"#), "/~0~1"),
        (with(r#""note":7"#), "/note"),
        (with(&format!(r#""note":"{}""#, long(501))), "/note"),
        (with(r#""note":"\u0000""#), "/note"),
        (with(r#""reference":"a b""#), "/reference"),
        (with(r#""reference":"é""#), "/reference"),
        (with(&format!(r#""reference":"{}""#, long(65))), "/reference"),
        (with(r#""reference":["x"]"#), "/reference"),
        (with(r#""payment_method":7"#), "/payment_method"),
        (r#"{"lines":[{"sku":"tea","quantity":1}],"payment":"card"}"#.to_owned(), "/payment"),
        (r#"{"lines":[{"sku":"tea","quantity":1}],"payment":"cash"}"#.to_owned(), "/payment"),
        (r#"{"lines":[{"sku":"tea","quantity":1}],"payment":""}"#.to_owned(), "/payment"),
        (r#"{"lines":[{"sku":"tea","quantity":1}],"payment":1}"#.to_owned(), "/payment"),
    ] {
        let seen = client.order_text("k", body.clone()).await;
        assert_eq!(seen.problem(), (422, "validation-failed".into()), "{body}");
        assert!(seen.fields().contains(&field.to_owned()), "{body}: {:?} instead of {field}", seen.fields());
    }
    nothing_is_written(&shop).await;
    assert_eq!(client.order("k", &teas(1)).await.status, 201);
}

#[tokio::test]
async fn several_wrongs_are_all_named() {
    let shop = shop().await;
    let body = json!({"lines": [{"sku": "", "quantity": 0}], "payment": "gold", "colour": "red"});
    let seen = Client::of(&shop, "anna").order("k", &body).await;
    let mut fields = seen.fields();
    fields.sort();
    assert_eq!(fields, ["/colour", "/lines/0/quantity", "/lines/0/sku", "/payment"]);
}

#[tokio::test]
async fn a_body_that_is_no_json_is_malformed() {
    let shop = shop().await;
    let client = Client::of(&shop, "anna");
    let deep = "[".repeat(60_000);
    let bodies: [&[u8]; 17] = [
        b"",
        b" ",
        b"{",
        b"{]",
        b"{\"lines\":[}",
        b"{'lines':[]}",
        b"{} {}",
        b"{},",
        b"lines=1",
        b"NaN",
        b"{\"lines\":[{\"sku\":\"tea\",\"quantity\":0x10}],\"payment\":\"balance\"}",
        b"{\"lines\":[{\"sku\":\"tea\",\"quantity\":+1}],\"payment\":\"balance\"}",
        b"{\"lines\":[{\"sku\":\"tea\",\"quantity\":01}],\"payment\":\"balance\"}",
        b"{\"payment\":\"balance\",\"payment\":\"balance\"}",
        b"{\"lines\":[{\"sku\":\"t\xff\",\"quantity\":1}],\"payment\":\"balance\"}",
        b"{\"note\":\"\\ud800\"}",
        deep.as_bytes(),
    ];
    for body in bodies {
        let seen = client.order_text("k", body.to_vec()).await;
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        assert_eq!(seen.problem(), (400, "malformed-request".into()), "{shown}");
    }
    nothing_is_written(&shop).await;
    assert_eq!(client.order("k", &teas(1)).await.status, 201);
}

#[tokio::test]
async fn the_first_of_several_wrongs_is_answered_in_the_order_of_the_contract() {
    let shop = shop().await;
    let known = Client::of(&shop, "anna");
    let unknown = Client { token: "forged".into(), ..known.clone() };
    let large = || vec![b'{'; 64 * 1024 + 1];
    let (key, bad_key) = (("idempotency-key", "k"), ("idempotency-key", "a,b"));
    let (text, json) = (("content-type", "text/plain"), ("content-type", "application/json"));
    let ask = async |client: &Client, method: Method, path: &str, headers: &[(&str, &str)], body: Body| {
        client.send(method, path, headers, body).await.problem()
    };
    let post = || Method::POST;
    let answers = [
        ask(&unknown, Method::DELETE, "/api/nothing", &[bad_key, text], large().into()).await,
        ask(&known, Method::DELETE, "/api/nothing", &[bad_key, text], large().into()).await,
        ask(&known, Method::DELETE, "/api/orders/1", &[bad_key, text], large().into()).await,
        ask(&known, Method::DELETE, "/api/orders", &[bad_key, text], large().into()).await,
        ask(&known, post(), "/api/orders", &[text], large().into()).await,
        ask(&known, post(), "/api/orders", &[bad_key, text], large().into()).await,
        ask(&known, post(), "/api/orders", &[key, text], large().into()).await,
        ask(&known, post(), "/api/orders", &[key, json], large().into()).await,
        ask(&known, post(), "/api/orders", &[key, json], "{".into()).await,
        ask(&known, post(), "/api/orders", &[key, json], "{}".into()).await,
    ];
    let names = answers.map(|(status, name)| format!("{status} {name}"));
    assert_eq!(
        names,
        [
            "401 unauthenticated",
            "404 not-found",
            "404 not-found",
            "405 method-not-allowed",
            "400 idempotency-key-missing",
            "400 idempotency-key-malformed",
            "415 unsupported-media-type",
            "413 too-large",
            "400 malformed-request",
            "422 validation-failed",
        ]
    );
    nothing_is_written(&shop).await;
}

#[tokio::test]
async fn an_invalid_request_is_told_so_even_under_a_used_key() {
    let shop = shop().await;
    let client = Client::of(&shop, "anna");
    let first = client.order("k", &teas(1)).await;
    assert_eq!(client.order("k", &teas(0)).await.problem(), (422, "validation-failed".into()));
    assert!(client.order("k", &teas(1)).await.same_as(&first));
}
