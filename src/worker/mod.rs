//! Work that nobody waits for: each worker is a `run_once` that does a bounded piece of it, and a loop that knows when to
//! pause. A worker that fails, or panics, is logged and goes on; it stops between two runs when the service stops.
//!
//! | worker | in | does |
//! | --- | --- | --- |
//! | relay | every process | tells the queue what the outbox holds |
//! | coupons | every process | grants what the queue tells of |
//! | reconciler | every process with a provider | asks about payments in doubt |
//! | sweeper | processes with `ONCEGATE_SWEEP_INTERVAL` | takes away what is over, cancels what was not paid |
//!
//! Any number of processes may run all of them: each piece of work is taken under a lease or a row lock.

pub mod again;
pub mod coupons;
mod pace;
pub mod queue;
pub mod reconcile;
pub mod relay;
pub mod sweep;
pub mod window;

use std::future::Future;
use std::time::Duration;

use metrics::{Unit, describe_counter, describe_gauge};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::error::Result;

pub use again::Again;
pub use pace::Pace;

/// The longest pause of the reconciler, and what a refund is late by; with a short lease it looks more often. To find
/// nothing costs one look into an index that is nearly always empty.
const RECONCILE_PAUSE: Duration = Duration::from_secs(1);
/// How long a relay that found nothing leaves the outbox alone: what a coupon is late by, most of the time.
const RELAY_PAUSE: Duration = Duration::from_millis(200);
/// The pause after a failure, unless the worker's own is longer.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// How many times as long as it has worked a worker with a backlog rests, so that a rush of orders is placed first and thanked
/// for afterwards. Without a rush a run is short, and so is the rest.
const BUYERS_SHARE: u32 = 4;

/// What happened to messages, by `event`.
const MESSAGES: &str = "oncegate_messages_total";
/// Every `event` of [`MESSAGES`].
const EVENTS: [&str; 7] = ["published", "granted", "duplicate", "not_due", "failed", "parked", "unreadable"];

/// How soon a worker runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// After its usual pause: there is nothing more to do.
    Later,
    /// After a few times as long as this run took: there is more to do, but buyers come first.
    Soon,
}

/// Starts the workers that every process has, and the sweeper where it is wanted. They end when `stop` is cancelled, and
/// a shutdown that waits for `App::tasks` waits for the run that is under way. Answers the way into this process's queue.
pub fn start(app: &App, stop: &CancellationToken) -> Again {
    describe();
    let again = start_queue(app, stop);
    if app.provider.is_some() {
        let pause = RECONCILE_PAUSE.min(app.config.lease / 4);
        repeat(app, stop, "reconciler", pause, |app| async move {
            let done = reconcile::run_once(&app).await?;
            if done != reconcile::Reconciled::default() {
                tracing::info!(?done, "payments were reconciled");
            }
            Ok(Next::Later)
        });
    }
    if !app.config.sweep_interval.is_zero() {
        let stopped = stop.clone();
        repeat(app, stop, "sweeper", app.config.sweep_interval, move |app| {
            let stopped = stopped.clone();
            async move {
                let rules = sweep::Rules::of(&app.config);
                sweep::run_once(&*app.store, &rules, &stopped).await.map(|_| Next::Later)
            }
        });
    }
    again
}

/// The relay and the consumer, which in the embedded default share the queue in this process.
fn start_queue(app: &App, stop: &CancellationToken) -> Again {
    let pace = Pace::of(app.config.lease);
    let queue = queue::open(&app.config.redis, pace.idle);
    let relay = relay::Relay::new(app.store.clone(), queue.clone(), pace.republish);
    repeat(app, stop, "relay", RELAY_PAUSE, move |_| {
        let relay = relay.clone();
        async move { relay.run_once().await }
    });
    let consumer = coupons::Consumer::new(app.store.clone(), queue.clone());
    let again = Again::new(queue, consumer.clone());
    let stopped = stop.clone();
    // Its pause is the wait for messages.
    repeat(app, stop, "coupons", Duration::ZERO, move |_| {
        let (consumer, stopped) = (consumer.clone(), stopped.clone());
        async move { consumer.run_once(&stopped).await }
    });
    again
}

fn repeat<W, F>(app: &App, stop: &CancellationToken, name: &'static str, usual: Duration, work: W)
where
    W: Fn(App) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Next>> + Send + 'static,
{
    let (app_, stop) = (app.clone(), stop.clone());
    app.spawn(async move {
        let (mut pause, mut failing) = (usual, false);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            let begun = tokio::time::Instant::now();
            // In a task of its own, so that a panic ends this run and not the worker.
            let done = tokio::spawn(work(app_.clone())).await;
            let failed = match &done {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(error) => Some(error.to_string()),
            };
            // Once, however long it lasts: a worker whose Redis is away fails every second.
            match &failed {
                Some(error) if !failing => {
                    tracing::warn!(worker = name, %error, "a worker has failed and goes on trying");
                }
                Some(error) => tracing::debug!(worker = name, %error, "a worker has failed again"),
                None if failing => tracing::info!(worker = name, "a worker that had failed works again"),
                None => {}
            }
            failing = failed.is_some();
            pause = match done {
                Ok(Ok(Next::Later)) => usual,
                Ok(Ok(Next::Soon)) => begun.elapsed() * BUYERS_SHARE,
                _ => usual.max(FAILURE_PAUSE),
            };
        }
    });
}

fn count(event: &'static str, times: usize) {
    if times > 0 {
        metrics::counter!(MESSAGES, "event" => event).increment(u64::try_from(times).unwrap_or(u64::MAX));
    }
}

fn describe() {
    describe_counter!(MESSAGES, "What happened to the messages between outbox and coupons.");
    for event in EVENTS {
        metrics::counter!(MESSAGES, "event" => event).increment(0);
    }
    describe_gauge!(relay::LAG, Unit::Seconds, "How long the oldest message waits that no relay has taken.");
    describe_gauge!(coupons::ENTRIES, "Entries in the queue, acknowledged ones included until they are removed.");
    describe_gauge!(coupons::PARKED, "Entries that were given up and wait for an operator.");
    describe_gauge!(sweep::LAST_SUCCESS, Unit::Seconds, "When a sweep last did all it had to, in Unix time.");
    describe_counter!(sweep::SWEPT, "Rows that sweeps took away, and orders that they cancelled, by kind.");
    for kind in sweep::KINDS {
        metrics::counter!(sweep::SWEPT, "kind" => kind).increment(0);
    }
}
