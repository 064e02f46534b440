//! What a decision needs, read without locks, and what stands of those that need none.

use serde::de::DeserializeOwned;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use super::super::super::errors::{broken, column, parsed};
use super::super::super::pools::Statement;
use super::super::super::records::{columns, standing};
use super::super::load::{accounts, asked_of, skus, standing};
use crate::order::Product;
use crate::order::decide::{Asked, Shop, Standing};
use crate::order::values::{AccountId, Cents, Currency, Fingerprint, Key, OrderId, Reference, Sku};
use crate::store::{Outright, RecordState, Result};

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
macro_rules! told {
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
pub(super) use {found, standing_orders, told};

statements! {
    /// Nothing but the records is read where each key has one.
    LOAD = concat!("
        WITH ", found!(), ", ", standing_orders!("$3", "$4", "$5", "$6", "$7"),
        told!("false", "", "(SELECT count(*) FROM found) < cardinality($1)", "$8", "$9"));
}

/// The question about this batch.
pub(super) fn question(batch: &[&Asked]) -> Statement {
    asked_of(LOAD, batch).bind(skus(batch)).bind(accounts(batch))
}

/// A product as it is read.
type ProductRow = (String, String, Cents, String, i64);
/// An order that stands: id, account, key, reference, content, milliseconds since 1970.
type StandingRow = (Uuid, Uuid, String, Option<String>, String, i64);

/// What the decision needs, and the places of the batch that no record stands for. Of the others it is told what stands.
pub(super) fn read(rows: &[PgRow], batch: &[&Asked], came: &mut [Outright]) -> Result<(Shop, Vec<usize>)> {
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
