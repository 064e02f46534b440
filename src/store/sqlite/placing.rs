//! Placed orders on their way into the tables: a statement for each table, however many orders.

use std::time::Duration;

use serde::Serialize;
use sqlx::types::Json;
use uuid::Uuid;

use super::accounts::{self, Kind};
use super::{Result, Tx, fault, outbox, payments};
use crate::order::decide::Asked;
use crate::order::life::Attempt;
use crate::order::values::{Cents, Note, OrderId, Reference};
use crate::order::{Line, Method, Order, PaymentStatus};

/// Writes placed orders: themselves, their lines, their first payment attempts and, where those are paid, the charges
/// and messages. A payment that is not paid yet is looked at by the reconciler after `first_check` milliseconds.
pub(super) async fn insert(tx: &mut Tx, placed: &[(&Asked, &Order)], now: i64, first_check: i64) -> Result<()> {
    if placed.is_empty() {
        return Ok(());
    }
    insert_orders(tx, placed, now).await?;
    insert_lines(tx, placed).await?;
    let attempts: Vec<Attempt> = placed.iter().map(|(asked, order)| first_attempt(asked, order)).collect();
    let attempts: Vec<_> = placed.iter().map(|(_, order)| order.id).zip(&attempts).collect();
    payments::insert(tx, &attempts, now, first_check).await?;

    let paid: Vec<&Order> =
        placed.iter().map(|(_, order)| *order).filter(|order| order.payment == PaymentStatus::Captured).collect();
    let charged = paid.iter().filter(|order| order.method == Method::Balance);
    let charges: Vec<(&Order, Cents)> = charged.map(|order| (*order, -order.total)).collect();
    accounts::insert_entries(tx, &charges, Kind::Charge, now).await?;
    outbox::tell_paid(tx, &paid, now).await
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

/// An order as the statement takes it.
#[derive(Serialize)]
struct NewOrder<'a> {
    id: Uuid,
    account: Uuid,
    key: &'a str,
    reference: Option<&'a str>,
    fingerprint: &'a str,
    status: &'static str,
    total: Cents,
    currency: &'a str,
    method: &'static str,
    note: Option<&'a str>,
}

impl<'a> NewOrder<'a> {
    fn of(order: &'a Order) -> Self {
        Self {
            id: order.id.0,
            account: order.account.0,
            key: order.key.as_str(),
            reference: order.reference.as_ref().map(Reference::as_str),
            fingerprint: order.fingerprint.as_str(),
            status: order.status.as_str(),
            total: order.total,
            currency: order.currency.as_str(),
            method: order.method.as_str(),
            note: order.note.as_ref().map(Note::as_str),
        }
    }
}

async fn insert_orders(tx: &mut Tx, placed: &[(&Asked, &Order)], now: i64) -> Result<()> {
    let rows: Vec<_> = placed.iter().map(|(_, order)| NewOrder::of(order)).collect();
    sqlx::query(
        "INSERT INTO orders (id, account_id, idempotency_key, reference, fingerprint, status, total, currency,
                             payment_method, note, created_at, updated_at)
         SELECT new.value ->> 'id', new.value ->> 'account', new.value ->> 'key', new.value ->> 'reference',
                new.value ->> 'fingerprint', new.value ->> 'status', new.value ->> 'total', new.value ->> 'currency',
                new.value ->> 'method', new.value ->> 'note', $2, $2
         FROM json_each($1) AS new",
    )
    .bind(Json(rows))
    .bind(now)
    .execute(&mut **tx)
    .await
    .map_err(fault)?;
    Ok(())
}

/// A line as the statement takes it.
#[derive(Serialize)]
struct NewLine<'a> {
    order: Uuid,
    number: i64,
    sku: &'a str,
    name: &'a str,
    quantity: u32,
    unit_price: Cents,
}

impl<'a> NewLine<'a> {
    fn of((order, number, line): (OrderId, i64, &'a Line)) -> Self {
        Self {
            order: order.0,
            number,
            sku: line.sku.as_str(),
            name: &line.name,
            quantity: line.quantity.get(),
            unit_price: line.unit_price,
        }
    }
}

async fn insert_lines(tx: &mut Tx, placed: &[(&Asked, &Order)]) -> Result<()> {
    let numbered =
        placed.iter().flat_map(|(_, order)| (1..).zip(&order.lines).map(|(number, line)| (order.id, number, line)));
    let rows: Vec<_> = numbered.map(NewLine::of).collect();
    sqlx::query(
        "INSERT INTO order_lines (order_id, line_no, sku, name, quantity, unit_price)
         SELECT new.value ->> 'order', new.value ->> 'number', new.value ->> 'sku', new.value ->> 'name',
                new.value ->> 'quantity', new.value ->> 'unit_price'
         FROM json_each($1) AS new",
    )
    .bind(Json(rows))
    .execute(&mut **tx)
    .await
    .map_err(fault)?;
    Ok(())
}
