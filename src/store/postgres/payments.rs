//! Payments and the provider's events, as far as they stand apart from a change of their order.

use std::time::Duration;

use super::errors::column;
use super::pools::{Pools, Statement};
use super::records::millis;
use crate::order::values::OrderId;
use crate::store::{Due, ProviderEvent, Result};

statements! {
    /// A range for the reason that `by_id` has.
    ORDER_OF = "
        SELECT order_id FROM payments WHERE provider_id >= $1 AND provider_id <= $1 ORDER BY provider_id LIMIT 1";

    /// Waits for another transaction that keeps the same event, and finds it or takes its place.
    KEEP_EVENT = "
        INSERT INTO payment_events (provider, event_id, kind, order_id, outcome) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (provider, event_id) DO NOTHING RETURNING event_id";

    /// Rows that somebody holds are skipped: they are being changed, or another reconciler's. The clock is that of
    /// the statement's begin, which an index can be searched by.
    DUE = "
        WITH due AS (
            SELECT order_id, attempt, next_check_at FROM payments
            WHERE status IN ('started', 'unknown', 'processing', 'refund_due') AND next_check_at <= now()
            ORDER BY next_check_at LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED
        ), looked AS (
            UPDATE payments p SET checks = p.checks + 1,
                next_check_at = clock_timestamp()
                    + least($3::bigint, $2::bigint * power(2, least(p.checks, 30))) * interval '1 ms'
            FROM due
            WHERE p.order_id = ANY(ARRAY(SELECT order_id FROM due))
                AND p.order_id = due.order_id AND p.attempt = due.attempt
            RETURNING p.order_id, p.attempt, due.next_check_at AS since
        )
        SELECT order_id, attempt FROM looked ORDER BY since";
}

pub(super) async fn order_of(pools: &Pools, provider_id: &str) -> Result<Option<OrderId>> {
    let row = pools.query_one(|| sqlx::query(ORDER_OF).bind(provider_id.to_owned())).await?;
    row.map(|row| column(&row, "order_id").map(OrderId)).transpose()
}

/// Gives a row when the event is new.
pub(super) fn insert_event(event: &ProviderEvent, order: Option<OrderId>, outcome: &'static str) -> Statement {
    sqlx::query(KEEP_EVENT)
        .bind(event.provider)
        .bind(event.id.clone())
        .bind(event.kind.clone())
        .bind(order.map(|id| id.0))
        .bind(outcome)
}

pub(super) async fn keep_event(pools: &Pools, event: &ProviderEvent, outcome: &'static str) -> Result<bool> {
    Ok(pools.query_one(|| insert_event(event, None, outcome)).await?.is_some())
}

/// Where the answer is lost and the question asked again, the payments of the lost answer wait for their next time.
pub(super) async fn due(pools: &Pools, limit: u32, base: Duration, longest: Duration) -> Result<Vec<Due>> {
    let statement = || sqlx::query(DUE).bind(i64::from(limit)).bind(millis(base)).bind(millis(longest));
    let due = |row| Ok(Due { order: OrderId(column(row, "order_id")?), attempt: column(row, "attempt")? });
    pools.query(statement).await?.iter().map(due).collect()
}
