//! Layer 2's records: claim, look, complete, release.

use std::time::Duration;

use bytes::Bytes;
use sqlx::sqlite::SqliteRow;

use super::row::{damaged, get, parsed, span, uuid};
use super::{Commit, Result, Sqlite, Tx, clock, fault, now};
use crate::order::values::{AccountId, Fingerprint, Key, OrderId};
use crate::store::{Answer, ClaimRequest, ClaimResult, Conclusion, Fence, Record, RecordId, RecordState};

/// How long an unfinished record is kept at least; completion sets the real time. A day, as operators look at what
/// was left unfinished on the next morning.
const UNFINISHED_KEPT_MS: i64 = 24 * 60 * 60 * 1000;

/// `$4` is the "now" of a transaction, which judges all its rows by one reading; null: the moment of this statement.
pub(super) const READ: &str = concat!(
    "SELECT fingerprint, epoch, status, lease_expires_at - now AS lease_left, expires_at <= now AS expired,
            response_status, response_content_type, response_location, response_body, order_id
     FROM idempotency_records, (SELECT coalesce($4, ",
    now!(),
    ") AS now) AS clock
     WHERE account_id = $1 AND operation = $2 AND key = $3"
);

/// A record as it is in the table, which may be one that no longer stands.
struct Kept {
    record: Record,
    expired: bool,
}

impl Kept {
    /// Done and past its time: as if it were not there, but for its epoch.
    fn is_over(&self) -> bool {
        self.expired && matches!(self.record.state, RecordState::Done(_))
    }

    fn can_be_taken_over(&self, content: &Fingerprint) -> bool {
        self.record.fingerprint == *content
            && self.record.state == RecordState::Processing { lease_left: Duration::ZERO }
    }
}

pub(super) async fn claim(store: &Sqlite, requests: &[ClaimRequest], lease: Duration) -> Result<Vec<ClaimResult>> {
    if requests.is_empty() {
        return Ok(Vec::new());
    }
    let mut tx = store.begin(Commit::Quick).await?;
    let now = clock(&mut tx).await?;
    let mut results = Vec::with_capacity(requests.len());
    for request in requests {
        results.push(claim_one(&mut tx, request, span(lease), now).await?);
    }
    tx.commit().await.map_err(fault)?;
    Ok(results)
}

/// The write lock is held, so what is read here is still so when it is written.
async fn claim_one(tx: &mut Tx, request: &ClaimRequest, lease: i64, now: i64) -> Result<ClaimResult> {
    let inserted = sqlx::query(
        "INSERT INTO idempotency_records
             (account_id, operation, key, fingerprint, status, epoch, lease_expires_at, created_at, expires_at)
         VALUES ($1, $2, $3, $4, 'processing', 1, $5, $6, $7)
         ON CONFLICT (account_id, operation, key) DO NOTHING",
    )
    .bind(request.id.account.0.hyphenated())
    .bind(request.id.operation)
    .bind(request.id.key.as_str())
    .bind(request.fingerprint.as_str())
    .bind(now + lease)
    .bind(now)
    .bind(now + UNFINISHED_KEPT_MS)
    .execute(&mut **tx)
    .await
    .map_err(fault)?;
    if inserted.rows_affected() == 1 {
        return Ok(ClaimResult::Won { epoch: 1, taken_over: false });
    }
    let kept = read_kept(&mut **tx, &request.id, Some(now)).await?.ok_or_else(|| damaged("key"))?;
    let taken_over = kept.can_be_taken_over(&request.fingerprint);
    if !taken_over && !kept.is_over() {
        return Ok(ClaimResult::Lost(kept.record));
    }
    let epoch = kept.record.epoch + 1;
    claim_again(tx, request, epoch, lease, now).await?;
    Ok(ClaimResult::Won { epoch, taken_over })
}

/// Puts the row under a new epoch. One that was done starts anew; one that was not keeps its age and its order.
async fn claim_again(tx: &mut Tx, request: &ClaimRequest, epoch: i64, lease: i64, now: i64) -> Result<()> {
    sqlx::query(
        "UPDATE idempotency_records
         SET created_at = iif(status = 'done', $7, created_at), order_id = iif(status = 'done', NULL, order_id),
             fingerprint = $4, status = 'processing', epoch = $5, lease_expires_at = $6, expires_at = $8,
             completed_at = NULL, response_status = NULL, response_content_type = NULL, response_location = NULL,
             response_body = NULL
         WHERE account_id = $1 AND operation = $2 AND key = $3",
    )
    .bind(request.id.account.0.hyphenated())
    .bind(request.id.operation)
    .bind(request.id.key.as_str())
    .bind(request.fingerprint.as_str())
    .bind(epoch)
    .bind(now + lease)
    .bind(now)
    .bind(now + UNFINISHED_KEPT_MS)
    .execute(&mut **tx)
    .await
    .map_err(fault)?;
    Ok(())
}

pub(super) async fn read(store: &Sqlite, id: &RecordId) -> Result<Option<Record>> {
    let kept = read_kept(&store.readers, id, None).await?;
    Ok(kept.filter(|kept| !kept.is_over()).map(|kept| kept.record))
}

async fn read_kept(db: impl sqlx::SqliteExecutor<'_>, id: &RecordId, now: Option<i64>) -> Result<Option<Kept>> {
    sqlx::query(READ)
        .bind(id.account.0.hyphenated())
        .bind(id.operation)
        .bind(id.key.as_str())
        .bind(now)
        .fetch_optional(db)
        .await
        .map_err(fault)?
        .map(|row| kept(&row))
        .transpose()
}

fn kept(row: &SqliteRow) -> Result<Kept> {
    let state = match get(row, "status")? {
        "processing" => {
            let left: i64 = get(row, "lease_left")?;
            RecordState::Processing { lease_left: Duration::from_millis(u64::try_from(left).unwrap_or(0)) }
        }
        "done" => RecordState::Done(answer(row)?),
        _ => return Err(damaged("status")),
    };
    let record =
        Record { fingerprint: Fingerprint::stored(get(row, "fingerprint")?), epoch: get(row, "epoch")?, state };
    Ok(Kept { record, expired: get(row, "expired")? })
}

fn answer(row: &SqliteRow) -> Result<Answer> {
    let order = get::<Option<&str>>(row, "order_id")?.map(|_| uuid(row, "order_id")).transpose()?;
    Ok(Answer {
        status: get(row, "response_status")?,
        content_type: Answer::known_content_type(get::<Option<&str>>(row, "response_content_type")?.unwrap_or("")),
        location: get(row, "response_location")?,
        body: Bytes::from(get::<Vec<u8>>(row, "response_body")?),
        order: order.map(OrderId),
    })
}

pub(super) async fn complete(store: &Sqlite, fence: &Fence, answer: &Answer, key_ttl: Duration) -> Result<bool> {
    let mut tx = store.begin(Commit::Durable).await?;
    let now = clock(&mut tx).await?;
    let held = store_answer(&mut tx, fence, None, answer, now, key_ttl).await?;
    tx.commit().await.map_err(fault)?;
    Ok(held)
}

/// Writes the answer under the fence; `false`: it does not hold. With `content` the record gets that fingerprint too.
pub(super) async fn store_answer(
    tx: &mut Tx,
    fence: &Fence,
    content: Option<&Fingerprint>,
    answer: &Answer,
    now: i64,
    key_ttl: Duration,
) -> Result<bool> {
    let written = sqlx::query(
        "UPDATE idempotency_records
         SET status = 'done', fingerprint = coalesce($5, fingerprint), response_status = $6,
             response_content_type = $7, response_location = $8, response_body = $9, order_id = $10,
             completed_at = $11, expires_at = $12
         WHERE account_id = $1 AND operation = $2 AND key = $3 AND status = 'processing' AND epoch = $4",
    )
    .bind(fence.id.account.0.hyphenated())
    .bind(fence.id.operation)
    .bind(fence.id.key.as_str())
    .bind(fence.epoch)
    .bind(content.map(Fingerprint::as_str))
    .bind(answer.status)
    .bind(answer.content_type)
    .bind(answer.location.as_deref())
    .bind(answer.body.as_ref())
    .bind(answer.order.map(|order| order.0.hyphenated()))
    .bind(now)
    .bind(now + span(key_ttl))
    .execute(&mut **tx)
    .await
    .map_err(fault)?;
    Ok(written.rows_affected() == 1)
}

/// Does with a claim's record what was concluded; `false`: the fence does not hold.
pub(super) async fn conclude(
    tx: &mut Tx,
    fence: &Fence,
    conclusion: &Conclusion,
    now: i64,
    key_ttl: Duration,
) -> Result<bool> {
    match conclusion {
        Conclusion::Answer(answer) => store_answer(tx, fence, None, answer, now, key_ttl).await,
        Conclusion::Release => give_up(tx, fence, now).await,
        Conclusion::Keep => holds(tx, fence).await,
    }
}

/// Names the order that a record will be answered with, while it is still under way; `false`: the fence does not hold.
pub(super) async fn name_order(tx: &mut Tx, fence: &Fence, order: OrderId) -> Result<bool> {
    let written = sqlx::query(
        "UPDATE idempotency_records SET order_id = $5
         WHERE account_id = $1 AND operation = $2 AND key = $3 AND status = 'processing' AND epoch = $4",
    )
    .bind(fence.id.account.0.hyphenated())
    .bind(fence.id.operation)
    .bind(fence.id.key.as_str())
    .bind(fence.epoch)
    .bind(order.0.hyphenated())
    .execute(&mut **tx)
    .await
    .map_err(fault)?;
    Ok(written.rows_affected() == 1)
}

/// Whether the record is still this claim's. Under the write lock, so it stays so.
pub(super) async fn holds(tx: &mut Tx, fence: &Fence) -> Result<bool> {
    let held: Option<i64> = sqlx::query_scalar(
        "SELECT 1 FROM idempotency_records
         WHERE account_id = $1 AND operation = $2 AND key = $3 AND status = 'processing' AND epoch = $4",
    )
    .bind(fence.id.account.0.hyphenated())
    .bind(fence.id.operation)
    .bind(fence.id.key.as_str())
    .bind(fence.epoch)
    .fetch_optional(&mut **tx)
    .await
    .map_err(fault)?;
    Ok(held.is_some())
}

/// Takes the record of a claim away, of which nothing is to be kept.
pub(super) async fn forget(tx: &mut Tx, fence: &Fence) -> Result<()> {
    sqlx::query(
        "DELETE FROM idempotency_records
         WHERE account_id = $1 AND operation = $2 AND key = $3 AND status = 'processing' AND epoch = $4",
    )
    .bind(fence.id.account.0.hyphenated())
    .bind(fence.id.operation)
    .bind(fence.id.key.as_str())
    .bind(fence.epoch)
    .execute(&mut **tx)
    .await
    .map_err(fault)?;
    Ok(())
}

pub(super) async fn release(store: &Sqlite, fences: &[Fence]) -> Result<()> {
    let mut tx = store.begin(Commit::Quick).await?;
    let now = clock(&mut tx).await?;
    for fence in fences {
        give_up(&mut tx, fence, now).await?;
    }
    tx.commit().await.map_err(fault)
}

async fn give_up(tx: &mut Tx, fence: &Fence, now: i64) -> Result<bool> {
    let written = sqlx::query(
        "UPDATE idempotency_records SET lease_expires_at = min(lease_expires_at, $5)
         WHERE account_id = $1 AND operation = $2 AND key = $3 AND status = 'processing' AND epoch = $4",
    )
    .bind(fence.id.account.0.hyphenated())
    .bind(fence.id.operation)
    .bind(fence.id.key.as_str())
    .bind(fence.epoch)
    .bind(now)
    .execute(&mut **tx)
    .await
    .map_err(fault)?;
    Ok(written.rows_affected() == 1)
}

pub(super) async fn key_under_way(store: &Sqlite, account: AccountId) -> Result<Option<Key>> {
    sqlx::query(concat!(
        "SELECT key FROM idempotency_records
         WHERE account_id = $1 AND operation = 'place_order' AND status = 'processing' AND lease_expires_at > ",
        now!(),
        " ORDER BY created_at DESC, key LIMIT 1"
    ))
    .bind(account.0.hyphenated())
    .fetch_optional(&store.readers)
    .await
    .map_err(fault)?
    .map(|row| parsed(&row, "key", Key::parse))
    .transpose()
}
