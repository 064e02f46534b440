//! Opening the file: the two pools and their settings, and the schema.

use std::path::Path;
use std::time::{Duration, Instant};

use sqlx::ConnectOptions;
use sqlx::Connection;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};
use tokio::time::sleep;

use super::fault::{fault, is_busy};
use super::{Commit, Result, Sqlite, StoreError};

static MIGRATIONS: Migrator = sqlx::migrate!("migrations/sqlite");

/// Pause between two tries to switch a new file to WAL, which SQLite itself does not wait for.
const WAL_PAUSE: Duration = Duration::from_millis(10);
/// The WAL is folded into the file when it has this many pages (4 KiB each): 8 MiB, a good compromise between how
/// often the file is written and how much a reader has to look through.
const WAL_PAGES: &str = "2000";
/// A WAL that grew beyond this (a reader held it back) is cut down to it afterwards. In bytes: 32 MiB.
const WAL_LIMIT: &str = "33554432";
/// Page cache of the writer, in KiB (negative is how SQLite spells that): the hot end of every index.
const WRITER_CACHE: &str = "-16384";

/// How patient and how wide the store is.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long one call waits for the write lock (of this process and of the file) before
    /// [`StoreError::Busy`], unless the call names its own limit.
    pub busy_timeout: Duration,
    /// How many connections read at the same time; they are opened when they are needed.
    pub readers: u32,
}

impl Default for Options {
    /// 5 s, 4 readers.
    fn default() -> Self {
        Self { busy_timeout: Duration::from_secs(5), readers: 4 }
    }
}

impl Sqlite {
    /// Opens the database file, making it and its folder where they are missing. The schema is not touched: see
    /// [`Store::migrate`](crate::store::Store::migrate).
    ///
    /// # Errors
    /// `Unreachable` when the file cannot be made, opened or written; `Busy` when another process holds it for longer
    /// than `busy_timeout`; `Broken` when it is not a database.
    pub async fn connect(path: &Path, options: Options) -> Result<Self> {
        // Absolute, so that no name is taken for a URI (`file:…`) by SQLite.
        let path = std::path::absolute(path).map_err(|e| unusable(path, &e))?;
        if let Some(folder) = path.parent() {
            tokio::fs::create_dir_all(folder).await.map_err(|e| unusable(folder, &e))?;
        }
        let file = SqliteConnectOptions::new()
            .filename(&path)
            .busy_timeout(options.busy_timeout)
            .foreign_keys(true)
            .pragma("wal_autocheckpoint", WAL_PAGES)
            .pragma("journal_size_limit", WAL_LIMIT)
            // Sorts and statement journals stay off the disk; the rows that one call touches are bounded.
            .pragma("temp_store", "MEMORY")
            // Keys and references do not belong in a log.
            .disable_statement_logging();
        let writer = open_writer(&path, &file, options.busy_timeout).await?;
        let readers = pool(options.readers.max(1), options.busy_timeout)
            // Whatever a bug sends to a reader, it does not write.
            .connect_lazy_with(file.pragma("query_only", "ON"));
        Ok(Self { writer, readers, busy_timeout: options.busy_timeout })
    }
}

/// Opens the one connection that writes, and puts the file into WAL mode. That switch needs the file for itself for a
/// moment and does not wait for it, so processes that start at once would fail each other: tried again until `wait`
/// is over.
async fn open_writer(path: &Path, file: &SqliteConnectOptions, wait: Duration) -> Result<SqlitePool> {
    let file =
        file.clone().create_if_missing(true).journal_mode(SqliteJournalMode::Wal).pragma("cache_size", WRITER_CACHE);
    let deadline = Instant::now() + wait;
    loop {
        match writer_pool(wait).connect_with(file.clone()).await {
            Ok(pool) => return Ok(pool),
            Err(error) if is_busy(&error) && Instant::now() < deadline => sleep(WAL_PAUSE).await,
            Err(error) => return Err(fault(error).about(path)),
        }
    }
}

/// Connections live for ever: there is no server that could have closed them.
fn pool(size: u32, wait: Duration) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(size)
        .acquire_timeout(wait)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
}

/// SQLite ends a transaction by itself on some errors (a full disk), which the driver does not notice: its own ROLLBACK
/// then fails, and it would refuse every later BEGIN. Such a connection is replaced.
fn writer_pool(wait: Duration) -> SqlitePoolOptions {
    pool(1, wait).after_release(|connection, _| {
        Box::pin(async move {
            // A dropped transaction's ROLLBACK is queued: this waits for it.
            connection.ping().await?;
            Ok(!connection.is_in_transaction())
        })
    })
}

/// SQLite's waits are `int` milliseconds.
pub(super) fn pragma_millis(wait: Duration) -> i32 {
    i32::try_from(wait.as_millis()).unwrap_or(i32::MAX)
}

fn unusable(path: &Path, error: &std::io::Error) -> StoreError {
    StoreError::Unreachable(format!("{}: {error}", path.display()))
}

/// Brings the schema up to date inside one immediate transaction: all of it or nothing, and of several processes that
/// start at once one does it while the others wait (the driver takes no lock of its own on SQLite).
pub(super) async fn migrate(store: &Sqlite) -> Result<()> {
    let mut tx = store.begin(Commit::Durable).await?;
    // What `run` calls; that one's `Acquire` bound does not hold inside an async trait.
    MIGRATIONS.run_direct(None, &mut *tx, false).await.map_err(|error| match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => fault(error),
        other => StoreError::Broken(format!("schema: {other}")),
    })?;
    tx.commit().await.map_err(fault)
}
