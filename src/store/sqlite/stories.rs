//! Records as operators see them. Nothing here is on a buyer's way: a look through the whole table is in order.

use sqlx::sqlite::SqliteRow;

use super::row::{damaged, from_millis, get, parsed, span, time, uuid};
use super::{Commit, Result, Sqlite, clock, fault, now};
use crate::order::values::{AccountId, Key, OrderId};
use crate::store::{RecordFilter, RecordId, RecordStatus, RecordStory};

/// Every column of a record `r`, its subject and the clock.
macro_rules! stories {
    ($rest:literal) => {
        concat!(
            "SELECT r.account_id, (SELECT a.subject FROM accounts a WHERE a.id = r.account_id) AS subject, r.operation,
                r.key, r.fingerprint, r.status, r.epoch, r.lease_expires_at, r.response_status,
                r.response_content_type, r.response_location, r.response_body, r.order_id, r.created_at,
                r.completed_at, r.expires_at, ",
            now!(),
            " AS seen_at
             FROM idempotency_records r WHERE ",
            $rest
        )
    };
}

const LIST: &str = concat!(
    stories!("($1 IS NULL OR r.status = $1) AND r.created_at <= "),
    now!(),
    " - $2 ORDER BY r.expires_at LIMIT $3"
);
const FIND: &str = stories!("r.key = $1 AND ($2 IS NULL OR r.account_id = $2) ORDER BY r.created_at");
const UNFINISHED: &str = stories!("r.key = $1 AND r.account_id = $2 AND r.status = 'processing'");

pub(super) async fn list(store: &Sqlite, filter: RecordFilter) -> Result<Vec<RecordStory>> {
    let query = sqlx::query(LIST)
        .bind(filter.status.map(RecordStatus::as_str))
        .bind(span(filter.older_than))
        .bind(filter.limit);
    query.fetch_all(&store.readers).await.map_err(fault)?.iter().map(story).collect()
}

pub(super) async fn find(store: &Sqlite, key: &Key, account: Option<AccountId>) -> Result<Vec<RecordStory>> {
    let query = sqlx::query(FIND).bind(key.as_str()).bind(account.map(|account| account.0.hyphenated()));
    query.fetch_all(&store.readers).await.map_err(fault)?.iter().map(story).collect()
}

pub(super) async fn free(store: &Sqlite, account: AccountId, key: &Key) -> Result<Vec<RecordStory>> {
    let mut tx = store.begin(Commit::Durable).await?;
    let now = clock(&mut tx).await?;
    sqlx::query(
        "UPDATE idempotency_records SET lease_expires_at = min(lease_expires_at, $3)
         WHERE key = $1 AND account_id = $2 AND status = 'processing'",
    )
    .bind(key.as_str())
    .bind(account.0.hyphenated())
    .bind(now)
    .execute(&mut *tx)
    .await
    .map_err(fault)?;
    let query = sqlx::query(UNFINISHED).bind(key.as_str()).bind(account.0.hyphenated());
    let freed = query.fetch_all(&mut *tx).await.map_err(fault)?.iter().map(story).collect::<Result<_>>()?;
    tx.commit().await.map_err(fault)?;
    Ok(freed)
}

pub(super) async fn let_expire(store: &Sqlite, id: &RecordId) -> Result<bool> {
    let mut tx = store.begin(Commit::Quick).await?;
    let now = clock(&mut tx).await?;
    let done = sqlx::query(
        "UPDATE idempotency_records SET expires_at = min(expires_at, $4)
         WHERE account_id = $1 AND operation = $2 AND key = $3 AND status = 'done'",
    )
    .bind(id.account.0.hyphenated())
    .bind(id.operation)
    .bind(id.key.as_str())
    .bind(now)
    .execute(&mut *tx)
    .await
    .map_err(fault)?;
    tx.commit().await.map_err(fault)?;
    Ok(done.rows_affected() == 1)
}

fn story(row: &SqliteRow) -> Result<RecordStory> {
    let order = get::<Option<&str>>(row, "order_id")?.map(|_| uuid(row, "order_id")).transpose()?;
    let completed_at = get::<Option<i64>>(row, "completed_at")?;
    Ok(RecordStory {
        account: AccountId(uuid(row, "account_id")?),
        subject: get(row, "subject")?,
        operation: get(row, "operation")?,
        key: get(row, "key")?,
        fingerprint: get(row, "fingerprint")?,
        status: parsed(row, "status", RecordStatus::parse)?,
        epoch: get(row, "epoch")?,
        lease_expires_at: time(row, "lease_expires_at")?,
        response_status: get(row, "response_status")?,
        response_content_type: get(row, "response_content_type")?,
        response_location: get(row, "response_location")?,
        response_body: get::<Option<Vec<u8>>>(row, "response_body")?.map(Into::into),
        order: order.map(OrderId),
        created_at: time(row, "created_at")?,
        completed_at: completed_at.map(|at| from_millis(at).ok_or_else(|| damaged("completed_at"))).transpose()?,
        expires_at: time(row, "expires_at")?,
        seen_at: time(row, "seen_at")?,
    })
}
