//! The JSON face: orders, products and the account, for clients with a bearer token.
//!
//! A request goes through three layers: [`failure::describe`] writes the document of whatever fails inside, a panic becomes
//! a 500, and [`auth::authenticate`] lets only known callers pass, so that 401 comes before 404 and 405. What a
//! handler asks of the shop runs in a task of its own ([`Api::run`]): a client that leaves cuts nothing.
//!
//! Deliberately absent: anything that decides. Both faces call the same `order::request` and the same `checkout::place`;
//! here is only how this one reads and answers. `serve` adds what both faces need: request ids, `no-store`, and a bound
//! on how long a body may take.

pub mod account;
pub mod answer;
pub mod auth;
pub mod bearer;
pub mod callback;
pub mod conclude;
pub mod docs;
pub mod extract;
pub mod failure;
pub mod health;
pub mod openapi;
pub mod orders;
pub mod pages;
pub mod problem;
pub mod products;
pub mod view;
pub mod wishes;

use std::any::Any;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use tower_http::catch_panic::CatchPanicLayer;

pub use answer::render;
pub use conclude::ANSWERS;

use crate::app::App;
use crate::error::{Error, RETRY_AFTER, Result};
use failure::Failure;
use problem::Problem;

/// What the handlers share.
#[derive(Clone)]
pub struct Api {
    /// The service.
    pub app: App,
}

impl Api {
    /// Runs work for a caller: in a task of its own, and no longer than the deadline and `wait` (time that the caller
    /// itself wants to wait) before the answer is 503. The task goes on.
    ///
    /// # Errors
    /// What the work failed of, or that it is not done in time.
    pub async fn run<T: Send + 'static>(
        &self,
        wait: Duration,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> std::result::Result<T, Failure> {
        let config = &self.app.config;
        let outcome = match tokio::time::timeout(config.work_deadline() + wait, self.app.spawn(work)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(died)) => Err(Error::Internal(died.to_string())),
            Err(_) => Err(Error::Unavailable {
                retry_after: RETRY_AFTER,
                reason: "the work's deadline has passed".to_owned(),
            }),
        };
        outcome.map_err(|error| Failure::of(error, config.lease))
    }

    /// [`Api::run`] for what is only looked at.
    ///
    /// # Errors
    /// What the work failed of, or that it is not done in time.
    pub async fn read<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> std::result::Result<T, Failure> {
        self.run(Duration::ZERO, work).await
    }
}

/// Everything under `/api`.
///
/// # Panics
/// When the key for bearer tokens cannot be used, which `config` has ruled out.
pub fn router(app: App) -> Router {
    let verifier = auth::Verifier::new(&app.config.jwt).expect("the settings were checked with the same functions");
    let known_callers = Router::new()
        .route("/api/orders", get(orders::list).post(orders::place))
        .route("/api/orders/{id}", get(orders::one).fallback(orders::one_otherwise))
        .route("/api/orders/{id}/cancel", post(wishes::cancel).fallback(orders::one_otherwise))
        .route("/api/orders/{id}/pay", post(wishes::pay).fallback(orders::one_otherwise))
        .route("/api/orders/{id}/ship", post(wishes::ship).fallback(wishes::ship_otherwise))
        .route("/api/products", get(products::list))
        .route("/api/account", get(account::show))
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(Api { app: app.clone() });
    let provider = Router::new()
        .route("/api/payments/callback", post(callback::take))
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(Api { app });
    faced(known_callers, provider, verifier)
}

/// The pages that explain the problems, for people, hence outside `/api`.
pub fn problem_pages() -> Router {
    Router::new().route("/problems/{name}", get(pages::problem))
}

/// Adds what is there for everybody, what is not there at all, and the layers.
fn faced(known_callers: Router, provider: Router, verifier: auth::Verifier) -> Router {
    let open = Router::new()
        .route("/api/openapi.json", get(|| async { Json(openapi::description()) }))
        .route("/api/docs", get(docs::page))
        .route("/api/docs/{file}", get(docs::file))
        .method_not_allowed_fallback(method_not_allowed);
    ["/api", "/api/", "/api/{*rest}"]
        .into_iter()
        .fold(known_callers, |router, path| router.route(path, any(not_found)))
        .layer(from_fn_with_state(Arc::new(verifier), auth::authenticate))
        .merge(open.merge(provider))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn(failure::describe))
}

async fn not_found() -> Failure {
    Failure::not_found()
}

async fn method_not_allowed() -> Failure {
    Failure::new(Problem::MethodNotAllowed, "See the Allow header for the methods of this path.")
}

