//! Times in SQL that both databases take, and rows that somebody else holds.

use sqlx::{AssertSqlSafe, PgPool, SqlitePool};

use super::Sql;

impl Sql {
    /// The database's clock, this many seconds later (or earlier), as an expression.
    pub fn moment(&self, seconds: i64) -> String {
        match self {
            Self::Postgres(_) => format!("(clock_timestamp() + interval '{seconds} s')"),
            Self::Sqlite(_) => format!("(CAST(unixepoch('subsec') * 1000 AS INTEGER) + {seconds} * 1000)"),
        }
    }

    /// A column or expression of a time as milliseconds since 1970.
    pub fn millis(&self, time: &str) -> String {
        match self {
            Self::Postgres(_) => format!("CAST(extract(epoch FROM {time}) * 1000 AS bigint)"),
            Self::Sqlite(_) => time.to_owned(),
        }
    }

    /// The database's clock in milliseconds since 1970.
    pub async fn clock(&self) -> i64 {
        self.int(&format!("SELECT {}", self.millis(&self.moment(0)))).await
    }

    /// Runs a statement in a transaction that is left open: what it touched is held until [`Held::commit`].
    pub async fn keep_open(&self, statement: &str) -> Held {
        let statement = AssertSqlSafe(statement.to_owned());
        match self {
            Self::Postgres(pool) => {
                let mut transaction = PgPool::begin(pool).await.unwrap();
                sqlx::query(statement).execute(&mut *transaction).await.unwrap();
                Held::Postgres(transaction)
            }
            Self::Sqlite(pool) => {
                let mut transaction = SqlitePool::begin_with(pool, "BEGIN IMMEDIATE").await.unwrap();
                sqlx::query(statement).execute(&mut *transaction).await.unwrap();
                Held::Sqlite(transaction)
            }
        }
    }
}

/// An open transaction; dropped, it is rolled back.
pub enum Held {
    Postgres(sqlx::Transaction<'static, sqlx::Postgres>),
    Sqlite(sqlx::Transaction<'static, sqlx::Sqlite>),
}

impl Held {
    pub async fn commit(self) {
        match self {
            Self::Postgres(transaction) => transaction.commit().await.unwrap(),
            Self::Sqlite(transaction) => transaction.commit().await.unwrap(),
        }
    }
}
