//! What every request passes, whichever face it is for.

use std::any::Any;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{DefaultBodyLimit, MatchedPath, Request};
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use http_body::Frame;
use tokio::time::{Sleep, sleep};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use tracing::Instrument;
use uuid::Uuid;

use super::metrics;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest request id of a client that is kept.
const LONGEST_ID: usize = 64;
/// The largest body, in bytes.
const LARGEST_BODY: usize = 64 * 1024;
/// How long a body may take, all of it.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// The layers around a listener's routes.
pub(super) fn around(routes: Router) -> Router {
    let no_store = SetResponseHeaderLayer::if_not_present(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // The last is the outermost.
    routes
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .layer(from_fn(limit_time_of_body))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(no_store)
        .layer(from_fn(observe))
}

/// A bug outside of what the API catches itself (the panic hook has logged it). Whoever sees this may send the same
/// again: the key decides.
#[allow(clippy::needless_pass_by_value, reason = "the layer hands the cause over by value")]
fn panicked(_: Box<dyn Any + Send>) -> Response {
    const SORRY: &str = "Something broke on our side; it has been logged. Sending the same again is safe.\n";
    (StatusCode::INTERNAL_SERVER_ERROR, SORRY).into_response()
}

/// Gives each request an id, which its log lines and its answer carry, and counts it.
async fn observe(mut request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let id = request_id(&request);
    request.headers_mut().insert(REQUEST_ID, id.clone());
    let method = request.method().clone();
    // Not the path: it may hold an idempotency key.
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    let span = tracing::info_span!("request", id = id.to_str().unwrap_or_default(), %method, route);
    async {
        let mut response = next.run(request).await;
        response.headers_mut().insert(REQUEST_ID, id.clone());
        let (status, took) = (response.status().as_u16(), begun.elapsed());
        metrics::answered(route, &method, status, took);
        tracing::debug!(status, ?took, "answered");
        response
    }
    .instrument(span)
    .await
}

/// The id that came along, if it is harmless: a proxy's log can then be laid beside ours.
fn request_id(request: &Request) -> HeaderValue {
    let harmless = |id: &[u8]| {
        (1..=LONGEST_ID).contains(&id.len()) && id.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
    };
    let sent = request.headers().get(REQUEST_ID).filter(|id| harmless(id.as_bytes()));
    sent.cloned().unwrap_or_else(|| HeaderValue::try_from(Uuid::now_v7().to_string()).expect("hexadecimal and hyphens"))
}

async fn limit_time_of_body(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let timed = |body| Body::new(Timed { body, over: Box::pin(sleep(BODY_WITHIN)) });
    next.run(request.map(timed)).await
}

/// A body that fails when it takes too long. The handler then answers as to any body that broke off: a time-out layer
/// would answer 408, on which browsers send again.
struct Timed {
    body: Body,
    over: Pin<Box<Sleep>>,
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        ready!(self.over.as_mut().poll(cx));
        Poll::Ready(Some(Err(axum::Error::new("the body took too long"))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
