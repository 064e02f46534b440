//! The SQLite adapter: the embedded default, one file, no server.
//!
//! SQLite lets one connection write at a time, so there is one writer connection, which callers of this process
//! queue for in fairness (ten that poll for the lock have a tail of a second), and a few readers beside it, which WAL
//! lets go on meanwhile. Other processes may hold the same file: then the writer waits for the file's own lock.
//!
//! A batch travels as a JSON array (`json_each`): a fixed number of statements however many orders, because each is a
//! message to the driver's thread and back. A row of such an array leads, by `CROSS JOIN` or an `UPDATE … FROM`, to the
//! rows of a table by their index. No statistics are gathered (`ANALYZE`, `PRAGMA optimize`): without them SQLite takes
//! every table for a large one; with those of a young shop it would read whole tables for ever after.
//!
//! Every write is one `BEGIN IMMEDIATE` transaction. The lock is there from its first read on, so what it has read
//! stays true until it commits: claims, fences and constraints are looked at in plain statements. And a
//! future that is dropped half-way (a client that left) rolls back: nothing here writes outside a transaction,
//! where a statement would outlive its future.
//!
//! Deliberately absent: retries of serialization failures (there are none under that lock) and a second connection to
//! ask for while one is held.

mod accounts;
mod catalogue;
mod change;
mod connect;
mod fault;
mod fences;
mod grants;
mod orders;
mod outbox;
mod outcome;
mod outright;
mod payments;
mod placing;
mod records;
mod row;
mod sessions;
mod settle;
mod shop;
mod stories;
mod sweep;
#[cfg(test)]
mod tests;

use std::time::Duration;

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, SqlitePool, Transaction};
use time::OffsetDateTime;
use tokio::time::timeout;
use uuid::Uuid;

use super::{
    Answer, Buyer, Change, ChangeRules, Changed, ClaimRequest, ClaimResult, Coupon, Due, Fence, Grant, Granted,
    Message, OrderRef, Outright, Placing, ProviderEvent, Record, RecordFilter, RecordId, RecordStory, Republish,
    Result, SettleRules, Settled, Store, StoreError, Sweep,
};
use crate::order::decide::Asked;
use crate::order::life::Life;
use crate::order::values::{AccountId, Cents, Key, OrderId, Sku, Subject};
use crate::order::{Order, Product};
use fault::fault;

pub use connect::Options;

/// The database's clock as an SQL expression: whole milliseconds since 1970, everywhere the same.
macro_rules! now {
    () => {
        "CAST(unixepoch('subsec') * 1000 AS INTEGER)"
    };
}
use now;

/// A write transaction: it holds the file's one write lock.
type Tx = Transaction<'static, sqlx::Sqlite>;

/// What a commit waits for. WAL is one sequence: a commit that waits for the disk takes all earlier ones with it, so
/// whatever a durable order builds on (its account, its claim, its session) is as durable as the order itself.
#[derive(Clone, Copy)]
enum Commit {
    /// The disk: what was acknowledged survives a power cut.
    Durable,
    /// Nothing: a power cut (not a crash of the process) may take it back, which has done nothing yet.
    Quick,
}

/// The database in one file.
#[derive(Debug)]
pub struct Sqlite {
    writer: SqlitePool,
    readers: SqlitePool,
    busy_timeout: Duration,
}

impl Sqlite {
    /// Begins a write transaction, waiting at most `wait` for this process's turn and the file's write lock.
    ///
    /// The settings are part of each begin, because the writer is shared and a dropped future could leave another's
    /// behind. They cannot be prepared statements: `PRAGMA synchronous` acts when it is prepared, not when it is run.
    async fn begin_within(&self, commit: Commit, wait: Duration) -> Result<Tx> {
        let synchronous = match commit {
            Commit::Durable => "FULL",
            Commit::Quick => "NORMAL",
        };
        let millis = connect::pragma_millis(wait);
        let begin = self.writer.begin_with(AssertSqlSafe(format!(
            "PRAGMA busy_timeout = {millis}; PRAGMA synchronous = {synchronous}; BEGIN IMMEDIATE"
        )));
        match timeout(wait, begin).await {
            Ok(begun) => begun.map_err(fault),
            Err(_) => Err(StoreError::Busy(format!("the write lock was not free within {wait:?}"))),
        }
    }

    async fn begin(&self, commit: Commit) -> Result<Tx> {
        self.begin_within(commit, self.busy_timeout).await
    }
}

/// The clock, read once the write lock is held: one "now" for all that a transaction does.
async fn clock(tx: &mut Tx) -> Result<i64> {
    sqlx::query_scalar(concat!("SELECT ", now!())).fetch_one(&mut **tx).await.map_err(fault)
}

/// The table of contents; each part is in the file of its noun.
#[async_trait]
impl Store for Sqlite {
    async fn migrate(&self) -> Result<()> {
        connect::migrate(self).await
    }

    async fn ping(&self) -> Result<()> {
        let _: Option<i64> = sqlx::query_scalar("SELECT 1 FROM sqlite_schema LIMIT 1")
            .fetch_optional(&self.readers)
            .await
            .map_err(fault)?;
        Ok(())
    }

    async fn close(&self) {
        self.readers.close().await;
        // Last, because the last connection of all folds the WAL back into the file.
        self.writer.close().await;
    }

