//! Everything a decided batch changes, in one statement.

use std::collections::{BTreeSet, HashSet};

use sqlx::{Executor, PgConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use super::super::errors::{Stop, column, is_taken};
use super::super::pools::Statement;
use super::super::records::{millis, smallint};
use super::Outcome;
use crate::order::decide::{Decision, Shop};
use crate::order::values::{AccountId, Cents, Fingerprint, Sku};
use crate::order::{Method, Order, PaymentStatus, Status};
use crate::store::{Answer, SettleRules};

/// The orders of the batch with all that follows them: lines, payments, entries, outbox rows. Parameters 15 to 37, and the condition
/// for all of it. Plain inserts, as nothing may be kept unless everything went in.
macro_rules! with_orders {
    ($where:literal) => {
        concat!("new AS MATERIALIZED (
            SELECT * FROM unnest($15::uuid[], $16::uuid[], $17::text[], $18::text[], $19::text[], $20::text[],
                $21::bigint[], $22::text[], $23::text[], $24::text[], $25::text[], $26::text[], $27::text[],
                $28::uuid[], $29::text[])
                AS new (id, account_id, key, reference, fingerprint, status, total, currency, method, token, note,
                    provider_key, payment, message, payload) ", $where, "
        ), placed AS (
            INSERT INTO orders (id, account_id, idempotency_key, reference, fingerprint, status, total, currency,
                payment_method, note, created_at, updated_at)
            SELECT id, account_id, key, reference, fingerprint, status, total, currency, method, note, $30, $30
            FROM new
        ), lines AS (
            INSERT INTO order_lines (order_id, line_no, sku, name, quantity, unit_price)
            SELECT * FROM unnest($31::uuid[], $32::integer[], $33::text[], $34::text[], $35::integer[], $36::bigint[]) ", $where, "
        ), attempts AS (
            INSERT INTO payments (order_id, attempt, method, provider_key, token, amount, status, created_at,
                updated_at, next_check_at)
            SELECT id, 1, method, provider_key, token, total, payment, $30, $30, $30 + $37 * interval '1 ms' FROM new
        ), charges AS (
            INSERT INTO account_entries (account_id, order_id, kind, amount, created_at)
            SELECT account_id, id, 'charge', -total, $30 FROM new WHERE method = 'balance'
        ), told AS (
            INSERT INTO outbox (id, topic, payload, created_at)
            SELECT message, 'order.paid', payload, $30 FROM new WHERE message IS NOT NULL
        )")
    };
}
pub(super) use with_orders;

statements! {
    /// Every table by arrays. The row of stock or balance is locked by this transaction, so its new value is written
    /// as it was decided. A constraint that speaks ends the transaction, which would not be kept anyway.
    ///
    /// The fence is an upsert because only the arbiter index makes its plan certain (see the adapter's head); a record
    /// that was not there betrays itself by `created_at`, is not counted as held, and the transaction is rolled back.
    /// A record without an answer stays `processing`. One whose claim foresaw its time of expiry, but for the moments since,
    /// keeps it: with no indexed column changed, its indexes need no second entry (a heap-only tuple).
    WRITE = concat!("
        WITH fenced AS (
            INSERT INTO idempotency_records AS r (account_id, operation, key, epoch, fingerprint, status,
                lease_expires_at, response_status, response_content_type, response_location, response_body, order_id,
                created_at, completed_at, expires_at)
            SELECT account_id, 'place_order', key, epoch, fingerprint,
                CASE WHEN response_status IS NULL THEN 'processing' ELSE 'done' END,
                now(), response_status, content_type, location, body, order_id,
                '-infinity', CASE WHEN response_status IS NOT NULL THEN clock_timestamp() END,
                clock_timestamp() + $10 * interval '1 ms'
            FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[], $5::smallint[], $6::text[], $7::text[],
                $8::bytea[], $9::uuid[])
                AS done (account_id, key, epoch, fingerprint, response_status, content_type, location, body, order_id)
            ORDER BY account_id, key COLLATE \"C\"
            ON CONFLICT (account_id, operation, key) DO UPDATE SET
                fingerprint = excluded.fingerprint, status = excluded.status,
                response_status = excluded.response_status,
                response_content_type = excluded.response_content_type,
                response_location = excluded.response_location, response_body = excluded.response_body,
                order_id = excluded.order_id, completed_at = excluded.completed_at,
                expires_at = CASE WHEN excluded.status = 'done'
                        AND excluded.expires_at NOT BETWEEN r.expires_at AND r.expires_at + interval '1 min'
                    THEN excluded.expires_at ELSE r.expires_at END
            WHERE r.status = 'processing' AND r.epoch = excluded.epoch
            RETURNING r.account_id, r.key, r.created_at
        ), stock AS (
            UPDATE products p SET stock = new.stock FROM unnest($11::text[], $12::bigint[]) AS new (sku, stock)
            WHERE p.sku = new.sku AND p.sku = ANY($11)
        ), balances AS (
            UPDATE accounts a SET balance = new.balance FROM unnest($13::uuid[], $14::bigint[]) AS new (id, balance)
            WHERE a.id = new.id AND a.id = ANY($13)
        ), ", with_orders!(""), "
        SELECT ARRAY(SELECT account_id FROM fenced WHERE created_at > '-infinity') AS accounts,
            ARRAY(SELECT key FROM fenced WHERE created_at > '-infinity') AS keys");

    FORGET = "
        DELETE FROM idempotency_records WHERE account_id = $1 AND operation = 'place_order' AND key = $2
            AND epoch = $3 AND status = 'processing' RETURNING key";
}

/// What came of writing.
pub(super) struct Written {
    /// The places of the batch whose claims were lost.
    pub(super) lost: Vec<usize>,
    /// Whether every order went in.
    pub(super) complete: bool,
}

/// Writes the batch; nothing of it may be kept unless all claims were held and all orders went in.
pub(super) async fn all(
    transaction: &mut PgConnection,
    outcomes: &[Outcome<'_>],
    shop: &Shop,
    rules: &SettleRules,
) -> std::result::Result<Written, Stop> {
    let mut lost = Vec::new();
    for (n, outcome) in outcomes.iter().enumerate() {
        if outcome.forgotten() && !forget(transaction, outcome).await? {
            lost.push(n);
        }
    }
    let placed = placed(outcomes);
    let statement = changed(records(sqlx::query(WRITE), outcomes, rules), &placed, shop);
    let statement = orders_and_lines(statement, &placed, shop.now, rules);
    let row = match transaction.fetch_one(statement).await {
        Err(error) if is_taken(&error) => return Ok(Written { lost, complete: false }),
        row => row?,
    };

    let accounts: Vec<Uuid> = column(&row, "accounts")?;
    let keys: Vec<String> = column(&row, "keys")?;
    let held: HashSet<(Uuid, &str)> = accounts.into_iter().zip(keys.iter().map(String::as_str)).collect();
    let holds = |o: &Outcome<'_>| held.contains(&(o.asked.account.0, o.asked.key.as_str()));
    lost.extend(outcomes.iter().enumerate().filter(|(_, o)| stored(o).is_some() && !holds(o)).map(|(n, _)| n));
    Ok(Written { lost, complete: true })
}

/// Those that are placed.
pub(super) fn placed<'a, 'b>(outcomes: &'b [Outcome<'a>]) -> Vec<&'b Outcome<'a>> {
    outcomes.iter().filter(|outcome| order(outcome).is_some()).collect()
}

async fn forget(transaction: &mut PgConnection, outcome: &Outcome<'_>) -> std::result::Result<bool, Stop> {
    let asked = &outcome.asked;
    let statement = sqlx::query(FORGET).bind(asked.account.0).bind(asked.key.as_str()).bind(outcome.epoch);
    Ok(transaction.fetch_optional(statement).await?.is_some())
}

pub(super) fn order<'a>(outcome: &'a Outcome<'_>) -> Option<&'a Order> {
    match &outcome.decision {
        Decision::Placed(order) => Some(order),
        _ => None,
    }
}

/// What is kept of an outcome in its record: the content it answers, and the answer.
struct Stored<'a> {
    fingerprint: &'a Fingerprint,
    /// `None`: the record stays `processing`.
    answer: Option<&'a Answer>,
}

