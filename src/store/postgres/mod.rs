//! The PostgreSQL adapter (15 and newer).
//!
//! A batch travels as arrays (`unnest`): a handful of round trips however many orders. Everything that may outlive a
//! caller is bounded by the server itself (`statement_timeout`, `lock_timeout`), so a caller that gave up leaves no
//! work behind.
//!
//! Plans must not depend on when they were made: a prepared statement keeps a plan that was chosen while the tables
//! were empty, and a service that then fills them would scan them for ever. Hence every connection forbids
//! sequential scans (each statement here looks rows up by an index), and no statement joins a growing table to an
//! array in a way that leaves the order of the join open: rows are found by `LATERAL … LIMIT 1`, by `= ANY`, or
//! through the arbiter index of `ON CONFLICT`. One integration test holds this on filled tables without statistics.
//!
//! Deliberately absent: savepoints, advisory locks (but for the migrations'), LISTEN, and any SQL put together at run
//! time, but for one number in `pools`.

/// Declares the SQL of a file, and the list of it for the test that prepares every statement.
macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $sql:expr;)*) => {
        $($(#[$doc])* const $name: &str = $sql;)*
        pub(in crate::store::postgres) const STATEMENTS: &[(&str, &str)] = &[$((stringify!($name), $name)),*];
    };
}

/// Lets the transaction of the statement it stands in commit without waiting for the disk: what a durable order builds on
/// (its account, its session) comes before it in the log, and is as durable as the order itself once that is told.
macro_rules! unhurried {
    () => {
        "set_config('synchronous_commit', 'off', true)"
    };
}

mod accounts;
mod catalogue;
mod change;
mod errors;
mod gather;
mod orders;
mod outbox;
mod payments;
mod pools;
mod records;
mod sessions;
mod settle;
mod stories;
mod sweep;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::migrate::MigrateError;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection, PgConnection};
use time::OffsetDateTime;
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
use accounts::Accounts;
use errors::broken;
use pools::Pools;
use sessions::Sessions;

pub use pools::PLANNER;

static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("migrations/postgres");

/// What depends on the service's settings.
#[derive(Clone, Copy, Debug)]
pub struct PgTuning {
    /// How long the server lets one statement run; the waits for locks and connections are parts of it.
    pub statement_timeout: Duration,
    /// How long [`Postgres::connect`] waits for the first connection.
    pub connect_within: Duration,
}

/// The shop's data in a PostgreSQL database.
pub struct Postgres {
    pools: Arc<Pools>,
    accounts: Accounts,
    sessions: Sessions,
    plain: PgConnectOptions,
    connect_within: Duration,
}

impl Postgres {
    /// Connects once, to tell a wrong address, password or database at once and by its own name; the pools open their
    /// connections when they need them, and again after a restart of the server.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] when no connection comes within `connect_within`; [`StoreError::Broken`] when the
    /// URL is no PostgreSQL URL or the server refuses it. No error text holds the password.
    pub async fn connect(url: &str, tuning: PgTuning) -> Result<Self> {
        let plain = pools::options(url)?;
        let first = tokio::time::timeout(tuning.connect_within, PgConnection::connect_with(&plain));
        match first.await {
            Ok(Ok(connection)) => drop(connection.close().await),
            Ok(Err(error)) => return Err(errors::map(&error)),
            Err(_) => {
                let silent = format!("no answer to a connection within {:?}", tuning.connect_within);
                return Err(StoreError::Unreachable(silent));
            }
        }
        let pools = Arc::new(Pools::new(&plain, tuning.statement_timeout));
        let (accounts, sessions) = (Accounts::new(&pools), Sessions::new(&pools));
        Ok(Self { pools, accounts, sessions, plain, connect_within: tuning.connect_within })
    }

