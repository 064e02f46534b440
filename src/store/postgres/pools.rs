//! The connections: three pools, so that no kind of work can use up the connections of another.
//!
//! The server ends what takes too long, so whoever hears nothing for much longer than that is connected to nobody: after a
//! fail-over behind a firewall no connection is closed, and none ever answers again. The driver would wait for ever, also when
//! it takes a connection back. So every call is limited ([`Pools::within`]), and when one hears nothing the pools are
//! replaced by new ones, all of them: their connections lead to the same server.

use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

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
    Ok(options.application_name("oncegate"))
}

pub(super) struct Pools {
    plain: PgConnectOptions,
    statement_timeout: Duration,
    current: RwLock<Arc<Three>>,
}

/// What is replaced together.
struct Three {
    claims: Pool,
    settle: Pool,
    general: Pool,
}

/// A pool that knows when it last had a connection to give.
struct Pool {
    inner: PgPool,
    gave: Mutex<Instant>,
}

impl Pools {
    /// Opens nothing yet.
    pub(super) fn new(plain: &PgConnectOptions, statement_timeout: Duration) -> Self {
        let current = RwLock::new(Arc::new(Three::new(plain, statement_timeout)));
        Self { plain: plain.clone(), statement_timeout, current }
    }

    pub(super) async fn close(&self) {
        self.current().close().await;
    }

    /// Gives a call its time: what is longer than any that is answered, and shorter than a lease by default.
    pub(super) async fn within<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let used = self.current();
        match tokio::time::timeout(self.silence(), call).await {
            Ok(answer) => answer,
            Err(_) => {
                self.replace(&used);
                Err(StoreError::Unreachable("the database fell silent".into()))
            }
        }
    }

    /// One connection for claims.
    pub(super) async fn for_claims(&self) -> Result<PoolConnection<Postgres>> {
        let three = self.current();
        self.checked(&three, three.claims.acquire().await)
    }

    /// Runs a statement that may run twice: when its connection turns out to be dead, once more on a fresh one. As
    /// a restarted server kills them all, the other idle ones are thrown away first.
    pub(super) async fn query(&self, statement: impl Fn() -> Statement) -> Result<Vec<PgRow>> {
        let three = self.current();
        let mut connection = self.checked(&three, three.general.acquire().await)?;
        match statement().fetch_all(&mut *connection).await {
            Err(error) if is_lost(&error) => discard(connection, &three.general.inner),
            done => return done.map_err(|e| map(&e)),
        }
        let mut connection = self.checked(&three, three.general.acquire().await)?;
        statement().fetch_all(&mut *connection).await.map_err(|e| map(&e))
    }

    /// As [`Self::query`], and takes the only row.
    pub(super) async fn query_one(&self, statement: impl Fn() -> Statement) -> Result<Option<PgRow>> {
        Ok(self.query(statement).await?.into_iter().next())
    }

    /// Runs a durable statement that must not run twice.
    pub(super) async fn execute(&self, statement: Statement) -> Result<PgQueryResult> {
        let three = self.current();
        let mut connection = self.checked(&three, three.settle.acquire().await)?;
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
        let three = self.current();
        let pool = three.settle.inner.clone();
        let begun = tokio::spawn(async move {
            match pool.begin_with(AssertSqlSafe(text.clone())).await {
                Err(error) if is_lost(&error) => {
                    discard_idle(&pool);
                    pool.begin_with(AssertSqlSafe(text)).await
                }
                begun => begun,
            }
        });
        match begun.await {
            Ok(begun) => self.checked(&three, three.settle.given(begun)),
            Err(_) => Err(StoreError::Unreachable("the runtime is shutting down".into())),
        }
    }

    /// How long a pool may have nothing to give, and a call no answer: twice what the server allows a statement. A call of
    /// several statements that is slower than this has long been given up by its caller.
    fn silence(&self) -> Duration {
        self.statement_timeout * 2
    }

    fn current(&self) -> Arc<Three> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Connections that fell silent on their way back are missing for ever: a pool that had none to give for so long, although
    /// every call is limited, has lost them.
    fn checked<T>(&self, three: &Arc<Three>, given: std::result::Result<T, Missing>) -> Result<T> {
        given.map_err(|missing| {
            if matches!(missing.error, StoreError::Busy(_)) && missing.since > self.silence() {
                self.replace(three);
            }
            missing.error
        })
    }

    /// Replaces the pools, unless somebody else has done so already.
    fn replace(&self, silent: &Arc<Three>) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&current, silent) {
            return;
        }
        tracing::warn!("the connections to the database fell silent and are replaced");
        let silent = std::mem::replace(&mut *current, Arc::new(Three::new(&self.plain, self.statement_timeout)));
        let limit = self.silence();
        tokio::spawn(async move { tokio::time::timeout(limit, silent.close()).await });
    }
}

impl Three {
    /// A connection is waited for a third of `statement_timeout`, a lock half of it: a caller who waited for both still
    /// has time for the work.
    fn new(plain: &PgConnectOptions, statement_timeout: Duration) -> Self {
        let millis = |limit: Duration| format!("{}ms", limit.as_millis().max(1));
        let limited = plain.clone().options([
            ("statement_timeout", millis(statement_timeout)),
            ("lock_timeout", millis(statement_timeout / 2)),
            // Longer than any pause of ours between two statements: whoever pauses longer is frozen or gone.
            ("idle_in_transaction_session_timeout", millis(statement_timeout)),
        ]);
        let limited = limited.options(PLANNER);
        let pool = |connections, options| {
            let inner = PgPoolOptions::new()
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
                .connect_lazy_with(options);
            Pool { inner, gave: Mutex::new(Instant::now()) }
        };
        Self {
            // A claim that is lost in a crash has done nothing, so it need not wait for the disk.
            claims: pool(CLAIM_CONNECTIONS, limited.clone().options([("synchronous_commit", "off")])),
            settle: pool(SETTLE_CONNECTIONS, limited.clone()),
            general: pool(GENERAL_CONNECTIONS, limited),
        }
    }

    async fn close(&self) {
        tokio::join!(self.claims.inner.close(), self.settle.inner.close(), self.general.inner.close());
    }
}

/// Why there was no connection.
struct Missing {
    error: StoreError,
    /// How long the pool has had none to give.
    since: Duration,
}

impl Pool {
    async fn acquire(&self) -> std::result::Result<PoolConnection<Postgres>, Missing> {
        self.given(self.inner.acquire().await)
    }

    fn given<T>(&self, given: std::result::Result<T, Error>) -> std::result::Result<T, Missing> {
        let mut gave = self.gave.lock().unwrap_or_else(PoisonError::into_inner);
        match given {
            Ok(given) => {
                *gave = Instant::now();
                Ok(given)
            }
            Err(Error::PoolTimedOut) => {
                // Either there are none, or the first that was asked whether it still lives has not answered.
                discard_idle(&self.inner);
                Err(Missing { error: without_connection(&self.inner), since: gave.elapsed() })
            }
            Err(error) => Err(Missing { error: map(&error), since: Duration::ZERO }),
        }
    }
}

/// A statement with its values, not yet run.
pub(super) type Statement = Query<'static, Postgres, PgArguments>;

/// The pool reports the same time-out whether all connections are in use or none can be opened.
fn without_connection(pool: &PgPool) -> StoreError {
    let most = pool.options().get_max_connections();
    if pool.size() < most {
        StoreError::Unreachable("no connection can be opened".into())
    } else {
        StoreError::Busy(format!("none of {most} connections became free in time"))
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
