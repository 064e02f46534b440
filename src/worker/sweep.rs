//! The sweeper: takes away what is over, in small batches, and cancels orders that nobody paid. Safe to run twice and on any
//! number of machines: a row that somebody holds is left alone, and every condition is looked at again on the row itself.
//!
//! An order is never taken away, nor a record whose lease runs, nor a message that had no effect yet.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::window;
use crate::config::Config;
use crate::error::Result;
use crate::store::{Store, Sweep};

/// Rows of one transaction: few enough that nobody waits for it.
const BATCH: u32 = 250;
/// The shortest pause between two of them.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
/// The pause is this many times what the batch took: when the database has much to do it has more of the time for that.
const PAUSE_FACTOR: u32 = 4;
/// How long the outbox tells afterwards what was told, for whoever looks into a complaint.
const OUTBOX_KEPT: Duration = days(7);
/// Longer than any redelivery: the queue gives an entry up within minutes, and an outbox row is told again only while its
/// mark is not there.
const MESSAGES_KEPT: Duration = days(30);
/// Providers send an event again for days (Stripe: three); the rest is for disputes.
const EVENTS_KEPT: Duration = days(90);
/// When a sweep last did all it had to.
pub(super) const LAST_SUCCESS: &str = "oncegate_sweep_last_success_timestamp_seconds";
/// What sweeps did.
pub(super) const SWEPT: &str = "oncegate_swept_total";
/// Every `kind` of [`SWEPT`].
pub(super) const KINDS: [&str; 6] =
    ["records", "sessions", "outbox", "consumed_messages", "payment_events", "orders_cancelled"];

const fn days(n: u64) -> Duration {
    Duration::from_secs(n * 24 * 60 * 60)
}

/// What a sweep needs to know.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// An order still pending after this is cancelled.
    pub payment_window: Duration,
    /// How long to wait for an order that somebody else is changing.
    pub lock_wait: Duration,
}

impl Rules {
    /// As the service is set.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        Self { payment_window: config.payment_window, lock_wait: config.statement_timeout() }
    }
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Swept {
    /// Idempotency records taken away.
    pub records: u64,
    /// Sessions taken away.
    pub sessions: u64,
    /// Rows of the outbox, marks of messages and provider's events taken away.
    pub rows: u64,
    /// Orders cancelled.
    pub orders: u64,
}

/// One pass over everything, or what of it can be done before `stop`. What fails does not keep the rest from being done.
///
/// # Errors
/// The first failure, after all was tried.
pub async fn run_once(store: &dyn Store, rules: &Rules, stop: &CancellationToken) -> Result<Swept> {
    let mut failure = None;
    let mut swept = [0; 5];
    let kinds = [
        Sweep::Records,
        Sweep::Sessions,
        Sweep::Outbox(OUTBOX_KEPT),
        Sweep::ConsumedMessages(MESSAGES_KEPT),
        Sweep::PaymentEvents(EVENTS_KEPT),
    ];
    for ((what, kind), total) in kinds.into_iter().zip(KINDS).zip(&mut swept) {
        if let Err(error) = all_of(store, what, kind, total, stop).await {
            failure.get_or_insert(error);
        }
    }
    let mut orders = 0;
    if let Err(error) = window::run_once(store, rules, &mut orders).await {
        failure.get_or_insert(error);
    }
    metrics::counter!(SWEPT, "kind" => KINDS[5]).increment(orders);
    let [records, sessions, outbox, messages, events] = swept;
    let done = Swept { records, sessions, rows: outbox + messages + events, orders };
    if done != Swept::default() {
        tracing::info!(records, sessions, rows = done.rows, orders, "swept");
    }
    match failure {
        Some(error) => Err(error),
        None => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            metrics::gauge!(LAST_SUCCESS).set(now.as_secs_f64());
            Ok(done)
        }
    }
}

/// Batch after batch, until one is not full.
async fn all_of(
    store: &dyn Store,
    what: Sweep,
    kind: &'static str,
    total: &mut u64,
    stop: &CancellationToken,
) -> Result<()> {
    while !stop.is_cancelled() {
        let begun = Instant::now();
        let rows = store.sweep(what, BATCH).await?;
        *total += rows;
        metrics::counter!(SWEPT, "kind" => kind).increment(rows);
        if rows < u64::from(BATCH) {
            break;
        }
        tokio::time::sleep((begun.elapsed() * PAUSE_FACTOR).max(SHORTEST_PAUSE)).await;
    }
    Ok(())
}
