//! Telling the queue once more what it was told before, and hearing what came of it: for whoever wants to see that
//! nothing does.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;

use super::coupons::Consumer;
use super::queue::Queue;
use crate::error::Result;
use crate::store::{Granted, Message};

/// This process's own queue and consumer.
#[derive(Clone)]
pub struct Again {
    queue: Arc<dyn Queue>,
    consumer: Consumer,
}

impl Again {
    pub(super) fn new(queue: Arc<dyn Queue>, consumer: Consumer) -> Self {
        Self { queue, consumer }
    }

    /// Publishes a message again, and tells what the consumer made of it; `None`: it did not get to it within `patience`
    /// (another process did, or there is a backlog).
    ///
    /// # Errors
    /// When the queue gives no answer, or is full.
    pub async fn deliver(&self, message: &Message, patience: Duration) -> Result<Option<Granted>> {
        let mut heard = self.consumer.listen();
        self.queue.publish(std::slice::from_ref(message)).await?;
        let outcome = async {
            loop {
                match heard.recv().await {
                    Ok((id, granted)) if id == message.id => return Some(granted),
                    // What was missed in a rush may have been it: then nobody knows.
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            }
        };
        Ok(tokio::time::timeout(patience, outcome).await.ok().flatten())
    }
}
