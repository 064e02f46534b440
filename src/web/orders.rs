//! The pages of orders that stand. Without a session, or for another account's order, they know nothing.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http;
use serde::Deserialize;
use tower_sessions::Session;
use uuid::Uuid;

use crate::app::App;
use crate::checkout::change::{CANCEL, PAY};
use crate::error::Error;
use crate::guard::token::Binding;
use crate::order::Status;
use crate::order::values::{AccountId, Key, OrderId, Subject};

use super::pages::{Hidden, Message, OrderPage, OrdersPage, PayForm};
use super::said::Said;
use super::session;
use super::words::money;

/// How many orders a page lists.
const PAGE: u32 = 20;

/// The query of the list.
#[derive(Deserialize)]
pub struct Paging {
    /// The last order of the page before.
    cursor: Option<Uuid>,
}

/// The query of one order: what happened to it.
#[derive(Deserialize)]
pub struct Shown {
    said: Option<String>,
}

/// `GET /orders/{id}`.
///
/// # Errors
/// When there is no such order of this account, or the database gives no answer.
pub async fn show(
    State(app): State<App>,
    session: Session,
    method: http::Method,
    id: Result<Path<Uuid>, PathRejection>,
    shown: Result<Query<Shown>, QueryRejection>,
) -> Result<OrderPage, Message> {
    let Ok(Path(id)) = id else { return Err(Message::NotFound) };
    let subject = session::known(&session).await?.ok_or(Message::NotFound)?;
    let account = app.find_account(&subject).await?.ok_or(Message::NotFound)?;
    let order = app.store.order(account, OrderId(id)).await.map_err(Error::from)?.ok_or(Message::NotFound)?;
    let said = shown.ok().and_then(|Query(shown)| Said::parse(&shown.said?)).filter(|said| said.fits(&order));
    let said = said.or_else(|| Said::of_state(&order));
    if method == http::Method::HEAD {
        return Ok(OrderPage { order, said, cancel: None, pay: None });
    }
    let cancel = match order.status {
        Status::Pending | Status::Paid => Some(hidden(&app, &subject, CANCEL).await),
        Status::Shipped | Status::Cancelled => None,
    };
    let pay = match order.status {
        Status::Pending if !order.payment.in_flight() => Some(PayForm {
            hidden: hidden(&app, &subject, PAY).await,
            card: app.config.gateway.is_some(),
            balance: money(app.store.balance(account).await.map_err(Error::from)?, &order.currency),
        }),
        _ => None,
    };
    Ok(OrderPage { order, said, cancel, pay })
}

/// A token and a key of this rendering's own.
async fn hidden(app: &App, subject: &Subject, form: &'static str) -> Hidden {
    let binding = Binding { subject: subject.clone(), form, key: Key::fresh() };
    Hidden { token: app.tokens.issue(&binding).await, key: binding.key.as_str().to_owned() }
}

/// `GET /orders`.
///
/// # Errors
/// When the cursor is none, or the database gives no answer.
pub async fn list(
    State(app): State<App>,
    session: Session,
    paging: Result<Query<Paging>, QueryRejection>,
) -> Result<OrdersPage, Message> {
    let Ok(Query(Paging { cursor })) = paging else { return Err(Message::BadCursor) };
    let mut orders = match account(&app, &session).await? {
        // One more than is shown tells whether there is a next page.
        Some(account) => app.store.orders(account, cursor.map(OrderId), PAGE + 1).await.map_err(Error::from)?,
        None => Vec::new(),
    };
    let more = orders.len() > PAGE as usize;
    orders.truncate(PAGE as usize);
    let next = orders.last().filter(|_| more).map(|last| last.id.to_string());
    Ok(OrdersPage { orders, next, later: cursor.is_some() })
}

/// The account of the session, if both are there.
pub(super) async fn account(app: &App, session: &Session) -> Result<Option<AccountId>, Error> {
    match session::known(session).await? {
        Some(subject) => app.find_account(&subject).await,
        None => Ok(None),
    }
}
