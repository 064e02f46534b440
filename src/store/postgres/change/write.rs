//! Everything that happened to an order, in one statement.

use std::time::Duration;

use sqlx::Executor;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::super::errors::{Stop, broken, column};
use super::super::orders::by_id;
use super::super::pools::Statement;
use super::super::records::millis;
use super::super::settle::write::payload;
use crate::order::life::{Life, Writes};

statements! {
    /// The rows are locked by this transaction, so the conditions on what they were hold; their counts are looked at
    /// all the same. Where there is no new attempt, no money and no message, their parts insert nothing.
    WRITE = concat!("
        WITH moved AS (
            UPDATE orders SET status = $3, payment_method = $4, updated_at = clock_timestamp()
            WHERE status = $2 AND ctid = (SELECT o.ctid FROM orders o WHERE ", by_id!(), ") RETURNING id
        ), attempts AS (
            UPDATE payments p SET status = new.status, provider_id = coalesce(p.provider_id, new.provider_id),
                updated_at = clock_timestamp(),
                next_check_at = CASE new.status WHEN 'refund_due' THEN clock_timestamp() ELSE p.next_check_at END,
                checks = CASE new.status WHEN 'refund_due' THEN 0 ELSE p.checks END
            FROM unnest($5::integer[], $6::text[], $7::text[], $8::text[]) AS new (attempt, was, status, provider_id)
            WHERE p.order_id = $1 AND p.attempt = new.attempt AND p.status = new.was
            RETURNING p.attempt
        ), attempt AS (
            INSERT INTO payments (order_id, attempt, method, provider_key, provider_id, token, amount, status,
                created_at, updated_at, next_check_at)
            SELECT $1, $9, $10, $11, $12, $13, $14, $15, now.t, now.t,
                CASE $15 WHEN 'refund_due' THEN now.t ELSE now.t + $16 * interval '1 ms' END
            FROM (SELECT clock_timestamp() AS t) now WHERE $9::integer IS NOT NULL
        ), stock AS (
            UPDATE products p SET stock = p.stock + back.quantity
            FROM unnest($17::text[], $18::bigint[]) AS back (sku, quantity)
            WHERE p.sku = back.sku AND p.sku = ANY($17)
        ), balance AS (
            UPDATE accounts SET balance = balance + $20 WHERE id = $19 AND $20 <> 0
        ), entry AS (
            INSERT INTO account_entries (account_id, order_id, kind, amount, created_at)
            SELECT $19, $1, CASE WHEN $20 < 0 THEN 'charge' ELSE 'refund' END, $20, clock_timestamp() WHERE $20 <> 0
        ), told AS (
            INSERT INTO outbox (id, topic, payload, created_at)
            SELECT $21, 'order.paid', $22, clock_timestamp() WHERE $21::uuid IS NOT NULL
        )
        SELECT (SELECT count(*) FROM moved) AS moved, (SELECT count(*) FROM attempts) AS attempts");
}

/// Writes what turned an order from `before` to `after`.
pub(super) async fn all(
    transaction: &mut PgConnection,
    before: &Life,
    after: &Life,
    writes: &Writes,
    first_check: Duration,
) -> std::result::Result<(), Stop> {
    let order = &after.order;
    let statement = sqlx::query(WRITE)
        .bind(order.id.0)
        .bind(before.order.status.as_str())
        .bind(order.status.as_str())
        .bind(order.method.as_str());
    let statement = changed_attempts(statement, before, writes);
    let statement = new_attempt(statement, writes).bind(millis(first_check));
    let statement = stock(statement, after, writes).bind(order.account.0).bind(writes.entry);
    let statement =
        statement.bind(writes.became_paid.then(Uuid::now_v7)).bind(writes.became_paid.then(|| payload(order)));
    let row = transaction.fetch_one(statement).await?;
    let counts: (i64, i64) = (column(&row, "moved")?, column(&row, "attempts")?);
    if counts.0 == 1 && usize::try_from(counts.1).is_ok_and(|n| n == writes.attempts.len()) {
        return Ok(());
    }
    Err(broken(format!("order {} moved under its lock: {counts:?} rows for {writes:?}", order.id)).into())
}

/// Parameters 5 to 8.
fn changed_attempts(statement: Statement, before: &Life, writes: &Writes) -> Statement {
    let was =
        |number: &i32| before.attempts.iter().find(|attempt| attempt.number == *number).map(|a| a.status.as_str());
    let changed = || writes.attempts.iter();
    statement
        .bind(changed().map(|(number, ..)| *number).collect::<Vec<_>>())
        .bind(changed().map(|(number, ..)| was(number)).collect::<Vec<_>>())
        .bind(changed().map(|(_, status, _)| status.as_str()).collect::<Vec<_>>())
        .bind(changed().map(|(.., provider_id)| provider_id.clone()).collect::<Vec<_>>())
}

/// Parameters 9 to 15.
fn new_attempt(statement: Statement, writes: &Writes) -> Statement {
    let new = writes.new_attempt.as_ref();
    statement
        .bind(new.map(|attempt| attempt.number))
        .bind(new.map(|attempt| attempt.method.as_str()))
        .bind(new.and_then(|attempt| attempt.provider_key.clone()))
        .bind(new.and_then(|attempt| attempt.provider_id.clone()))
        .bind(new.and_then(|attempt| attempt.token.as_ref().map(ToString::to_string)))
        .bind(new.map(|attempt| attempt.amount))
        .bind(new.map(|attempt| attempt.status.as_str()))
}

/// Parameters 17 and 18. A product that left the catalogue takes nothing back.
fn stock(statement: Statement, after: &Life, writes: &Writes) -> Statement {
    let back = || after.order.lines.iter().filter(|_| writes.stock_back);
    statement
        .bind(back().map(|line| line.sku.to_string()).collect::<Vec<_>>())
        .bind(back().map(|line| i64::from(line.quantity.get())).collect::<Vec<_>>())
}
