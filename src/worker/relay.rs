//! The outbox relay: takes messages and publishes them. Taking counts as publishing, so there is nothing to write down afterwards;
//! what could not be published is given back, and what a relay took and died with comes again, as everything does whose effect
//! does not show. Twice on the way, once in effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use uuid::Uuid;

use super::queue::Queue;
use super::{Next, count};
use crate::error::Result;
use crate::store::{Republish, Store};

/// How many messages are taken at once: one round trip for all of them, and short locks.
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
    republish: Republish,
    runs: Arc<AtomicU32>,
}

impl Relay {
    /// Between this store and this queue.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, queue: Arc<dyn Queue>, republish: Republish) -> Self {
        Self { store, queue, republish, runs: Arc::default() }
    }

    /// Publishes a batch.
    ///
    /// # Errors
    /// When store or queue give no answer; what was taken comes again.
    pub async fn run_once(&self) -> Result<Next> {
        if self.runs.fetch_add(1, Ordering::Relaxed).is_multiple_of(MEASURE_EVERY) {
            metrics::gauge!(LAG).set(self.store.publishing_lag().await?.as_secs_f64());
        }
        let messages = self.store.take_messages(BATCH, self.republish).await?;
        if messages.is_empty() {
            return Ok(Next::Later);
        }
        if let Err(fault) = self.queue.publish(&messages).await {
            let ids: Vec<Uuid> = messages.iter().map(|message| message.id).collect();
            self.store.give_messages_back(&ids).await?;
            return Err(fault.into());
        }
        count("published", messages.len());
        let full = u32::try_from(messages.len()).is_ok_and(|n| n < BATCH);
        Ok(if full { Next::Later } else { Next::Soon })
    }
}
