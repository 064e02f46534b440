//! Placing what nothing stands for yet, in one round trip: a statement that writes record, order and all the rest, if everything
//! still is as the decision had it; it is its own transaction. The decision goes by what was read last ([`Lately`]), and where that
//! does not fit (too little in stock, a record that stands), the statement tells how it is instead, for a decision that does.
//!
//! What was read without locks may change before it is written. So stock and balances are written as differences, under the
//! condition that they cover what is taken, and every row that must be new is a plain insert: where another transaction got
//! in between, the statement fails as a whole, and the batch takes the way of the claims, which decides under lock. A refusal
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
use super::super::pools::{Pools, Statement};
use super::super::records::{columns, millis, standing};
use super::lately::Lately;
use super::load::{accounts, asked_of, named_and_noticed, skus, standing};
use super::write::{order, orders_and_lines, placed, records, with_orders};
use super::{NEW_RECORD, Outcome};
use crate::order::decide::{Asked, Decision, Shop, Standing, decide};
use crate::order::values::{AccountId, Cents, Currency, Fingerprint, Key, OrderId, Reference, Sku};
use crate::order::{Line, Method, Product};
use crate::store::{Outright, RecordState, Result, SettleRules};

/// The records that are there, of the keys asked for ($1, $2).
macro_rules! found {
    () => {
        concat!("found AS MATERIALIZED (
            SELECT asked.n, r.*
            FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY AS asked (account_id, key, n)
            CROSS JOIN LATERAL (
                SELECT r.status = 'done' AND r.expires_at <= clock_timestamp() AS expired, ", columns!(), "
                FROM idempotency_records r
                WHERE r.account_id = asked.account_id AND r.operation = 'place_order' AND r.key = asked.key LIMIT 1) r
        )")
    };
}

/// The orders that stand: of these keys, of these references, and of this content within that many seconds.
macro_rules! standing_orders {
    ($references_of:literal, $references:literal, $contents_of:literal, $contents:literal, $notices:literal) => {
        concat!(
            "earlier AS MATERIALIZED (
            SELECT o.* FROM unnest($1::uuid[], $2::text[]) AS asked (account_id, key) ",
            standing!("o.idempotency_key = asked.key"),
            "
            UNION ALL
            SELECT o.* FROM unnest(",
            $references_of,
            "::uuid[], ",
            $references,
            "::text[])
                AS asked (account_id, reference) ",
            standing!("o.reference = asked.reference"),
            "
            UNION ALL
            SELECT o.* FROM unnest(",
            $contents_of,
            "::uuid[], ",
            $contents,
            "::text[], ",
            $notices,
            "::bigint[])
                AS asked (account_id, content, notice) ",
            standing!(
                "o.fingerprint = asked.content AND o.status <> 'cancelled'
                AND o.created_at >= now() - asked.notice * interval '1 s'
                ORDER BY o.created_at DESC, o.id DESC"
            ),
            "
        )"
        )
    };
}

/// What was read: in the row numbered 0 the clock, whether all was written, and as JSON what a decision needs, in the others the records.
macro_rules! read {
    ($written:literal, $from:literal, $unless:literal, $skus:literal, $accounts:literal) => {
        concat!(
            "
        SELECT 0::bigint AS n, date_trunc('milliseconds', clock_timestamp()) AS now, ",
            $written,
            " AS written,
            CASE WHEN ",
            $unless,
            " THEN (SELECT json_agg(json_build_array(sku, name, unit_price, currency, stock))
                FROM products WHERE sku = ANY(",
            $skus,
            ")) END AS products,
            CASE WHEN ",
            $unless,
            " THEN (SELECT json_agg(json_build_array(id, balance))
                FROM accounts WHERE id = ANY(",
            $accounts,
            ")) END AS balances,
            CASE WHEN ",
            $unless,
            " THEN (SELECT json_agg(json_build_array(id, account_id, idempotency_key, reference,
                fingerprint, (extract(epoch FROM created_at) * 1000)::bigint)) FROM earlier) END AS standing,
            false AS expired, NULL::text AS fingerprint, NULL::bigint AS epoch, NULL::text AS status,
            NULL::bigint AS lease_left, NULL::smallint AS response_status, NULL::text AS response_content_type,
            NULL::text AS response_location, NULL::bytea AS response_body, NULL::uuid AS order_id ",
            $from,
            "
        UNION ALL
        SELECT n, NULL, false, NULL, NULL, NULL, expired, fingerprint, epoch, status, lease_left, response_status,
            response_content_type, response_location, response_body, order_id FROM found"
        )
    };
}

