//! The twin in this process. It is forgotten with it, and the outbox tells again what was in it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::{Delivery, Depth, Fault, Queue};
use crate::store::Message;

/// The most entries: about 3 MB. The rest waits in the outbox.
const MOST: usize = 10_000;
/// The most parked entries; beyond it the oldest go (they are in the log, and in the outbox).
const MOST_PARKED: usize = 1_000;

pub(super) struct Memory {
    idle: Duration,
    state: Mutex<State>,
    added: Notify,
}

#[derive(Default)]
struct State {
    last: u64,
    ready: VecDeque<(u64, Message)>,
    pending: BTreeMap<u64, Pending>,
    parked: VecDeque<(Delivery, String)>,
}

struct Pending {
    message: Message,
    deliveries: u64,
    since: Instant,
}

impl Memory {
    pub(super) fn new(idle: Duration) -> Self {
        Self { idle, state: Mutex::default(), added: Notify::new() }
    }

    /// No step below can panic half way, so what a poisoned lock guards is whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, limit: usize) -> Vec<Delivery> {
        let (now, mut state) = (Instant::now(), self.state());
        let over: Vec<u64> =
            state.pending.iter().filter(|(_, p)| now - p.since >= self.idle).map(|(n, _)| *n).collect();
        let mut taken = Vec::new();
        for number in over.into_iter().take(limit) {
            if let Some(pending) = state.pending.get_mut(&number) {
                pending.deliveries += 1;
                pending.since = now;
                taken.push(delivery(number, pending));
            }
        }
        while taken.len() < limit
            && let Some((number, message)) = state.ready.pop_front()
        {
            let pending = Pending { message, deliveries: 1, since: now };
            taken.push(delivery(number, &pending));
            state.pending.insert(number, pending);
        }
        taken
    }
}

fn delivery(number: u64, pending: &Pending) -> Delivery {
    Delivery { entry: number.to_string(), deliveries: pending.deliveries, message: Ok(pending.message.clone()) }
}

#[async_trait]
impl Queue for Memory {
    async fn publish(&self, messages: &[Message]) -> Result<(), Fault> {
        {
            let mut state = self.state();
            if state.ready.len() + state.pending.len() + messages.len() > MOST {
                return Err(Fault::Full);
            }
            for message in messages {
                state.last += 1;
                let number = state.last;
                state.ready.push_back((number, message.clone()));
            }
        }
        self.added.notify_one();
        Ok(())
    }

    async fn receive(&self, limit: usize, wait: Duration) -> Result<Vec<Delivery>, Fault> {
        let deadline = Instant::now() + wait;
        loop {
            let taken = self.take(limit);
            if !taken.is_empty() {
                return Ok(taken);
            }
            // What is added between the look and this wait has left its notice.
            if timeout_at(deadline, self.added.notified()).await.is_err() {
                return Ok(self.take(limit));
            }
        }
    }

    async fn acknowledge(&self, entries: &[String]) -> Result<(), Fault> {
        let mut state = self.state();
        for number in entries.iter().filter_map(|entry| entry.parse().ok()) {
            state.pending.remove(&number);
        }
        Ok(())
    }

    async fn park(&self, delivery: &Delivery, reason: &str) -> Result<(), Fault> {
        {
            let mut state = self.state();
            state.parked.push_back((delivery.clone(), reason.to_owned()));
            if state.parked.len() > MOST_PARKED {
                state.parked.pop_front();
            }
        }
        self.acknowledge(std::slice::from_ref(&delivery.entry)).await
    }

    async fn tidy(&self) -> Result<Depth, Fault> {
        let state = self.state();
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        Ok(Depth { entries: count(state.ready.len() + state.pending.len()), parked: count(state.parked.len()) })
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const IDLE: Duration = Duration::from_secs(10);
    const NOW: Duration = Duration::ZERO;

    fn message(n: u8) -> Message {
        Message { id: Uuid::from_bytes([n; 16]), topic: "t".into(), payload: "{}".into() }
    }

    #[tokio::test(start_paused = true)]
    async fn an_entry_that_is_not_acknowledged_comes_again_after_its_time_and_counts_its_deliveries() {
        let queue = Memory::new(IDLE);
        queue.publish(&[message(1), message(2)]).await.unwrap();
        let first = queue.receive(10, NOW).await.unwrap();
        assert_eq!(first.iter().map(|d| d.message.clone().unwrap()).collect::<Vec<_>>(), [message(1), message(2)]);
        queue.acknowledge(&[first[0].entry.clone()]).await.unwrap();
        assert_eq!(queue.receive(10, NOW).await.unwrap(), []);
        tokio::time::advance(IDLE).await;
        let again = queue.receive(10, NOW).await.unwrap();
        assert_eq!(again, [Delivery { deliveries: 2, ..first[1].clone() }]);
        assert_eq!(queue.receive(10, NOW).await.unwrap(), [], "the second reader has its time too");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_waits_is_woken_by_what_is_added() {
        let queue = Memory::new(IDLE);
        let begun = Instant::now();
        let publish = async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            queue.publish(&[message(1)]).await.unwrap();
        };
        let (received, ()) = tokio::join!(queue.receive(10, Duration::from_secs(60)), publish);
        assert_eq!((received.unwrap().len(), begun.elapsed()), (1, Duration::from_millis(10)));
    }

    #[tokio::test]
    async fn a_full_queue_refuses_and_keeps_what_it_has() {
        let queue = Memory::new(IDLE);
        let many: Vec<_> = (0..MOST).map(|_| message(1)).collect();
        queue.publish(&many).await.unwrap();
        assert_eq!(queue.publish(&[message(2)]).await, Err(Fault::Full));
        let taken = queue.receive(1, NOW).await.unwrap();
        queue.acknowledge(&[taken[0].entry.clone()]).await.unwrap();
        queue.publish(&[message(2)]).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_parked_entry_does_not_come_again() {
        let queue = Memory::new(IDLE);
        queue.publish(&[message(1)]).await.unwrap();
        let taken = queue.receive(1, NOW).await.unwrap();
        queue.park(&taken[0], "no such order").await.unwrap();
        tokio::time::advance(IDLE).await;
        assert_eq!(queue.receive(1, NOW).await.unwrap(), []);
        assert_eq!(queue.tidy().await.unwrap(), Depth { entries: 0, parked: 1 });
    }
}
