//! The running service: store, tokens, settings, the desk and the work under way. Built once, cheap to clone.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::error::Result;
use crate::guard::token::Tokens;
use crate::order::Product;
use crate::order::values::{AccountId, Subject};
use crate::store::Store;

/// How old the catalogue on a page may be. Placing reads the rows themselves, under lock.
const CATALOGUE_AGE: Duration = Duration::from_secs(1);
/// How many accounts' ids are remembered. An account is never deleted, so an entry never goes stale.
const KNOWN_ACCOUNTS: u64 = 100_000;

/// Everything a request needs.
#[derive(Clone)]
pub struct App {
    /// The settings.
    pub config: Arc<Config>,
    /// The database.
    pub store: Arc<dyn Store>,
    /// Layer 1.
    pub tokens: Tokens,
    /// Work that outlives its caller, waited for at shutdown.
    pub tasks: TaskTracker,
    accounts: moka::sync::Cache<Subject, AccountId>,
    catalogue: Arc<Mutex<Option<(Instant, Arc<Vec<Product>>)>>>,
}

impl App {
    /// Puts the parts together.
    #[must_use]
    pub fn new(config: Arc<Config>, store: Arc<dyn Store>, tokens: Tokens) -> Self {
        Self {
            config,
            store,
            tokens,
            tasks: TaskTracker::new(),
            accounts: moka::sync::Cache::new(KNOWN_ACCOUNTS),
            catalogue: Arc::default(),
        }
    }

    /// Runs work in a task of its own: a client that leaves cannot cut it in half (axum drops the handler then), and
    /// a shutdown waits for it.
    pub fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.tasks.spawn(work)
    }

    /// The account of this subject, opened if need be.
    ///
    /// # Errors
    /// When the database gives no answer.
    pub async fn account(&self, subject: &Subject) -> Result<AccountId> {
        if let Some(id) = self.accounts.get(subject) {
            return Ok(id);
        }
        let id = self.store.open_account(subject, self.config.opening_balance).await?;
        self.accounts.insert(subject.clone(), id);
        Ok(id)
    }

    /// The account of this subject, if it was opened.
    ///
    /// # Errors
    /// When the database gives no answer.
    pub async fn find_account(&self, subject: &Subject) -> Result<Option<AccountId>> {
        if let Some(id) = self.accounts.get(subject) {
            return Ok(Some(id));
        }
        let found = self.store.find_account(subject).await?;
        if let Some(id) = found {
            self.accounts.insert(subject.clone(), id);
        }
        Ok(found)
    }

    /// The catalogue in SKU order, at most a second old.
    ///
    /// # Errors
    /// When the database gives no answer and nothing is remembered.
    pub async fn catalogue(&self) -> Result<Arc<Vec<Product>>> {
        let mut kept = self.catalogue.lock().await;
        if let Some((at, products)) = &*kept
            && at.elapsed() < CATALOGUE_AGE
        {
            return Ok(products.clone());
        }
        let products = Arc::new(self.store.products().await?);
        *kept = Some((Instant::now(), products.clone()));
        Ok(products)
    }
}
