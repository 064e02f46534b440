//! Layer 2's records: claiming them, and looking at them. What the holder of a claim does is in [`super::fences`].

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use sqlx::sqlite::SqliteRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::row::{damaged, get, span, uuid};
use super::{Commit, Result, Sqlite, StoreError, Tx, clock, fault, now};
use crate::order::values::{Fingerprint, OrderId};
use crate::store::{Answer, ClaimRequest, ClaimResult, Outright, Record, RecordId, RecordState};

/// How long an unfinished record is kept at least; completion sets the real time. A day, as operators look at what
/// was left unfinished on the next morning.
pub(super) const UNFINISHED_KEPT_MS: i64 = 24 * 60 * 60 * 1000;

/// `$2` is the "now" of a transaction, which judges all its rows by one reading; null: the moment of this statement.
pub(super) const READ: &str = concat!(
    "SELECT asked.key AS place, r.fingerprint, r.epoch, r.status, r.lease_expires_at - clock.now AS lease_left,
            r.expires_at <= clock.now AS expired, r.response_status, r.response_content_type, r.response_location,
            r.response_body, r.order_id
     FROM (SELECT coalesce($2, ",
    now!(),
    ") AS now) AS clock CROSS JOIN json_each($1) AS asked CROSS JOIN idempotency_records AS r
     WHERE r.account_id = asked.value ->> 'account' AND r.operation = asked.value ->> 'operation'
        AND r.key = asked.value ->> 'key'"
);

/// A record's id as the statements take it, and the content it is claimed for.
#[derive(Serialize)]
struct Asked<'a> {
    account: Uuid,
    operation: &'a str,
    key: &'a str,
    content: Option<&'a str>,
}

impl<'a> Asked<'a> {
    fn of(id: &'a RecordId, content: Option<&'a Fingerprint>) -> Self {
        let content = content.map(Fingerprint::as_str);
        Self { account: id.account.0, operation: id.operation, key: id.key.as_str(), content }
    }
}

/// A record as it is in the table, which may be one that no longer stands.
pub(super) struct Kept {
    record: Record,
    expired: bool,
}

impl Kept {
    /// Done and past its time: as if it were not there, but for its epoch.
    fn is_over(&self) -> bool {
        self.expired && matches!(self.record.state, RecordState::Done(_))
    }

    /// What it says to who asks with this content, without a claim.
    pub(super) fn outright(self, content: &Fingerprint) -> Outright {
        if self.is_over() || self.can_be_taken_over(content) { Outright::Undone } else { Outright::Stands(self.record) }
    }

    fn can_be_taken_over(&self, content: &Fingerprint) -> bool {
        self.record.fingerprint == *content
            && self.record.state == RecordState::Processing { lease_left: Duration::ZERO }
    }
}

/// The write lock is held, so what is not there when it is looked for is not there when it is inserted.
pub(super) async fn claim(store: &Sqlite, requests: &[ClaimRequest], lease: Duration) -> Result<Vec<ClaimResult>> {
    if requests.is_empty() {
        return Ok(Vec::new());
    }
    let mut tx = store.begin(Commit::Quick).await?;
    let now = clock(&mut tx).await?;
    let ids: Vec<&RecordId> = requests.iter().map(|request| &request.id).collect();
    let kept = read_kept(&mut *tx, &ids, Some(now)).await?;
    let new = requests.iter().zip(&kept).filter(|(_, kept)| kept.is_none()).map(|(request, _)| request);
    insert(&mut tx, &new.collect::<Vec<_>>(), span(lease), now).await?;
    let mut results = Vec::with_capacity(requests.len());
    for (request, kept) in requests.iter().zip(kept) {
        results.push(match kept {
            Some(kept) => claim_kept(&mut tx, request, kept, span(lease), now).await?,
            None => ClaimResult::Won { epoch: 1, taken_over: false },
        });
    }
    tx.commit().await.map_err(fault)?;
    Ok(results)
}

async fn insert(tx: &mut Tx, new: &[&ClaimRequest], lease: i64, now: i64) -> Result<()> {
    if new.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = new.iter().map(|request| Asked::of(&request.id, Some(&request.fingerprint))).collect();
    sqlx::query(
        "INSERT INTO idempotency_records
             (account_id, operation, key, fingerprint, status, epoch, lease_expires_at, created_at, expires_at)
         SELECT new.value ->> 'account', new.value ->> 'operation', new.value ->> 'key', new.value ->> 'content',
                'processing', 1, $2, $3, $4
         FROM json_each($1) AS new",
    )
    .bind(Json(rows))
    .bind(now + lease)
    .bind(now)
    .bind(now + UNFINISHED_KEPT_MS)
    .execute(&mut **tx)
    .await
    .map_err(fault)?;
    Ok(())
}

/// A key that is not new is lost, or taken over: rare, so one by one.
async fn claim_kept(tx: &mut Tx, request: &ClaimRequest, kept: Kept, lease: i64, now: i64) -> Result<ClaimResult> {
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
    let kept = read_kept(&store.readers, &[id], None).await?.into_iter().flatten().next();
    Ok(kept.filter(|kept| !kept.is_over()).map(|kept| kept.record))
}

/// The records of these ids, in their order.
pub(super) async fn read_kept(
    db: impl sqlx::SqliteExecutor<'_>,
    ids: &[&RecordId],
    now: Option<i64>,
) -> Result<Vec<Option<Kept>>> {
    let asked: Vec<_> = ids.iter().map(|id| Asked::of(id, None)).collect();
    let rows = sqlx::query(READ).bind(Json(asked)).bind(now).fetch_all(db).await.map_err(fault)?;
    let mut all: Vec<Option<Kept>> = ids.iter().map(|_| None).collect();
    for row in &rows {
        let place = usize::try_from(get::<i64>(row, "place")?).ok().and_then(|place| all.get_mut(place));
        *place.ok_or_else(|| StoreError::Broken("a record that was not asked for".into()))? = Some(kept(row)?);
    }
    Ok(all)
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
