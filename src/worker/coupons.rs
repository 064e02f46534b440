//! The coupon consumer: thanks for each paid order, once, however often the queue tells of it. The effect and the mark of the
//! message are one transaction; the entry is acknowledged after its commit. A consumer that dies before has done nothing,
//! one that dies in between is repeated by another that finds everything done.
//!
//! Deliberately absent: redeeming a coupon.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::broadcast;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::queue::{Delivery, Queue};
use super::{Next, count};
use crate::error::Result;
use crate::order::values::OrderId;
use crate::store::{Grant, Granted, Message, ORDER_PAID, Store, StoreError};

/// The campaign whose coupons are granted.
pub const CAMPAIGN: &str = "welcome-back";
/// The name under which messages are marked as consumed.
pub const CONSUMER: &str = "coupons";
/// How often an entry that cannot be worked on is delivered before it is parked: a newer version of the service, or a
/// database that is repaired meanwhile, may be able to.
const DELIVERIES: u64 = 5;
/// How many entries are worked on at once: one commit for all of them, short enough for those who share the rows.
const BATCH: usize = 200;
/// How many messages somebody who listens may be behind.
const LISTENERS_BEHIND: usize = 256;
/// How long a run waits for messages.
const WAIT: Duration = Duration::from_secs(2);
/// How often what is acknowledged is removed from the queue.
const TIDY_EVERY: Duration = Duration::from_secs(2);
/// Entries in the queue.
pub(super) const ENTRIES: &str = "oncegate_queue_entries";
/// Entries that wait for an operator.
pub(super) const PARKED: &str = "oncegate_queue_parked";
/// 80 random bits: nobody guesses a code, and no two are ever the same.
const CODE_BYTES: usize = 10;

/// A consumer.
#[derive(Clone)]
pub struct Consumer {
    store: Arc<dyn Store>,
    queue: Arc<dyn Queue>,
    tidied: Arc<Mutex<Option<Instant>>>,
    /// Whoever listens hears what came of each message.
    told: broadcast::Sender<(Uuid, Granted)>,
}

/// The entries of one order's message, of which there may be copies.
struct Told<'a> {
    order: OrderId,
    by: Vec<&'a Delivery>,
}

/// Why an entry had no effect.
struct Failed<'a> {
    delivery: &'a Delivery,
    reason: String,
}

#[derive(Deserialize)]
struct Paid {
    order_id: Uuid,
}