    /// Whether every migration of this build was applied; for a start that must not migrate.
    ///
    /// # Errors
    /// [`StoreError::Broken`] says what is missing and how to get it.
    pub async fn schema_ready(&self) -> Result<()> {
        let missing = |what: String| StoreError::Broken(format!("{what}: run `oncegate migrate`"));
        let rows = self.pools.query(|| sqlx::query(APPLIED)).await;
        let rows = rows.map_err(|e| if errors::lacks_schema(&e) { missing("there is no schema".into()) } else { e })?;
        let applied: Vec<i64> = rows.iter().map(|row| errors::column(row, "version")).collect::<Result<_>>()?;
        match MIGRATOR.iter().find(|m| !applied.contains(&m.version)) {
            Some(m) => Err(missing(format!("migration {} ({}) is missing", m.version, m.description))),
            None => Ok(()),
        }
    }

    /// Every statement of this adapter with its name, for the test that prepares them all.
    pub fn statements() -> impl Iterator<Item = (&'static str, &'static str)> {
        let rooms = [
            STATEMENTS,
            accounts::STATEMENTS,
            catalogue::STATEMENTS,
            change::STATEMENTS,
            change::write::STATEMENTS,
            orders::STATEMENTS,
            outbox::STATEMENTS,
            payments::STATEMENTS,
            records::STATEMENTS,
            sessions::STATEMENTS,
            settle::load::STATEMENTS,
            settle::outright::STATEMENTS,
            settle::write::STATEMENTS,
            stories::STATEMENTS,
            sweep::STATEMENTS,
        ];
        rooms.into_iter().flatten().copied()
    }
}

statements! {
    PING = "SELECT 1";

    /// The table is sqlx's own.
    APPLIED = "SELECT version FROM _sqlx_migrations WHERE success";
}

#[async_trait]
impl Store for Postgres {
    /// On a connection without time limits: an index on a large table takes its time, and so does the advisory lock
    /// while another process migrates.
    async fn migrate(&self) -> Result<()> {
        let one = PgPoolOptions::new().max_connections(1).acquire_timeout(self.connect_within);
        // Its notices ("already exists, skipping") are for nobody.
        let pool = one.connect_lazy_with(self.plain.clone().options([("client_min_messages", "warning")]));
        let done = MIGRATOR.run(&pool).await;
        pool.close().await; // ends the session, and with it the lock that a failed run keeps
        match done {
            Ok(()) => Ok(()),
            Err(MigrateError::Execute(error)) => Err(errors::map(&error)),
            Err(error) => Err(broken(error.to_string())),
        }
    }

    async fn ping(&self) -> Result<()> {
        self.pools.query(|| sqlx::query(PING)).await.map(drop)
    }

    async fn close(&self) {
        self.pools.close().await;
    }

    async fn claim(&self, requests: &[ClaimRequest], lease: Duration) -> Result<Vec<ClaimResult>> {
        records::claim(&self.pools, requests, lease).await
    }

    async fn record(&self, id: &RecordId) -> Result<Option<Record>> {
        records::record(&self.pools, id).await
    }

    async fn complete(&self, fence: &Fence, answer: &Answer, key_ttl: Duration) -> Result<bool> {
        records::complete(&self.pools, fence, answer, key_ttl).await
    }

    async fn release(&self, fences: &[Fence]) -> Result<()> {
        records::release(&self.pools, fences).await
    }

    async fn place(&self, batch: &[&Asked], lease: Duration, rules: &SettleRules) -> Result<Vec<Outright>> {
        settle::outright::place(&self.pools, batch, lease, rules).await
    }

    async fn settle(&self, batch: &[Placing], rules: &SettleRules) -> Result<Vec<Settled>> {
        settle::settle(&self.pools, batch, rules).await
    }

    async fn order(&self, account: AccountId, id: OrderId) -> Result<Option<Order>> {
        orders::order(&self.pools, account, id).await
    }

    async fn order_by_key(&self, account: AccountId, key: &Key) -> Result<Option<OrderRef>> {
        orders::by_key(&self.pools, account, key).await
    }

    async fn orders(&self, account: AccountId, before: Option<OrderId>, limit: u32) -> Result<Vec<Order>> {
        orders::list(&self.pools, account, before, limit).await
    }

    async fn change(&self, change: &Change, rules: &ChangeRules) -> Result<Changed> {
        change::change(&self.pools, change, rules).await
    }

