//! A placed order on its way into the tables.

use std::time::Duration;

use uuid::Uuid;

use super::accounts::{self, Kind};
use super::{Result, Tx, fault, outbox, payments};
use crate::order::decide::Asked;
use crate::order::life::Attempt;
use crate::order::values::{Note, Reference};
use crate::order::{Method, Order, PaymentStatus};
/// Writes a placed order: itself, its lines, its first payment attempt and, when that is paid, the charge and the
/// message. A payment that is not paid yet is looked at by the reconciler after `first_check` milliseconds.
pub(super) async fn insert(tx: &mut Tx, asked: &Asked, order: &Order, now: i64, first_check: i64) -> Result<()> {
    insert_order(tx, order, now).await?;
    insert_lines(tx, order).await?;
    payments::insert(tx, order.id, &first_attempt(asked, order), now, first_check).await?;
    if order.payment != PaymentStatus::Captured {
        return Ok(());
    }
    if order.method == Method::Balance {
        accounts::insert_entry(tx, order, Kind::Charge, -order.total, now).await?;
    }
    outbox::tell_paid(tx, order, now).await
}

fn first_attempt(asked: &Asked, order: &Order) -> Attempt {
    Attempt {
        number: 1,
        method: order.method,
        // Fixed before the provider is called, so that every repeat of the call is the same charge to it.
        provider_key: (order.payment == PaymentStatus::Started).then(|| Uuid::new_v4().to_string()),
        provider_id: None,
        token: asked.request.payment_method.clone(),
        amount: order.total,
        status: order.payment,
        age: Duration::ZERO,
    }
}

async fn insert_order(tx: &mut Tx, order: &Order, now: i64) -> Result<()> {
    sqlx::query(
        "INSERT INTO orders (id, account_id, idempotency_key, reference, fingerprint, status, total, currency,
                             payment_method, note, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11)",
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
