//! Placing an order: both faces meet here.

use std::time::Duration;

use crate::app::App;
use crate::error::Result;
use crate::order::request::Parsed;
use crate::order::values::{AccountId, Fingerprint, Key, OrderId};
use crate::store::Answer;

/// A valid request under its key.
#[derive(Clone, Debug)]
pub struct Intent {
    /// Who orders.
    pub account: AccountId,
    /// Under which idempotency key.
    pub key: Key,
    /// What.
    pub request: Parsed,
    /// Whether a second order of the same content within the repeat notice is asked about first (forms without
    /// `again=yes`).
    pub ask_before_repeat: bool,
}

/// The answer to an intent.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Status and body, as stored.
    pub answer: Answer,
    /// Whether it was given before.
    pub replayed: bool,
}

/// What stands of an intent, for a form whose token does not permit to place.
#[derive(Clone, Debug)]
pub enum Stands {
    /// Neither a record nor an order.
    Nothing,
    /// Under way, same content.
    Processing {
        /// Zero when the lease is over: it may be taken over by [`place`].
        lease_left: Duration,
    },
    /// Finished, same content: an order or a refusal.
    Done(Answer),
    /// An order stands without a record, same content.
    Order(OrderId),
    /// Something stands with other content.
    Other(crate::error::Earlier),
}

/// Places the order or answers what stands: the first answer, a replay, or why not. Waits up to `wait` for the same
/// request that is under way. Work once begun goes on when the caller leaves; a caller whose work takes longer than `Config::work_deadline` is told
/// `Unavailable`, and may come again with the same key.
///
/// # Errors
/// `Invalid` (limits that only the catalogue shows; nothing kept), `InProgress`, `KeyReused`, `Unavailable`, `Internal`.
pub async fn place(_app: &App, _intent: Intent, _wait: Duration) -> Result<Reply> {
    todo!("checkout room")
}

/// What stands of a key, compared with this content; with `None` whatever the content.
///
/// # Errors
/// When the database gives no answer.
pub async fn look(_app: &App, _account: AccountId, _key: &Key, _content: Option<&Fingerprint>) -> Result<Stands> {
    todo!("checkout room")
}

/// Refuses what only the catalogue shows to be invalid (total over the limit, several currencies), before a token is
/// spent or a key is claimed. The desk looks again, under lock.
///
/// # Errors
/// `Invalid`, or `Unavailable` when the catalogue cannot be had.
pub async fn check_prices(_app: &App, _request: &Parsed) -> Result<()> {
    todo!("checkout room")
}
