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
    /// Where a record is claimed, or placed together with its order: before its row is there.
    Claim,
    /// In the transaction that places or settles, before the order is there.
    Order,
    /// In the one that settles, once all else is written: while the answer is stored under the claim.
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
        Self::close_to(under, place, "true").await
    }

    /// Closes it to the rows of which this is true (of `NEW`).
    pub async fn close_to(under: &TestStore, place: Place, held: &str) -> Self {
        if let Sql::Sqlite(_) = under.sql {
            Self::close_sqlite(under, place, held).await;
            return Self { guard: None };
        }
        let (kind, moment) = match place {
            Place::Claim => ("OR REPLACE TRIGGER", "BEFORE INSERT ON idempotency_records"),
            Place::Order => ("OR REPLACE TRIGGER", "BEFORE INSERT ON orders"),
            Place::Answer => ("OR REPLACE TRIGGER", "BEFORE UPDATE ON idempotency_records"),
            Place::Commit => ("CONSTRAINT TRIGGER", "AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED"),
        };
        // Taking over is an update too, which has no answer.
        let held = if place == Place::Answer { format!("{held} AND NEW.status = 'done'") } else { held.to_owned() };
        let number = place as u8;
        let mut guard = PgConnection::connect(under.database.url()).await.unwrap();
        let lock = sqlx::query("SELECT pg_advisory_lock($1)").bind(i64::from(number));
        lock.execute(&mut guard).await.unwrap();
        under.sql.run(FUNCTION).await;
        let trigger =
            format!("CREATE {kind} gate_{number} {moment} FOR EACH ROW WHEN ({held}) EXECUTE FUNCTION gate({number})");
        under.sql.run(&trigger).await;
        Self { guard: Some(guard) }
    }

    async fn close_sqlite(under: &TestStore, place: Place, held: &str) {
        under.sql.run(COUNTING).await;
        let records = |moment, status| (moment, "idempotency_records", "key", format!("NEW.status = '{status}'"));
        let moments = match place {
            // There a claim is taken over by an update.
            Place::Claim => {
                vec![("INSERT", "idempotency_records", "key", "true".into()), records("UPDATE", "processing")]
            }
            Place::Order => vec![("INSERT", "orders", "idempotency_key", "true".into())],
            Place::Answer => vec![records("UPDATE", "done")],
            Place::Commit => panic!("SQLite has no trigger there"),
        };
        for (moment, table, key, what) in moments {
            let passes = format!("NEW.{key} <> '{}'", Self::PASSES);
            let trigger = format!(
                "CREATE TRIGGER gate_{moment} BEFORE {moment} ON {table} WHEN {held} AND {what} AND {passes}
                BEGIN SELECT count(*) FROM counting; END"
            );
            under.sql.run(&trigger).await;
        }
    }

    /// Whether somebody is held: on PostgreSQL told by its lock table; on SQLite by the file's write lock being taken for longer
    /// than anybody else needs it.
    pub async fn is_reached(&self, under: &TestStore) -> bool {
        if self.guard.is_some() {
            let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
            return under.sql.int(waiting).await > 0;
        }
        let mut probe = SqliteConnection::connect(under.database.url()).await.unwrap();
        sqlx::query("PRAGMA busy_timeout = 300").execute(&mut probe).await.unwrap();
        match probe.begin_with("BEGIN IMMEDIATE").await {
            Ok(free) => {
                free.rollback().await.unwrap();
                false
            }
            Err(_) => true,
        }
    }

    /// Lets everybody on. On SQLite whoever was held must have been killed.
    pub async fn open(self, under: &TestStore) {
        match self.guard {
            // The trigger stays: taking it away would wait for whoever was held.
            Some(guard) => guard.close().await.unwrap(),
            None => {
                for moment in ["INSERT", "UPDATE"] {
                    under.sql.run(&format!("DROP TRIGGER IF EXISTS gate_{moment}")).await;
                }
            }
        }
    }
}
