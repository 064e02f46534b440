//! The running service: both faces behind one listener, the operators' behind another, the workers, and a stop that
//! finishes what was begun.
//!
//! Deliberately absent: TLS (a proxy's work) and HTTP/2 (the same proxy speaks it to browsers).

mod accept;
mod activity;
mod layers;
mod metrics;
mod ops;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower_http::compression::CompressionLayer;

use crate::api::{self, health};
use crate::app::App;
use crate::config::{Config, name};
use crate::{trial, web, worker};

/// The most connections of buyers and clients at once; further ones wait in the kernel's queue. With the operators', the
/// database's and the token store's they stay below the 1,024 file descriptors that many systems give a process.
const CONNECTIONS: usize = 900;
/// The most connections of operators.
const OPS_CONNECTIONS: usize = 50;
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
    metrics::start();
    let numbers = tokio::spawn(ops::upkeep());
    let queue = worker::start(&app, &stop);
    let routers = (main_router(&app, tries(&app, &main, queue)), ops::router(&app));
    for (word, listener) in [("listening", &main), ("ops", &ops)] {
        if let Ok(address) = listener.local_addr() {
            tracing::info!("{word} on http://{address}");
        }
    }
    if let (true, Ok(address)) = (app.config.try_page, main.local_addr()) {
        tracing::info!("every way to send twice can be tried at http://{address}/try");
    }
    tokio::join!(
        accept::serve(main, routers.0, CONNECTIONS, &stop),
        accept::serve(ops, routers.1, OPS_CONNECTIONS, &stop)
    );
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

/// `/try`, where it is wanted.
fn tries(app: &App, main: &TcpListener, queue: worker::Again) -> Option<Router> {
    let listening = main.local_addr().ok().filter(|_| app.config.try_page)?;
    Some(trial::router(app.clone(), listening, queue))
}

/// Both faces. What the pages do not know either is answered by their fallback; the API leaves nothing under `/api` to it.
fn main_router(app: &App, tries: Option<Router>) -> Router {
    let problems = api::problem_pages().layer(from_fn(web::dress));
    let pages = health::router(app.clone()).merge(problems).merge(web::router(app.clone()));
    let pages = pages.merge(tries.unwrap_or_default());
    layers::around(api::router(app.clone()).merge(pages.layer(CompressionLayer::new())))
}
