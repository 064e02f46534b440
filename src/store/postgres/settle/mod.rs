//! Settling a batch that was claimed, in one transaction: load under lock, decide, write, commit. Six round trips, however
//! many orders. (What nothing stands for goes a shorter way, see [`outright`].)
//!
//! Locks are taken in one order by everybody: products (by SKU), accounts (by id), records (by their index). As every
//! order of an account is written under its account's lock, what [`load`] reads of standing orders is exact; the
//! constraints on `orders` and the fences are what holds when something outside this service writes.

pub(super) mod lately;
pub(super) mod load;
pub(super) mod outright;
pub(super) mod write;

use std::collections::HashMap;
use std::time::Duration;

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::errors::{Stop, broken};
use super::pools::Pools;
use crate::order::decide::{Asked, Decision, decide};
use crate::order::values::OrderId;
use crate::order::{Method, Order, Status};
use crate::store::{Answer, Placing, Result, SettleRules, Settled};

/// How often a batch begins anew after a deadlock or after a constraint spoke: each time something else got on, so
/// more than a few in a row is a fault to be told.
const ATTEMPTS: usize = 5;
/// The epoch of a record that was not there before the claim.
const NEW_RECORD: i64 = 1;

/// What one transaction came to.
enum Attempt {
    /// Committed: what became of each.
    Settled(Vec<Settled>),
    /// Rolled back: these places of the batch have lost their claims.
    Fenced(Vec<usize>),
    /// Rolled back: an order could not go in, so one stands that was not seen.
    Raced,
}

pub(super) async fn settle(pools: &Pools, batch: &[Placing], rules: &SettleRules) -> Result<Vec<Settled>> {
    let mut settled: Vec<Option<Settled>> = vec![None; batch.len()];
    let mut last = broken("an order is refused by a constraint, but no standing order shows why");
    let mut attempts = 0;
    while attempts < ATTEMPTS {
        let open: Vec<usize> = (0..batch.len()).filter(|n| settled[*n].is_none()).collect();
        if open.is_empty() {
            break;
        }
        let placings: Vec<&Placing> = open.iter().map(|n| &batch[*n]).collect();
        match pools.in_time(attempt(pools, &placings, rules)).await? {
            Ok(Attempt::Settled(all)) => open.into_iter().zip(all).for_each(|(n, one)| settled[n] = Some(one)),
            Ok(Attempt::Fenced(lost)) => lost.into_iter().for_each(|n| settled[open[n]] = Some(Settled::Fenced)),
            Ok(Attempt::Raced) => attempts += 1,
            Err(Stop::MakesWay(error)) => (attempts, last) = (attempts + 1, error),
            Err(Stop::Failed(error)) => return Err(error),
        }
    }
    settled.into_iter().collect::<Option<_>>().ok_or(last)
}

async fn attempt(pools: &Pools, placings: &[&Placing], rules: &SettleRules) -> std::result::Result<Attempt, Stop> {
    let batch: Vec<&Asked> = placings.iter().map(|placing| &placing.asked).collect();
    let mut transaction = pools.begin(rules.lock_wait).await?;
    let mut shop = load::shop(&mut transaction, &batch).await?;
    let decisions = decide(batch, &mut shop);
    let outcomes = outcomes(&mut transaction, placings, decisions, rules, shop.now).await?;

    let written = write::all(&mut transaction, &outcomes, &shop, rules).await?;
    if !written.lost.is_empty() || !written.complete {
        transaction.rollback().await?;
        return Ok(if written.lost.is_empty() { Attempt::Raced } else { Attempt::Fenced(written.lost) });
    }
    transaction.commit().await?;
    Ok(Attempt::Settled(outcomes.into_iter().map(Outcome::settled).collect()))
}

/// One order of the batch, decided and with its answer.
pub(super) struct Outcome<'a> {
    asked: &'a Asked,
    /// Of its claim.
    epoch: i64,
    decision: Decision,
    answer: Answer,
    /// With [`Decision::Stands`]: the order.
    standing: Option<Order>,
    leaked: bool,
}

impl Outcome<'_> {
    fn settled(self) -> Settled {
        match self.unpaid() {
            Some(order) => Settled::Unpaid(order.id),
            None => Settled::Decided { decision: self.decision, answer: self.answer, leaked: self.leaked },
        }
    }

    /// The order that was asked for, where the provider has yet to say what became of its payment: its record stays
    /// `processing`, and whoever writes down the provider's word concludes it.
    fn unpaid(&self) -> Option<&Order> {
        match &self.decision {
            Decision::Placed(order) => Some(order).filter(|order| awaits_provider(order)),
            Decision::Stands { same: true, .. } => self.standing.as_ref().filter(|order| awaits_provider(order)),
            _ => None,
        }
    }

    /// Whether nothing of the claim is kept: an invalid request never had the key, and the record of an order that is
    /// not paid yet belongs to whoever asks for that order, not to somebody with other content.
    fn forgotten(&self) -> bool {
        match &self.decision {
            Decision::Invalid(_) => true,
            Decision::Stands { same: false, .. } => self.standing.as_ref().is_some_and(awaits_provider),
            _ => false,
        }
    }
}

fn awaits_provider(order: &Order) -> bool {
    order.status == Status::Pending && order.method == Method::Card
}

/// Renders the answers, with the standing orders they speak of.
async fn outcomes<'a>(
    transaction: &mut PgConnection,
    placings: &[&'a Placing],
    decisions: Vec<Decision>,
    rules: &SettleRules,
    now: OffsetDateTime,
) -> std::result::Result<Vec<Outcome<'a>>, Stop> {
    let standing: HashMap<OrderId, Order> = load::standing_orders(transaction, placings, &decisions).await?;
    let outcome = |(placing, decision): (&&'a Placing, Decision)| {
        let (standing, said) = match &decision {
            // The record will speak of the order, so whoever repeats the original request must be given the order,
            // not the refusal of this other content.
            Decision::Stands { order, .. } => {
                (standing.get(order).cloned(), Decision::Stands { order: *order, same: true })
            }
            other => (None, other.clone()),
        };
        let young = |order: &Order| now - order.created_at < rules.key_ttl;
        Outcome {
            asked: &placing.asked,
            epoch: placing.epoch,
            answer: (rules.render)(&said, standing.as_ref()),
            leaked: placing.epoch == NEW_RECORD && standing.as_ref().is_some_and(young),
            standing,
            decision,
        }
    };
    Ok(placings.iter().zip(decisions).map(outcome).collect())
}

/// Whole seconds as the statements take them.
fn seconds(n: u64) -> i64 {
    super::records::millis(Duration::from_secs(n)) / 1000
}
