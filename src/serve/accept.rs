//! One listener: connections in, a router behind them, and a stop that answers what is under way.
//!
//! `axum::serve` sets neither a limit on connections nor a time-out on request heads, and its graceful stop waits for ever
//! for a client that has sent half a request.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The most connections at once; further ones wait in the kernel's queue. Below the 1,024 file descriptors that many
/// systems give a process.
const CONNECTIONS: usize = 900;
/// How long a request's head may take. hyper counts from the end of the answer before it, so this is also how long an idle
/// connection is kept.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// The most header lines.
const HEADERS: usize = 100;
/// Read buffer of a connection, and with it the longest head.
const BUFFER: usize = 64 * 1024;
/// How long a stop waits for answers that are under way.
const DRAIN_WITHIN: Duration = Duration::from_secs(10);
/// Pause after a failed accept: without free file descriptors the next try fails as fast.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stop`, then takes no further connection and waits a while for the answers that are under way.
pub(super) async fn serve(listener: TcpListener, router: Router, stop: &CancellationToken) {
    let server = server();
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let connections = GracefulShutdown::new();
    loop {
        let (stream, place) = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = accept(&listener, &places) => accepted,
        };
        let service = TowerToHyperService::new(router.clone());
        let connection = server.serve_connection(TokioIo::new(stream), service).into_owned();
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("connection: {error}");
            }
            drop(place);
        });
    }
    drop(listener);
    tokio::select! {
        () = connections.shutdown() => {}
        () = sleep(DRAIN_WITHIN) => {
            tracing::warn!("{} connections were still open and are cut", CONNECTIONS - places.available_permits());
        }
    }
}

fn server() -> Builder<TokioExecutor> {
    let mut server = Builder::new(TokioExecutor::new()).http1_only();
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_headers(HEADERS)
        .max_buf_size(BUFFER)
        // A client that has said all it will say still reads the answer.
        .half_close(true);
    server
}

async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> (TcpStream, OwnedSemaphorePermit) {
    let place = places.clone().acquire_owned().await.expect("never closed");
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Answers are written whole: waiting to fill a packet only delays them.
                let _ = stream.set_nodelay(true);
                return (stream, place);
            }
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
