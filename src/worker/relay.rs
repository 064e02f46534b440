//! The outbox relay: takes messages under a lease, publishes them, and only then marks them. A relay that dies in between has
//! published what another publishes again once the lease is over: twice on the way, once in effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use uuid::Uuid;

use super::queue::Queue;
use super::{Next, Pace, count};
use crate::error::Result;
use crate::store::Store;

/// How many messages are taken at once: one round trip of each kind for all of them, and short locks.
const BATCH: u32 = 200;
/// The lag is measured once in so many runs.
const MEASURE_EVERY: u32 = 10;
/// How far the relay is behind.
pub(super) const LAG: &str = "oncegate_outbox_lag_seconds";

/// A relay.
#[derive(Clone)]
pub struct Relay {
    store: Arc<dyn Store>,
    queue: Arc<dyn Queue>,
    pace: Pace,
    runs: Arc<AtomicU32>,
}

impl Relay {
    /// Between this store and this queue.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, queue: Arc<dyn Queue>, pace: Pace) -> Self {
        Self { store, queue, pace, runs: Arc::default() }
    }

    /// Publishes a batch.
    ///
    /// # Errors
    /// When store or queue give no answer; what was taken is published when its lease is over.
    pub async fn run_once(&self) -> Result<Next> {
        if self.runs.fetch_add(1, Ordering::Relaxed).is_multiple_of(MEASURE_EVERY) {
            metrics::gauge!(LAG).set(self.store.publishing_lag().await?.as_secs_f64());
        }
        let messages = self.store.take_messages(BATCH, self.pace.taken).await?;
        if messages.is_empty() {
            return Ok(Next::Later);
        }
        self.queue.publish(&messages).await?;
        count("published", messages.len());
        let ids: Vec<Uuid> = messages.iter().map(|message| message.id).collect();
        self.store.mark_published(&ids, self.pace.republish).await?;
        let full = u32::try_from(ids.len()).is_ok_and(|n| n < BATCH);
        Ok(if full { Next::Later } else { Next::Soon })
    }
}
