//! Placing what nothing stands for yet, together with its record, without a claim before it.
//!
//! The write lock is held from the first read on, so all that was decided is true when it is written. Repeats are told what
//! stands before that lock is asked for: they wait for nobody.

use std::time::Duration;

use serde::Serialize;
use sqlx::types::Json;
use uuid::Uuid;

use super::outcome::{Means, NEW_RECORD, Outcome};
use super::placing::WRITE_WITH_RECORDS;
use super::records::{self, UNFINISHED_KEPT_MS};
use super::row::span;
use super::shop::{self, Loaded};
use super::{Commit, Result, Sqlite, fault};
use crate::order::decide::{Asked, Decision, decide};
use crate::store::{Outright, PATIENCE, RecordId, SettleRules};

/// See [`Store::place`](crate::store::Store::place).
pub(super) async fn place(
    store: &Sqlite,
    batch: &[&Asked],
    lease: Duration,
    rules: &SettleRules,
) -> Result<Vec<Outright>> {
    let stands = before_placing(store, batch).await?;
    let open: Vec<usize> = (0..batch.len()).filter(|place| stands[*place].is_none()).collect();
    let mut came: Vec<Outright> = stands.into_iter().map(|stands| stands.unwrap_or(Outright::Undone)).collect();
    if open.is_empty() {
        return Ok(came);
    }

    let mut tx = store.begin_within(Commit::Durable, PATIENCE).await?;
    let asked: Vec<&Asked> = open.iter().map(|&place| batch[place]).collect();
    let Loaded { mut shop, now, records } = shop::load(&mut tx, &asked).await?;
    // A record that came meanwhile, or an account that does not exist, is for the way of the claims.
    let clear = |&(_, n): &(usize, usize)| records[n].is_none() && shop.balances.contains_key(&asked[n].account);
    let (places, asked): (Vec<usize>, Vec<&Asked>) =
        open.into_iter().zip(0..).filter(clear).map(|(place, n)| (place, asked[n])).unzip();

    let before = Means::of(&shop);
    let decisions = decide(asked.iter().copied(), &mut shop);
    // An order that stands without its record has taken nothing here.
    let decided = places.into_iter().zip(asked).zip(decisions);
    let (places, outcomes): (Vec<usize>, Vec<Outcome<'_>>) = decided
        .filter(|(_, decision)| !matches!(decision, Decision::Stands { .. }))
        .map(|((place, asked), decision)| (place, Outcome::new(asked, NEW_RECORD, decision, rules)))
        .unzip();

    if outcomes.iter().all(Outcome::forgotten) {
        tx.rollback().await.map_err(fault)?;
    } else {
        let records: Vec<_> = outcomes.iter().filter(|outcome| !outcome.forgotten()).map(New::of).collect();
        before
            .statements(WRITE_WITH_RECORDS, &shop, &outcomes, rules, now)
            .bind(Json(records))
            .bind(now + span(lease))
            .bind(now + UNFINISHED_KEPT_MS)
            .bind(now + span(rules.key_ttl))
            .execute(&mut *tx)
            .await
            .map_err(fault)?;
        tx.commit().await.map_err(fault)?;
    }
    for (place, outcome) in places.into_iter().zip(outcomes) {
        came[place] = Outright::Settled(outcome.settled(rules, now));
    }
    Ok(came)
}

/// What the records say to those who ask; `None`: there is none.
async fn before_placing(store: &Sqlite, batch: &[&Asked]) -> Result<Vec<Option<Outright>>> {
    let id = |asked: &&Asked| RecordId { account: asked.account, operation: "place_order", key: asked.key.clone() };
    let ids: Vec<RecordId> = batch.iter().map(id).collect();
    let kept = records::read_kept(&store.readers, &ids.iter().collect::<Vec<_>>(), None).await?;
    Ok(kept.into_iter().zip(batch).map(|(kept, asked)| Some(kept?.outright(&asked.fingerprint))).collect())
}

/// The record of a key as it begins where nothing stood before.
#[derive(Serialize)]
struct New<'a> {
    account: Uuid,
    key: &'a str,
    content: &'a str,
    /// The order that is told of, or that is not paid yet.
    order: Option<Uuid>,
    /// Nothing: it is still under way.
    status: Option<u16>,
    content_type: Option<&'static str>,
    location: Option<&'a str>,
    body: Option<String>,
}

impl<'a> New<'a> {
    fn of(outcome: &'a Outcome<'_>) -> Self {
        let (Asked { account, key, fingerprint, .. }, answer) = (outcome.asked, &outcome.answer);
        let unpaid = outcome.unpaid();
        let said = Some(answer).filter(|_| unpaid.is_none());
        Self {
            account: account.0,
            key: key.as_str(),
            content: fingerprint.as_str(),
            order: unpaid.or(answer.order).map(|order| order.0),
            status: said.map(|answer| answer.status),
            content_type: said.map(|answer| answer.content_type),
            location: said.and_then(|answer| answer.location.as_deref()),
            body: said.map(|answer| hex::encode(&answer.body)),
        }
    }
}
