//! Whether the process lives, and whether it can work: for load balancers and supervisors, on both listeners.
//!
//! Without the token store the service works on (layers 2 and 3 decide alone), so that is told but is no reason to
//! take it out of service.

use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use tokio::time::timeout;

use crate::app::App;
use crate::error::RETRY_AFTER;

/// How long a dependency is waited for: less than the time-outs that load balancers come with.
const PATIENCE: Duration = Duration::from_secs(2);

/// `/healthz` and `/readyz`.
pub fn router(app: App) -> Router {
    Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).with_state(app)
}

async fn healthz() -> Response {
    Json(json!({"status": "ok"})).into_response()
}

async fn readyz(State(app): State<App>) -> Response {
    let (database, tokens) = tokio::join!(timeout(PATIENCE, app.store.ping()), timeout(PATIENCE, app.tokens.healthy()));
    let tokens = if tokens == Ok(true) { "ok" } else { "degraded" };
    if matches!(database, Ok(Ok(()))) {
        return Json(json!({"database": "ok", "tokens": tokens})).into_response();
    }
    let wait = [(header::RETRY_AFTER, RETRY_AFTER.as_secs().to_string())];
    let body = Json(json!({"database": "unreachable", "tokens": tokens}));
    (StatusCode::SERVICE_UNAVAILABLE, wait, body).into_response()
}
