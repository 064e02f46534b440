//! Payment attempts, and the provider's events.

use std::time::Duration;

use serde::Serialize;
use sqlx::types::Json;
use uuid::Uuid;

use super::row::{get, span, uuid};
use super::{Commit, Result, Sqlite, Tx, clock, fault, now};
use crate::order::PaymentStatus;
use crate::order::life::Attempt;
use crate::order::values::OrderId;
use crate::store::{Due, ProviderEvent};

/// The payments whose time has come. `$1`: the clock.
pub(super) const DUE: &str = "
    SELECT order_id, attempt, checks FROM payments
    WHERE status IN ('started', 'unknown', 'processing', 'refund_due') AND next_check_at <= $1
    ORDER BY next_check_at LIMIT $2";

/// Whether there are any.
const ANY_DUE: &str = concat!(
    "SELECT 1 FROM payments
     WHERE status IN ('started', 'unknown', 'processing', 'refund_due') AND next_check_at <= ",
    now!(),
    " LIMIT 1"
);

pub(super) const ORDER_OF: &str = "SELECT order_id FROM payments WHERE provider_id = $1 LIMIT 1";

/// An attempt as the statement takes it.
#[derive(Serialize)]
pub(super) struct NewAttempt<'a> {
    order: Uuid,
    number: i32,
    method: &'static str,
    provider_key: Option<&'a str>,
    provider_id: Option<&'a str>,
    token: Option<&'a str>,
    amount: i64,
    status: &'static str,
}

impl<'a> NewAttempt<'a> {
    pub(super) fn of(order: OrderId, attempt: &'a Attempt) -> Self {
        Self {
            order: order.0,
            number: attempt.number,
            method: attempt.method.as_str(),
            provider_key: attempt.provider_key.as_deref(),
            provider_id: attempt.provider_id.as_deref(),
            token: attempt.token.as_ref().map(|token| token.as_str()),
            amount: attempt.amount,
            status: attempt.status.as_str(),
        }
    }
}

/// Writes new attempts, to be looked at after some milliseconds if they are then still in doubt; a refund at once. The
/// parameters: [`NewAttempt`]s; the clock; those milliseconds.
macro_rules! insert_attempts {
    ($attempts:literal, $now:literal, $first_check:literal) => {
        concat!(
            "INSERT INTO payments (order_id, attempt, method, provider_key, provider_id, token, amount, status,
                                   created_at, updated_at, next_check_at)
             SELECT new.value ->> 'order', new.value ->> 'number', new.value ->> 'method',
                    new.value ->> 'provider_key', new.value ->> 'provider_id', new.value ->> 'token',
                    new.value ->> 'amount', new.value ->> 'status', ",
            $now,
            ", ",
            $now,
            ", iif(new.value ->> 'status' = 'refund_due', ",
            $now,
            ", ",
            $now,
            " + ",
            $first_check,
            ") FROM json_each(",
            $attempts,
            ") AS new"
        )
    };
}
pub(super) use insert_attempts;

pub(super) async fn insert(tx: &mut Tx, order: OrderId, attempt: &Attempt, now: i64, first_check: i64) -> Result<()> {
    sqlx::query(insert_attempts!("$1", "$2", "$3"))
        .bind(Json([NewAttempt::of(order, attempt)]))
        .bind(now)
        .bind(first_check)
        .execute(&mut **tx)
        .await
        .map_err(fault)?;
    Ok(())
}

