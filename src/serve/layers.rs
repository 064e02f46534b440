//! What every request passes, whichever face it is for.
//!
//! Deliberately absent: a limit on a body's size. Each face refuses in its own format.

use std::any::Any;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{MatchedPath, Request};
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
/// How long a body may take, all of it.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// The layers around a listener's routes.
pub(super) fn around(routes: Router) -> Router {
    let no_store = SetResponseHeaderLayer::if_not_present(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // The last is the outermost.
    routes
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

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use axum::routing::{get, post};
    use tokio_util::io::ReaderStream;
    use tower::ServiceExt;

    use super::*;

    fn routes() -> Router {
        let routes = Router::new()
            .route(
                "/id",
                get(async |request: Request| request.headers()[REQUEST_ID].clone().to_str().unwrap().to_owned()),
            )
            .route("/cached", get(async || ([(CACHE_CONTROL, "max-age=60")], "kept")))
            .route("/bug", get(async || -> StatusCode { panic!("a bug with hunter2 in it") }))
            .route("/length", post(async |body: Bytes| body.len().to_string()));
        around(routes)
    }

    async fn ask(request: Request) -> Response {
        routes().oneshot(request).await.unwrap()
    }

    fn get_with_id(id: &[u8]) -> Request {
        let mut request = Request::get("/id").body(Body::empty()).unwrap();
        request.headers_mut().append(REQUEST_ID, HeaderValue::from_bytes(id).unwrap());
        request
    }

    async fn text(response: Response) -> String {
        String::from_utf8(to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_request_id_that_came_along_is_kept_when_it_is_harmless() {
        let response = ask(get_with_id(b"abc-123_4.5")).await;
        assert_eq!(response.headers()[REQUEST_ID], "abc-123_4.5");
        assert_eq!(text(response).await, "abc-123_4.5");
    }

    #[tokio::test]
    async fn any_other_request_id_is_replaced() {
        let long = [b'a'; LONGEST_ID + 1];
        for id in [&b""[..], b"a b", b"<script>", b"\xff", &long] {
            let response = ask(get_with_id(id)).await;
            let made = response.headers()[REQUEST_ID].to_str().unwrap().to_owned();
            assert!(Uuid::try_parse(&made).is_ok(), "{made}");
            assert_eq!(text(response).await, made);
        }
    }

    #[tokio::test]
    async fn nothing_is_kept_by_a_cache_unless_its_handler_says_so() {
        for (path, control) in [("/id", "no-store"), ("/nowhere", "no-store"), ("/cached", "max-age=60")] {
            let response = ask(Request::get(path).body(Body::empty()).unwrap()).await;
            assert_eq!(response.headers()[CACHE_CONTROL], control, "{path}");
        }
    }

    #[tokio::test]
    async fn a_bug_is_a_500_that_tells_nothing() {
        let response = ask(Request::get("/bug").body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), 500);
        assert!(!text(response).await.contains("hunter2"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_for_too_long_fails_without_408() {
        let (mut client, server) = tokio::io::duplex(1);
        let drip = tokio::spawn(async move {
            for _ in 0..40 {
                if tokio::io::AsyncWriteExt::write_all(&mut client, b"x").await.is_err() {
                    return;
                }
                sleep(BODY_WITHIN / 20).await;
            }
        });
        let begun = tokio::time::Instant::now();
        let response = ask(Request::post("/length").body(Body::from_stream(ReaderStream::new(server))).unwrap()).await;
        assert_eq!(response.status(), 400);
        assert_eq!(begun.elapsed().as_secs(), BODY_WITHIN.as_secs());
        drip.await.unwrap();
    }
}
