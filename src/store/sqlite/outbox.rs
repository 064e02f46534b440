//! What other parts must hear of, written in the transaction that makes it true; its way to the queue; its effect.

use std::time::Duration;

use serde_json::json;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::row::{get, span, uuid};
use super::{Commit, Result, Sqlite, Tx, clock, fault, now};
use crate::order::Order;
use crate::order::values::OrderId;
use crate::store::{Grant, Granted, Message, ORDER_PAID, Republish};

/// `$1`: the clock.
pub(super) const DUE: &str = "
    SELECT id, topic, payload FROM outbox WHERE consumed_at IS NULL AND due_at <= $1 ORDER BY due_at LIMIT $2";

pub(super) const LAG: &str = concat!(
    "SELECT max(0, ",
    now!(),
    " - created_at) FROM outbox
     WHERE published_at IS NULL AND created_at > 0 ORDER BY created_at LIMIT 1"
);

/// `payload` is compared only for the rows of that time, which an index finds.
pub(super) const CONSUMED: &str = concat!(
    "SELECT id, topic, payload FROM outbox WHERE consumed_at > ",
    now!(),
    " - $2 AND topic = $3 AND payload ->> 'order_id' = $1 ORDER BY consumed_at DESC LIMIT 1"
);

pub(super) async fn tell_paid(tx: &mut Tx, order: &Order, now: i64) -> Result<()> {
    let payload = json!({ "order_id": order.id.to_string(), "account_id": order.account.to_string() });
    sqlx::query("INSERT INTO outbox (id, topic, payload, created_at, due_at) VALUES ($1, $2, $3, $4, $4)")
        .bind(Uuid::now_v7().hyphenated())
        .bind(ORDER_PAID)
        .bind(payload.to_string())
        .bind(now)
        .execute(&mut **tx)
        .await
        .map_err(fault)?;
    Ok(())
}

/// Looks before it asks for the write lock, which an idle relay leaves alone. Quick: a message that is published twice
/// comes to no harm.
pub(super) async fn take(store: &Sqlite, limit: u32, lease: Duration) -> Result<Vec<Message>> {
    let any = sqlx::query(concat!("SELECT 1 FROM outbox WHERE consumed_at IS NULL AND due_at <= ", now!(), " LIMIT 1"));
    if any.fetch_optional(&store.readers).await.map_err(fault)?.is_none() {
        return Ok(Vec::new());
    }
    let mut tx = store.begin(Commit::Quick).await?;
    let now = clock(&mut tx).await?;
    let rows = sqlx::query(DUE).bind(now).bind(limit).fetch_all(&mut *tx).await.map_err(fault)?;
    let mut messages = Vec::with_capacity(rows.len());
    for row in &rows {
        let id = uuid(row, "id")?;
        sqlx::query("UPDATE outbox SET due_at = $2 WHERE id = $1")
            .bind(id.hyphenated())
            .bind(now + span(lease))
            .execute(&mut *tx)
            .await
            .map_err(fault)?;
        messages.push(message(row)?);
    }
    tx.commit().await.map_err(fault)?;
    Ok(messages)
}

fn message(row: &SqliteRow) -> Result<Message> {
    Ok(Message { id: uuid(row, "id")?, topic: get(row, "topic")?, payload: get(row, "payload")? })
}

pub(super) async fn consumed(store: &Sqlite, order: OrderId, within: Duration) -> Result<Option<Message>> {
    let query = sqlx::query(CONSUMED).bind(order.to_string()).bind(span(within)).bind(ORDER_PAID);
    query.fetch_optional(&store.readers).await.map_err(fault)?.map(|row| message(&row)).transpose()
}

pub(super) async fn mark(store: &Sqlite, messages: &[Uuid], republish: Republish) -> Result<()> {
    let mut tx = store.begin(Commit::Quick).await?;
    let now = clock(&mut tx).await?;
    for id in messages {
        sqlx::query(
            "UPDATE outbox SET published_at = coalesce(published_at, $2), publishings = publishings + 1,
                 due_at = $2 + min($4, $3 << min(publishings, 20))
             WHERE id = $1",
        )
        .bind(id.hyphenated())
        .bind(now)
        .bind(span(republish.first))
        .bind(span(republish.longest))
        .execute(&mut *tx)
        .await
        .map_err(fault)?;
    }
    tx.commit().await.map_err(fault)
}

pub(super) async fn lag(store: &Sqlite) -> Result<Duration> {
    let lag: Option<i64> = sqlx::query_scalar(LAG).fetch_optional(&store.readers).await.map_err(fault)?;
    Ok(lag.and_then(|millis| u64::try_from(millis).ok()).map_or(Duration::ZERO, Duration::from_millis))
}

/// Durable: a code that somebody has seen stays good.
pub(super) async fn grant(store: &Sqlite, consumer: &str, campaign: &str, grants: &[Grant]) -> Result<Vec<Granted>> {
    let mut tx = store.begin(Commit::Durable).await?;
    let now = clock(&mut tx).await?;
    let mut granted = Vec::with_capacity(grants.len());
    for grant in grants {
        granted.push(grant_one(&mut tx, consumer, campaign, grant, now).await?);
    }
    tx.commit().await.map_err(fault)?;
    Ok(granted)
}

/// The write lock is held: whoever cancels the order comes before, or after.
async fn grant_one(tx: &mut Tx, consumer: &str, campaign: &str, grant: &Grant, now: i64) -> Result<Granted> {
    let order = grant.order.0.hyphenated();
    let status: Option<String> = sqlx::query_scalar("SELECT status FROM orders WHERE id = $1")
        .bind(order)
        .fetch_optional(&mut **tx)
        .await
        .map_err(fault)?;
    let Some(status) = status else { return Ok(Granted::Unknown) };
    let new = mark_consumed(tx, consumer, grant.message, now).await?;
    if !matches!(status.as_str(), "paid" | "shipped") {
        return Ok(if new { Granted::NotDue } else { Granted::Duplicate });
    }
    if !new {
        return Ok(Granted::Duplicate);
    }
    let inserted = sqlx::query(
        "INSERT INTO coupons (code, account_id, order_id, campaign, granted_at)
         SELECT $1, account_id, id, $3, $4 FROM orders WHERE id = $2
         ON CONFLICT (order_id, campaign) DO NOTHING",
    )
    .bind(&grant.code)
    .bind(order)
    .bind(campaign)
    .bind(now)
    .execute(&mut **tx)
    .await
    .map_err(fault)?;
    Ok(if inserted.rows_affected() == 1 { Granted::New } else { Granted::Duplicate })
}

/// `false`: it was before. Its outbox row is told either way.
async fn mark_consumed(tx: &mut Tx, consumer: &str, message: Uuid, now: i64) -> Result<bool> {
    let inserted = sqlx::query(
        "INSERT INTO consumed_messages (consumer, message_id, consumed_at) VALUES ($1, $2, $3)
         ON CONFLICT (consumer, message_id) DO NOTHING",
    )
    .bind(consumer)
    .bind(message.hyphenated())
    .bind(now)
    .execute(&mut **tx)
    .await
    .map_err(fault)?;
    sqlx::query(
        "UPDATE outbox SET consumed_at = $2, published_at = coalesce(published_at, $2)
         WHERE id = $1 AND consumed_at IS NULL",
    )
    .bind(message.hyphenated())
    .bind(now)
    .execute(&mut **tx)
    .await
    .map_err(fault)?;
    Ok(inserted.rows_affected() == 1)
}
