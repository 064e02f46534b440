//! The pages of orders that stand. Without a session, or for another account's order, they know nothing.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use tower_sessions::Session;
use uuid::Uuid;

use crate::app::App;
use crate::error::Error;
use crate::order::values::{AccountId, OrderId};

use super::pages::{Message, OrderPage, OrdersPage};
use super::session;

/// How many orders a page lists.
const PAGE: u32 = 20;

/// The query of the list.
#[derive(Deserialize)]
pub struct Paging {
    /// The last order of the page before.
    cursor: Option<Uuid>,
}

/// `GET /orders/{id}`.
///
/// # Errors
/// When there is no such order of this account, or the database gives no answer.
pub async fn show(
    State(app): State<App>,
    session: Session,
    id: Result<Path<Uuid>, PathRejection>,
) -> Result<OrderPage, Message> {
    let Ok(Path(id)) = id else { return Err(Message::NotFound) };
    let account = account(&app, &session).await?.ok_or(Message::NotFound)?;
    let order = app.store.order(account, OrderId(id)).await.map_err(Error::from)?;
    Ok(OrderPage { order: order.ok_or(Message::NotFound)? })
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
