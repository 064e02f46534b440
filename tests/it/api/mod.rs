//! The JSON face, asked through its router. Every answer that a test sees is held against the description and, where it
//! is an error, against the table of problems.

mod placing;
mod reading;
mod repeating;
mod wishes;
mod wrongs;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use bytes::Bytes;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use oncegate::api::problem::Problem;
use oncegate::api::{self, openapi};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::harness::goods::product;
use crate::harness::shop::{JWT_SECRET, Shop};

/// A shop with ten cups at 3.00 and a thousand teas at 15.00.
async fn shop() -> Shop {
    Shop::open(&[product("cup", 300, 10), product("tea", 1500, 1000)]).await
}

fn token(sub: &str) -> String {
    token_of(sub, None)
}

fn token_of(sub: &str, role: Option<&str>) -> String {
    let claims = json!({"sub": sub, "role": role, "exp": time::OffsetDateTime::now_utc().unix_timestamp() + 600});
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(JWT_SECRET).unwrap())
        .unwrap()
}

/// Somebody with a token.
#[derive(Clone)]
struct Client {
    router: Router,
    token: String,
}

/// An answer, read to its end.
#[derive(Clone, Debug)]
struct Seen {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Client {
    fn of(shop: &Shop, sub: &str) -> Self {
        Self { router: api::router(shop.app.clone()), token: token(sub) }
    }

    /// Sends this request with these headers and the token.
    async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Seen {
        let mut request = Request::builder().method(method.clone()).uri(path);
        request = request.header("authorization", format!("Bearer {}", self.token));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.router.clone().oneshot(request.body(body.into()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        let seen = Seen { status: parts.status, headers: parts.headers, body };
        seen.is_described(&method, path);
        seen.is_a_problem_of_the_table(path);
        seen
    }

    async fn get(&self, path: &str) -> Seen {
        self.send(Method::GET, path, &[], Body::empty()).await
    }

    /// Orders under this key.
    async fn order(&self, key: &str, body: &Value) -> Seen {
        self.order_text(key, body.to_string()).await
    }

    async fn order_text(&self, key: &str, body: impl Into<Body>) -> Seen {
        let headers = [("idempotency-key", key), ("content-type", "application/json")];
        self.send(Method::POST, "/api/orders", &headers, body).await
    }
}

impl Seen {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    fn replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// Status and name of a problem.
    fn problem(&self) -> (u16, String) {
        let kind = self.json()["type"].as_str().unwrap_or("no problem").to_owned();
        (self.status.as_u16(), kind.trim_start_matches("/problems/").to_owned())
    }

    /// The wrong fields in their order.
    fn fields(&self) -> Vec<String> {
        let errors = self.json()["errors"].as_array().cloned().unwrap_or_default();
        errors.iter().map(|error| error["field"].as_str().unwrap().to_owned()).collect()
    }

    /// What a repeat must have in common with the first answer.
    fn same_as(&self, first: &Self) -> bool {
        let kept = |seen: &Self| ["content-type", "location"].map(|name| seen.header(name).map(str::to_owned));
        (self.status, &self.body, kept(self)) == (first.status, &first.body, kept(first))
    }

    /// The description names this status for this operation. What belongs to no operation (an unknown path, a wrong
    /// method) is described for all in its introduction.
    fn is_described(&self, method: &Method, path: &str) {
        let path = path.split('?').next().unwrap();
        let template = match path.strip_prefix("/api/orders/").map(|rest| rest.split_once('/')) {
            Some(Some((_, what))) => format!("/api/orders/{{id}}/{what}"),
            Some(None) => "/api/orders/{id}".to_owned(),
            None => path.to_owned(),
        };
        let operation = &openapi::description()["paths"][template][method.as_str().to_lowercase()];
        if operation.is_null() {
            assert!([401, 404, 405].contains(&self.status.as_u16()), "{method} {path} is not described");
            return;
        }
        let described = &operation["responses"][self.status.as_str()];
        assert!(!described.is_null(), "{method} {path}: {} is not described", self.status);
        let content_type = self.header("content-type").unwrap();
        assert!(!described["content"][content_type].is_null(), "{method} {path}: {content_type} is not described");
        for name in ["Location", "Idempotent-Replayed", "Retry-After", "WWW-Authenticate"] {
            let described = !described["headers"][name].is_null();
            assert!(
                described || self.header(name).is_none(),
                "{method} {path} {}: {name} is not described",
                self.status
            );
        }
    }

    fn is_a_problem_of_the_table(&self, path: &str) {
        if self.status.is_success() {
            assert_eq!(self.header("content-type"), Some("application/json"));
            return;
        }
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let document = self.json();
        let problem = Problem::parse(&self.problem().1).unwrap_or_else(|| panic!("unknown: {document}"));
        assert_eq!(document["status"], self.status.as_u16());
        assert_eq!(problem.status(), self.status);
        assert_eq!(document["title"], problem.title());
        assert_eq!(document["retryable"], problem.retryable());
        assert_eq!(document["instance"], path.split('?').next().unwrap());
        assert!(document["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
        assert_eq!(self.header("retry-after").is_some(), problem == Problem::InProgress || self.status == 503);
    }
}

/// An order of this many teas.
fn teas(quantity: u32) -> Value {
    json!({"lines": [{"sku": "tea", "quantity": quantity}], "payment": "balance"})
}
