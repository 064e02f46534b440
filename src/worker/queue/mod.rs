//! The queue between the outbox and the consumers: Redis Streams, or the twin in this process. At least once: an entry comes
//! again until it is acknowledged, also when its reader has died. Whatever the queue loses the outbox tells again.
//!
//! Both keep only what is on its way. The outbox is the durable place, so a queue that is full is an answer ([`Fault::Full`])
//! and not an accident: the rest waits there.
//!
//! Deliberately absent: pop-type queues (a reader that gave up would take an entry with it), any limit by which entries
//! are dropped unread, and order (no message depends on another).

mod link;
mod memory;
mod redis;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use thiserror::Error;

use crate::config::Redis;
use crate::error::Error as AppError;
use crate::store::Message;

/// How long an entry stays with a reader that does not acknowledge it; then any reader may take it. Far longer than
/// the work on a batch takes, and work that takes longer has its effect only once all the same.
pub const IDLE: Duration = Duration::from_secs(10);

/// Why the queue did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// It holds as much as it may; nothing was added.
    #[error("the queue is full: what is in it has to be consumed first")]
    Full,
    /// It gave no answer in time, or a wrong one. What was asked may have been done.
    #[error("the queue gives no answer: {0}")]
    Silent(String),
}

impl From<Fault> for AppError {
    fn from(fault: Fault) -> Self {
        Self::unavailable(&fault.to_string())
    }
}

/// One delivery of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// By what it is acknowledged.
    pub entry: String,
    /// How often it was delivered, with this time.
    pub deliveries: u64,
    /// What it says, or what is wrong with it.
    pub message: Result<Message, String>,
}

/// How much is in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Entries that are waiting or being worked on, and the few acknowledged ones that were not removed yet.
    pub entries: u64,
    /// Entries that were given up and wait for an operator.
    pub parked: u64,
}

/// One reader's view of the queue.
#[async_trait]
pub trait Queue: Send + Sync {
    /// Adds messages. After a fault some of them may be there.
    async fn publish(&self, messages: &[Message]) -> Result<(), Fault>;
    /// At most `limit` entries: those whose reader must have died, else new ones, waited for up to `wait`. For one caller at
    /// a time.
    async fn receive(&self, limit: usize, wait: Duration) -> Result<Vec<Delivery>, Fault>;
    /// Ends the deliveries of entries whose effect is committed.
    async fn acknowledge(&self, entries: &[String]) -> Result<(), Fault>;
    /// Puts an entry aside for an operator, with the reason.
    async fn park(&self, delivery: &Delivery, reason: &str) -> Result<(), Fault>;
    /// Removes what is acknowledged, and nothing else.
    async fn tidy(&self) -> Result<Depth, Fault>;
}

/// Opens the queue, lazily: an unreachable Redis is a fault of each call. An entry whose reader has not acknowledged it within
/// `idle` is delivered again. Each call gives another reader, also in the process (where each has a queue of its own).
#[must_use]
pub fn open(redis: &Redis, idle: Duration) -> Arc<dyn Queue> {
    match redis {
        Redis::Memory => Arc::new(memory::Memory::new(idle)),
        Redis::Single(_) | Redis::Cluster(_) => Arc::new(self::redis::Streams::new(redis.clone(), idle)),
    }
}
