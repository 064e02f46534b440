//! The connections: three pools, so that no kind of work can use up the connections of another.

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::str::FromStr;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPool, PgPoolOptions, PgQueryResult, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Connection, Error, PgConnection, Postgres};

use super::errors::{Stop, broken, is_lost, makes_way, map};
use super::settle::lately::Lately;
use crate::store::{PATIENCE, Result, StoreError};

/// Claims are one short statement for many keys; a second connection keeps a claim that waits for another process's
/// claim of the same key from holding up the rest.
const CLAIM_CONNECTIONS: u32 = 2;
/// The desk places with two of them at once; a third keeps one that the server is slow to close from being missed.
const OUTRIGHT_CONNECTIONS: u32 = 3;
/// How long the server lets a statement of these run: whoever repeats the request meanwhile at another process cannot be told
/// that it is under way.
const OUTRIGHT_STATEMENT: Duration = Duration::from_secs(1);
/// The desk settles with two writers; the others are for completing single records and for batches settled one by one.
const SETTLE_CONNECTIONS: u32 = 4;
/// Reads of pages and of the API, sessions, accounts: single look-ups of well under a millisecond.
const GENERAL_CONNECTIONS: u32 = 6;
/// How often a statement runs that was chosen to end a deadlock: each time another transaction got on.
const QUERY_ATTEMPTS: usize = 5;
/// A connection that was used a moment ago is trusted; after a longer pause it is asked first, so that a server
/// restarted meanwhile costs a round trip and not a failed request.
const TRUSTED_IDLE: Duration = Duration::from_millis(100);

/// How every session plans, see the module head. As no plan depends on the values, each is made once and kept: with
/// arrays the planner would rather make a new one each time, which takes longer than running it. And with scans
/// forbidden by their price, a dear plan must not wake the compiler.
pub const PLANNER: [(&str, &str); 3] =
    [("enable_seqscan", "off"), ("plan_cache_mode", "force_generic_plan"), ("jit", "off")];

/// Reads the URL, and takes what every connection shall have from it.
pub(super) fn options(url: &str) -> Result<PgConnectOptions> {
    if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(broken("the URL of a PostgreSQL database begins with postgres://"));
    }
    let options = PgConnectOptions::from_str(url).map_err(|_| broken("the URL of the database cannot be read"))?;
    // What a server has to say by the way ("relation already exists, skipping") is nothing to be logged at each start.
    Ok(options.application_name("oncegate").options([("client_min_messages", "warning")]))
}

pub(super) struct Pools {
    outright: PgPool,
    /// What placing outright goes by.
    pub(super) lately: Lately,
    claims: PgPool,
    settle: PgPool,
    general: PgPool,
    /// How long a server may be silent before its connection is given up: `statement_timeout` is the server's own
    /// promise, this is for one that cannot keep it (frozen, or behind a network that swallows everything).
    patience: Duration,
}

/// A connection in use. It goes back to its pool only by [`Held::give_back`]: dropped in the middle of something (a caller that
/// was cancelled, a silent server), it is closed instead, and the server rolls back. So no later user meets an open
/// transaction (sqlx 0.9, issue 4385) or waits for an answer to somebody else's question.
pub(super) struct Held(Option<PoolConnection<Postgres>>);

impl Held {
    fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}

impl Deref for Held {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.0.as_ref().expect("taken only by what ends the holding")
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.0.as_mut().expect("taken only by what ends the holding")
    }
}

/// A transaction that was begun. Dropped before its end, it is rolled back with its connection.
pub(super) struct Open(Held);

impl Open {
    /// Ends it for good. After an error it is unknown whether it did.
    pub(super) async fn commit(self) -> std::result::Result<(), Error> {
        self.end("COMMIT").await
    }

    /// Ends it as if it had never been.
    pub(super) async fn rollback(self) -> std::result::Result<(), Error> {
        self.end("ROLLBACK").await
    }

    async fn end(mut self, how: &'static str) -> std::result::Result<(), Error> {
        sqlx::raw_sql(how).execute(&mut *self.0).await?;
        self.0.give_back();
        Ok(())
    }
}

impl Deref for Open {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.0
    }
}

impl DerefMut for Open {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.0
    }
}

impl Pools {
    /// Opens nothing yet. A connection is waited for a third of `statement_timeout`, a lock half of it: a caller who
    /// waited for both still has time for the work.
    pub(super) fn new(plain: &PgConnectOptions, statement_timeout: Duration) -> Self {
        let millis = |limit: Duration| format!("{}ms", limit.as_millis().max(1));
        let limited = plain.clone().options([
            ("statement_timeout", millis(statement_timeout)),
            ("lock_timeout", millis(statement_timeout / 2)),
            // Longer than any pause of ours between two statements: whoever pauses longer is frozen or gone.
            ("idle_in_transaction_session_timeout", millis(statement_timeout)),
        ]);
        let limited = limited.options(PLANNER);
        let pool = |connections, options| {
            PgPoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(statement_timeout / 3)
                .test_before_acquire(false)
                .before_acquire(|connection, used| {
                    Box::pin(async move {
                        if used.idle_for > TRUSTED_IDLE {
                            connection.ping().await?;
                        }
                        Ok(true)
                    })
                })
                .connect_lazy_with(options)
        };
        let shortly = [
            ("statement_timeout", millis(OUTRIGHT_STATEMENT.min(statement_timeout))),
            ("lock_timeout", millis(PATIENCE.min(statement_timeout / 2))),
        ];
        Self {
            lately: Lately::default(),
            outright: pool(OUTRIGHT_CONNECTIONS, limited.clone().options(shortly)),
            // A claim that is lost in a crash has done nothing, so it need not wait for the disk.
            claims: pool(CLAIM_CONNECTIONS, limited.clone().options([("synchronous_commit", "off")])),
            settle: pool(SETTLE_CONNECTIONS, limited.clone()),
            general: pool(GENERAL_CONNECTIONS, limited),
            patience: statement_timeout * 4 / 3,
        }
    }

