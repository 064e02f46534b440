//! Records as operators see them. Nothing here is on a buyer's way: a look through a whole index is in order.

use sqlx::postgres::PgRow;

use super::errors::{broken, column, stored};
use super::pools::Pools;
use super::records::millis;
use crate::order::values::{AccountId, Key, OrderId};
use crate::store::{RecordFilter, RecordId, RecordStatus, RecordStory, Result};

/// Every column of a record `r`, its subject and the clock.
macro_rules! story {
    () => {
        "r.account_id, (SELECT a.subject FROM accounts a WHERE a.id = r.account_id) AS subject, r.operation, r.key,
        r.fingerprint, r.status, r.epoch, r.lease_expires_at, r.response_status, r.response_content_type,
        r.response_location, r.response_body, r.order_id, r.created_at, r.completed_at, r.expires_at,
        clock_timestamp() AS seen_at"
    };
}

statements! {
    LIST_RECORDS = concat!("SELECT ", story!(), " FROM idempotency_records r
        WHERE ($1::text IS NULL OR r.status = $1) AND r.created_at <= clock_timestamp() - $2 * interval '1 ms'
        ORDER BY r.expires_at LIMIT $3");

    FIND_RECORDS = concat!("SELECT ", story!(), " FROM idempotency_records r WHERE r.key = $1 ORDER BY r.created_at");

    FIND_RECORDS_OF = concat!("SELECT ", story!(), " FROM idempotency_records r
        WHERE r.account_id = $2 AND r.key = $1 ORDER BY r.created_at");

    FREE_RECORDS = concat!("
        UPDATE idempotency_records r SET lease_expires_at = least(r.lease_expires_at, clock_timestamp())
        WHERE r.account_id = $2 AND r.key = $1 AND r.status = 'processing' RETURNING ", story!());

    LET_EXPIRE = "
        UPDATE idempotency_records SET expires_at = least(expires_at, clock_timestamp())
        WHERE account_id = $1 AND operation = $2 AND key = $3 AND status = 'done'";
}

pub(super) async fn list(pools: &Pools, filter: RecordFilter) -> Result<Vec<RecordStory>> {
    let statement = || {
        let status = filter.status.map(RecordStatus::as_str);
        sqlx::query(LIST_RECORDS).bind(status).bind(millis(filter.older_than)).bind(i64::from(filter.limit))
    };
    pools.query(statement).await?.iter().map(story).collect()
}

pub(super) async fn find(pools: &Pools, key: &Key, account: Option<AccountId>) -> Result<Vec<RecordStory>> {
    let key = || key.as_str().to_owned();
    let rows = pools.query(|| match account {
        Some(account) => sqlx::query(FIND_RECORDS_OF).bind(key()).bind(account.0),
        None => sqlx::query(FIND_RECORDS).bind(key()),
    });
    rows.await?.iter().map(story).collect()
}

/// Run twice after a lost answer it tells the same again.
pub(super) async fn free(pools: &Pools, account: AccountId, key: &Key) -> Result<Vec<RecordStory>> {
    let rows = pools.query(|| sqlx::query(FREE_RECORDS).bind(key.as_str().to_owned()).bind(account.0));
    rows.await?.iter().map(story).collect()
}

pub(super) async fn let_expire(pools: &Pools, id: &RecordId) -> Result<bool> {
    let statement = sqlx::query(LET_EXPIRE).bind(id.account.0).bind(id.operation).bind(id.key.as_str().to_owned());
    Ok(pools.execute(statement).await?.rows_affected() == 1)
}

fn story(row: &PgRow) -> Result<RecordStory> {
    let status: Option<i16> = column(row, "response_status")?;
    let status = status
        .map(|status| u16::try_from(status).map_err(|_| broken(format!("column response_status holds {status}"))));
    let body: Option<Vec<u8>> = column(row, "response_body")?;
    Ok(RecordStory {
        account: AccountId(column(row, "account_id")?),
        subject: column(row, "subject")?,
        operation: column(row, "operation")?,
        key: column(row, "key")?,
        fingerprint: column(row, "fingerprint")?,
        status: stored(row, "status", RecordStatus::parse)?,
        epoch: column(row, "epoch")?,
        lease_expires_at: column(row, "lease_expires_at")?,
        response_status: status.transpose()?,
        response_content_type: column(row, "response_content_type")?,
        response_location: column(row, "response_location")?,
        response_body: body.map(Into::into),
        order: column::<Option<uuid::Uuid>>(row, "order_id")?.map(OrderId),
        created_at: column(row, "created_at")?,
        completed_at: column(row, "completed_at")?,
        expires_at: column(row, "expires_at")?,
        seen_at: column(row, "seen_at")?,
    })
}
