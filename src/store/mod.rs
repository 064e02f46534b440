//! The storage seam: what the service asks of a database, in batches, whichever database it is.
//!
//! Two adapters, [`postgres`] and [`sqlite`], with migrations of their own and the same named constraints.
//! `sqlx` appears nowhere else. Only the database's clock judges a lease or an expiry; no method takes "now".
//!
//! Every method may be called again after [`StoreError::Unreachable`]: what writes is fenced or keyed, so a
//! repeat after an unknown commit finds what stands instead of doing it twice.

mod change;
mod message;
mod placing;
pub mod postgres;
pub mod sqlite;
mod story;
mod sweep;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use thiserror::Error;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::order::decide::Asked;
use crate::order::life::Life;
use crate::order::values::{AccountId, Cents, Currency, Fingerprint, Key, OrderId, Sku, Subject};
use crate::order::{Order, Product};

pub use change::{Change, ChangeRules, Changed, Conclusion, Due, ProviderEvent};
pub use message::{Grant, Granted, Message, ORDER_PAID, Republish};
pub use placing::{Outright, PATIENCE, Placing, SettleRules, Settled};
pub use story::{RecordFilter, RecordStatus, RecordStory};
pub use sweep::Sweep;

/// What can go wrong in a database, as far as callers act on it.
#[derive(Clone, Debug, Error)]
pub enum StoreError {
    /// It cannot be reached, or went away in the middle (the outcome may be unknown).
    #[error("database unreachable: {0}")]
    Unreachable(String),
    /// It is there, but a lock, a statement or a free connection did not come in time. Nothing was changed.
    #[error("database busy: {0}")]
    Busy(String),
    /// Anything else: a bug, or a damaged row.
    #[error("database: {0}")]
    Broken(String),
}

/// Shorthand of this room.
pub type Result<T> = std::result::Result<T, StoreError>;

/// An answer as it is stored and replayed: byte for byte, with the allow-listed headers only (never
/// `Set-Cookie`, `Date` or request ids).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: &'static str,
    /// `Location`, if it has one.
    pub location: Option<String>,
    /// The body.
    pub body: Bytes,
    /// The order it speaks of, if any (for the pages, which redirect instead of showing the body).
    pub order: Option<OrderId>,
}

impl Answer {
    /// The content types that answers have; the one with this text, `application/json` when there is none.
    #[must_use]
    pub fn known_content_type(text: &str) -> &'static str {
        ["application/json", "application/problem+json", "text/html; charset=utf-8", "text/plain; charset=utf-8"]
            .into_iter()
            .find(|t| *t == text)
            .unwrap_or("application/json")
    }
}

/// What a key is scoped to: one account's one operation (`place_order`, `cancel_order`, `pay_order`, or a name
/// of an embedding service's own).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecordId {
    /// Whose.
    pub account: AccountId,
    /// Of what.
    pub operation: &'static str,
    /// The idempotency key.
    pub key: Key,
}

/// A wish to work under a key.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// Which record.
    pub id: RecordId,
    /// The content that will be worked on.
    pub fingerprint: Fingerprint,
}

/// Whether a claim was won.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimResult {
    /// The record is ours under this epoch, for one lease from now.
    Won {
        /// The fence number: 1 for a new record, one more for each take-over.
        epoch: i64,
        /// Whether an earlier, unfinished claim of the same content was taken over.
        taken_over: bool,
    },
    /// Somebody else's, or finished: the record as it stands.
    Lost(Record),
}

/// How far a record is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// Claimed, no answer yet.
    Processing {
        /// What is left of the lease by the database's clock; zero when it is over.
        lease_left: Duration,
    },
    /// Finished, and not expired.
    Done(Answer),
}

/// A record that stands. One that is done and past its `expires_at` does not stand: it is never returned, and a
/// claim takes its place as if it were not there (but with a raised epoch).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The content it was claimed for.
    pub fingerprint: Fingerprint,
    /// The fence number.
    pub epoch: i64,
    /// How far it is.
    pub state: RecordState,
}

/// A won claim, to be completed or released.
#[derive(Clone, Debug)]
pub struct Fence {
    /// The record.
    pub id: RecordId,
    /// The epoch under which the work runs; any other epoch in the row means it was taken over.
    pub epoch: i64,
}

/// An order in short, for duplicates and lists of standing orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderRef {
    /// Its id.
    pub id: OrderId,
    /// What was asked for.
    pub fingerprint: Fingerprint,
}

/// An account as a form for orders needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buyer {
    /// Its balance in minor units.
    pub balance: Cents,
    /// The youngest of its `place_order` keys that is `processing` under a live lease.
    pub under_way: Option<Key>,
}