    async fn claim(&self, requests: &[ClaimRequest], lease: Duration) -> Result<Vec<ClaimResult>> {
        records::claim(self, requests, lease).await
    }

    async fn record(&self, id: &RecordId) -> Result<Option<Record>> {
        records::read(self, id).await
    }

    async fn complete(&self, fence: &Fence, answer: &Answer, key_ttl: Duration) -> Result<bool> {
        fences::complete(self, fence, answer, key_ttl).await
    }

    async fn release(&self, fences: &[Fence]) -> Result<()> {
        fences::release(self, fences).await
    }

    async fn place(&self, batch: &[&Asked], lease: Duration, rules: &SettleRules) -> Result<Vec<Outright>> {
        outright::place(self, batch, lease, rules).await
    }

    async fn settle(&self, batch: &[Placing], rules: &SettleRules) -> Result<Vec<Settled>> {
        settle::settle(self, batch, rules).await
    }

    async fn order(&self, account: AccountId, id: OrderId) -> Result<Option<Order>> {
        orders::load(&self.readers, account, id).await
    }

    async fn order_by_key(&self, account: AccountId, key: &Key) -> Result<Option<OrderRef>> {
        orders::by_key(self, account, key).await
    }

    async fn orders(&self, account: AccountId, before: Option<OrderId>, limit: u32) -> Result<Vec<Order>> {
        orders::list(self, account, before, limit).await
    }

    async fn change(&self, change: &Change, rules: &ChangeRules) -> Result<Changed> {
        change::change(self, change, rules).await
    }

    async fn life(&self, order: OrderId) -> Result<Option<Life>> {
        orders::life(&self.readers, order).await
    }

    async fn order_of_payment(&self, provider_id: &str) -> Result<Option<OrderId>> {
        payments::order_of(self, provider_id).await
    }

    async fn keep_event(&self, event: &ProviderEvent, outcome: &'static str) -> Result<bool> {
        payments::keep_event(self, event, outcome).await
    }

    async fn due_payments(&self, limit: u32, base: Duration, longest: Duration) -> Result<Vec<Due>> {
        payments::due(self, limit, base, longest).await
    }

    async fn overdue_orders(&self, window: Duration, limit: u32) -> Result<Vec<OrderId>> {
        orders::overdue(self, window, limit).await
    }

    async fn take_messages(&self, limit: u32, republish: Republish) -> Result<Vec<Message>> {
        outbox::take(self, limit, republish).await
    }

    async fn give_messages_back(&self, messages: &[Uuid]) -> Result<()> {
        outbox::give_back(self, messages).await
    }

    async fn publishing_lag(&self) -> Result<Duration> {
        outbox::lag(self).await
    }

    async fn consumed_message(&self, order: OrderId, within: Duration) -> Result<Option<Message>> {
        outbox::consumed(self, order, within).await
    }

    async fn grant_coupons(&self, consumer: &str, campaign: &str, grants: &[Grant]) -> Result<Vec<Granted>> {
        grants::grant(self, consumer, campaign, grants).await
    }

    async fn sweep(&self, what: Sweep, limit: u32) -> Result<u64> {
        sweep::sweep(self, what, limit).await
    }

    async fn list_records(&self, filter: RecordFilter) -> Result<Vec<RecordStory>> {
        stories::list(self, filter).await
    }

    async fn find_records(&self, key: &Key, account: Option<AccountId>) -> Result<Vec<RecordStory>> {
        stories::find(self, key, account).await
    }

    async fn free_records(&self, account: AccountId, key: &Key) -> Result<Vec<RecordStory>> {
        stories::free(self, account, key).await
    }

    async fn let_expire(&self, id: &RecordId) -> Result<bool> {
        stories::let_expire(self, id).await
    }

    async fn find_account(&self, subject: &Subject) -> Result<Option<AccountId>> {
        accounts::find(&self.readers, subject).await
    }

    async fn open_account(&self, subject: &Subject, opening: Cents) -> Result<AccountId> {
        accounts::open(self, subject, opening).await
    }

    async fn balance(&self, account: AccountId) -> Result<Cents> {
        accounts::balance(self, account).await
    }

    async fn buyer(&self, account: AccountId) -> Result<Buyer> {
        accounts::buyer(self, account).await
    }

    async fn coupons(&self, account: AccountId) -> Result<Vec<Coupon>> {
        accounts::coupons(self, account).await
    }

    async fn products(&self) -> Result<Vec<Product>> {
        catalogue::all(self).await
    }

    async fn import_products(&self, rows: &[Product]) -> Result<()> {
        catalogue::import(self, rows).await
    }

    async fn add_missing_products(&self, rows: &[Product]) -> Result<()> {
        catalogue::add_missing(self, rows).await
    }

    async fn set_stock(&self, sku: &Sku, stock: i64) -> Result<bool> {
        catalogue::set_stock(self, sku, stock).await
    }

    async fn create_session(&self, id: &str, data: &[u8], expires_at: OffsetDateTime) -> Result<bool> {
        sessions::create(self, id, data, expires_at).await
    }

    async fn save_session(&self, id: &str, data: &[u8], expires_at: OffsetDateTime) -> Result<()> {
        sessions::save(self, id, data, expires_at).await
    }

    async fn load_session(&self, id: &str) -> Result<Option<Vec<u8>>> {
        sessions::load(self, id).await
    }

    async fn delete_session(&self, id: &str) -> Result<()> {
        sessions::delete(self, id).await
    }
}
