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

/// Serves at most `most` connections at once, until `stop`; then takes no further one and waits a while for the answers
/// that are under way.
pub(super) async fn serve(listener: TcpListener, router: Router, most: usize, stop: &CancellationToken) {
    let server = server();
    let places = Arc::new(Semaphore::new(most));
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
            tracing::warn!("{} connections were still open and are cut", most - places.available_permits());
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

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_connection_past_the_limit_waits_until_another_has_ended() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let router = Router::new().route("/", get(async || "served"));
        let stopped = stop.clone();
        let server = tokio::spawn(async move { serve(listener, router, 1, &stopped).await });

        let mut first = TcpStream::connect(address).await.unwrap();
        first.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        assert!(first.read(&mut [0; 1024]).await.unwrap() > 0);
        let mut second = TcpStream::connect(address).await.unwrap();
        second.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let early = tokio::time::timeout(Duration::from_millis(100), second.read_u8()).await;
        assert!(early.is_err(), "the first connection is still open");
        drop(first);
        let mut answer = String::new();
        second.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("served"), "{answer}");

        stop.cancel();
        server.await.unwrap();
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[tokio::test]
    async fn a_client_that_says_no_more_still_gets_its_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let router = Router::new().route("/", get(async || "served"));
        let stop = CancellationToken::new();
        let serving = serve(listener, router, 1, &stop);
        let asking = async {
            client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
            client.shutdown().await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            stop.cancel();
            answer
        };
        assert!(tokio::join!(serving, asking).1.ends_with("served"));
    }
}
