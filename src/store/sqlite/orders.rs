//! Orders: written with all that belongs to them, read with all that is shown of them.

use serde_json::json;
use sqlx::sqlite::SqliteRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::row::{damaged, from_millis, get, parsed, parsed_or_null, time, uuid};
use super::{Result, Sqlite, Tx, fault};
use crate::order::decide::{Asked, Standing};
use crate::order::values::{AccountId, Currency, Fingerprint, Key, Note, OrderId, Quantity, Reference, Sku};
use crate::order::{Line, Method, Order, PaymentStatus, Status};
use crate::store::OrderRef;

/// What the relay tells about an order that is paid.
const PAID_TOPIC: &str = "order.paid";

/// An order with lines, latest payment and coupon in one statement, hence at one moment. `$1` is the account.
macro_rules! select_orders {
    ($condition:literal) => {
        concat!(
            "SELECT o.id, o.account_id, o.idempotency_key, o.fingerprint, o.status, o.total, o.currency,
                    o.payment_method, o.reference, o.note, o.created_at,
                    (SELECT p.status FROM payments p WHERE p.order_id = o.id ORDER BY p.attempt DESC LIMIT 1) AS payment,
                    (SELECT c.code FROM coupons c WHERE c.order_id = o.id ORDER BY c.campaign LIMIT 1) AS coupon,
                    (SELECT json_group_array(json_array(l.sku, l.name, l.quantity, l.unit_price) ORDER BY l.line_no)
                     FROM order_lines l WHERE l.order_id = o.id) AS lines
             FROM orders o WHERE o.account_id = $1 AND ",
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

/// Three questions, so that each has its index whatever SQLite thinks of an OR.
pub(super) const STANDING: &str = "
    SELECT id, account_id, idempotency_key, reference, fingerprint, created_at
    FROM orders WHERE account_id = $1 AND idempotency_key = $2
    UNION ALL
    SELECT id, account_id, idempotency_key, reference, fingerprint, created_at
    FROM orders WHERE account_id = $1 AND reference = $3
    UNION ALL
    SELECT id, account_id, idempotency_key, reference, fingerprint, created_at
    FROM orders WHERE account_id = $1 AND created_at > $4 AND fingerprint = $5";

// --- reading ---

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

/// The orders of this account that bear on what is asked: same key, same reference, or same content recently enough
/// for the repeat notice.
pub(super) async fn standing(tx: &mut Tx, asked: &Asked, now: i64) -> Result<Vec<Standing>> {
    let notice =
        asked.repeat_notice.map_or(0, |seconds| i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000));
    sqlx::query(STANDING)
        .bind(asked.account.0.hyphenated())
        .bind(asked.key.as_str())
        .bind(asked.request.reference.as_ref().map(Reference::as_str))
        .bind(now.saturating_sub(notice))
        .bind(asked.fingerprint.as_str())
        .fetch_all(&mut **tx)
        .await
        .map_err(fault)?
        .iter()
        .map(|row| {
            Ok(Standing {
                id: OrderId(uuid(row, "id")?),
                account: AccountId(uuid(row, "account_id")?),
                key: parsed(row, "idempotency_key", Key::parse)?,
                reference: parsed_or_null(row, "reference", Reference::parse)?,
                fingerprint: Fingerprint::stored(get(row, "fingerprint")?),
                created_at: from_millis(get(row, "created_at")?).ok_or_else(|| damaged("created_at"))?,
            })
        })
        .collect()
}

// --- writing ---

/// Writes a placed order: itself, its lines, its first payment attempt and, when that has captured the balance, the
/// charge and the message.
pub(super) async fn insert(tx: &mut Tx, asked: &Asked, order: &Order, now: i64) -> Result<()> {
    insert_order(tx, asked, order, now).await?;
    insert_lines(tx, order).await?;
    insert_payment(tx, order, now).await?;
    if order.payment == PaymentStatus::Captured {
        insert_charge(tx, order, now).await?;
        insert_message(tx, order, now).await?;
    }
    Ok(())
}

async fn insert_order(tx: &mut Tx, asked: &Asked, order: &Order, now: i64) -> Result<()> {
    sqlx::query(
        "INSERT INTO orders (id, account_id, idempotency_key, reference, fingerprint, status, total, currency,
                             payment_method, payment_token, note, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12)",
    )
    .bind(order.id.0.hyphenated())
    .bind(order.account.0.hyphenated())
    .bind(order.key.as_str())
    .bind(order.reference.as_ref().map(Reference::as_str))
    .bind(order.fingerprint.as_str())
    .bind(order.status.as_str())
    .bind(order.total)
    .bind(order.currency.as_str())
    .bind(order.method.as_str())
    .bind(asked.request.payment_method.as_ref().map(|token| token.as_str()))
    .bind(order.note.as_ref().map(Note::as_str))
    .bind(now)
    .execute(&mut **tx)
    .await
    .map_err(fault)?;
    Ok(())
}

async fn insert_lines(tx: &mut Tx, order: &Order) -> Result<()> {
    for (line_no, line) in (1_i64..).zip(&order.lines) {
        sqlx::query(
            "INSERT INTO order_lines (order_id, line_no, sku, name, quantity, unit_price)
             VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(order.id.0.hyphenated())
        .bind(line_no)
        .bind(line.sku.as_str())
        .bind(&line.name)
        .bind(line.quantity.get())
        .bind(line.unit_price)
        .execute(&mut **tx)
        .await
        .map_err(fault)?;
    }
    Ok(())
}

async fn insert_payment(tx: &mut Tx, order: &Order, now: i64) -> Result<()> {
    // Fixed before the provider is called, so that every repeat of the call is the same charge to it.
    let provider_key = (order.method == Method::Card).then(|| Uuid::new_v4().hyphenated());
    sqlx::query(
        "INSERT INTO payments (order_id, attempt, method, provider_key, amount, status, created_at, updated_at)
         VALUES ($1, 1, $2, $3, $4, $5, $6, $6)",
    )
    .bind(order.id.0.hyphenated())
    .bind(order.method.as_str())
    .bind(provider_key)
    .bind(order.total)
    .bind(order.payment.as_str())
    .bind(now)
    .execute(&mut **tx)
    .await
    .map_err(fault)?;
    Ok(())
}

async fn insert_charge(tx: &mut Tx, order: &Order, now: i64) -> Result<()> {
    sqlx::query(
        "INSERT INTO account_entries (account_id, order_id, kind, amount, created_at)
         VALUES ($1, $2, 'charge', $3, $4)",
    )
    .bind(order.account.0.hyphenated())
    .bind(order.id.0.hyphenated())
    .bind(-order.total)
    .bind(now)
    .execute(&mut **tx)
    .await
    .map_err(fault)?;
    Ok(())
}

async fn insert_message(tx: &mut Tx, order: &Order, now: i64) -> Result<()> {
    let payload = json!({ "order_id": order.id.to_string(), "account_id": order.account.to_string() });
    sqlx::query("INSERT INTO outbox (id, topic, payload, created_at) VALUES ($1, $2, $3, $4)")
        .bind(Uuid::now_v7().hyphenated())
        .bind(PAID_TOPIC)
        .bind(payload.to_string())
        .bind(now)
        .execute(&mut **tx)
        .await
        .map_err(fault)?;
    Ok(())
}
