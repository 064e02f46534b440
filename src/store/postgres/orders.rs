//! Reading orders, each whole in one statement: head, lines, payment, coupon.

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::types::Json;

use super::errors::{broken, column, stored, stored_option};
use super::pools::{Pools, Statement};
use super::records::millis;
use crate::order::life::{Attempt, Life};
use crate::order::values::{
    AccountId, Currency, Fingerprint, Key, Note, OrderId, PaymentToken, Quantity, Reference, Sku,
};
use crate::order::{Line, Method, Order, PaymentStatus, Status};
use crate::store::{OrderRef, Result};

/// One order `o` by its id. A range in an order that only the primary key gives: while the planner believes the table to
/// be empty, it would as soon walk through all of another index that has the id somewhere (see the adapter's head).
macro_rules! by_id {
    () => {
        "o.id >= $1 AND o.id <= $1 ORDER BY o.id LIMIT 1"
    };
}
pub(super) use by_id;

/// An order with its parts. Every part is found by an index on `order_id`, whatever the planner believes. The payment
/// it shows is the captured one, else the latest (as `order::life` has it).
macro_rules! whole_orders {
    ($which:literal) => {
        whole_orders!("", $which)
    };
    ($and:literal, $which:expr) => {
        concat!(
            "SELECT o.id, o.account_id, o.idempotency_key, o.reference, o.fingerprint, o.status, o.total, o.currency,
                o.payment_method, o.note, o.created_at,
                lines.skus, lines.names, lines.quantities, lines.prices,
                coalesce((SELECT p.status FROM payments p WHERE p.order_id = o.id AND p.status = 'captured'),
                    (SELECT p.status FROM payments p WHERE p.order_id = o.id ORDER BY p.attempt DESC LIMIT 1)) AS payment,
                (SELECT c.code FROM coupons c WHERE c.order_id = o.id ORDER BY c.campaign LIMIT 1) AS coupon",
            $and,
            " FROM orders o CROSS JOIN LATERAL (
                SELECT array_agg(l.sku ORDER BY l.line_no) AS skus, array_agg(l.name ORDER BY l.line_no) AS names,
                    array_agg(l.quantity ORDER BY l.line_no) AS quantities,
                    array_agg(l.unit_price ORDER BY l.line_no) AS prices
                FROM order_lines l WHERE l.order_id = o.id
            ) lines ",
            $which
        )
    };
}

statements! {
    ORDER = whole_orders!("WHERE o.id = $2 AND o.account_id = $1");

    /// An order, its attempts as a list of lists, and the balance of its account: one moment of all three.
    LIFE = whole_orders!(
        ", (SELECT a.balance FROM accounts a WHERE a.id = o.account_id) AS balance,
        (SELECT json_agg(json_build_array(p.attempt, p.method, p.provider_key, p.provider_id, p.token, p.amount,
                p.status, floor(extract(epoch FROM clock_timestamp() - p.created_at) * 1000)) ORDER BY p.attempt)
            FROM payments p WHERE p.order_id = o.id) AS attempts",
        concat!("WHERE ", by_id!())
    );

    /// The attempts are counted, and by a filter, so that the planner can neither join the two tables nor walk through
    /// the index of all payments in doubt.
    OVERDUE = "
        SELECT o.id FROM orders o
        WHERE o.status = 'pending' AND o.created_at < now() - $1 * interval '1 ms' AND (
            SELECT count(*) FILTER (WHERE p.status IN ('started', 'unknown', 'processing'))
            FROM payments p WHERE p.order_id = o.id) = 0
        ORDER BY o.created_at LIMIT $2";

    BY_KEY = "SELECT id, fingerprint FROM orders WHERE account_id = $1 AND idempotency_key = $2";

    NEWEST = whole_orders!("WHERE o.account_id = $1 ORDER BY o.created_at DESC, o.id DESC LIMIT $2");

    /// Those after the cursor in that order; the time of the cursor is its order's, by the database's clock.
    NEWEST_BEFORE = whole_orders!(
        "WHERE o.account_id = $1 AND (o.created_at, o.id) <
            (SELECT cut.created_at, cut.id FROM orders cut WHERE cut.id = $3 AND cut.account_id = $1)
        ORDER BY o.created_at DESC, o.id DESC LIMIT $2"
    );
}

/// Reads one order, for settling also inside its transaction.
pub(super) fn select(account: AccountId, id: OrderId) -> Statement {
    sqlx::query(ORDER).bind(account.0).bind(id.0)
}

pub(super) async fn order(pools: &Pools, account: AccountId, id: OrderId) -> Result<Option<Order>> {
    pools.query_one(|| select(account, id)).await?.map(|row| whole(&row)).transpose()
}

