//! Orders, read with all that is shown of them or judged about them.

use std::time::Duration;

use sqlx::sqlite::SqliteRow;
use sqlx::types::Json;

use super::row::{damaged, get, parsed, parsed_or_null, span, time, uuid};
use super::{Result, Sqlite, fault, now};
use crate::order::life::{Attempt, Life};
use crate::order::values::{
    AccountId, Currency, Fingerprint, Key, Note, OrderId, PaymentToken, Quantity, Reference, Sku,
};
use crate::order::{Line, Method, Order, PaymentStatus, Status};
use crate::store::OrderRef;

/// An order with lines, payment and coupon in one statement, hence at one moment. The payment it shows is the captured
/// one, else the latest (as `order::life` has it). Without more columns, `$1` is the account.
macro_rules! select_orders {
    ($condition:literal) => {
        select_orders!("", "o.account_id = $1 AND ", $condition)
    };
    ($and:expr, $whose:literal, $condition:literal) => {
        concat!(
            "SELECT o.id, o.account_id, o.idempotency_key, o.fingerprint, o.status, o.total, o.currency,
                    o.payment_method, o.reference, o.note, o.created_at,
                    coalesce((SELECT p.status FROM payments p WHERE p.order_id = o.id AND p.status = 'captured'),
                        (SELECT p.status FROM payments p WHERE p.order_id = o.id ORDER BY p.attempt DESC LIMIT 1))
                        AS payment,
                    (SELECT c.code FROM coupons c WHERE c.order_id = o.id ORDER BY c.campaign LIMIT 1) AS coupon,
                    (SELECT json_group_array(json_array(l.sku, l.name, l.quantity, l.unit_price) ORDER BY l.line_no)
                     FROM order_lines l WHERE l.order_id = o.id) AS lines",
            $and,
            " FROM orders o WHERE ",
            $whose,
            $condition
        )
    };
}

pub(super) const BY_ID: &str = select_orders!("o.id = $2");
pub(super) const FIRST_PAGE: &str = select_orders!("$2 IS NULL ORDER BY o.created_at DESC, o.id DESC LIMIT $3");
pub(super) const NEXT_PAGE: &str = select_orders!(
    "(o.created_at, o.id) < (SELECT b.created_at, b.id FROM orders b WHERE b.id = $2 AND b.account_id = $1)
     ORDER BY o.created_at DESC, o.id DESC LIMIT $3"
);