/// One granted coupon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coupon {
    /// Its code.
    pub code: String,
    /// Of which campaign.
    pub campaign: String,
    /// For which order.
    pub order: OrderId,
    /// When.
    pub granted_at: OffsetDateTime,
}

/// The database, as the service sees it.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    // --- upkeep ---

    /// Brings the schema up to date; safe when several processes start at once.
    async fn migrate(&self) -> Result<()>;
    /// Whether the database answers (one trivial read).
    async fn ping(&self) -> Result<()>;
    /// Closes the pools, waiting for what is under way.
    async fn close(&self);

    // --- layer 2: the records ---

    /// Claims all keys in one statement with its own commit (which need not wait for the disk: a claim lost in a
    /// crash has done nothing), then reads those it lost in a second statement. Takes over a `processing` record
    /// of the same content whose lease is over, and a `done` one that has expired. The ids of one call must differ. Answers in the order
    /// of the requests.
    async fn claim(&self, requests: &[ClaimRequest], lease: Duration) -> Result<Vec<ClaimResult>>;
    /// The record as it stands, if it does.
    async fn record(&self, id: &RecordId) -> Result<Option<Record>>;
    /// Stores the answer if the fence still holds; `false`: it was taken over, nothing was changed.
    async fn complete(&self, fence: &Fence, answer: &Answer, key_ttl: Duration) -> Result<bool>;
    /// Gives claims up: lease over now, row kept, so that a retry runs at once. Fenced: never touches a record
    /// that was taken over or completed.
    async fn release(&self, fences: &[Fence]) -> Result<()>;

    // --- placing ---

    /// Places what nothing stands for yet, in one transaction without a claim before it: decides as [`Store::settle`] does, and
    /// writes each record (epoch 1) together with its order, so that other processes see both or neither. Waits for no row
    /// longer than [`PATIENCE`]. It may leave anything undone ([`Outright::Undone`]): what was asked again before, what meets
    /// another's order, what it found changed when it came to write. An error says of the whole batch that nothing of it was
    /// written, or (on [`StoreError::Unreachable`]) all of it. To claim and [`Store::settle`] whatever it
    /// did not settle is always safe. The keys of one call must differ. Answers in the order of the batch.
    async fn place(&self, batch: &[&Asked], lease: Duration, rules: &SettleRules) -> Result<Vec<Outright>>;
    /// Settles a batch in one transaction: locks the products (SKU order) and accounts (id order), reads the standing orders, calls
    /// `order::decide`, writes stock, balances, entries, orders, lines, payments, outbox rows and the fenced answers, commits. An
    /// order whose fence or constraint says no is taken out and answered from what stands. On an error nothing
    /// of the batch was written, or (on [`StoreError::Unreachable`]) all of it: calling again is safe.
    async fn settle(&self, batch: &[Placing], rules: &SettleRules) -> Result<Vec<Settled>>;

    // --- orders ---

    /// One order of this account.
    async fn order(&self, account: AccountId, id: OrderId) -> Result<Option<Order>>;
    /// The order of this account and key, in short.
    async fn order_by_key(&self, account: AccountId, key: &Key) -> Result<Option<OrderRef>>;
    /// Orders of this account, newest first, at most `limit`, those before `before` only (ids are v7: they sort by
    /// time).
    async fn orders(&self, account: AccountId, before: Option<OrderId>, limit: u32) -> Result<Vec<Order>>;

    // --- an order's life ---

    /// Lets something happen to one order, in one transaction: keeps the event, locks the products (where stock may
    /// come back), the account, the order and its attempts, asks `order::life`, writes status (under the condition of
    /// the old one), attempts, stock, balance and entry, outbox row, the event's outcome (`Verdict::as_str`), and the
    /// claim's record as concluded. A refund that becomes due is looked at by the reconciler at once. Calling
    /// again after [`StoreError::Unreachable`] is safe.
    async fn change(&self, change: &Change, rules: &ChangeRules) -> Result<Changed>;
    /// The order with its attempts and its account's balance, as it stands.
    async fn life(&self, order: OrderId) -> Result<Option<Life>>;
    /// The order that a payment of the provider's belongs to.
    async fn order_of_payment(&self, provider_id: &str) -> Result<Option<OrderId>>;
    /// Keeps an event that changes nothing; `false`: it was known.
    async fn keep_event(&self, event: &ProviderEvent, outcome: &'static str) -> Result<bool>;
    /// At most `limit` payments in doubt or due to be paid back whose time to be looked at has come, oldest first; sets their next time, `base` doubled
    /// for each look so far up to `longest`, so that no two callers get the same.
    async fn due_payments(&self, limit: u32, base: Duration, longest: Duration) -> Result<Vec<Due>>;
    /// At most `limit` orders that are pending for longer than `window` with no attempt in flight, oldest first.
    async fn overdue_orders(&self, window: Duration, limit: u32) -> Result<Vec<OrderId>>;

    // --- the queue ---

    /// At most `limit` messages whose time to be published has come, the longest waiting first. They are counted as published by
    /// this, and come again when no effect shows for as long as `republish` says: so a relay that publishes them has nothing to
    /// write down, and one that dies before it did is repeated by another.
    async fn take_messages(&self, limit: u32, republish: Republish) -> Result<Vec<Message>>;
    /// Takes that back of messages that were not published: they may be taken at once.
    async fn give_messages_back(&self, messages: &[Uuid]) -> Result<()>;
    /// How long the oldest message waits that no relay has taken; zero: there is none.
    async fn publishing_lag(&self) -> Result<Duration>;
    /// The message that told of this order and had its effect within the last `within` (by which it is searched for).
    async fn consumed_message(&self, order: OrderId, within: Duration) -> Result<Option<Message>>;
    /// Grants coupons of `campaign` to orders that are paid or shipped, and marks their messages as consumed by `consumer`,
    /// in one transaction. The messages of one call must differ. Answers in their order.
    async fn grant_coupons(&self, consumer: &str, campaign: &str, grants: &[Grant]) -> Result<Vec<Granted>>;

    // --- sweeping ---

    /// Takes away at most `limit` rows, in a short transaction of their own, and tells how many. The condition is looked at
    /// again while each row is held; a row that somebody else holds is left for the next sweep.
    async fn sweep(&self, what: Sweep, limit: u32) -> Result<u64>;

    // --- the records, for operators ---

    /// Records, those that expire first first.
    async fn list_records(&self, filter: RecordFilter) -> Result<Vec<RecordStory>>;
    /// The records under this key, of one account or of all (which may take long on a large table).
    async fn find_records(&self, key: &Key, account: Option<AccountId>) -> Result<Vec<RecordStory>>;
    /// Ends the lease of whatever is `processing` under this key of this account, so that the next retry takes over, and tells what
    /// that was. The worker that holds the claim may still finish first.
    async fn free_records(&self, account: AccountId, key: &Key) -> Result<Vec<RecordStory>>;

    /// Lets a finished record expire now, as if its time were over: the next sweep takes it away. `false`: there is none.
    async fn let_expire(&self, id: &RecordId) -> Result<bool>;

    // --- accounts ---

    /// The account of this subject, if it was opened.
    async fn find_account(&self, subject: &Subject) -> Result<Option<AccountId>>;
    /// The account of this subject, opened with `opening` (an entry of kind `opening`, unless 0) if it was not there.
    async fn open_account(&self, subject: &Subject, opening: Cents) -> Result<AccountId>;
    /// Its balance in minor units.
    async fn balance(&self, account: AccountId) -> Result<Cents>;
    /// What a form shows and holds of it.
    async fn buyer(&self, account: AccountId) -> Result<Buyer>;
    /// Its coupons, newest first.
    async fn coupons(&self, account: AccountId) -> Result<Vec<Coupon>>;

    // --- catalogue ---

    /// All products in SKU order.
    async fn products(&self) -> Result<Vec<Product>>;
    /// Adds or updates products, all or none.
    async fn import_products(&self, rows: &[Product]) -> Result<()>;
    /// Adds those that are missing, and leaves the others alone.
    async fn add_missing_products(&self, rows: &[Product]) -> Result<()>;
    /// Sets what is in stock; `false`: no such SKU.
    async fn set_stock(&self, sku: &Sku, stock: i64) -> Result<bool>;

    // --- sessions ---

    /// Keeps a new session; `false`: the id is taken.
    async fn create_session(&self, id: &str, data: &[u8], expires_at: OffsetDateTime) -> Result<bool>;
    /// Overwrites a session that is there; one that was deleted meanwhile stays dead.
    async fn save_session(&self, id: &str, data: &[u8], expires_at: OffsetDateTime) -> Result<()>;
    /// A session that has not expired.
    async fn load_session(&self, id: &str) -> Result<Option<Vec<u8>>>;
    /// Ends a session.
    async fn delete_session(&self, id: &str) -> Result<()>;
}

/// The currency the shop shows a balance in: that of its catalogue, `EUR` while that is empty.
#[must_use]
pub fn shop_currency(products: &[Product]) -> Currency {
    products.first().map_or_else(|| Currency::parse("EUR").expect("three capital letters"), |p| p.currency.clone())
}