/// `None` where the record is gone.
fn stored<'a>(outcome: &'a Outcome<'_>) -> Option<Stored<'a>> {
    if outcome.forgotten() {
        return None;
    }
    // That of a standing order is healed: it says what the order says.
    let standing = outcome.standing.as_ref().map(|order| &order.fingerprint);
    let fingerprint = standing.unwrap_or(&outcome.asked.fingerprint);
    let unpaid = outcome.unpaid().is_some();
    Some(Stored { fingerprint, answer: (!unpaid).then_some(&outcome.answer) })
}

/// Parameters 1 to 10.
pub(super) fn records(statement: Statement, outcomes: &[Outcome<'_>], rules: &SettleRules) -> Statement {
    let kept: Vec<_> = outcomes.iter().filter_map(|o| Some((o, stored(o)?))).collect();
    let answers = || kept.iter().map(|(_, stored)| stored.answer);
    // A record without an answer yet names its order, so that whoever takes it over goes on with that one.
    let named = kept.iter().map(|(o, s)| s.answer.map_or(o.unpaid().map(|order| order.id), |answer| answer.order));
    statement
        .bind(kept.iter().map(|(o, _)| o.asked.account.0).collect::<Vec<_>>())
        .bind(kept.iter().map(|(o, _)| o.asked.key.as_str().to_owned()).collect::<Vec<_>>())
        .bind(kept.iter().map(|(o, _)| o.epoch).collect::<Vec<_>>())
        .bind(kept.iter().map(|(_, s)| s.fingerprint.as_str().to_owned()).collect::<Vec<_>>())
        .bind(answers().map(|a| Some(smallint(a?.status))).collect::<Vec<_>>())
        .bind(answers().map(|a| Some(a?.content_type)).collect::<Vec<_>>())
        .bind(answers().map(|a| a?.location.clone()).collect::<Vec<_>>())
        .bind(answers().map(|a| Some(a?.body.to_vec())).collect::<Vec<_>>())
        .bind(named.map(|id| Some(id?.0)).collect::<Vec<_>>())
        .bind(millis(rules.key_ttl))
}

/// Parameters 11 to 14: what is left of the products and balances that placed orders took from.
fn changed(statement: Statement, placed: &[&Outcome<'_>], shop: &Shop) -> Statement {
    let orders = || placed.iter().filter_map(|o| order(o));
    let skus: BTreeSet<&Sku> = orders().flat_map(|order| &order.lines).map(|line| &line.sku).collect();
    let stock: Vec<(String, i64)> =
        skus.into_iter().filter_map(|sku| Some((sku.to_string(), shop.products.get(sku)?.stock))).collect();
    let payers: BTreeSet<AccountId> = orders().filter(|o| o.method == Method::Balance).map(|o| o.account).collect();
    let balances: Vec<(Uuid, Cents)> =
        payers.into_iter().filter_map(|id| Some((id.0, *shop.balances.get(&id)?))).collect();
    let (skus, stock): (Vec<_>, Vec<_>) = stock.into_iter().unzip();
    let (accounts, balances): (Vec<_>, Vec<_>) = balances.into_iter().unzip();
    statement.bind(skus).bind(stock).bind(accounts).bind(balances)
}

/// Parameters 15 to 37.
pub(super) fn orders_and_lines(
    statement: Statement,
    placed: &[&Outcome<'_>],
    now: OffsetDateTime,
    rules: &SettleRules,
) -> Statement {
    lines(orders(statement, placed).bind(now), placed).bind(millis(rules.first_check))
}

/// Parameters 15 to 29.
fn orders(statement: Statement, placed: &[&Outcome<'_>]) -> Statement {
    let orders: Vec<(&Order, &Outcome<'_>)> = placed.iter().filter_map(|o| Some((order(o)?, *o))).collect();
    let all = || orders.iter().map(|(order, _)| order);
    let token = |o: &Outcome<'_>| o.asked.request.payment_method.as_ref().map(ToString::to_string);
    let paid = |order: &Order| order.status == Status::Paid;
    statement
        .bind(all().map(|o| o.id.0).collect::<Vec<_>>())
        .bind(all().map(|o| o.account.0).collect::<Vec<_>>())
        .bind(all().map(|o| o.key.to_string()).collect::<Vec<_>>())
        .bind(all().map(|o| o.reference.as_ref().map(ToString::to_string)).collect::<Vec<_>>())
        .bind(all().map(|o| o.fingerprint.as_str().to_owned()).collect::<Vec<_>>())
        .bind(all().map(|o| o.status.as_str()).collect::<Vec<_>>())
        .bind(all().map(|o| o.total).collect::<Vec<_>>())
        .bind(all().map(|o| o.currency.to_string()).collect::<Vec<_>>())
        .bind(all().map(|o| o.method.as_str()).collect::<Vec<_>>())
        .bind(orders.iter().map(|(_, o)| token(o)).collect::<Vec<_>>())
        .bind(all().map(|o| o.note.as_ref().map(ToString::to_string)).collect::<Vec<_>>())
        .bind(
            all()
                .map(|o| (o.payment == PaymentStatus::Started).then(|| Uuid::new_v4().to_string()))
                .collect::<Vec<_>>(),
        )
        .bind(all().map(|o| o.payment.as_str()).collect::<Vec<_>>())
        .bind(all().map(|o| paid(o).then(Uuid::now_v7)).collect::<Vec<_>>())
        .bind(all().map(|o| paid(o).then(|| payload(o))).collect::<Vec<_>>())
}

/// What the queue is told of an order that is paid: two ids, which need no escaping.
pub(in crate::store::postgres) fn payload(order: &Order) -> String {
    format!(r#"{{"order_id":"{}","account_id":"{}"}}"#, order.id, order.account)
}

/// Parameters 31 to 36.
fn lines(statement: Statement, placed: &[&Outcome<'_>]) -> Statement {
    let (mut ids, mut numbers, mut skus, mut names) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut quantities, mut prices) = (Vec::new(), Vec::new());
    for order in placed.iter().filter_map(|o| order(o)) {
        for (line, number) in order.lines.iter().zip(1_i32..) {
            ids.push(order.id.0);
            numbers.push(number);
            skus.push(line.sku.to_string());
            names.push(line.name.clone());
            quantities.push(i32::try_from(line.quantity.get()).unwrap_or(i32::MAX));
            prices.push(line.unit_price);
        }
    }
    statement.bind(ids).bind(numbers).bind(skus).bind(names).bind(quantities).bind(prices)
}