impl Consumer {
    /// From this queue into this store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, queue: Arc<dyn Queue>) -> Self {
        Self { store, queue, tidied: Arc::default(), told: broadcast::Sender::new(LISTENERS_BEHIND) }
    }

    /// What comes of each message from now on, as far as this consumer works on it.
    #[must_use]
    pub fn listen(&self) -> broadcast::Receiver<(Uuid, Granted)> {
        self.told.subscribe()
    }

    /// Waits for entries, unless it is to stop, and works on them.
    ///
    /// # Errors
    /// When store or queue give no answer; what is not acknowledged comes again.
    pub async fn run_once(&self, stop: &CancellationToken) -> Result<Next> {
        let received = stop.run_until_cancelled(self.queue.receive(BATCH, WAIT)).await;
        let Some(deliveries) = received.transpose()? else { return Ok(Next::Later) };
        let next = if deliveries.len() < BATCH { Next::Later } else { Next::Soon };
        self.consume(&deliveries).await?;
        self.tidy().await?;
        Ok(next)
    }

    /// Works on entries: acknowledges those whose effect is there, parks those that have failed too often, and leaves the
    /// others to come again.
    ///
    /// # Errors
    /// When store or queue give no answer.
    pub async fn consume(&self, deliveries: &[Delivery]) -> Result<()> {
        let (told, mut failed) = sort(deliveries);
        let mut acknowledged = Vec::new();
        for (outcome, (id, told)) in self.grant(&told).await?.into_iter().zip(told) {
            match outcome {
                Ok(granted) => {
                    let _ = self.told.send((id, granted)); // nobody listens, most of the time
                    count(event(granted), 1);
                    count("duplicate", told.by.len() - 1);
                    acknowledged.extend(told.by.iter().map(|delivery| delivery.entry.clone()));
                }
                Err(reason) => {
                    failed.extend(told.by.iter().map(|delivery| Failed { delivery, reason: reason.clone() }));
                }
            }
        }
        self.queue.acknowledge(&acknowledged).await?;
        for failed in failed {
            self.give_up_or_wait(failed).await?;
        }
        Ok(())
    }

    /// All in one transaction; when something in there is broken, each in its own, so that it fails alone.
    async fn grant(&self, told: &BTreeMap<Uuid, Told<'_>>) -> Result<Vec<std::result::Result<Granted, String>>> {
        let grants: Vec<Grant> =
            told.iter().map(|(id, told)| Grant { message: *id, order: told.order, code: code() }).collect();
        if grants.is_empty() {
            return Ok(Vec::new());
        }
        match self.store.grant_coupons(CONSUMER, CAMPAIGN, &grants).await {
            Ok(granted) => return Ok(granted.into_iter().map(known).collect()),
            Err(StoreError::Broken(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let mut outcomes = Vec::with_capacity(grants.len());
        for grant in &grants {
            outcomes.push(match self.store.grant_coupons(CONSUMER, CAMPAIGN, std::slice::from_ref(grant)).await {
                Ok(granted) => granted.into_iter().next().map_or_else(|| Err("no outcome".to_owned()), known),
                Err(StoreError::Broken(reason)) => Err(reason),
                Err(error) => return Err(error.into()),
            });
        }
        Ok(outcomes)
    }

    async fn give_up_or_wait(&self, Failed { delivery, reason }: Failed<'_>) -> Result<()> {
        let (entry, deliveries) = (&delivery.entry, delivery.deliveries);
        count("failed", 1);
        if deliveries < DELIVERIES {
            tracing::info!(entry, deliveries, reason, "a message had no effect and will come again");
            return Ok(());
        }
        self.queue.park(delivery, &reason).await?;
        count("parked", 1);
        tracing::warn!(
            entry,
            deliveries,
            reason,
            "a message was given up and parked: see the operators' section of the README"
        );
        Ok(())
    }

    async fn tidy(&self) -> Result<()> {
        let now = Instant::now();
        {
            let mut tidied = self.tidied.lock().unwrap_or_else(PoisonError::into_inner);
            if tidied.is_some_and(|at| now - at < TIDY_EVERY) {
                return Ok(());
            }
            *tidied = Some(now);
        }
        let depth = self.queue.tidy().await?;
        #[allow(clippy::cast_precision_loss, reason = "a gauge is a float, and these are small")]
        let set = |name, n: u64| metrics::gauge!(name).set(n as f64);
        set(ENTRIES, depth.entries);
        set(PARKED, depth.parked);
        Ok(())
    }
}

/// By message, in one order everywhere; and those that tell nothing.
fn sort(deliveries: &[Delivery]) -> (BTreeMap<Uuid, Told<'_>>, Vec<Failed<'_>>) {
    let (mut told, mut failed) = (BTreeMap::new(), Vec::new());
    for delivery in deliveries {
        match delivery.message.as_ref().map_err(String::clone).and_then(read) {
            Ok((id, order)) => told.entry(id).or_insert(Told { order, by: Vec::new() }).by.push(delivery),
            Err(reason) => failed.push(Failed { delivery, reason }),
        }
    }
    (told, failed)
}

fn read(message: &Message) -> std::result::Result<(Uuid, OrderId), String> {
    if message.topic != ORDER_PAID {
        return Err(format!("nobody here knows the topic {:?}", message.topic));
    }
    let paid: Paid = serde_json::from_str(&message.payload).map_err(|error| format!("the payload: {error}"))?;
    Ok((message.id, OrderId(paid.order_id)))
}

fn known(granted: Granted) -> std::result::Result<Granted, String> {
    match granted {
        Granted::Unknown => Err("there is no such order: is this queue shared with another shop?".to_owned()),
        granted => Ok(granted),
    }
}

fn event(granted: Granted) -> &'static str {
    match granted {
        Granted::New => "granted",
        Granted::Duplicate => "duplicate",
        Granted::NotDue | Granted::Unknown => "not_due",
    }
}

/// A fresh code, easy to read out: Crockford's base 32 has no letter that looks like a digit.
fn code() -> String {
    const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let mut random = [0; CODE_BYTES];
    getrandom::fill(&mut random).expect("a running system has random bytes");
    let number = random.iter().fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
    let mut code = String::from("WB");
    for place in (0..CODE_BYTES * 8 / 5).rev() {
        if place % 4 == 3 {
            code.push('-');
        }
        code.push(char::from(DIGITS[usize::try_from(number >> (5 * place) & 31).unwrap_or(0)]));
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_sixteen_digits_of_an_alphabet_without_look_alikes_and_none_comes_twice() {
        let codes: std::collections::HashSet<String> = (0..1000).map(|_| code()).collect();
        assert_eq!(codes.len(), 1000);
        for code in codes {
            let parts: Vec<&str> = code.split('-').collect();
            assert!(parts.len() == 5 && parts[0] == "WB", "{code}");
            assert!(parts[1..].iter().all(|part| part.len() == 4), "{code}");
            assert!(!code[2..].contains(['I', 'L', 'O', 'U']), "{code}");
        }
    }

    #[test]
    fn copies_of_one_message_are_worked_on_as_one_and_what_tells_nothing_is_set_aside() {
        let message =
            |topic: &str, payload: &str| Message { id: Uuid::nil(), topic: topic.into(), payload: payload.into() };
        let delivery = |entry: &str, message| Delivery { entry: entry.into(), deliveries: 1, message };
        let paid = format!(r#"{{"order_id":"{0}","account_id":"{0}"}}"#, Uuid::max());
        let deliveries = [
            delivery("1", Ok(message(ORDER_PAID, &paid))),
            delivery("2", Ok(message(ORDER_PAID, &paid))),
            delivery("3", Ok(message("order.lost", &paid))),
            delivery("4", Ok(message(ORDER_PAID, "{}"))),
            delivery("5", Err("no id".into())),
        ];
        let (told, failed) = sort(&deliveries);
        assert_eq!((told.len(), told[&Uuid::nil()].by.len()), (1, 2));
        assert_eq!(failed.iter().map(|f| f.delivery.entry.as_str()).collect::<Vec<_>>(), ["3", "4", "5"]);
    }
}
