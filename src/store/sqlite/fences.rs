//! What the holder of a claim does with its record. Every statement takes many fences at once, tells for how many of
//! them it held, and leaves a record alone that was taken over or finished meanwhile.

use std::time::Duration;

use serde::Serialize;
use sqlx::types::Json;
use uuid::Uuid;

use super::row::{get, span};
use super::{Commit, Result, Sqlite, Tx, clock, fault, now};
use crate::order::values::{Fingerprint, OrderId};
use crate::store::{Answer, Conclusion, Fence};

/// That a record `r` is still that of a fence `mine` of the batch.
macro_rules! holds {
    () => {
        "r.account_id = mine.value ->> 'account' AND r.operation = mine.value ->> 'operation'
         AND r.key = mine.value ->> 'key' AND r.epoch = mine.value ->> 'epoch' AND r.status = 'processing'"
    };
}

/// The clock, and the places of the batch whose fences hold.
pub(super) const HELD: &str = concat!(
    "SELECT ",
    now!(),
    " AS now, (SELECT json_group_array(mine.key)
               FROM json_each($1) AS mine CROSS JOIN idempotency_records AS r WHERE ",
    holds!(),
    ") AS places"
);

/// The body travels as hexadecimal digits: JSON has no bytes.
pub(super) const ANSWER: &str = concat!(
    "UPDATE idempotency_records AS r
     SET status = 'done', fingerprint = coalesce(mine.value ->> 'content', r.fingerprint),
         response_status = mine.value ->> 'status', response_content_type = mine.value ->> 'content_type',
         response_location = mine.value ->> 'location', response_body = unhex(mine.value ->> 'body'),
         order_id = mine.value ->> 'order', completed_at = $2, expires_at = $3
     FROM json_each($1) AS mine WHERE ",
    holds!()
);

pub(super) const NAME: &str = concat!(
    "UPDATE idempotency_records AS r SET order_id = mine.value ->> 'order' FROM json_each($1) AS mine WHERE ",
    holds!()
);

pub(super) const GIVE_UP: &str = concat!(
    "UPDATE idempotency_records AS r SET lease_expires_at = min(r.lease_expires_at, $2)
     FROM json_each($1) AS mine WHERE ",
    holds!()
);

pub(super) const FORGET: &str = concat!(
    "DELETE FROM idempotency_records WHERE rowid IN (
         SELECT r.rowid FROM json_each($1) AS mine CROSS JOIN idempotency_records AS r WHERE ",
    holds!(),
    ")"
);

/// A fence as the statements take it.
#[derive(Serialize)]
struct Mine<'a> {
    account: Uuid,
    operation: &'a str,
    key: &'a str,
    epoch: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<Uuid>,
}

impl<'a> Mine<'a> {
    fn of(fence: &'a Fence, order: Option<OrderId>) -> Self {
        let Fence { id, epoch } = fence;
        let order = order.map(|order| order.0);
        Self { account: id.account.0, operation: id.operation, key: id.key.as_str(), epoch: *epoch, order }
    }
}

fn plain<'a>(fences: impl IntoIterator<Item = &'a Fence>) -> Json<Vec<Mine<'a>>> {
    Json(fences.into_iter().map(|fence| Mine::of(fence, None)).collect())
}

/// The clock, and of each fence whether its record is still this claim's. Under the write lock, so it stays so.
pub(super) async fn held(tx: &mut Tx, fences: &[Fence]) -> Result<(i64, Vec<bool>)> {
    let row = sqlx::query(HELD).bind(plain(fences)).fetch_one(&mut **tx).await.map_err(fault)?;
    let Json(places) = get::<Json<Vec<usize>>>(&row, "places")?;
    let mut held = vec![false; fences.len()];
    for place in places {
        if let Some(held) = held.get_mut(place) {
            *held = true;
        }
    }
    Ok((get(&row, "now")?, held))
}

/// An answer that is to be kept under a fence.
pub(super) struct Kept<'a> {
    pub(super) fence: &'a Fence,
    /// The record gets this fingerprint, where it is to have another than it was claimed for.
    pub(super) content: Option<&'a Fingerprint>,
    pub(super) answer: &'a Answer,
}