statements! {
    /// Nothing but the records is read where each key has one.
    LOAD = concat!("
        WITH ", found!(), ", ", standing_orders!("$3", "$4", "$5", "$6", "$7"),
        read!("false", "", "(SELECT count(*) FROM found) < cardinality($1)", "$8", "$9"));

    /// Writes what was decided if everything is as the decision had it; else nothing, and tells how it is.
    ///
    /// Parameters as in the room's other writing, but: stock and balances are what is taken from them ($12, $14); beside them
    /// price, name and currency of the products ($38 to $40), whether a balance must not move meanwhile ($41), the lease ($42), and
    /// what the placed orders must not meet, as in [`LOAD`] ($43 to $47).
    ///
    /// Between looking and writing another transaction may get on. Only an upsert takes its rows in a given order and by what
    /// they are then; one that was not there betrays itself by the empty text that it would have. Whatever does not fit after
    /// all is taken back by the division by zero.
    WRITE = concat!("
        WITH ", found!(), ", ", standing_orders!("$43", "$44", "$45", "$46", "$47"), ", fits AS MATERIALIZED (
            SELECT NOT EXISTS (SELECT FROM found) AND NOT EXISTS (SELECT FROM earlier)
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
        read!("CASE WHEN NOT fits.ok THEN false
            ELSE 1 / CASE
                WHEN (SELECT count(*) FROM stock WHERE currency <> '') <> cardinality($11) THEN 0
                WHEN (SELECT count(*) FROM balances
                    JOIN unnest($13::uuid[], $14::bigint[], $41::boolean[]) AS t (id, taken, alone) USING (id)
                    CROSS JOIN LATERAL (SELECT a.balance AS before FROM accounts a WHERE a.id = balances.id LIMIT 1) a
                    WHERE subject <> '' AND (NOT alone OR balance = before - taken)) <> cardinality($13) THEN 0
                WHEN (SELECT count(*) FROM kept) <> cardinality($1) THEN 0
                ELSE 1 END = 1 END", "FROM fits", "NOT fits.ok", "$11", "$1"));
}

/// See [`Store::place`](crate::store::Store::place).
pub(in super::super) async fn place(
    pools: &Pools,
    batch: &[&Asked],
    lease: Duration,
    rules: &SettleRules,
) -> Result<Vec<Outright>> {
    pools.on_outright(async |connection| attempt(connection, &pools.lately, batch, lease, rules).await).await
}

async fn attempt(
    connection: &mut PgConnection,
    lately: &Lately,
    batch: &[&Asked],
    lease: Duration,
    rules: &SettleRules,
) -> std::result::Result<Vec<Outright>, Stop> {
    let mut came = vec![Outright::Undone; batch.len()];
    let rows = match guess(lately, batch, rules) {
        None => connection.fetch_all(asked_of(LOAD, batch).bind(skus(batch)).bind(accounts(batch))).await?,
        Some((now, outcomes)) => match write(connection, &outcomes, now, lease, rules).await? {
            Written::All(row) => {
                lately.told(column(&row, "now")?);
                return Ok(outcomes.into_iter().map(|one| Outright::Settled(one.settled())).collect());
            }
            Written::Nothing(rows) => rows,
            Written::Outdated => return Ok(came),
        },
    };
    let (mut shop, open) = read(&rows, batch, &mut came)?;
    lately.saw(&shop);
    let open: Vec<usize> = open.into_iter().filter(|n| is_sure(batch[*n], &shop)).collect();
    let decisions = decide(open.iter().map(|n| batch[*n]), &mut shop);
    lately.expects(open.len() == batch.len() && decisions.iter().all(|one| matches!(one, Decision::Placed(_))));
    let decided = open.into_iter().zip(decisions).filter(|(_, decision)| !matches!(decision, Decision::Stands { .. }));
    let (places, outcomes): (Vec<usize>, Vec<Outcome<'_>>) =
        decided.map(|(n, decision)| (n, outcome(batch[n], decision, rules))).unzip();
    let written = outcomes.iter().all(Outcome::forgotten)
        || matches!(write(connection, &outcomes, shop.now, lease, rules).await?, Written::All(_));
    if written {
        places.into_iter().zip(outcomes).for_each(|(n, one)| came[n] = Outright::Settled(one.settled()));
    }
    Ok(came)
}

/// The batch as it will be decided if nothing has changed since somebody looked last and there is enough of everything.
fn guess<'a>(lately: &Lately, batch: &[&'a Asked], rules: &SettleRules) -> Option<(OffsetDateTime, Vec<Outcome<'a>>)> {
    let mut shop = lately.guess(batch)?;
    let decisions = decide(batch.iter().copied(), &mut shop);
    let fit =
        |(asked, decision): (&&Asked, &Decision)| matches!(decision, Decision::Placed(_)) && is_sure(asked, &shop);
    batch.iter().zip(&decisions).all(fit).then(|| {
        (shop.now, batch.iter().zip(decisions).map(|(asked, decision)| outcome(asked, decision, rules)).collect())
    })
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

/// A product as it is read.
type ProductRow = (String, String, Cents, String, i64);
/// An order that stands: id, account, key, reference, content, milliseconds since 1970.
type StandingRow = (Uuid, Uuid, String, Option<String>, String, i64);

/// What the decision needs, and the places of the batch that no record stands for. Of the others it is told what stands.
fn read(rows: &[PgRow], batch: &[&Asked], came: &mut [Outright]) -> Result<(Shop, Vec<usize>)> {
    let mut open = vec![true; batch.len()];
    let mut shop = None;
    for row in rows {
        let n: i64 = column(row, "n")?; // counted from 1
        match usize::try_from(n).unwrap_or(usize::MAX) {
            0 => shop = Some(shop_of(row)?),
            n => {
                let asked = batch.get(n - 1).ok_or_else(|| broken("a stray row"))?;
                open[n - 1] = false;
                came[n - 1] = record(row, asked)?;
            }
        }
    }
    let open = (0..batch.len()).filter(|n| open[*n]).collect();
    Ok((shop.ok_or_else(|| broken("no clock"))?, open))
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

fn shop_of(row: &PgRow) -> Result<Shop> {
    Ok(Shop {
        products: listed(row, "products")?.into_iter().map(product).collect::<Result<_>>()?,
        balances: listed(row, "balances")?.into_iter().map(|(id, balance)| (AccountId(id), balance)).collect(),
        standing: listed(row, "standing")?.into_iter().map(earlier).collect::<Result<_>>()?,
        now: column(row, "now")?,
    })
}

fn listed<T: DeserializeOwned + 'static>(row: &PgRow, name: &str) -> Result<Vec<T>> {
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

/// What came of [`WRITE`].
enum Written {
    /// Everything was written; this tells the clock.
    All(PgRow),
    /// Nothing: something did not fit, and this is how it is.
    Nothing(Vec<PgRow>),
    /// Nothing: something changed in between.
    Outdated,
}

async fn write(
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
