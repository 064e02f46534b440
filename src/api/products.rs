//! The catalogue.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};

use super::Api;
use super::failure::Failure;
use super::view::ProductBody;

/// `GET /api/products`.
///
/// # Errors
/// Why there is no answer.
pub async fn list(State(api): State<Api>) -> Result<Response, Failure> {
    let app = api.app.clone();
    let products = api.read(async move { app.catalogue().await }).await?;
    Ok(Json(products.iter().map(ProductBody::of).collect::<Vec<_>>()).into_response())
}