    pub(super) async fn close(&self) {
        tokio::join!(self.outright.close(), self.claims.close(), self.settle.close(), self.general.close());
    }

    /// Does some work on a connection for claims.
    pub(super) async fn on_claims<T>(
        &self,
        work: impl AsyncFnOnce(&mut PgConnection) -> std::result::Result<T, Stop>,
    ) -> std::result::Result<T, Stop> {
        let mut held = acquire(&self.claims).await?;
        let done = self.in_time(work(&mut held)).await?;
        held.give_back();
        done
    }

    /// Does some work on a connection that waits for nothing long.
    pub(super) async fn on_outright<T>(
        &self,
        work: impl AsyncFnOnce(&mut PgConnection) -> std::result::Result<T, Stop>,
    ) -> Result<T> {
        let mut held = acquire(&self.outright).await?;
        match self.in_time(work(&mut held)).await? {
            Err(Stop::Failed(error @ StoreError::Unreachable(_))) => {
                drop(held);
                discard_idle(&self.outright);
                Err(error)
            }
            done => {
                held.give_back();
                done.map_err(Stop::into)
            }
        }
    }

    /// What comes of some work on the server, unless it stays silent.
    pub(super) async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let silent = |_| StoreError::Unreachable(format!("no answer within {:?}", self.patience));
        tokio::time::timeout(self.patience, work).await.map_err(silent)
    }

    /// Runs a statement that may run twice: when its connection turns out to be dead, once more on a fresh one, as
    /// a restarted server kills them all, without the other idle ones; and again when it had to make way for another
    /// transaction, a few times.
    pub(super) async fn query(&self, statement: impl Fn() -> Statement) -> Result<Vec<PgRow>> {
        for _ in 1..QUERY_ATTEMPTS {
            match self.query_once(statement()).await? {
                Err(error) if makes_way(&error) => {}
                Err(error) if is_lost(&error) => {
                    discard_idle(&self.general);
                    break;
                }
                done => return done.map_err(|e| map(&e)),
            }
        }
        self.query_once(statement()).await?.map_err(|e| map(&e))
    }

    async fn query_once(&self, statement: Statement) -> Result<std::result::Result<Vec<PgRow>, Error>> {
        let mut held = acquire(&self.general).await?;
        let done = self.in_time(statement.fetch_all(&mut *held)).await?;
        if !done.as_ref().is_err_and(is_lost) {
            held.give_back();
        }
        Ok(done)
    }

    /// As [`Self::query`], and takes the only row.
    pub(super) async fn query_one(&self, statement: impl Fn() -> Statement) -> Result<Option<PgRow>> {
        Ok(self.query(statement).await?.into_iter().next())
    }

    /// Runs a durable statement that must not run twice.
    pub(super) async fn execute(&self, statement: Statement) -> Result<PgQueryResult> {
        let mut held = acquire(&self.settle).await?;
        let done = self.in_time(statement.execute(&mut *held)).await?;
        held.give_back();
        done.map_err(|e| map(&e))
    }

    /// Begins a transaction of the settling pool whose statements wait for locks at most `lock_wait`; twice, if the
    /// first connection turns out to be dead (a BEGIN that was lost did nothing). The one place that begins one.
    pub(super) async fn begin(&self, lock_wait: Duration) -> Result<Open> {
        match self.begin_once(lock_wait).await? {
            Err(error) if is_lost(&error) => discard_idle(&self.settle),
            begun => return begun.map_err(|e| map(&e)),
        }
        self.begin_once(lock_wait).await?.map_err(|e| map(&e))
    }

    async fn begin_once(&self, lock_wait: Duration) -> Result<std::result::Result<Open, Error>> {
        // The one text put together at run time: SET takes no parameters, and this saves a round trip.
        let text = format!("BEGIN; SET LOCAL lock_timeout = {}", lock_wait.as_millis().max(1));
        let mut held = acquire(&self.settle).await?;
        let begun = self.in_time(sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut *held)).await?;
        Ok(begun.map(|_| Open(held)))
    }
}

/// A statement with its values, not yet run.
pub(super) type Statement = Query<'static, Postgres, PgArguments>;

async fn acquire(pool: &PgPool) -> Result<Held> {
    let acquired = pool.acquire().await;
    if matches!(acquired, Err(Error::PoolTimedOut)) {
        // Either all are in use, or the first idle one that was asked whether it lives did not answer: nor will the others.
        discard_idle(pool);
    }
    acquired.map(|connection| Held(Some(connection))).map_err(|error| without_connection(pool, &error))
}

/// The pool reports the same time-out whether all connections are in use or none can be opened.
fn without_connection(pool: &PgPool, error: &Error) -> StoreError {
    let most = pool.options().get_max_connections();
    match error {
        Error::PoolTimedOut if pool.size() < most => StoreError::Unreachable("no connection can be opened".into()),
        Error::PoolTimedOut => StoreError::Busy(format!("none of {most} connections became free in time")),
        error => map(error),
    }
}

fn discard_idle(pool: &PgPool) {
    while let Some(idle) = pool.try_acquire() {
        drop(idle.detach());
    }
}
