//! The HTML face: server-rendered pages that work without a script.
//!
//! A submission goes `form` → `draft` (what was typed) → `order::request` → `submit` → `walk` (the token table) → `checkout`, and
//! comes back as a redirect or, by `shelf` and `notice`, as the form again. The forms of an order that stands go through
//! `wishes` by the same table, and always back to the order, which says by `said` what happened. `session` knows the visitor, `language` their
//! tongue, `origin` keeps forms of other sites out. Deliberately absent: what an order costs or whether it may be placed.

pub mod assets;
pub mod attempts;
pub mod draft;
pub mod form;
pub mod language;
pub mod notice;
pub mod orders;
pub mod origin;
pub mod pages;
pub mod said;
pub mod session;
pub mod shelf;
pub mod submit;
pub mod walk;
pub mod wishes;
pub mod words;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};

use crate::app::App;
use crate::error::RETRY_AFTER;

use pages::Message;

/// The largest body that is read.
const BODY_LIMIT: usize = 64 * 1024;
/// Nothing from elsewhere, nothing inline, no frames. `connect-src` is for the form's script, which sends it.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; \
                              img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Every page, with its own answers for what is not there.
pub fn router(app: App) -> Router {
    Router::new()
        .route("/", get(|| async { Redirect::to("/orders/new") }))
        .route("/orders/new", get(form::show))
        .route("/orders", get(orders::list).post(form::post))
        .route("/orders/attempts/{key}", get(attempts::show))
        .route("/orders/{id}", get(orders::show))
        .route("/orders/{id}/cancel", post(wishes::cancel))
        .route("/orders/{id}/pay", post(wishes::pay))
        .route("/form-tokens", post(form::token))
        .route("/static/{*name}", get(assets::serve))
        .fallback(|| async { Message::NotFound })
        .method_not_allowed_fallback(|| async { Message::MethodNotAllowed })
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(from_fn_with_state(app.clone(), origin::check))
        .layer(from_fn_with_state(app.clone(), patience))
        .layer(session::layer(&app))
        .layer(from_fn(dress))
        .layer(from_fn_with_state(app.clone(), language::speak))
        .with_state(app)
}

/// A page that is only read is answered 503 when a dependency stays silent. A submission has its own deadline: its page
/// gives back what was typed.
async fn patience(State(app): State<App>, request: Request, next: Next) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    match tokio::time::timeout(app.config.work_deadline(), next.run(request)).await {
        Ok(response) => response,
        Err(_) => Message::Unavailable(RETRY_AFTER).into_response(),
    }
}

/// The headers of every page. `same-origin` rather than `no-referrer`, with which browsers send `Origin: null`.
pub async fn dress(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if response.status() == StatusCode::INTERNAL_SERVER_ERROR && !response.headers().contains_key(CONTENT_TYPE) {
        // What tower-sessions answers in place of a page whose session could not be saved.
        response = Message::Unavailable(RETRY_AFTER).into_response();
    }
    let headers = response.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    response
}