#[derive(Serialize)]
struct Answered<'a> {
    #[serde(flatten)]
    fence: Mine<'a>,
    content: Option<&'a str>,
    status: u16,
    content_type: &'static str,
    location: Option<&'a str>,
    body: String,
}

impl<'a> Answered<'a> {
    fn of(kept: &Kept<'a>) -> Self {
        let &Kept { fence, content, answer } = kept;
        Self {
            fence: Mine::of(fence, answer.order),
            content: content.map(Fingerprint::as_str),
            status: answer.status,
            content_type: answer.content_type,
            location: answer.location.as_deref(),
            body: hex::encode(&answer.body),
        }
    }
}

/// Keeps the answers and tells how many fences held.
pub(super) async fn answer(tx: &mut Tx, kept: &[Kept<'_>], now: i64, key_ttl: Duration) -> Result<usize> {
    let kept = Json(kept.iter().map(Answered::of).collect::<Vec<_>>());
    let written = sqlx::query(ANSWER).bind(kept).bind(now).bind(now + span(key_ttl)).execute(&mut **tx).await;
    count(written)
}

/// Names the orders that records will be answered with, while they are still under way, and tells how many fences held.
pub(super) async fn name(tx: &mut Tx, orders: &[(&Fence, OrderId)]) -> Result<usize> {
    let orders = Json(orders.iter().map(|(fence, order)| Mine::of(fence, Some(*order))).collect::<Vec<_>>());
    count(sqlx::query(NAME).bind(orders).execute(&mut **tx).await)
}

/// Takes the records away of claims of which nothing is to be kept, and tells how many fences held.
pub(super) async fn forget(tx: &mut Tx, fences: &[&Fence]) -> Result<usize> {
    count(sqlx::query(FORGET).bind(plain(fences.iter().copied())).execute(&mut **tx).await)
}

async fn give_up(tx: &mut Tx, fences: &[Fence], now: i64) -> Result<usize> {
    count(sqlx::query(GIVE_UP).bind(plain(fences)).bind(now).execute(&mut **tx).await)
}

fn count(written: std::result::Result<sqlx::sqlite::SqliteQueryResult, sqlx::Error>) -> Result<usize> {
    let rows = written.map_err(fault)?.rows_affected();
    Ok(usize::try_from(rows).unwrap_or(usize::MAX))
}

/// Does with a claim's record what was concluded; `false`: the fence does not hold.
pub(super) async fn conclude(
    tx: &mut Tx,
    fence: &Fence,
    conclusion: &Conclusion,
    now: i64,
    key_ttl: Duration,
) -> Result<bool> {
    let fences = std::slice::from_ref(fence);
    match conclusion {
        Conclusion::Answer(given) => answer_one(tx, fence, given, now, key_ttl).await,
        Conclusion::Release => Ok(give_up(tx, fences, now).await? == 1),
        Conclusion::Keep => Ok(held(tx, fences).await?.1 == [true]),
    }
}

async fn answer_one(tx: &mut Tx, fence: &Fence, given: &Answer, now: i64, key_ttl: Duration) -> Result<bool> {
    let kept = [Kept { fence, content: None, answer: given }];
    Ok(answer(tx, &kept, now, key_ttl).await? == 1)
}

pub(super) async fn complete(store: &Sqlite, fence: &Fence, given: &Answer, key_ttl: Duration) -> Result<bool> {
    let mut tx = store.begin(Commit::Durable).await?;
    let now = clock(&mut tx).await?;
    let held = answer_one(&mut tx, fence, given, now, key_ttl).await?;
    tx.commit().await.map_err(fault)?;
    Ok(held)
}

pub(super) async fn release(store: &Sqlite, fences: &[Fence]) -> Result<()> {
    let mut tx = store.begin(Commit::Quick).await?;
    let now = clock(&mut tx).await?;
    give_up(&mut tx, fences, now).await?;
    tx.commit().await.map_err(fault)
}
