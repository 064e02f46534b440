//! The connections: three pools, so that no kind of work can use up the connections of another.

use std::str::FromStr;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPool, PgPoolOptions, PgQueryResult, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Connection, Error, Postgres, Transaction};

use super::errors::{broken, is_lost, map};
use crate::store::{Result, StoreError};

/// Claims are one short statement for many keys; a second connection keeps a claim that waits for another process's
/// claim of the same key from holding up the rest.
const CLAIM_CONNECTIONS: u32 = 2;
/// The desk settles with two writers; the others are for completing single records and for batches settled one by one.
const SETTLE_CONNECTIONS: u32 = 4;
/// Reads of pages and of the API, sessions, accounts: single look-ups of well under a millisecond.
const GENERAL_CONNECTIONS: u32 = 6;
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
    claims: PgPool,
    settle: PgPool,
    general: PgPool,
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
        Self {
            // A claim that is lost in a crash has done nothing, so it need not wait for the disk.
            claims: pool(CLAIM_CONNECTIONS, limited.clone().options([("synchronous_commit", "off")])),
            settle: pool(SETTLE_CONNECTIONS, limited.clone()),
            general: pool(GENERAL_CONNECTIONS, limited),
        }
    }

    pub(super) async fn close(&self) {
        tokio::join!(self.claims.close(), self.settle.close(), self.general.close());
    }

    /// One connection for claims.
    pub(super) async fn for_claims(&self) -> Result<PoolConnection<Postgres>> {
        acquire(&self.claims).await
    }

    /// Runs a statement that may run twice: when its connection turns out to be dead, once more on a fresh one. As
    /// a restarted server kills them all, the other idle ones are thrown away first.
    pub(super) async fn query(&self, statement: impl Fn() -> Statement) -> Result<Vec<PgRow>> {
        let mut connection = acquire(&self.general).await?;
        match statement().fetch_all(&mut *connection).await {
            Err(error) if is_lost(&error) => discard(connection, &self.general),
            done => return done.map_err(|e| map(&e)),
        }
        let mut connection = acquire(&self.general).await?;
        statement().fetch_all(&mut *connection).await.map_err(|e| map(&e))
    }

    /// As [`Self::query`], and takes the only row.
    pub(super) async fn query_one(&self, statement: impl Fn() -> Statement) -> Result<Option<PgRow>> {
        Ok(self.query(statement).await?.into_iter().next())
    }

    /// Runs a durable statement that must not run twice.
    pub(super) async fn execute(&self, statement: Statement) -> Result<PgQueryResult> {
        let mut connection = acquire(&self.settle).await?;
        statement.execute(&mut *connection).await.map_err(|e| map(&e))
    }

    /// Begins a transaction of the settling pool whose statements wait for locks at most `lock_wait`; twice, if the
    /// first connection turns out to be dead (a BEGIN that was lost did nothing).
    ///
    /// In a task of its own: a future dropped while BEGIN is under way would hand the connection back to the pool
    /// inside a transaction that nobody knows of (sqlx 0.9, issue 4385). Never call `begin` anywhere else.
    pub(super) async fn begin(&self, lock_wait: Duration) -> Result<Transaction<'static, Postgres>> {
        // The one text put together at run time: SET takes no parameters, and this saves a round trip.
        let text = format!("BEGIN; SET LOCAL lock_timeout = {}", lock_wait.as_millis().max(1));
        let pool = self.settle.clone();
        let begun = tokio::spawn(async move {
            match pool.begin_with(AssertSqlSafe(text.clone())).await {
                Err(error) if is_lost(&error) => {
                    discard_idle(&pool);
                    pool.begin_with(AssertSqlSafe(text)).await
                }
                begun => begun,
            }
            .map_err(|error| without_connection(&pool, &error))
        });
        begun.await.unwrap_or_else(|_| Err(StoreError::Unreachable("the runtime is shutting down".into())))
    }
}

/// A statement with its values, not yet run.
pub(super) type Statement = Query<'static, Postgres, PgArguments>;

async fn acquire(pool: &PgPool) -> Result<PoolConnection<Postgres>> {
    pool.acquire().await.map_err(|error| without_connection(pool, &error))
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

/// Takes a dead connection out of its pool, and the idle ones with it.
fn discard(dead: PoolConnection<Postgres>, pool: &PgPool) {
    drop(dead.detach());
    discard_idle(pool);
}

fn discard_idle(pool: &PgPool) {
    while let Some(idle) = pool.try_acquire() {
        drop(idle.detach());
    }
}
