//! The account of the token.

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};

use super::Api;
use super::auth::Caller;
use super::failure::Failure;
use super::view::{AccountBody, CouponBody};
use crate::store::shop_currency;

/// `GET /api/account`: opens it, if need be.
///
/// # Errors
/// Why there is no answer.
pub async fn show(State(api): State<Api>, Extension(caller): Extension<Caller>) -> Result<Response, Failure> {
    let app = api.app.clone();
    let work = async move {
        let account = app.account(&caller.subject).await?;
        let currency = shop_currency(&app.catalogue().await?);
        Ok((app.store.balance(account).await?, currency, app.store.coupons(account).await?))
    };
    let (balance, currency, coupons) = api.read(work).await?;
    let coupons = coupons.iter().map(CouponBody::of).collect();
    Ok(Json(AccountBody { balance, currency: currency.as_str(), coupons }).into_response())
}
