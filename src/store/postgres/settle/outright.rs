//! Placing what nothing stands for yet, in two round trips: one statement reads, without locks, what the decision needs; the
//! other writes record, order and all the rest, and is its own transaction.
//!
//! What was read may have changed since. So stock and balances are written as differences, under the condition that they
//! cover what is taken, and every row that must be new is a plain insert: where anything differs from what the decision
//! went by, the statement fails as a whole, and the batch takes the way of the claims, which decides under lock. A refusal
//! needs no such care: what it was refused for was true when it was read.
//!
//! Locks are taken in the order of the room (products, accounts, records), and held for one statement and its commit.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::DeserializeOwned;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{Executor, PgConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use super::super::errors::{Stop, broken, column, is_outdated, parsed};
use super::super::pools::Pools;
use super::super::records::{columns, millis, standing};
use super::load::{accounts, asked_of, skus, standing};
use super::write::{order, orders_and_lines, placed, records, with_orders};
use super::{NEW_RECORD, Outcome};
use crate::order::decide::{Asked, Decision, Shop, Standing, decide};
use crate::order::values::{AccountId, Cents, Currency, Fingerprint, Key, OrderId, Reference, Sku};
use crate::order::{Method, Product};
use crate::store::{Outright, RecordState, Result, SettleRules};

