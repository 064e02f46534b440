//! What other parts must hear of, written in the transaction that makes it true; its way to the queue.

use std::time::Duration;

use serde_json::json;
use sqlx::sqlite::SqliteRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::row::{get, span, uuid};
use super::{Commit, Result, Sqlite, Tx, fault, now};
use crate::order::Order;
use crate::order::values::OrderId;
use crate::store::{Message, ORDER_PAID, Republish};

/// A list of lists, and the clock.
pub(super) const DUE: &str = concat!(
    "SELECT json_group_array(json_array(id, topic, payload)) AS due, ",
    now!(),
    " AS now FROM (
        SELECT id, topic, payload FROM outbox WHERE consumed_at IS NULL AND due_at <= ",
    now!(),
    " ORDER BY due_at LIMIT $1)"
);

/// A message that comes again was published before.
pub(super) const TAKE: &str = "
    UPDATE outbox SET publishings = publishings + 1,
        published_at = CASE WHEN publishings > 0 THEN coalesce(published_at, $2) ELSE published_at END,
        due_at = $2 + min($4, $3 << min(publishings, 20))
    WHERE id IN (SELECT value FROM json_each($1))";

/// Due as from the first, so that the oldest stays the first.
pub(super) const GIVE_BACK: &str = concat!(
    "UPDATE outbox SET publishings = max(publishings - 1, 0), due_at = min(created_at, ",
    now!(),
    ") WHERE id IN (SELECT value FROM json_each($1))"
);

pub(super) const LAG: &str = concat!(
    "SELECT max(0, ",
    now!(),
    " - created_at) FROM outbox
     WHERE consumed_at IS NULL AND publishings = 0 AND due_at > 0 ORDER BY due_at LIMIT 1"
);

/// `payload` is compared only for the rows of that time, which an index finds.
pub(super) const CONSUMED: &str = concat!(
    "SELECT id, topic, payload FROM outbox WHERE consumed_at > ",
    now!(),
    " - $2 AND topic = $3 AND payload ->> 'order_id' = $1 ORDER BY consumed_at DESC LIMIT 1"
);

/// Writes messages, due at once. The parameters: ids with payloads; the topic; the clock.
macro_rules! insert_messages {
    ($messages:literal, $topic:literal, $now:literal) => {
        concat!(
            "INSERT INTO outbox (id, topic, payload, created_at, due_at)
             SELECT new.value ->> 0, ",
            $topic,
            ", new.value ->> 1, ",
            $now,
            ", ",
            $now,
            " FROM json_each(",
            $messages,
            ") AS new"
        )
    };
}
pub(super) use insert_messages;

/// What [`ORDER_PAID`] tells of an order, as [`insert_messages!`] takes it.
pub(super) fn paid(order: &Order) -> (Uuid, String) {
    (Uuid::now_v7(), json!({ "order_id": order.id.0, "account_id": order.account.0 }).to_string())
}

pub(super) async fn tell_paid(tx: &mut Tx, order: &Order, now: i64) -> Result<()> {
    sqlx::query(insert_messages!("$1", "$2", "$3"))
        .bind(Json([paid(order)]))
        .bind(ORDER_PAID)
        .bind(now)
        .execute(&mut **tx)
        .await
        .map_err(fault)?;
    Ok(())
}

/// Looks before it asks for the write lock, which an idle relay leaves alone. Quick: a message that is published twice
/// comes to no harm.
pub(super) async fn take(store: &Sqlite, limit: u32, republish: Republish) -> Result<Vec<Message>> {
    let any = sqlx::query(concat!("SELECT 1 FROM outbox WHERE consumed_at IS NULL AND due_at <= ", now!(), " LIMIT 1"));
    if any.fetch_optional(&store.readers).await.map_err(fault)?.is_none() {
        return Ok(Vec::new());
    }
    let mut tx = store.begin(Commit::Quick).await?;
    let row = sqlx::query(DUE).bind(limit).fetch_one(&mut *tx).await.map_err(fault)?;
    let (now, Json(due)) = (get::<i64>(&row, "now")?, get::<Json<Vec<(Uuid, String, String)>>>(&row, "due")?);
    let ids: Vec<Uuid> = due.iter().map(|(id, ..)| *id).collect();
    sqlx::query(TAKE)
        .bind(Json(ids))
        .bind(now)
        .bind(span(republish.first))
        .bind(span(republish.longest))
        .execute(&mut *tx)
        .await
        .map_err(fault)?;
    tx.commit().await.map_err(fault)?;
    Ok(due.into_iter().map(|(id, topic, payload)| Message { id, topic, payload }).collect())
}

fn message(row: &SqliteRow) -> Result<Message> {
    Ok(Message { id: uuid(row, "id")?, topic: get(row, "topic")?, payload: get(row, "payload")? })
}

pub(super) async fn consumed(store: &Sqlite, order: OrderId, within: Duration) -> Result<Option<Message>> {
    let query = sqlx::query(CONSUMED).bind(order.to_string()).bind(span(within)).bind(ORDER_PAID);
    query.fetch_optional(&store.readers).await.map_err(fault)?.map(|row| message(&row)).transpose()
}

pub(super) async fn give_back(store: &Sqlite, messages: &[Uuid]) -> Result<()> {
    let mut tx = store.begin(Commit::Quick).await?;
    sqlx::query(GIVE_BACK).bind(Json(messages)).execute(&mut *tx).await.map_err(fault)?;
    tx.commit().await.map_err(fault)
}

pub(super) async fn lag(store: &Sqlite) -> Result<Duration> {
    let lag: Option<i64> = sqlx::query_scalar(LAG).fetch_optional(&store.readers).await.map_err(fault)?;
    Ok(lag.and_then(|millis| u64::try_from(millis).ok()).map_or(Duration::ZERO, Duration::from_millis))
}
