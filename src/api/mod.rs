//! The JSON face: orders, products and the account, for clients with a bearer token.
//!
//! A request goes through three layers: [`failure::describe`] writes the document of whatever fails inside, a panic becomes
//! a 500, and [`auth::authenticate`] lets only known callers pass, so that 401 comes before 404 and 405. What a
//! handler asks of the shop runs in a task of its own ([`Api::run`]): a client that leaves cuts nothing.
//!
//! Deliberately absent: anything that decides. Both faces call the same `order::request` and the same
//! `checkout::place`; here is only how this one reads and answers.

pub mod account;
pub mod answer;
pub mod auth;
pub mod docs;
pub mod extract;
pub mod failure;
pub mod openapi;
pub mod orders;
pub mod pages;
pub mod problem;
pub mod products;
pub mod view;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::header::CACHE_CONTROL;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Json, Router};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::set_header::SetResponseHeaderLayer;

pub use answer::render;

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

/// Everything under `/api`, and the pages of `/problems`.
///
/// # Errors
/// When the key for bearer tokens cannot be used.
pub fn router(app: App) -> std::result::Result<Router, auth::KeyError> {
    let verifier = Arc::new(auth::Verifier::new(&app.config.jwt)?);
    let known_callers = Router::new()
        .route("/api/orders", get(orders::list).post(orders::place))
        .route("/api/orders/{id}", get(orders::one).fallback(orders::one_otherwise))
        .route("/api/products", get(products::list))
        .route("/api/account", get(account::show))
        .method_not_allowed_fallback(method_not_allowed)
        .route("/api", any(not_found))
        .route("/api/", any(not_found))
        .route("/api/{*rest}", any(not_found))
        .with_state(Api { app });
    Ok(faced(known_callers, verifier))
}

/// Adds the layers, and what needs no token.
fn faced(known_callers: Router, verifier: Arc<auth::Verifier>) -> Router {
    let no_store = SetResponseHeaderLayer::if_not_present(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let open = Router::new()
        .route("/api/openapi.json", get(|| async { Json(openapi::description()) }))
        .route("/api/docs", get(docs::page))
        .route("/api/docs/{file}", get(docs::file))
        .method_not_allowed_fallback(method_not_allowed);
    known_callers
        .layer(from_fn_with_state(verifier, auth::authenticate))
        .layer(no_store)
        .merge(open)
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn(failure::describe))
        .route("/problems/{name}", get(pages::problem))
}

async fn not_found() -> Failure {
    Failure::not_found()
}

async fn method_not_allowed() -> Failure {
    Failure::new(Problem::MethodNotAllowed, "See the Allow header for the methods of this path.")
}

#[allow(clippy::needless_pass_by_value, reason = "the layer hands the panic over by value")]
fn panicked(_: Box<dyn std::any::Any + Send>) -> Response {
    Failure::internal("a handler panicked; see the message before this one").into_response()
}
