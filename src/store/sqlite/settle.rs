//! Settling a batch that was claimed: one transaction, decided in pure Rust between its reads and its writes. A fixed number of
//! statements, however many orders: each is a message to the driver's thread and back, which costs more than the row that it
//! writes. (What nothing stands for goes a shorter way, see [`super::outright`].)
//!
//! The write lock is held from the first read on, so there is nothing to undo: a fence that holds when it is looked
//! at holds at the commit, and a standing order that was not there cannot come in between. The fences and constraints
//! are written against all the same; one that speaks here means a bug, and rolls the whole batch back.

use super::outcome::{Means, Outcome};
use super::placing::WRITE;
use super::shop::{self, Loaded};
use super::{Commit, Result, Sqlite, StoreError, Tx, accounts, fault, fences};
use crate::order::decide::{Asked, decide};
use crate::store::{Fence, Placing, RecordId, SettleRules, Settled};

pub(super) async fn settle(store: &Sqlite, batch: &[Placing], rules: &SettleRules) -> Result<Vec<Settled>> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let mut tx = store.begin_within(Commit::Durable, rules.lock_wait).await?;
    let asked: Vec<&Asked> = batch.iter().map(|placing| &placing.asked).collect();
    let Loaded { mut shop, now, records } = shop::load(&mut tx, &asked).await?;
    let held = |place: &usize| records[*place].is_some_and(|record| record.is_claimed_under(batch[*place].epoch));
    let places: Vec<usize> = (0..batch.len()).filter(held).collect();
    let buyers = places.iter().map(|&place| asked[place].account);
    if let Some(missing) = buyers.into_iter().find(|buyer| !shop.balances.contains_key(buyer)) {
        return Err(accounts::missing(missing));
    }

    let before = Means::of(&shop);
    let decisions = decide(places.iter().map(|&place| asked[place]), &mut shop);
    let mut outcomes = Vec::with_capacity(places.len());
    for (&place, decision) in places.iter().zip(decisions) {
        outcomes.push(Outcome::of(&mut tx, asked[place], batch[place].epoch, decision, rules).await?);
    }

    before.statements(WRITE, &shop, &outcomes, rules, now).execute(&mut *tx).await.map_err(fault)?;
    write_records(&mut tx, &outcomes, rules, now).await?;
    tx.commit().await.map_err(fault)?;

    let mut settled = vec![Settled::Fenced; batch.len()];
    for (place, outcome) in places.into_iter().zip(outcomes) {
        settled[place] = outcome.settled(rules, now);
    }
    Ok(settled)
}

fn fence(outcome: &Outcome<'_>) -> Fence {
    let Asked { account, key, .. } = outcome.asked;
    Fence { id: RecordId { account: *account, operation: "place_order", key: key.clone() }, epoch: outcome.epoch }
}

/// What the decisions mean for the records of their keys.
async fn write_records(tx: &mut Tx, outcomes: &[Outcome<'_>], rules: &SettleRules, now: i64) -> Result<()> {
    let fences: Vec<Fence> = outcomes.iter().map(fence).collect();
    let (mut answered, mut named, mut forgotten) = (Vec::new(), Vec::new(), Vec::new());
    for (outcome, fence) in outcomes.iter().zip(&fences) {
        if outcome.forgotten() {
            forgotten.push(fence);
        } else if let Some(order) = outcome.unpaid() {
            named.push((fence, order));
        } else {
            // A record that was lost and came back is healed: it speaks of the order's content, not of what was asked
            // now.
            let content = outcome.standing.as_ref().map(|order| &order.fingerprint);
            answered.push(fences::Kept { fence, content, answer: &outcome.answer });
        }
    }
    let mut held = 0;
    if !answered.is_empty() {
        held += fences::answer(tx, &answered, now, rules.key_ttl).await?;
    }
    if !named.is_empty() {
        held += fences::name(tx, &named).await?;
    }
    if !forgotten.is_empty() {
        held += fences::forget(tx, &forgotten).await?;
    }
    let moved = || StoreError::Broken("a fence moved under the lock".into());
    if held == outcomes.len() { Ok(()) } else { Err(moved()) }
}