/// Takes an attempt from the status it `was` in to another, and keeps the provider's id where it has none; `false`: it
/// was not in that status. A refund that becomes due is looked at at once.
pub(super) async fn update(
    tx: &mut Tx,
    order: OrderId,
    was: &Attempt,
    (status, provider_id): (PaymentStatus, Option<&str>),
    now: i64,
) -> Result<bool> {
    let written = sqlx::query(
        "UPDATE payments
         SET status = $4, provider_id = coalesce(provider_id, $5), updated_at = $6,
             next_check_at = iif($4 = 'refund_due', $6, next_check_at), checks = iif($4 = 'refund_due', 0, checks)
         WHERE order_id = $1 AND attempt = $2 AND status = $3",
    )
    .bind(order.0.hyphenated())
    .bind(was.number)
    .bind(was.status.as_str())
    .bind(status.as_str())
    .bind(provider_id)
    .bind(now)
    .execute(&mut **tx)
    .await
    .map_err(fault)?;
    Ok(written.rows_affected() == 1)
}

pub(super) async fn order_of(store: &Sqlite, provider_id: &str) -> Result<Option<OrderId>> {
    let row = sqlx::query(ORDER_OF).bind(provider_id).fetch_optional(&store.readers).await.map_err(fault)?;
    row.map(|row| uuid(&row, "order_id").map(OrderId)).transpose()
}

/// Gives each its next time, so that nobody else gets it before. Looks before it asks for the write lock, which an idle
/// reconciler leaves alone. Quick: one that is looked at twice comes to no harm.
pub(super) async fn due(store: &Sqlite, limit: u32, base: Duration, longest: Duration) -> Result<Vec<Due>> {
    if sqlx::query(ANY_DUE).fetch_optional(&store.readers).await.map_err(fault)?.is_none() {
        return Ok(Vec::new());
    }
    let mut tx = store.begin(Commit::Quick).await?;
    let now = clock(&mut tx).await?;
    let rows = sqlx::query(DUE).bind(now).bind(limit).fetch_all(&mut *tx).await.map_err(fault)?;
    let mut due = Vec::with_capacity(rows.len());
    for row in &rows {
        let one = Due { order: OrderId(uuid(row, "order_id")?), attempt: get(row, "attempt")? };
        let checks: u32 = get(row, "checks")?;
        let pause = span(base).saturating_mul(1 << checks.min(30)).min(span(longest));
        sqlx::query("UPDATE payments SET checks = checks + 1, next_check_at = $3 WHERE order_id = $1 AND attempt = $2")
            .bind(one.order.0.hyphenated())
            .bind(one.attempt)
            .bind(now + pause)
            .execute(&mut *tx)
            .await
            .map_err(fault)?;
        due.push(one);
    }
    tx.commit().await.map_err(fault)?;
    Ok(due)
}

pub(super) async fn keep_event(store: &Sqlite, event: &ProviderEvent, outcome: &'static str) -> Result<bool> {
    let mut tx = store.begin(Commit::Durable).await?;
    let now = clock(&mut tx).await?;
    let new = insert_event(&mut tx, event, None, outcome, now).await?;
    tx.commit().await.map_err(fault)?;
    Ok(new)
}

/// `false`: the event is known.
pub(super) async fn insert_event(
    tx: &mut Tx,
    event: &ProviderEvent,
    order: Option<OrderId>,
    outcome: &'static str,
    now: i64,
) -> Result<bool> {
    let inserted = sqlx::query(
        "INSERT INTO payment_events (provider, event_id, kind, order_id, outcome, received_at)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (provider, event_id) DO NOTHING",
    )
    .bind(event.provider)
    .bind(&event.id)
    .bind(&event.kind)
    .bind(order.map(|id| id.0.hyphenated()))
    .bind(outcome)
    .bind(now)
    .execute(&mut **tx)
    .await
    .map_err(fault)?;
    Ok(inserted.rows_affected() == 1)
}

/// What came of an event that this transaction has inserted.
pub(super) async fn write_outcome(tx: &mut Tx, event: &ProviderEvent, outcome: &'static str) -> Result<()> {
    sqlx::query("UPDATE payment_events SET outcome = $3 WHERE provider = $1 AND event_id = $2")
        .bind(event.provider)
        .bind(&event.id)
        .bind(outcome)
        .execute(&mut **tx)
        .await
        .map_err(fault)?;
    Ok(())
}