statements! {
    /// The row numbered 0 tells the clock, and as JSON what the decision needs; it is left out when there is nothing to decide. The others are the
    /// records that are there.
    LOAD = concat!("
        WITH found AS MATERIALIZED (
            SELECT asked.n, r.*
            FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY AS asked (account_id, key, n)
            CROSS JOIN LATERAL (
                SELECT r.status = 'done' AND r.expires_at <= clock_timestamp() AS expired, ", columns!(), "
                FROM idempotency_records r
                WHERE r.account_id = asked.account_id AND r.operation = 'place_order' AND r.key = asked.key LIMIT 1) r
        ), shop AS (
            SELECT (SELECT json_agg(json_build_array(sku, name, unit_price, currency, stock))
                FROM products WHERE sku = ANY($8)) AS products,
            (SELECT json_agg(json_build_array(id, balance)) FROM accounts WHERE id = ANY($9)) AS balances,
            (SELECT json_agg(json_build_array(o.id, o.account_id, o.idempotency_key, o.reference, o.fingerprint,
                (extract(epoch FROM o.created_at) * 1000)::bigint)) FROM (
                SELECT o.* FROM unnest($1::uuid[], $2::text[]) AS asked (account_id, key) ",
                standing!("o.idempotency_key = asked.key"), "
                UNION ALL
                SELECT o.* FROM unnest($3::uuid[], $4::text[]) AS asked (account_id, reference) ",
                standing!("o.reference = asked.reference"), "
                UNION ALL
                SELECT o.* FROM unnest($5::uuid[], $6::text[], $7::bigint[]) AS asked (account_id, content, notice) ",
                standing!("o.fingerprint = asked.content AND o.status <> 'cancelled'
                    AND o.created_at >= now() - asked.notice * interval '1 s'
                    ORDER BY o.created_at DESC, o.id DESC"), "
            ) o) AS standing
            WHERE (SELECT count(*) FROM found) < cardinality($1)
        )
        SELECT 0::bigint AS n, date_trunc('milliseconds', clock_timestamp()) AS now, products, balances, standing,
            false AS expired, NULL::text AS fingerprint, NULL::bigint AS epoch, NULL::text AS status,
            NULL::bigint AS lease_left, NULL::smallint AS response_status, NULL::text AS response_content_type,
            NULL::text AS response_location, NULL::bytea AS response_body, NULL::uuid AS order_id
        FROM shop
        UNION ALL
        SELECT n, NULL, NULL, NULL, NULL, expired, fingerprint, epoch, status, lease_left, response_status,
            response_content_type, response_location, response_body, order_id FROM found");

    /// Parameters as in the room's other writing, but stock and balances are what is taken from them, beside the price that was
    /// read ($38), what is to be left of balances that must not have moved (null: may have; $39), and the lease ($40).
    ///
    /// Only an upsert takes its rows in a given order. A row that was not there betrays itself by the empty text that it would
    /// have, and the division by zero at the end takes it back.
    WRITE = concat!("
        WITH stock AS (
            INSERT INTO products AS p (sku, name, currency, unit_price, stock)
            SELECT sku, '', '', price, taken FROM unnest($11::text[], $12::bigint[], $38::bigint[]) AS t (sku, taken, price)
            ORDER BY sku COLLATE \"C\"
            ON CONFLICT (sku) DO UPDATE SET stock = p.stock - excluded.stock
            WHERE p.stock >= excluded.stock AND p.unit_price = excluded.unit_price
            RETURNING p.currency
        ), balances AS (
            INSERT INTO accounts AS a (id, subject, balance)
            SELECT id, '', taken FROM unnest($13::uuid[], $14::bigint[]) AS t (id, taken)
            ORDER BY id
            ON CONFLICT (id) DO UPDATE SET balance = a.balance - excluded.balance
            WHERE a.balance >= excluded.balance
            RETURNING a.id, a.subject, a.balance
        ), kept AS (
            INSERT INTO idempotency_records (account_id, operation, key, epoch, fingerprint, status,
                lease_expires_at, response_status, response_content_type, response_location, response_body, order_id,
                completed_at, expires_at)
            SELECT account_id, 'place_order', key, epoch, fingerprint,
                CASE WHEN response_status IS NULL THEN 'processing' ELSE 'done' END,
                clock_timestamp() + $40 * interval '1 ms',
                response_status, content_type, location, body, order_id,
                CASE WHEN response_status IS NOT NULL THEN clock_timestamp() END,
                clock_timestamp() + $10 * interval '1 ms'
            FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[], $5::smallint[], $6::text[], $7::text[],
                $8::bytea[], $9::uuid[])
                AS done (account_id, key, epoch, fingerprint, response_status, content_type, location, body, order_id)
            ORDER BY account_id, key COLLATE \"C\"
            RETURNING key
        ), ", with_orders!(), "
        SELECT 1 / CASE
            WHEN (SELECT count(*) FROM stock WHERE currency <> '') <> cardinality($11) THEN 0
            WHEN (SELECT count(*) FROM balances LEFT JOIN unnest($13, $39::bigint[]) AS t (id, left_over) USING (id)
                WHERE subject <> '' AND balance = coalesce(left_over, balance)) <> cardinality($13) THEN 0
            WHEN (SELECT count(*) FROM kept) <> cardinality($1) THEN 0
            ELSE 1 END AS written");
}

/// See [`Store::place`](crate::store::Store::place).
pub(in super::super) async fn place(
    pools: &Pools,
    batch: &[&Asked],
    lease: Duration,
    rules: &SettleRules,
) -> Result<Vec<Outright>> {
    pools.on_outright(async |connection| attempt(connection, batch, lease, rules).await).await
}

async fn attempt(
    connection: &mut PgConnection,
    batch: &[&Asked],
    lease: Duration,
    rules: &SettleRules,
) -> std::result::Result<Vec<Outright>, Stop> {
    let mut came = vec![Outright::Undone; batch.len()];
    let rows = connection.fetch_all(asked_of(LOAD, batch).bind(skus(batch)).bind(accounts(batch))).await?;
    let mut shop = None;
    let mut open = vec![true; batch.len()];
    for row in &rows {
        match usize::try_from(column::<i64>(row, "n")?).unwrap_or_default() {
            0 => shop = Some(read(row)?),
            n => {
                let at = open.get_mut(n - 1).ok_or_else(|| broken("a stray row"))?;
                *at = false;
                came[n - 1] = record(row, batch[n - 1])?;
            }
        }
    }
    let Some(mut shop) = shop else { return Ok(came) };
    let open: Vec<usize> = (0..batch.len()).filter(|n| open[*n] && is_sure(batch[*n], &shop)).collect();
    let decisions = decide(open.iter().map(|n| batch[*n]), &mut shop);
    let decided = open.into_iter().zip(decisions).filter(|(_, decision)| !matches!(decision, Decision::Stands { .. }));
    let (places, outcomes): (Vec<usize>, Vec<Outcome<'_>>) =
        decided.map(|(n, decision)| (n, outcome(batch[n], decision, rules))).unzip();
    if write(connection, &outcomes, &shop, lease, rules).await? {
        places.into_iter().zip(outcomes).for_each(|(n, one)| came[n] = Outright::Settled(one.settled()));
    }
    Ok(came)
}

/// What a record says to who asks; one that is to be taken over or to begin anew has to be claimed.
fn record(row: &PgRow, asked: &Asked) -> Result<Outright> {
    if column(row, "expired")? {
        return Ok(Outright::Undone);
    }
    let record = standing(row)?;
    let over = matches!(record.state, RecordState::Processing { lease_left } if lease_left.is_zero());
    Ok(if over && record.fingerprint == asked.fingerprint { Outright::Undone } else { Outright::Stands(record) })
}

/// Whether what is read without a lock can be held against what stands when it is written. Two orders of the same content at the
/// same time give themselves away only by the balance that both take from.
fn is_sure(asked: &Asked, shop: &Shop) -> bool {
    shop.balances.contains_key(&asked.account)
        && (asked.repeat_notice.is_none() || asked.request.method == Method::Balance)
}

fn outcome<'a>(asked: &'a Asked, decision: Decision, rules: &SettleRules) -> Outcome<'a> {
    let answer = (rules.render)(&decision, None);
    Outcome { asked, epoch: NEW_RECORD, decision, answer, standing: None, leaked: false }
}

// --- reading ---

/// A product as [`LOAD`] tells it.
type ProductRow = (String, String, Cents, String, i64);
/// An order that stands: id, account, key, reference, content, milliseconds since 1970.
type StandingRow = (Uuid, Uuid, String, Option<String>, String, i64);

fn read(row: &PgRow) -> Result<Shop> {
    Ok(Shop {
        products: rows(row, "products")?.into_iter().map(product).collect::<Result<_>>()?,
        balances: rows(row, "balances")?.into_iter().map(|(id, balance)| (AccountId(id), balance)).collect(),
        standing: rows(row, "standing")?.into_iter().map(earlier).collect::<Result<_>>()?,
        now: column(row, "now")?,
    })
}

fn rows<T: DeserializeOwned + 'static>(row: &PgRow, name: &str) -> Result<Vec<T>> {
    Ok(column::<Option<Json<Vec<T>>>>(row, name)?.map_or_else(Vec::new, |Json(rows)| rows))
}