/// Inside [`failure::describe`], which knows the path; the panic around the whole service, in `serve`, does not.
#[allow(clippy::needless_pass_by_value, reason = "the layer hands the cause over by value")]
fn panicked(cause: Box<dyn Any + Send>) -> Response {
    let said = cause.downcast_ref::<String>().map(String::as_str).or_else(|| cause.downcast_ref().copied());
    Failure::internal(&format!("a handler panicked: {}", said.unwrap_or("no message"))).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::extract::Request;
    use axum::http::{HeaderValue, Method, StatusCode};
    use axum::routing::post;
    use serde_json::Value;
    use tower::ServiceExt;

    use super::*;

    /// The layers around handlers that need no shop.
    fn face() -> Router {
        let known_callers = Router::new()
            .route(
                "/api/echo",
                post(|request: Request| async { extract::submission(request).await.map(|read| read.body) }),
            )
            .route("/api/panic", get(panics))
            .method_not_allowed_fallback(method_not_allowed);
        let verifier = auth::Verifier::new(&auth::tests::secret()).unwrap();
        faced(known_callers, Router::new(), verifier).merge(problem_pages())
    }

    async fn panics() -> StatusCode {
        panic!("a bug with the password hunter2")
    }

    async fn ask(method: Method, path: &str, token: bool) -> Response {
        let mut request = Request::builder().method(method).uri(path);
        if token {
            let token = auth::tests::token("test");
            request = request.header("authorization", format!("Bearer {token}"));
        }
        face().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    async fn text(response: Response) -> String {
        String::from_utf8(to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec()).unwrap()
    }

    async fn document(response: Response) -> Value {
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        serde_json::from_str(&text(response).await).unwrap()
    }

    #[tokio::test]
    async fn who_is_not_known_learns_nothing_of_what_is_there() {
        for (method, path) in [(Method::POST, "/api/echo"), (Method::GET, "/api/echo"), (Method::GET, "/api/nothing")] {
            let response = ask(method, path, false).await;
            assert_eq!(response.status(), 401);
            assert_eq!(response.headers()["www-authenticate"], r#"Bearer realm="oncegate""#);
            let document = document(response).await;
            assert_eq!(
                (document["type"].as_str(), document["instance"].as_str()),
                (Some("/problems/unauthenticated"), Some(path))
            );
        }
    }

    #[tokio::test]
    async fn an_unknown_path_is_404_whatever_the_method_and_a_wrong_method_names_the_right_ones() {
        for path in ["/api", "/api/", "/api/nothing", "/api/echo/", "/api/echo/more", "/api/%ff", "/api/docs/"] {
            for method in [Method::GET, Method::POST, Method::DELETE] {
                let document = document(ask(method, path, true).await).await;
                assert_eq!((document["status"].as_u64(), document["instance"].as_str()), (Some(404), Some(path)));
            }
        }
        let response = ask(Method::DELETE, "/api/echo", true).await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["allow"]),
            (405, &HeaderValue::from_static("POST"))
        );
        assert_eq!(document(response).await["type"], "/problems/method-not-allowed");
    }

    #[tokio::test]
    async fn a_panic_is_a_500_that_tells_nothing() {
        let response = ask(Method::GET, "/api/panic", true).await;
        assert_eq!(response.status(), 500);
        let document = document(response).await;
        assert_eq!((&document["type"], &document["retryable"]), (&"/problems/internal".into(), &true.into()));
        assert!(!document.to_string().contains("hunter2"));
    }

    #[tokio::test]
    async fn every_problem_has_a_page_that_explains_it() {
        for problem in Problem::ALL {
            let response = ask(Method::GET, &problem.uri(), false).await;
            assert_eq!(
                (response.status(), &response.headers()["content-type"]),
                (StatusCode::OK, &HeaderValue::from_static("text/html; charset=utf-8"))
            );
            assert!(text(response).await.contains(problem.name()));
        }
        assert_eq!(ask(Method::GET, "/problems/%3Cscript%3E", false).await.status(), 404);
        assert_eq!(ask(Method::GET, "/problems/%ff", false).await.status(), 404);
    }

    #[tokio::test]
    async fn the_page_to_read_the_description_runs_no_inline_script_and_asks_no_other_host() {
        let response = ask(Method::GET, "/api/docs", false).await;
        assert_eq!(response.status(), 200);
        let policy = response.headers()["content-security-policy"].to_str().unwrap().to_owned();
        assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self';"), "{policy}");
        let page = text(response).await;
        assert!(!page.contains("://"));
        for script in page.split("<script").skip(1) {
            assert!(script.contains("src=\"/api/docs/") && script.contains("></script>"), "{script}");
        }
        let files = page.split(['"']).filter(|part| part.starts_with("/api/docs/"));
        let mut count = 0;
        for file in files {
            assert_eq!(ask(Method::GET, file, false).await.status(), 200, "{file}");
            count += 1;
        }
        assert_eq!(count, 6);
        let start = text(ask(Method::GET, "/api/docs/swagger-initializer.js", false).await).await;
        assert!(start.contains("\"/api/openapi.json\"") && start.contains("\"validatorUrl\": \"none\""), "{start}");
        assert_eq!(ask(Method::GET, "/api/docs/oauth2-redirect.html", false).await.status(), 404);
    }

    #[tokio::test]
    async fn the_description_needs_no_token() {
        let response = ask(Method::GET, "/api/openapi.json", false).await;
        assert_eq!(
            (response.status(), &response.headers()["content-type"]),
            (StatusCode::OK, &HeaderValue::from_static("application/json"))
        );
        assert_eq!(ask(Method::POST, "/api/openapi.json", false).await.status(), 405);
    }
}
