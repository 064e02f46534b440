//! Placed orders on their way into the tables: a statement for each table, however many orders, and all statements in one
//! message to the driver's thread.

use std::time::Duration;

use serde::Serialize;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::types::Json;
use uuid::Uuid;

use super::accounts::{entry, insert_entries, write_balances};
use super::catalogue::write_stock;
use super::outbox::{insert_messages, paid};
use super::payments::{NewAttempt, insert_attempts};
use crate::order::decide::Asked;
use crate::order::life::Attempt;
use crate::order::values::{Cents, Note, Reference};
use crate::order::{Method, Order, PaymentStatus};
use crate::store::ORDER_PAID;

/// What is left of stock and funds, and placed orders: themselves, their lines, their first payment attempts and, where those
/// are paid, the charges and messages. Numbers of parameters go through all the statements; see [`statements`].
macro_rules! write_placed {
    () => {
        concat!(
            write_stock!("$3"),
            ";",
            write_balances!("$4"),
            ";
            INSERT INTO orders (id, account_id, idempotency_key, reference, fingerprint, status, total, currency,
                                payment_method, note, created_at, updated_at)
            SELECT new.value ->> 'id', new.value ->> 'account', new.value ->> 'key', new.value ->> 'reference',
                   new.value ->> 'fingerprint', new.value ->> 'status', new.value ->> 'total',
                   new.value ->> 'currency', new.value ->> 'method', new.value ->> 'note', $1, $1
            FROM json_each($5) AS new;
            INSERT INTO order_lines (order_id, line_no, sku, name, quantity, unit_price)
            SELECT new.value ->> 0, new.value ->> 1, new.value ->> 2, new.value ->> 3, new.value ->> 4, new.value ->> 5
            FROM json_each($6) AS new;",
            insert_attempts!("$7", "$1", "$2"),
            ";",
            insert_entries!("$8", "'charge'", "$1"),
            ";",
            insert_messages!("$9", "$10", "$1")
        )
    };
}

pub(super) const WRITE: &str = write_placed!();

/// The same with the records of what was placed without a claim. `$11`: as `outright` makes them; `$12`: when their leases are over; `$13`, `$14`: until when they
/// are kept while they are under way, and when they are done.
pub(super) const WRITE_WITH_RECORDS: &str = concat!(
    write_placed!(),
    ";
    INSERT INTO idempotency_records
        (account_id, operation, key, fingerprint, status, epoch, lease_expires_at, response_status,
         response_content_type, response_location, response_body, order_id, created_at, completed_at, expires_at)
    SELECT new.value ->> 'account', 'place_order', new.value ->> 'key', new.value ->> 'content',
           iif(new.value ->> 'status' IS NULL, 'processing', 'done'), 1, $12, new.value ->> 'status',
           new.value ->> 'content_type', new.value ->> 'location', unhex(new.value ->> 'body'),
           new.value ->> 'order', $1, iif(new.value ->> 'status' IS NULL, NULL, $1),
           iif(new.value ->> 'status' IS NULL, $13, $14)
    FROM json_each($11) AS new"
);

/// Stock and funds that were taken from, with what is left.
pub(super) struct Left<'a> {
    pub(super) stock: Vec<(&'a str, i64)>,
    pub(super) balances: Vec<(Uuid, Cents)>,
}

/// [`WRITE`], or what begins as it does, with its ten parameters. A payment that is not paid yet is looked at by the
/// reconciler after `first_check` milliseconds.
pub(super) fn statements<'q>(
    sql: &'static str,
    left: Left<'_>,
    placed: &[(&Asked, &Order)],
    now: i64,
    first_check: i64,
) -> Query<'q, sqlx::Sqlite, SqliteArguments> {
    let orders: Vec<_> = placed.iter().map(|(_, order)| NewOrder::of(order)).collect();
    let lines: Vec<_> = placed.iter().flat_map(|(_, order)| new_lines(order)).collect();
    let attempts: Vec<Attempt> = placed.iter().map(|(asked, order)| first_attempt(asked, order)).collect();
    let attempts: Vec<_> =
        placed.iter().zip(&attempts).map(|((_, order), attempt)| NewAttempt::of(order.id, attempt)).collect();
    let captured = placed.iter().map(|(_, order)| *order).filter(|order| order.payment == PaymentStatus::Captured);
    let charged = captured.clone().filter(|order| order.method == Method::Balance);
    sqlx::query(sql)
        .bind(now)
        .bind(first_check)
        .bind(Json(left.stock))
        .bind(Json(left.balances))
        .bind(Json(orders))
        .bind(Json(lines))
        .bind(Json(attempts))
        .bind(Json(charged.map(|order| entry(order, -order.total)).collect::<Vec<_>>()))
        .bind(Json(captured.map(paid).collect::<Vec<_>>()))
        .bind(ORDER_PAID)
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

/// A line as the statement takes it: order, number, SKU, name, quantity, unit price.
type NewLine<'a> = (Uuid, i64, &'a str, &'a str, u32, Cents);

fn new_lines(order: &Order) -> impl Iterator<Item = NewLine<'_>> {
    (1..).zip(&order.lines).map(|(number, line)| {
        (order.id.0, number, line.sku.as_str(), line.name.as_str(), line.quantity.get(), line.unit_price)
    })
}