/// Reads one order's life, for a change also inside its transaction.
pub(super) fn select_life(id: OrderId) -> Statement {
    sqlx::query(LIFE).bind(id.0)
}

pub(super) async fn life(pools: &Pools, id: OrderId) -> Result<Option<Life>> {
    pools.query_one(|| select_life(id)).await?.map(|row| whole_life(&row)).transpose()
}

pub(super) async fn overdue(pools: &Pools, window: Duration, limit: u32) -> Result<Vec<OrderId>> {
    let rows = pools.query(|| sqlx::query(OVERDUE).bind(millis(window)).bind(i64::from(limit))).await?;
    rows.iter().map(|row| column(row, "id").map(OrderId)).collect()
}

pub(super) async fn by_key(pools: &Pools, account: AccountId, key: &Key) -> Result<Option<OrderRef>> {
    let row = pools.query_one(|| sqlx::query(BY_KEY).bind(account.0).bind(key.as_str().to_owned())).await?;
    let short = |row| {
        let fingerprint = Fingerprint::stored(column(row, "fingerprint")?);
        Ok(OrderRef { id: OrderId(column(row, "id")?), fingerprint })
    };
    row.as_ref().map(short).transpose()
}

pub(super) async fn list(pools: &Pools, account: AccountId, before: Option<OrderId>, limit: u32) -> Result<Vec<Order>> {
    let rows = pools.query(|| match before {
        None => sqlx::query(NEWEST).bind(account.0).bind(i64::from(limit)),
        Some(before) => sqlx::query(NEWEST_BEFORE).bind(account.0).bind(i64::from(limit)).bind(before.0),
    });
    rows.await?.iter().map(whole).collect()
}

pub(super) fn whole(row: &PgRow) -> Result<Order> {
    Ok(Order {
        id: OrderId(column(row, "id")?),
        account: AccountId(column(row, "account_id")?),
        key: stored(row, "idempotency_key", Key::parse)?,
        fingerprint: Fingerprint::stored(column(row, "fingerprint")?),
        status: stored(row, "status", Status::parse)?,
        lines: lines(row)?,
        total: column(row, "total")?,
        currency: stored(row, "currency", Currency::parse)?,
        method: stored(row, "payment_method", Method::parse)?,
        payment: stored(row, "payment", PaymentStatus::parse)?,
        reference: stored_option(row, "reference", Reference::parse)?,
        note: stored_option(row, "note", Note::parse)?,
        coupon: column(row, "coupon")?,
        created_at: column(row, "created_at")?,
    })
}

pub(super) fn whole_life(row: &PgRow) -> Result<Life> {
    let attempts: Option<Json<Vec<AttemptRow>>> = column(row, "attempts")?;
    let attempts = attempts.map(|Json(attempts)| attempts).unwrap_or_default();
    let attempts = attempts.into_iter().map(|row| attempt(row).ok_or_else(|| broken("a payment cannot be read")));
    Ok(Life { order: whole(row)?, attempts: attempts.collect::<Result<_>>()?, balance: column(row, "balance")? })
}

/// Attempt, method, provider's key, provider's id, token, amount, status, age in milliseconds.
type AttemptRow = (i32, String, Option<String>, Option<String>, Option<String>, i64, String, i64);

fn attempt((number, method, provider_key, provider_id, token, amount, status, age): AttemptRow) -> Option<Attempt> {
    Some(Attempt {
        number,
        method: Method::parse(&method)?,
        provider_key,
        provider_id,
        token: match token {
            Some(token) => Some(PaymentToken::parse(&token)?),
            None => None,
        },
        amount,
        status: PaymentStatus::parse(&status)?,
        age: Duration::from_millis(u64::try_from(age).unwrap_or(0)),
    })
}

/// The four arrays are aggregates of the same rows, so they are of one length.
fn lines(row: &PgRow) -> Result<Vec<Line>> {
    let skus: Vec<String> = column(row, "skus")?;
    let names: Vec<String> = column(row, "names")?;
    let quantities: Vec<i32> = column(row, "quantities")?;
    let prices: Vec<i64> = column(row, "prices")?;
    let parts = skus.into_iter().zip(names).zip(quantities).zip(prices);
    let line = |(((sku, name), quantity), unit_price): (((String, String), i32), i64)| {
        Ok(Line {
            sku: Sku::parse(&sku).ok_or_else(|| broken(format!("column sku holds {sku:?}")))?,
            name,
            quantity: u32::try_from(quantity)
                .ok()
                .and_then(Quantity::new)
                .ok_or_else(|| broken(format!("column quantity holds {quantity}")))?,
            unit_price,
        })
    };
    parts.map(line).collect()
}
