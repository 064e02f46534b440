//! Making the service slow from outside, at a place of the test's choosing: locks, and triggers that wait.

use sqlx::{Connection, PgConnection, Postgres, Sqlite, SqliteConnection, Transaction};

use super::{Sql, TestStore};

/// A lock held by the test.
pub enum Hold {
    /// One row of `products`.
    Postgres(Transaction<'static, Postgres>),
    /// The file's write lock: SQLite has no smaller one.
    Sqlite(Transaction<'static, Sqlite>),
}

impl Sql {
    /// Locks this product, so that no order of it is settled. On SQLite nothing at all is written meanwhile.
    pub async fn hold(&self, sku: &str) -> Hold {
        match self {
            Self::Postgres(pool) => {
                let mut held = pool.begin().await.unwrap();
                let row = "SELECT 1 FROM products WHERE sku = $1 FOR UPDATE";
                sqlx::query(row).bind(sku.to_owned()).execute(&mut *held).await.unwrap();
                Hold::Postgres(held)
            }
            Self::Sqlite(pool) => Hold::Sqlite(pool.begin_with("BEGIN IMMEDIATE").await.unwrap()),
        }
    }
}

impl Hold {
    /// Lets go.
    pub async fn release(self) {
        match self {
            Self::Postgres(held) => held.rollback().await.unwrap(),
            Self::Sqlite(held) => held.rollback().await.unwrap(),
        }
    }
}

/// Where the service is stopped, inside the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the statement that claims, before its row is there.
    Claim,
    /// In the transaction that settles, before the order is there.
    Order,
    /// In the same, once all else is written: while the answer is stored.
    Answer,
    /// In its commit. PostgreSQL only.
    Commit,
}

/// A trigger that holds whoever comes to its place: on PostgreSQL until the test opens it; on SQLite, which has nothing to
/// wait for, by counting for so long that only the end of the process ends it. There the key [`Gate::PASSES`] is let
/// through: what a second process has waiting behind the write lock gets it the moment the first is killed, and nobody
/// would kill the second one.
pub struct Gate {
    guard: Option<PgConnection>,
    place: Place,
}

/// The number of the advisory lock is the trigger's argument. Only the statement's own time-out ends the wait.
const FUNCTION: &str =
    "CREATE OR REPLACE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $$ BEGIN
    PERFORM pg_advisory_xact_lock_shared(TG_ARGV[0]::bigint); RETURN NEW; END $$";
/// A view, because a trigger may not have a WITH of its own.
const COUNTING: &str = "CREATE VIEW IF NOT EXISTS counting AS
    WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 1000000000000) SELECT x FROM n";

impl Gate {
    /// The idempotency key that no gate holds on SQLite.
    pub const PASSES: &str = "passes";

    /// Closes it.
    pub async fn close(under: &TestStore, place: Place) -> Self {
        let (kind, moment) = match place {
            Place::Claim => ("OR REPLACE TRIGGER", "BEFORE INSERT ON idempotency_records"),
            Place::Order => ("OR REPLACE TRIGGER", "BEFORE INSERT ON orders"),
            Place::Answer => ("OR REPLACE TRIGGER", "BEFORE UPDATE ON idempotency_records"),
            Place::Commit => ("CONSTRAINT TRIGGER", "AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED"),
        };
        let number = place as u8;
        if let Sql::Sqlite(_) = under.sql {
            assert_ne!(place, Place::Commit, "SQLite has no trigger there");
            under.sql.run(COUNTING).await;
            let key = if place == Place::Order { "idempotency_key" } else { "key" };
            let held = format!("WHEN NEW.{key} <> '{}' BEGIN SELECT count(*) FROM counting; END", Self::PASSES);
            under.sql.run(&format!("CREATE TRIGGER gate {moment} {held}")).await;
            return Self { guard: None, place };
        }
        let mut guard = PgConnection::connect(under.database.url()).await.unwrap();
        let lock = sqlx::query("SELECT pg_advisory_lock($1)").bind(i64::from(number));
        lock.execute(&mut guard).await.unwrap();
        under.sql.run(FUNCTION).await;
        under
            .sql
            .run(&format!("CREATE {kind} gate_{number} {moment} FOR EACH ROW EXECUTE FUNCTION gate({number})"))
            .await;
        Self { guard: Some(guard), place }
    }

    /// Whether somebody is held: on PostgreSQL told by its lock table; on SQLite by the file's write lock being taken, and by
    /// the claim, which stands before all places but its own.
    pub async fn is_reached(&self, under: &TestStore) -> bool {
        if self.guard.is_some() {
            let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
            return under.sql.int(waiting).await > 0;
        }
        let mut probe = SqliteConnection::connect(under.database.url()).await.unwrap();
        sqlx::query("PRAGMA busy_timeout = 0").execute(&mut probe).await.unwrap();
        if let Ok(transaction) = probe.begin_with("BEGIN IMMEDIATE").await {
            transaction.rollback().await.unwrap();
            return false;
        }
        let claims = "SELECT count(*) FROM idempotency_records WHERE status = 'processing'";
        self.place == Place::Claim || under.sql.int(claims).await > 0
    }

    /// Lets everybody on. On SQLite whoever was held must have been killed.
    pub async fn open(self, under: &TestStore) {
        match self.guard {
            // The trigger stays: taking it away would wait for whoever was held.
            Some(guard) => guard.close().await.unwrap(),
            None => drop(under.sql.run("DROP TRIGGER gate").await),
        }
    }
}
