//! The running service: store, tokens, settings, the desk and the work under way. Built once, cheap to clone.

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quick_cache::sync::Cache;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::config::Config;
use crate::error::Result;
use crate::guard::key::{Entered, Keys};
use crate::guard::token::Tokens;
use crate::order::decide::{Asked, Decision};
use crate::order::life::{Happening, Life, Verdict};
use crate::order::values::{AccountId, Subject};
use crate::order::{Order, Product};
use crate::payment::client::Client;
use crate::store::{Answer, Conclusion, Store};

/// How old the catalogue on a page may be. Placing reads the rows themselves, under lock.
const CATALOGUE_AGE: Duration = Duration::from_secs(1);
/// How many accounts' ids are remembered. An account is never deleted, so an entry never goes stale.
const KNOWN_ACCOUNTS: usize = 100_000;

/// The catalogue and when it was read.
type Seen = (Instant, Arc<Vec<Product>>);

/// Renders a decision into the answer that is stored.
pub type Render = fn(&Decision, Option<&Order>) -> Answer;

/// Says what becomes of a claim's record when something has happened to its order.
pub type Conclude = fn(Verdict, &Happening, &Life) -> Conclusion;

/// How outcomes become stored answers: the JSON face's, which knows HTTP.
#[derive(Clone, Copy)]
pub struct Answers {
    /// Of `place_order`, by the desk.
    pub placed: Render,
    /// Of `place_order`, once the provider has spoken.
    pub charged: Conclude,
    /// Of `pay_order`.
    pub paid: Conclude,
    /// Of `cancel_order`.
    pub cancelled: Conclude,
}

/// The answer to an intent.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Status and body, as stored.
    pub answer: Answer,
    /// Whether it was given before.
    pub replayed: bool,
}

/// One order that waits at the desk (`checkout::desk`).
pub struct Ticket {
    /// What is asked for.
    pub asked: Asked,
    /// When its caller is answered 503; nothing is begun for it after that.
    pub deadline: Instant,
    /// Where the outcome goes.
    pub reply: oneshot::Sender<Result<Reply>>,
    /// While it is there, nobody else of this process comes in with its key.
    pub entered: Option<Entered>,
    /// Its place among those that may wait.
    seat: OwnedSemaphorePermit,
    /// Lets a shutdown wait for the ticket, even when its caller has given up.
    running: TaskTrackerToken,
}

/// The end of the queue that the desk takes tickets from.
pub type Inbox = mpsc::UnboundedReceiver<Ticket>;

/// Everything a request needs, behind one pointer: each request takes a handle of its own several times.
#[derive(Clone)]
pub struct App(Arc<Parts>);

/// What an [`App`] is made of.
pub struct Parts {
    /// The settings.
    pub config: Arc<Config>,
    /// The database.
    pub store: Arc<dyn Store>,
    /// Layer 1.
    pub tokens: Tokens,
    /// Layer 2.
    pub keys: Keys,
    /// The payment provider, when card payment is offered.
    pub provider: Option<Client>,
    /// How outcomes become stored answers.
    pub answers: Answers,
    /// Work that outlives its caller, waited for at shutdown.
    pub tasks: TaskTracker,
    desk: mpsc::UnboundedSender<Ticket>,
    /// One seat for each order that may wait at the desk: what bounds the unbounded channel.
    seats: Arc<Semaphore>,
    accounts: Cache<Subject, AccountId>,
    catalogue: Mutex<Option<Seen>>,
}

impl Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl Ticket {
    /// Gives the caller its outcome. A caller that has given up is no error: the outcome is stored.
    pub fn answer(self, outcome: Result<Reply>) {
        let Self { reply, entered, seat, running, .. } = self;
        drop(entered); // before the caller can ask again
        drop(seat);
        let _ = reply.send(outcome);
        drop(running);
    }
}

impl App {
    /// Puts the parts together. The inbox goes to `checkout::desk::open`, without which nothing is placed.
    #[must_use]
    pub fn new(
        config: Arc<Config>,
        store: Arc<dyn Store>,
        tokens: Tokens,
        provider: Option<Client>,
        answers: Answers,
    ) -> (Self, Inbox) {
        let (desk, inbox) = mpsc::unbounded_channel();
        let parts = Parts {
            keys: Keys::new(store.clone(), config.lease, config.key_ttl),
            seats: Arc::new(Semaphore::new(config.queue)),
            config,
            store,
            tokens,
            provider,
            answers,
            tasks: TaskTracker::new(),
            desk,
            accounts: Cache::new(KNOWN_ACCOUNTS),
            catalogue: Mutex::default(),
        };
        (Self(Arc::new(parts)), inbox)
    }

    /// Hands an order to the desk; `None`: every seat is taken.
    #[must_use]
    pub fn queue(&self, asked: Asked, entered: Entered, deadline: Instant) -> Option<oneshot::Receiver<Result<Reply>>> {
        let seat = self.seats.clone().try_acquire_owned().ok()?;
        let (reply, outcome) = oneshot::channel();
        let ticket = Ticket { asked, deadline, reply, entered: Some(entered), seat, running: self.tasks.token() };
        self.desk.send(ticket).ok()?;
        Some(outcome)
    }

    /// Runs work in a task of its own: a client that leaves cannot cut it in half (axum drops the handler then), and
    /// a shutdown waits for it.
    pub fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.tasks.spawn(work)
    }

    /// Forgets an account whose row turned out to be gone (a database that was replaced under a running service).
    pub fn forget_account(&self, account: AccountId) {
        let gone = self.accounts.iter().find(|(_, id)| *id == account);
        if let Some((subject, _)) = gone {
            self.accounts.remove(&subject);
        }
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
        let mut products = self.store.products().await?;
        // By bytes, whatever the database's collation: look-ups are binary searches.
        products.sort_by(|a, b| a.sku.cmp(&b.sku));
        let products = Arc::new(products);
        *kept = Some((Instant::now(), products.clone()));
        Ok(products)
    }
}
