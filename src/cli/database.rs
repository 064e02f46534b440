//! Reaching the database, for every command that needs it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::Failure;
use crate::config::{self, Database, Settings};
use crate::store::postgres::{PgTuning, Postgres};
use crate::store::sqlite::{self, Sqlite};
use crate::store::{Store, StoreError};

/// How long a database that does not answer is waited for: an operator is told within 15 s.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// How long a database that is busy is tried again: a start falls into the work of others, and is not worth less.
const BUSY_WITHIN: Duration = Duration::from_secs(5);
/// The pause between two tries.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// How long one statement of a command may take; an import is one of them.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Connects, and brings the schema up to date unless that is forbidden.
///
/// `patience`: how long one statement may take or wait for a lock.
pub(super) async fn open(database: &Database, migrate: bool, patience: Duration) -> Result<Arc<dyn Store>, Failure> {
    let begun = Instant::now();
    let again = |error: &StoreError| begun.elapsed() < BUSY_WITHIN && !matches!(error, StoreError::Broken(_));
    let store = loop {
        match open_once(database, migrate, patience).await {
            Err(error @ StoreError::Busy(_)) if again(&error) => tokio::time::sleep(BUSY_PAUSE).await,
            opened => break opened.map_err(|e| failure(database, &e))?,
        }
    };
    // It is there, so the first connection of its pool may take longer than a buyer would be let wait for one.
    loop {
        match store.ping().await {
            Err(error) if again(&error) => tokio::time::sleep(BUSY_PAUSE).await,
            answered => return answered.map(|()| store).map_err(|e| failure(database, &e)),
        }
    }
}

async fn open_once(database: &Database, migrate: bool, patience: Duration) -> Result<Arc<dyn Store>, StoreError> {
    let store = timeout(CONNECT_WITHIN, connect(database, migrate, patience)).await;
    let store = store.unwrap_or_else(|_| Err(StoreError::Unreachable("no answer".to_owned())))?;
    if migrate {
        store.migrate().await?;
    }
    Ok(store)
}

async fn connect(database: &Database, migrate: bool, patience: Duration) -> Result<Arc<dyn Store>, StoreError> {
    match database {
        Database::Sqlite(path) => {
            let options = sqlite::Options { busy_timeout: patience.min(CONNECT_WITHIN / 2), ..Default::default() };
            let store = Sqlite::connect(path, options).await?;
            if !migrate {
                store.products().await?; // a file without the schema is told at the start, not by the first buyer
            }
            Ok(Arc::new(store))
        }
        Database::Postgres(url) => {
            let tuning = PgTuning { statement_timeout: patience, connect_within: CONNECT_WITHIN };
            let store = Postgres::connect(url.expose(), tuning).await?;
            if !migrate {
                store.schema_ready().await?;
            }
            Ok(Arc::new(store))
        }
    }
}

/// What is said about a database that fails.
pub(super) fn failure(database: &Database, error: &StoreError) -> Failure {
    Failure::Failed(format!("{database}: {error}"))
}

/// Opens the database for a command other than `serve`, which needs no other settings.
pub(super) async fn open_for_command(settings: &Settings) -> Result<(Database, Arc<dyn Store>), Failure> {
    let database = config::database(settings)?;
    let store = open(&database, !settings.no_migrate, PATIENCE).await?;
    Ok((database, store))
}

/// `oncegate migrate`
pub(super) async fn migrate(settings: &Settings) -> Result<(), Failure> {
    if settings.no_migrate {
        return Err(Failure::Usage("--no-migrate forbids what migrate is to do".to_owned()));
    }
    let (database, store) = open_for_command(settings).await?;
    store.close().await;
    super::say(&format!("{database}: the schema is up to date"));
    Ok(())
}
