//! `POST /api/payments/callback`: what the payment provider tells of its own accord. Its signature, not a bearer token, says
//! who calls; what is taken is answered 200, so that it does not come again, and what cannot be taken yet is not.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use secrecy::ExposeSecret;
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::failure::Failure;
use super::problem::Problem;
use super::{Api, extract};
use crate::checkout::callback;
use crate::payment::{event, signature};

/// The header that signs a callback.
pub const SIGNATURE: &str = "stripe-signature";

/// The answer to a callback that was taken.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[schema(as = Received)]
pub struct ReceivedBody {
    /// Always true.
    received: bool,
}

/// Takes one callback.
///
/// # Errors
/// `not-found` where the shop has no provider, or knows no such order or attempt; `too-large`; `signature-invalid`;
/// `malformed-request`; or why it could not be taken now.
pub async fn take(State(api): State<Api>, request: Request) -> Result<Response, Failure> {
    let gateway = api.app.config.gateway.as_ref().ok_or_else(Failure::not_found)?;
    let (parts, body) = request.into_parts();
    let body = extract::whole_body(body).await?;
    let secret = gateway.webhook_secret.expose_secret();
    let now = OffsetDateTime::now_utc().unix_timestamp();
    signature::verify(secret, header(&parts.headers), &body, now)
        .map_err(|why| Failure::new(Problem::SignatureInvalid, format!("Not taken: {why}.")))?;
    let event = event::read(&body)
        .map_err(|why| Failure::new(Problem::Malformed, format!("The event cannot be read: {why}.")))?;
    let app = api.app.clone();
    let taken = api.read(async move { callback::take(&app, event).await }).await?;
    tracing::debug!(?taken, "a callback");
    Ok(Json(ReceivedBody { received: true }).into_response())
}

/// The one signature header; none where there are several, as no provider sends that.
fn header(headers: &HeaderMap) -> &str {
    let mut lines = headers.get_all(SIGNATURE).iter();
    match (lines.next(), lines.next()) {
        (Some(line), None) => line.to_str().unwrap_or_default(),
        _ => "",
    }
}
