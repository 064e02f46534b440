//! What every integration test stands on: a private database, its store, and SQL of the test's own.
//!
//! The SQL of the tests is written so that both databases take it; what differs between them is in here.

pub mod client;
pub mod clock;
pub mod goods;
pub mod hold;
pub mod invariants;
pub mod life;
pub mod log;
pub mod proxy;
pub mod redis;
pub mod service;
pub mod shop;
pub mod site;
pub mod till;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use oncegate::store::postgres::{PgTuning, Postgres};
use oncegate::store::{Store, sqlite};
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool, SqlitePool};
use uuid::Uuid;

/// Long enough for a starved machine, short enough to end a hanging test.
pub const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// An HTTP client of the test's own. Where TLS is built in, one has to say whose cryptography, also for those who ask no
/// `https`: the program does it in its `main`, tests here.
pub fn http() -> reqwest::ClientBuilder {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
}

/// A database that nobody else uses, gone when this is dropped.
pub struct Database {
    url: String,
    kept: Kept,
}

enum Kept {
    Postgres { server: String, name: String },
    Sqlite(#[allow(dead_code, reason = "held for its folder")] tempfile::TempDir),
}

impl Database {
    /// An empty one: on the server of `TEST_DATABASE_URL`, else a file in a temporary folder.
    pub async fn create() -> Self {
        let Ok(server) = std::env::var("TEST_DATABASE_URL") else {
            let folder = tempfile::tempdir().unwrap();
            let url = format!("sqlite://{}", folder.path().join("oncegate.db").display());
            return Self { url, kept: Kept::Sqlite(folder) };
        };
        let name = format!("oncegate_test_{}", Uuid::new_v4().simple());
        admin(&server, format!("CREATE DATABASE {name}")).await;
        let mut url: reqwest::Url = server.parse().unwrap();
        url.set_path(&name);
        Self { url: url.into(), kept: Kept::Postgres { server, name } }
    }

    /// What `DATABASE_URL` would be.
    pub fn url(&self) -> &str {
        &self.url
    }
}

async fn admin(server: &str, statement: String) {
    let mut connection = PgConnection::connect(server).await.expect("TEST_DATABASE_URL can be reached");
    sqlx::query(AssertSqlSafe(statement)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

impl Drop for Database {
    /// Also after a panic, hence here; in a thread with a runtime of its own, because `drop` cannot wait.
    fn drop(&mut self) {
        let Kept::Postgres { server, name } = &self.kept else { return };
        let (server, statement) = (server.clone(), format!("DROP DATABASE {name} WITH (FORCE)"));
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(admin(&server, statement));
        });
        if dropped.join().is_err() {
            println!("{name} was left behind");
        }
    }
}

/// A store on this database, as the service opens it; call it again for what would be a second process.
pub async fn open(url: &str) -> Arc<dyn Store> {
    if let Some(path) = url.strip_prefix("sqlite://") {
        let options = sqlite::Options { busy_timeout: STATEMENT_TIMEOUT, ..sqlite::Options::default() };
        return Arc::new(sqlite::Sqlite::connect(Path::new(path), options).await.unwrap());
    }
    let tuning = PgTuning { statement_timeout: STATEMENT_TIMEOUT, connect_within: STATEMENT_TIMEOUT };
    Arc::new(Postgres::connect(url, tuning).await.unwrap())
}

/// A migrated private database with a store, and SQL of the test's own to arrange and to look.
pub struct TestStore {
    /// What is tested.
    pub store: Arc<dyn Store>,
    /// Beside it.
    pub sql: Sql,
    /// Dropped last.
    pub database: Database,
}

impl TestStore {
    pub async fn new() -> Self {
        let database = Database::create().await;
        let store = open(database.url()).await;
        store.migrate().await.unwrap();
        let sql = Sql::open(database.url()).await;
        Self { store, sql, database }
    }

    /// For what only PostgreSQL can show; `None` in the run on the embedded pair.
    pub async fn on_postgres() -> Option<Self> {
        std::env::var_os("TEST_DATABASE_URL")?;
        Some(Self::new().await)
    }

    /// What would be a second process on the same database.
    pub async fn second(&self) -> Arc<dyn Store> {
        open(self.database.url()).await
    }

    /// Ends every lease now.
    pub async fn end_leases(&self) {
        self.sql.run("UPDATE idempotency_records SET lease_expires_at = created_at").await;
    }

    /// Lets every record expire now.
    pub async fn expire_records(&self) {
        self.sql.run("UPDATE idempotency_records SET expires_at = created_at").await;
    }
}

/// SQL that both databases take.
pub enum Sql {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

macro_rules! on_either {
    ($self:ident, $pool:ident => $work:expr) => {
        match $self {
            Sql::Postgres($pool) => $work,
            Sql::Sqlite($pool) => $work,
        }
    };
}

impl Sql {
    pub async fn open(url: &str) -> Self {
        if url.starts_with("sqlite:") {
            Self::Sqlite(SqlitePool::connect(url).await.unwrap())
        } else {
            Self::Postgres(PgPool::connect(url).await.unwrap())
        }
    }

    /// The connections, for a test that only PostgreSQL runs.
    pub fn postgres(&self) -> &PgPool {
        match self {
            Self::Postgres(pool) => pool,
            Self::Sqlite(_) => panic!("not on PostgreSQL"),
        }
    }

    /// Runs a statement and tells how many rows it touched, or what the database said against it.
    pub async fn try_run(&self, statement: &str) -> Result<u64, String> {
        let statement = AssertSqlSafe(statement.to_owned());
        on_either!(self, pool => match sqlx::query(statement).execute(pool).await {
            Ok(done) => Ok(done.rows_affected()),
            Err(error) => Err(error.to_string()),
        })
    }

    /// Runs a statement that must succeed.
    pub async fn run(&self, statement: &str) -> u64 {
        self.try_run(statement).await.unwrap()
    }

    /// One whole number; sums need a `CAST(… AS bigint)`, which both databases know.
    pub async fn int(&self, query: &str) -> i64 {
        let query = AssertSqlSafe(query.to_owned());
        on_either!(self, pool => sqlx::query_scalar(query).fetch_one(pool).await.unwrap())
    }

    /// One text.
    pub async fn text(&self, query: &str) -> String {
        let query = AssertSqlSafe(query.to_owned());
        on_either!(self, pool => sqlx::query_scalar(query).fetch_one(pool).await.unwrap())
    }
}
