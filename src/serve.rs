//! The running service: both faces behind one listener, the operators' behind another, and a stop that finishes what
//! was begun.
//!
//! Deliberately absent: TLS (a proxy's work) and HTTP/2 (the same proxy speaks it to browsers).

mod accept;
mod layers;
mod metrics;
mod ops;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tower_http::compression::CompressionLayer;

use crate::api;
use crate::app::App;
use crate::config::{Config, name};

/// How long a stop waits for work that outlives its caller, after the connections: both together stay below the 30 s
/// after which an operator's patience, or the supervisor's, ends.
const WORK_WITHIN: Duration = Duration::from_secs(15);
/// How long a stop waits for the database to say goodbye.
const CLOSE_WITHIN: Duration = Duration::from_secs(3);

/// An address that cannot be listened on.
#[derive(Debug, Error)]
#[error("{name}: cannot listen on {address}: {error}")]
pub struct BindError {
    name: &'static str,
    address: SocketAddr,
    error: std::io::Error,
}

/// Both listeners, open.
pub struct Listeners {
    main: TcpListener,
    ops: TcpListener,
}

impl Listeners {
    /// Opens both.
    ///
    /// # Errors
    /// When an address is taken or not ours.
    pub async fn bind(config: &Config) -> Result<Self, BindError> {
        let open =
            async |name, address| TcpListener::bind(address).await.map_err(|error| BindError { name, address, error });
        Ok(Self {
            main: open(name::LISTEN, config.listen).await?,
            ops: open(name::OPS_LISTEN, config.ops_listen).await?,
        })
    }
}

/// Serves until `stop`; then finishes what was begun, as far as the time allows, and closes the store.
pub async fn run(listeners: Listeners, app: App, stop: CancellationToken) {
    let Listeners { main, ops } = listeners;
    let numbers = tokio::spawn(ops::upkeep());
    let routers = (main_router(&app), ops::router(&app));
    for (word, listener) in [("listening", &main), ("ops", &ops)] {
        if let Ok(address) = listener.local_addr() {
            tracing::info!("{word} on http://{address}");
        }
    }
    tokio::join!(accept::serve(main, routers.0, &stop), accept::serve(ops, routers.1, &stop));
    app.tasks.close();
    if timeout(WORK_WITHIN, app.tasks.wait()).await.is_err() {
        tracing::warn!("{} pieces of work are cut off; their leases let a retry finish them", app.tasks.len());
    }
    if timeout(CLOSE_WITHIN, app.store.close()).await.is_err() {
        tracing::warn!("the database did not close in time");
    }
    numbers.abort();
    tracing::info!("stopped");
}

/// Both faces: paths under `/api` are the API's, whose own fallback answers there; all others are the pages'.
fn main_router(app: &App) -> Router {
    let api = layers::around(Router::new(), api_panicked);
    let pages = layers::around(api::health::router(app.clone()).layer(CompressionLayer::new()), page_panicked);
    pages.layer(from_fn_with_state(api, choose_face))
}

async fn choose_face(State(api): State<Router>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if path != "/api" && !path.starts_with("/api/") {
        return next.run(request).await;
    }
    match api.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

fn api_panicked() -> Response {
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

fn page_panicked() -> Response {
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}
