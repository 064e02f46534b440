//! Writing what was decided, if everything still is as the decision had it.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{Executor, PgConnection};
use time::OffsetDateTime;

use super::super::super::errors::{Stop, column, is_outdated};
use super::super::super::pools::Statement;
use super::super::super::records::{columns, millis};
use super::super::Outcome;
use super::super::load::{named_and_noticed, standing};
use super::super::write::{order, orders_and_lines, placed, records, with_orders};
use super::read::{found, standing_orders, told};
use crate::order::decide::Asked;
use crate::order::values::{AccountId, Cents, Currency};
use crate::order::{Line, Method};
use crate::store::SettleRules;

statements! {
    /// Writes what was decided if everything is as the decision had it; else nothing, and tells how it is.
    ///
    /// Parameters as in the room's other writing, but: stock and balances are what is taken from them ($12, $14); beside them
    /// price, name and currency of the products ($38 to $40), whether a balance must not move meanwhile ($41), the lease ($42), and
    /// what the placed orders must not meet, as in `LOAD` ($43 to $47).
    ///
    /// The clock is held against the decision's too: a machine may have slept since it was read.
    ///
    /// Between looking and writing another transaction may get on. Only an upsert takes its rows in a given order and by what
    /// they are then; one that was not there betrays itself by the empty text that it would have. Whatever does not fit after
    /// all is taken back by the division by zero.
    WRITE = concat!("
        WITH ", found!(), ", ", standing_orders!("$43", "$44", "$45", "$46", "$47"), ", fits AS MATERIALIZED (
            SELECT $30 BETWEEN now() - interval '10 s' AND now() + interval '10 s'
                AND NOT EXISTS (SELECT FROM found) AND NOT EXISTS (SELECT FROM earlier)
                AND cardinality($11::text[]) = (SELECT count(*)
                    FROM unnest($11::text[], $12::bigint[], $38::bigint[], $39::text[], $40::text[])
                        AS t (sku, taken, price, name, currency)
                    CROSS JOIN LATERAL (SELECT FROM products p WHERE p.sku = t.sku AND p.stock >= t.taken
                        AND p.unit_price = t.price AND p.name = t.name AND p.currency = t.currency LIMIT 1) p)
                AND cardinality($13::uuid[]) = (SELECT count(*) FROM unnest($13::uuid[], $14::bigint[]) AS t (id, taken)
                    CROSS JOIN LATERAL (
                        SELECT FROM accounts a WHERE a.id = t.id AND a.balance >= t.taken LIMIT 1) a) AS ok
        ), stock AS (
            INSERT INTO products AS p (sku, name, currency, unit_price, stock)
            SELECT sku, '', '', price, taken FROM unnest($11::text[], $12::bigint[], $38::bigint[]) AS t (sku, taken, price)
            WHERE (SELECT ok FROM fits)
            ORDER BY sku COLLATE \"C\"
            ON CONFLICT (sku) DO UPDATE SET stock = p.stock - excluded.stock
            WHERE p.stock >= excluded.stock AND p.unit_price = excluded.unit_price
            RETURNING p.currency
        ), balances AS (
            INSERT INTO accounts AS a (id, subject, balance)
            SELECT id, '', taken FROM unnest($13::uuid[], $14::bigint[]) AS t (id, taken)
            WHERE (SELECT ok FROM fits)
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
                clock_timestamp() + $42 * interval '1 ms',
                response_status, content_type, location, body, order_id,
                CASE WHEN response_status IS NOT NULL THEN clock_timestamp() END,
                clock_timestamp() + $10 * interval '1 ms'
            FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[], $5::smallint[], $6::text[], $7::text[],
                $8::bytea[], $9::uuid[])
                AS done (account_id, key, epoch, fingerprint, response_status, content_type, location, body, order_id)
            WHERE (SELECT ok FROM fits)
            ORDER BY account_id, key COLLATE \"C\"
            RETURNING key
        ), ", with_orders!("WHERE (SELECT ok FROM fits)"),
        told!("CASE WHEN NOT fits.ok THEN false
            ELSE 1 / CASE
                WHEN (SELECT count(*) FROM stock WHERE currency <> '') <> cardinality($11) THEN 0
                WHEN (SELECT count(*) FROM balances
                    JOIN unnest($13::uuid[], $14::bigint[], $41::boolean[]) AS t (id, taken, alone) USING (id)
                    CROSS JOIN LATERAL (SELECT a.balance AS before FROM accounts a WHERE a.id = balances.id LIMIT 1) a
                    WHERE subject <> '' AND (NOT alone OR balance = before - taken)) <> cardinality($13) THEN 0
                WHEN (SELECT count(*) FROM kept) <> cardinality($1) THEN 0
                ELSE 1 END = 1 END", "FROM fits", "NOT fits.ok", "$11", "$1"));
}

/// What came of [`WRITE`].
pub(super) enum Written {
    /// Everything was written; this tells the clock.
    All(PgRow),
    /// Nothing: something did not fit, and this is how it is.
    Nothing(Vec<PgRow>),
    /// Nothing: something changed in between.
    Outdated,
}

/// Nothing of it is written unless everything is.
pub(super) async fn write(
    connection: &mut PgConnection,
    outcomes: &[Outcome<'_>],
    now: OffsetDateTime,
    lease: Duration,
    rules: &SettleRules,
) -> std::result::Result<Written, Stop> {
    let placed = placed(outcomes);
    let Some(taken) = Taken::by(&placed) else { return Ok(Written::Outdated) };
    let mut rows = match connection.fetch_all(statement(outcomes, &placed, &taken, now, lease, rules)).await {
        Ok(rows) => rows,
        Err(error) if is_outdated(&error) => {
            tracing::debug!(%error, orders = outcomes.len(), "a batch was decided by what has changed since");
            return Ok(Written::Outdated);
        }
        Err(error) => return Err(error.into()),
    };
    for n in 0..rows.len() {
        if column(&rows[n], "written")? {
            return Ok(Written::All(rows.swap_remove(n)));
        }
    }
    Ok(Written::Nothing(rows))
}

fn statement(
    outcomes: &[Outcome<'_>],
    placed: &[&Outcome<'_>],
    taken: &Taken<'_>,
    now: OffsetDateTime,
    lease: Duration,
    rules: &SettleRules,
) -> Statement {
    let asked: Vec<&Asked> = placed.iter().map(|outcome| outcome.asked).collect();
    let stock = || taken.stock.iter();
    let statement = records(sqlx::query(WRITE), outcomes, rules)
        .bind(stock().map(|(line, ..)| line.sku.to_string()).collect::<Vec<_>>())
        .bind(stock().map(|(.., quantity)| *quantity).collect::<Vec<_>>())
        .bind(taken.balances.iter().map(|(id, ..)| id.0).collect::<Vec<_>>())
        .bind(taken.balances.iter().map(|(_, amount, _)| *amount).collect::<Vec<_>>());
    let statement = orders_and_lines(statement, placed, now, rules)
        .bind(stock().map(|(line, ..)| line.unit_price).collect::<Vec<_>>())
        .bind(stock().map(|(line, ..)| line.name.clone()).collect::<Vec<_>>())
        .bind(stock().map(|(_, currency, _)| currency.to_string()).collect::<Vec<_>>())
        .bind(taken.balances.iter().map(|(.., alone)| *alone).collect::<Vec<_>>())
        .bind(millis(lease));
    named_and_noticed(statement, &asked)
}

/// What the placed orders take.
struct Taken<'a> {
    /// Of each product, at the name and price of a line, how many.
    stock: Vec<(&'a Line, &'a Currency, i64)>,
    /// Of each account how much, and whether nobody else may take meanwhile.
    balances: Vec<(AccountId, Cents, bool)>,
}

impl<'a> Taken<'a> {
    /// `None`: an order that takes nothing would not give itself away to one of the same content.
    fn by(placed: &[&'a Outcome<'_>]) -> Option<Self> {
        let (mut stock, mut balances) = (BTreeMap::new(), BTreeMap::new());
        for (outcome, order) in placed.iter().filter_map(|outcome| Some((outcome, order(outcome)?))) {
            for line in &order.lines {
                stock.entry(&line.sku).or_insert((line, &order.currency, 0)).2 += i64::from(line.quantity.get());
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
        let balances = balances.into_iter().map(|(account, (amount, alone))| (account, amount, alone)).collect();
        Some(Self { stock: stock.into_values().collect(), balances })
    }
}
