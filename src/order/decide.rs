//! A batch of requests against stock and funds: who is placed, who is refused, and what to write.
//!
//! Pure and in order of arrival, so that property tests can hold it against the invariants. The storage
//! adapters load the rows under lock, call [`decide`], and write what it says.

use std::collections::{BTreeMap, HashMap};

use time::OffsetDateTime;

use super::request::FieldError;
use super::values::{AccountId, Cents, Fingerprint, Key, OrderId, Reference, Sku};
use super::{NewOrder, Order, Product};

/// One request as the decision sees it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The id the order will have if it is placed.
    pub id: OrderId,
    /// Who asks.
    pub account: AccountId,
    /// The idempotency key of the intent.
    pub key: Key,
    /// What is asked for.
    pub fingerprint: Fingerprint,
    /// The request itself.
    pub request: NewOrder,
    /// Seconds within which an order of the same content under another key makes the answer a
    /// [`Refusal::Repeat`]; `None`: never (API clients, and buyers who said "again").
    pub repeat_notice: Option<u64>,
}

/// An order that stands already and bears on the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its id.
    pub id: OrderId,
    /// Its account.
    pub account: AccountId,
    /// Its key.
    pub key: Key,
    /// Its reference.
    pub reference: Option<Reference>,
    /// Its content.
    pub fingerprint: Fingerprint,
    /// When it was placed.
    pub created_at: OffsetDateTime,
}

/// The rows that a decision needs, loaded under lock; `decide` uses them up as it goes.
#[derive(Clone, Debug)]
pub struct Shop {
    /// The products asked for, as far as they exist.
    pub products: BTreeMap<Sku, Product>,
    /// The balances of the accounts that ask.
    pub balances: HashMap<AccountId, Cents>,
    /// Orders of the same accounts with a key, reference or (if recent) content of the batch.
    pub standing: Vec<Standing>,
    /// The database's clock, in whole milliseconds.
    pub now: OffsetDateTime,
}

/// Why a valid request is refused. A refusal is definite: it is stored under the key and replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not enough in stock of these.
    OutOfStock(Vec<Sku>),
    /// The balance does not cover the total.
    InsufficientFunds,
    /// These are not in the catalogue.
    UnknownSku(Vec<Sku>),
    /// The account has used this reference for that order.
    ReferenceTaken(OrderId),
    /// The account ordered exactly this a moment ago (forms only).
    Repeat {
        /// The earlier order.
        order: OrderId,
        /// How many seconds ago.
        seconds: u64,
    },
    /// The provider declined the card; the order stands pending.
    PaymentDeclined(OrderId),
    /// The order's state does not allow it.
    IllegalTransition,
}

/// What becomes of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "short-lived, and the large variant is the usual one")]
pub enum Decision {
    /// It is placed: paid already when paid by balance.
    Placed(Order),
    /// It is refused, for good.
    Refused(Refusal),
    /// An order of this (account, key) stands already; `same`: with the same content.
    Stands {
        /// The order that stands.
        order: OrderId,
        /// Whether its content is what was asked for.
        same: bool,
    },
    /// It breaks a limit that only the catalogue shows (total, currency): never stored.
    Invalid(Vec<FieldError>),
}

/// Decides the batch in its order, taking stock and funds from `shop` as it goes. Answers one decision per
/// request, in the same order.
#[must_use]
pub fn decide(_batch: &[Asked], _shop: &mut Shop) -> Vec<Decision> {
    todo!("order room")
}