/// An order, its attempts as a list of lists, and the balance of its account, at one moment.
pub(super) const LIFE: &str = select_orders!(
    concat!(
        ", (SELECT a.balance FROM accounts a WHERE a.id = o.account_id) AS balance,
         (SELECT json_group_array(json_array(p.attempt, p.method, p.provider_key, p.provider_id, p.token, p.amount,
                                             p.status, max(0, ",
        now!(),
        " - p.created_at)) ORDER BY p.attempt)
          FROM payments p WHERE p.order_id = o.id) AS attempts"
    ),
    "",
    "o.id = $1"
);

/// Orders that were not paid in time and have no attempt in flight. `$1`: placed before.
pub(super) const OVERDUE: &str = concat!(
    "SELECT o.id FROM orders o
     WHERE o.status = 'pending' AND o.created_at < ",
    now!(),
    " - $1 AND NOT EXISTS (SELECT 1 FROM payments p
         WHERE p.order_id = o.id AND p.status IN ('started', 'unknown', 'processing'))
     ORDER BY o.created_at LIMIT $2"
);

pub(super) async fn load(db: impl sqlx::SqliteExecutor<'_>, account: AccountId, id: OrderId) -> Result<Option<Order>> {
    sqlx::query(BY_ID)
        .bind(account.0.hyphenated())
        .bind(id.0.hyphenated())
        .fetch_optional(db)
        .await
        .map_err(fault)?
        .map(|row| order(&row))
        .transpose()
}

pub(super) async fn list(
    store: &Sqlite,
    account: AccountId,
    before: Option<OrderId>,
    limit: u32,
) -> Result<Vec<Order>> {
    sqlx::query(if before.is_none() { FIRST_PAGE } else { NEXT_PAGE })
        .bind(account.0.hyphenated())
        .bind(before.map(|id| id.0.hyphenated()))
        .bind(limit)
        .fetch_all(&store.readers)
        .await
        .map_err(fault)?
        .iter()
        .map(order)
        .collect()
}

pub(super) async fn by_key(store: &Sqlite, account: AccountId, key: &Key) -> Result<Option<OrderRef>> {
    sqlx::query("SELECT id, fingerprint FROM orders WHERE account_id = $1 AND idempotency_key = $2")
        .bind(account.0.hyphenated())
        .bind(key.as_str())
        .fetch_optional(&store.readers)
        .await
        .map_err(fault)?
        .map(|row| {
            let fingerprint = Fingerprint::stored(get(&row, "fingerprint")?);
            Ok(OrderRef { id: OrderId(uuid(&row, "id")?), fingerprint })
        })
        .transpose()
}

pub(super) async fn life(db: impl sqlx::SqliteExecutor<'_>, id: OrderId) -> Result<Option<Life>> {
    let row = sqlx::query(LIFE).bind(id.0.hyphenated()).fetch_optional(db).await.map_err(fault)?;
    row.map(|row| Ok(Life { order: order(&row)?, attempts: attempts(&row)?, balance: get(&row, "balance")? }))
        .transpose()
}

pub(super) async fn overdue(store: &Sqlite, window: Duration, limit: u32) -> Result<Vec<OrderId>> {
    sqlx::query(OVERDUE)
        .bind(span(window))
        .bind(limit)
        .fetch_all(&store.readers)
        .await
        .map_err(fault)?
        .iter()
        .map(|row| uuid(row, "id").map(OrderId))
        .collect()
}

fn order(row: &SqliteRow) -> Result<Order> {
    Ok(Order {
        id: OrderId(uuid(row, "id")?),
        account: AccountId(uuid(row, "account_id")?),
        key: parsed(row, "idempotency_key", Key::parse)?,
        fingerprint: Fingerprint::stored(get(row, "fingerprint")?),
        status: parsed(row, "status", Status::parse)?,
        lines: lines(row)?,
        total: get(row, "total")?,
        currency: parsed(row, "currency", Currency::parse)?,
        method: parsed(row, "payment_method", Method::parse)?,
        payment: parsed(row, "payment", PaymentStatus::parse)?,
        reference: parsed_or_null(row, "reference", Reference::parse)?,
        note: parsed_or_null(row, "note", Note::parse)?,
        coupon: get(row, "coupon")?,
        created_at: time(row, "created_at")?,
    })
}

fn lines(row: &SqliteRow) -> Result<Vec<Line>> {
    let Json(lines) = get::<Json<Vec<(String, String, u32, i64)>>>(row, "lines")?;
    let line = |(sku, name, quantity, unit_price): (String, String, u32, i64)| {
        Some(Line { sku: Sku::parse(&sku)?, name, quantity: Quantity::new(quantity)?, unit_price })
    };
    lines.into_iter().map(line).collect::<Option<_>>().ok_or_else(|| damaged("order_lines"))
}

/// Attempt, method, provider's key, provider's id, token, amount, status, age in milliseconds.
type AttemptRow = (i32, String, Option<String>, Option<String>, Option<String>, i64, String, u64);

fn attempts(row: &SqliteRow) -> Result<Vec<Attempt>> {
    let Json(attempts) = get::<Json<Vec<AttemptRow>>>(row, "attempts")?;
    attempts.into_iter().map(attempt).collect::<Option<_>>().ok_or_else(|| damaged("payments"))
}

fn attempt((number, method, provider_key, provider_id, token, amount, status, age): AttemptRow) -> Option<Attempt> {
    let token = match token {
        Some(token) => Some(PaymentToken::parse(&token)?),
        None => None,
    };
    let (method, status) = (Method::parse(&method)?, PaymentStatus::parse(&status)?);
    Some(Attempt { number, method, provider_key, provider_id, token, amount, status, age: Duration::from_millis(age) })
}