fn product((sku, name, unit_price, currency, stock): ProductRow) -> Result<(Sku, Product)> {
    let sku = parsed("sku", &sku, Sku::parse)?;
    let currency = parsed("currency", &currency, Currency::parse)?;
    Ok((sku.clone(), Product { sku, name, unit_price, currency, stock }))
}

fn earlier((id, account, key, reference, fingerprint, created_at): StandingRow) -> Result<Standing> {
    let created_at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(created_at) * 1_000_000);
    Ok(Standing {
        id: OrderId(id),
        account: AccountId(account),
        key: parsed("idempotency_key", &key, Key::parse)?,
        reference: reference.map(|reference| parsed("reference", &reference, Reference::parse)).transpose()?,
        fingerprint: Fingerprint::stored(&fingerprint),
        created_at: created_at.map_err(|error| broken(format!("column created_at: {error}")))?,
    })
}

// --- writing ---

/// `false`: something had changed, and nothing was written.
async fn write(
    connection: &mut PgConnection,
    outcomes: &[Outcome<'_>],
    shop: &Shop,
    lease: Duration,
    rules: &SettleRules,
) -> std::result::Result<bool, Stop> {
    if outcomes.iter().all(Outcome::forgotten) {
        return Ok(true);
    }
    let placed = placed(outcomes);
    let Some(taken) = Taken::by(&placed, shop) else { return Ok(false) };
    let statement = records(sqlx::query(WRITE), outcomes, rules)
        .bind(taken.stock.iter().map(|(sku, ..)| sku.to_string()).collect::<Vec<_>>())
        .bind(taken.stock.iter().map(|(_, quantity, _)| *quantity).collect::<Vec<_>>())
        .bind(taken.balances.iter().map(|(id, ..)| id.0).collect::<Vec<_>>())
        .bind(taken.balances.iter().map(|(_, amount, _)| *amount).collect::<Vec<_>>());
    let statement = orders_and_lines(statement, &placed, shop, rules)
        .bind(taken.stock.iter().map(|(.., price)| *price).collect::<Vec<_>>())
        .bind(taken.balances.iter().map(|(.., left)| *left).collect::<Vec<_>>())
        .bind(millis(lease));
    match connection.fetch_one(statement).await {
        Ok(_) => Ok(true),
        Err(error) if is_outdated(&error) => {
            tracing::debug!(%error, orders = outcomes.len(), "a batch was decided by what has changed since");
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// What the placed orders take.
struct Taken<'a> {
    /// Of each product how many, and the price that was read.
    stock: Vec<(&'a Sku, i64, Cents)>,
    /// Of each account how much, and what is to be left where nobody else may have taken meanwhile.
    balances: Vec<(AccountId, Cents, Option<Cents>)>,
}

impl<'a> Taken<'a> {
    /// `None`: an order that takes nothing would not give itself away to one of the same content.
    fn by(placed: &[&'a Outcome<'_>], shop: &Shop) -> Option<Self> {
        let (mut stock, mut balances) = (BTreeMap::new(), BTreeMap::new());
        for (outcome, order) in placed.iter().filter_map(|outcome| Some((outcome, order(outcome)?))) {
            for line in &order.lines {
                stock.entry(&line.sku).or_insert((0, line.unit_price)).0 += i64::from(line.quantity.get());
            }
            let noticed = outcome.asked.repeat_notice.is_some();
            if noticed && order.total == 0 {
                return None;
            }
            if order.method == Method::Balance {
                let account = balances.entry(order.account).or_insert((0, false));
                *account = (account.0 + order.total, account.1 || noticed);
            }
        }
        let left = |account, noticed: bool| shop.balances.get(account).copied().filter(|_| noticed);
        Some(Self {
            stock: stock.into_iter().map(|(sku, (quantity, price))| (sku, quantity, price)).collect(),
            balances: balances.iter().map(|(id, (amount, noticed))| (*id, *amount, left(id, *noticed))).collect(),
        })
    }
}