    async fn life(&self, order: OrderId) -> Result<Option<Life>> {
        orders::life(&self.pools, order).await
    }

    async fn order_of_payment(&self, provider_id: &str) -> Result<Option<OrderId>> {
        payments::order_of(&self.pools, provider_id).await
    }

    async fn keep_event(&self, event: &ProviderEvent, outcome: &'static str) -> Result<bool> {
        payments::keep_event(&self.pools, event, outcome).await
    }

    async fn due_payments(&self, limit: u32, base: Duration, longest: Duration) -> Result<Vec<Due>> {
        payments::due(&self.pools, limit, base, longest).await
    }

    async fn overdue_orders(&self, window: Duration, limit: u32) -> Result<Vec<OrderId>> {
        orders::overdue(&self.pools, window, limit).await
    }

    async fn take_messages(&self, limit: u32, republish: Republish) -> Result<Vec<Message>> {
        outbox::take(&self.pools, limit, republish).await
    }

    async fn give_messages_back(&self, messages: &[Uuid]) -> Result<()> {
        outbox::give_back(&self.pools, messages).await
    }

    async fn publishing_lag(&self) -> Result<Duration> {
        outbox::lag(&self.pools).await
    }

    async fn consumed_message(&self, order: OrderId, within: Duration) -> Result<Option<Message>> {
        outbox::consumed(&self.pools, order, within).await
    }

    async fn grant_coupons(&self, consumer: &str, campaign: &str, grants: &[Grant]) -> Result<Vec<Granted>> {
        outbox::grant(&self.pools, consumer, campaign, grants).await
    }

    async fn sweep(&self, what: Sweep, limit: u32) -> Result<u64> {
        sweep::sweep(&self.pools, what, limit).await
    }

    async fn list_records(&self, filter: RecordFilter) -> Result<Vec<RecordStory>> {
        stories::list(&self.pools, filter).await
    }

    async fn find_records(&self, key: &Key, account: Option<AccountId>) -> Result<Vec<RecordStory>> {
        stories::find(&self.pools, key, account).await
    }

    async fn free_records(&self, account: AccountId, key: &Key) -> Result<Vec<RecordStory>> {
        stories::free(&self.pools, account, key).await
    }

    async fn let_expire(&self, id: &RecordId) -> Result<bool> {
        stories::let_expire(&self.pools, id).await
    }

    async fn find_account(&self, subject: &Subject) -> Result<Option<AccountId>> {
        self.accounts.find(subject).await
    }

    async fn open_account(&self, subject: &Subject, opening: Cents) -> Result<AccountId> {
        self.accounts.open(subject, opening).await
    }

    async fn balance(&self, account: AccountId) -> Result<Cents> {
        self.accounts.balance(account).await
    }

    async fn buyer(&self, account: AccountId) -> Result<Buyer> {
        self.accounts.buyer(account).await
    }

    async fn coupons(&self, account: AccountId) -> Result<Vec<Coupon>> {
        accounts::coupons(&self.pools, account).await
    }

    async fn products(&self) -> Result<Vec<Product>> {
        catalogue::products(&self.pools).await
    }

    async fn import_products(&self, rows: &[Product]) -> Result<()> {
        catalogue::import(&self.pools, rows).await
    }

    async fn add_missing_products(&self, rows: &[Product]) -> Result<()> {
        catalogue::add_missing(&self.pools, rows).await
    }

    async fn set_stock(&self, sku: &Sku, stock: i64) -> Result<bool> {
        catalogue::set_stock(&self.pools, sku, stock).await
    }

    async fn create_session(&self, id: &str, data: &[u8], expires_at: OffsetDateTime) -> Result<bool> {
        self.sessions.create(id, data, expires_at).await
    }

    async fn save_session(&self, id: &str, data: &[u8], expires_at: OffsetDateTime) -> Result<()> {
        self.sessions.save(id, data, expires_at).await
    }

    async fn load_session(&self, id: &str) -> Result<Option<Vec<u8>>> {
        self.sessions.load(id).await
    }

    async fn delete_session(&self, id: &str) -> Result<()> {
        self.sessions.delete(id).await
    }
}
