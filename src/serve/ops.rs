//! The operators' listener.

use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::time::interval;

use super::{activity, layers, metrics};
use crate::api::health;
use crate::app::App;
use crate::web::assets;

/// The format's media type.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
/// How often the numbers are tidied; without it, samples between two visits of Prometheus pile up.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// `/metrics` and `/activity`, and the same health routes and files as for everybody.
pub(super) fn router(app: &App) -> Router {
    let routes = health::router(app.clone())
        .route("/metrics", get(numbers))
        .route("/activity", get(activity::show))
        .route("/static/{*name}", get(assets::serve))
        .fallback(async || (StatusCode::NOT_FOUND, "Not here. There is /activity, /metrics, /healthz and /readyz.\n"));
    layers::around(routes)
}

async fn numbers() -> Response {
    ([(header::CONTENT_TYPE, PROMETHEUS)], metrics::handle().render()).into_response()
}

/// Tidies the numbers, for ever.
pub(super) async fn upkeep() {
    let mut times = interval(UPKEEP_EVERY);
    loop {
        times.tick().await;
        metrics::handle().run_upkeep();
    }
}
