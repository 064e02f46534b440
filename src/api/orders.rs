//! Placing orders and looking at them.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, RawQuery, Request, State};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::answer;
use super::auth::Caller;
use super::extract::{self, Submission};
use super::failure::Failure;
use super::view::{OrderBody, OrderListBody};
use super::{Api, method_not_allowed};
use crate::checkout::place::{self, Intent};
use crate::error::Error;
use crate::order::Order;
use crate::order::request::{self, Wrong};
use crate::order::values::OrderId;

/// Orders on one page when the client does not say.
const PAGE: u32 = 20;
/// The most orders on one page.
const MAX_PAGE: u32 = 100;

/// `POST /api/orders`.
///
/// # Errors
/// Whatever is wrong with the request, or why there is no answer; a refusal is an answer.
pub async fn place(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Failure> {
    let Submission { key, body } = extract::submission(request).await?;
    let request = request::from_json(&body, api.app.config.gateway.is_some())?;
    let app = api.app.clone();
    let wait = app.config.api_wait;
    let work = async move {
        place::check_prices(&app, Some(&caller.subject), Some(&key), &request).await?;
        let account = app.account(&caller.subject).await?;
        place::place(&app, Intent { account, key, request, ask_before_repeat: false }, wait).await
    };
    answer::give(api.run(wait, work).await?)
}

/// `GET /api/orders/{id}`.
///
/// # Errors
/// `not-found`, also for another account's order; or why there is no answer.
pub async fn one(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Failure> {
    let order = find(&api, caller, id).await?;
    Ok(Json(OrderBody::of(&order)).into_response())
}

/// Any other method on an order: where there is no such order, that is said first.
///
/// # Errors
/// Always.
pub async fn one_otherwise(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Failure> {
    find(&api, caller, id).await?;
    Err(method_not_allowed().await)
}

/// The caller's own order by this id.
///
/// # Errors
/// `not-found`, also for another account's order; or why there is no answer.
pub(super) async fn find(api: &Api, caller: Caller, id: Result<Path<String>, PathRejection>) -> Result<Order, Failure> {
    let id = read_id(id)?;
    let app = api.app.clone();
    let work = async move {
        let account = app.find_account(&caller.subject).await?.ok_or(Error::NotFound)?;
        app.store.order(account, id).await?.ok_or(Error::NotFound)
    };
    api.read(work).await
}

/// The id in a path; what is none names no order.
///
/// # Errors
/// `not-found`.
pub(super) fn read_id(id: Result<Path<String>, PathRejection>) -> Result<OrderId, Failure> {
    let id: Hyphenated = id.ok().and_then(|Path(id)| id.parse().ok()).ok_or_else(Failure::not_found)?;
    Ok(OrderId(id.into_uuid()))
}

/// `GET /api/orders`.
///
/// # Errors
/// `validation-failed` for a bad parameter, or why there is no answer.
pub async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, Failure> {
    let [limit, cursor] = extract::query(query.as_deref(), ["limit", "cursor"])?;
    let limit = limit.as_deref().map_or(Ok(PAGE), read_limit)?;
    let before = cursor.as_deref().map(read_cursor).transpose()?;
    let app = api.app.clone();
    let work = async move {
        match app.find_account(&caller.subject).await? {
            // One more than is shown tells whether there is another page.
            Some(account) => Ok(app.store.orders(account, before, limit + 1).await?),
            None => Ok(Vec::new()),
        }
    };
    let found = api.read(work).await?;
    let shown = &found[..found.len().min(limit as usize)];
    let next_cursor = if shown.len() < found.len() { shown.last().map(|order| cursor_after(order.id)) } else { None };
    let orders = shown.iter().map(OrderBody::of).collect();
    Ok(Json(OrderListBody { orders, next_cursor }).into_response())
}

fn read_limit(text: &str) -> Result<u32, Failure> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Failure::field("limit", Wrong::NotWhole));
    }
    let outside = || Failure::field("limit", Wrong::Range { min: 1, max: i64::from(MAX_PAGE) });
    text.parse().ok().filter(|n| (1..=MAX_PAGE).contains(n)).ok_or_else(outside)
}

/// The list goes on behind this order. Encoded, so that nobody builds on what it is made of.
fn cursor_after(order: OrderId) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(order.0.as_bytes())
}

fn read_cursor(text: &str) -> Result<OrderId, Failure> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok();
    let id = bytes.and_then(|bytes| Uuid::from_slice(&bytes).ok());
    id.map(OrderId).ok_or_else(|| Failure::field("cursor", Wrong::Form("a next_cursor of this list")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field_of(failure: &Failure) -> (u16, &str) {
        (failure.body.status, failure.body.errors[0].field.as_str())
    }

    #[test]
    fn a_limit_is_a_whole_number_from_1_to_100() {
        for (text, limit) in [("1", 1), ("100", 100), ("020", 20)] {
            assert_eq!(read_limit(text).unwrap(), limit);
        }
        for text in ["", "0", "101", "-1", "+1", " 1", "1.0", "1e1", "ten", "٣", "99999999999999999999"] {
            assert_eq!(field_of(&read_limit(text).unwrap_err()), (422, "limit"), "{text:?}");
        }
    }

    #[test]
    fn a_cursor_is_one_that_was_given() {
        let id = OrderId::new();
        assert_eq!(read_cursor(&cursor_after(id)).unwrap(), id);
        for text in ["", "x", "AAAA", &id.to_string(), &format!("{}A", cursor_after(id)), "é"] {
            assert_eq!(field_of(&read_cursor(text).unwrap_err()), (422, "cursor"), "{text:?}");
        }
    }
}
