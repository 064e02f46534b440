//! What a decision needs, read under lock.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sqlx::postgres::PgRow;
use sqlx::{Executor, PgConnection};
use uuid::Uuid;

use super::super::catalogue::product;
use super::super::errors::{Stop, broken, column, stored, stored_option};
use super::super::orders;
use super::super::pools::Statement;
use super::seconds;
use crate::order::decide::{Asked, Decision, Shop, Standing};
use crate::order::values::{AccountId, Cents, Fingerprint, Key, OrderId, Reference, Sku};
use crate::order::{Order, Product};
use crate::store::{Placing, Result};

/// The columns of a standing order, found by an index of its account.
macro_rules! standing {
    ($($which:literal),*) => {
        concat!(
            "CROSS JOIN LATERAL (SELECT o.id, o.account_id, o.idempotency_key, o.reference, o.fingerprint, o.created_at
            FROM orders o WHERE o.account_id = asked.account_id AND ",
            $($which),*,
            " LIMIT 1) o"
        )
    };
}

pub(super) use standing;

statements! {
    /// Not FOR UPDATE, which would clash with the key-share locks of foreign keys; the order is that of the SKUs.
    PRODUCTS = "
        SELECT sku, name, unit_price, currency, stock FROM products
        WHERE sku = ANY($1) ORDER BY sku FOR NO KEY UPDATE";

    ACCOUNTS = "SELECT id, balance FROM accounts WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE";

    /// The clock once all locks are held, and each standing order beside it: one row with nulls when there is none.
    /// An order may come twice.
    STANDING = concat!("
        SELECT clock.now, o.* FROM (SELECT date_trunc('milliseconds', clock_timestamp()) AS now) clock
        LEFT JOIN LATERAL (
            SELECT o.* FROM unnest($1::uuid[], $2::text[]) AS asked (account_id, key) ",
            standing!("o.idempotency_key = asked.key"), "
            UNION ALL
            SELECT o.* FROM unnest($3::uuid[], $4::text[]) AS asked (account_id, reference) ",
            standing!("o.reference = asked.reference"), "
            UNION ALL
            SELECT o.* FROM unnest($5::uuid[], $6::text[], $7::bigint[]) AS asked (account_id, content, notice) ",
            standing!("o.fingerprint = asked.content AND o.status <> 'cancelled'
                AND o.created_at >= clock.now - asked.notice * interval '1 s'
                ORDER BY o.created_at DESC, o.id DESC"), "
        ) o ON true");
}

/// Locks and reads everything the batch touches.
pub(super) async fn shop(transaction: &mut PgConnection, batch: &[&Asked]) -> std::result::Result<Shop, Stop> {
    let products = products(transaction, batch).await?;
    let balances = balances(transaction, batch).await?;
    let rows = transaction.fetch_all(asked_of(STANDING, batch)).await?;
    let now = column(rows.first().ok_or_else(|| broken("no clock"))?, "now")?;
    let mut standing = Vec::new();
    for row in &rows {
        standing.extend(standing_order(row)?);
    }
    Ok(Shop { products, balances, standing, now })
}

async fn products(
    transaction: &mut PgConnection,
    batch: &[&Asked],
) -> std::result::Result<BTreeMap<Sku, Product>, Stop> {
    let rows = transaction.fetch_all(sqlx::query(PRODUCTS).bind(skus(batch))).await?;
    let products = rows.iter().map(|row| product(row).map(|p| (p.sku.clone(), p)));
    Ok(products.collect::<Result<_>>()?)
}

async fn balances(
    transaction: &mut PgConnection,
    batch: &[&Asked],
) -> std::result::Result<HashMap<AccountId, Cents>, Stop> {
    let accounts = accounts(batch);
    let mut balances = HashMap::with_capacity(accounts.len());
    for row in transaction.fetch_all(sqlx::query(ACCOUNTS).bind(accounts.clone())).await? {
        balances.insert(AccountId(column(&row, "id")?), column(&row, "balance")?);
    }
    match accounts.into_iter().map(AccountId).find(|id| !balances.contains_key(id)) {
        Some(missing) => Err(broken(format!("there is no account {missing}")).into()),
        None => Ok(balances),
    }
}

/// The products of the batch, each once.
pub(super) fn skus(batch: &[&Asked]) -> Vec<String> {
    let skus: BTreeSet<&str> =
        batch.iter().flat_map(|asked| &asked.request.lines).map(|line| line.sku.as_str()).collect();
    skus.into_iter().map(str::to_owned).collect()
}

/// The accounts of the batch, each once.
pub(super) fn accounts(batch: &[&Asked]) -> Vec<Uuid> {
    let accounts: BTreeSet<Uuid> = batch.iter().map(|asked| asked.account.0).collect();
    accounts.into_iter().collect()
}

/// A statement whose first seven parameters ask for what bears on the batch by key, reference and content.
pub(super) fn asked_of(sql: &'static str, batch: &[&Asked]) -> Statement {
    let statement = sqlx::query(sql)
        .bind(batch.iter().map(|a| a.account.0).collect::<Vec<_>>())
        .bind(batch.iter().map(|a| a.key.as_str().to_owned()).collect::<Vec<_>>());
    named_and_noticed(statement, batch)
}

/// The next five parameters, by reference and content.
pub(super) fn named_and_noticed(statement: Statement, batch: &[&Asked]) -> Statement {
    let named: Vec<_> = batch.iter().filter_map(|a| Some((a.account.0, a.request.reference.as_ref()?))).collect();
    let noticed: Vec<_> = batch.iter().filter_map(|a| Some((a, a.repeat_notice?))).collect();
    statement
        .bind(named.iter().map(|(account, _)| *account).collect::<Vec<_>>())
        .bind(named.iter().map(|(_, reference)| reference.as_str().to_owned()).collect::<Vec<_>>())
        .bind(noticed.iter().map(|(a, _)| a.account.0).collect::<Vec<_>>())
        .bind(noticed.iter().map(|(a, _)| a.fingerprint.as_str().to_owned()).collect::<Vec<_>>())
        .bind(noticed.iter().map(|(_, notice)| seconds(*notice)).collect::<Vec<_>>())
}

fn standing_order(row: &PgRow) -> Result<Option<Standing>> {
    let Some(id) = column::<Option<Uuid>>(row, "id")? else { return Ok(None) };
    Ok(Some(Standing {
        id: OrderId(id),
        account: AccountId(column(row, "account_id")?),
        key: stored(row, "idempotency_key", Key::parse)?,
        reference: stored_option(row, "reference", Reference::parse)?,
        fingerprint: Fingerprint::stored(column(row, "fingerprint")?),
        created_at: column(row, "created_at")?,
    }))
}

/// The orders that [`Decision::Stands`] speaks of, whole. Rare, so one by one.
pub(super) async fn standing_orders(
    transaction: &mut PgConnection,
    placings: &[&Placing],
    decisions: &[Decision],
) -> std::result::Result<HashMap<OrderId, Order>, Stop> {
    let mut standing = HashMap::new();
    for (placing, decision) in placings.iter().zip(decisions) {
        let Decision::Stands { order, .. } = decision else { continue };
        let row = transaction.fetch_optional(orders::select(placing.asked.account, *order)).await?;
        let row = row.ok_or_else(|| broken(format!("the standing order {order} is not there")))?;
        standing.insert(*order, orders::whole(&row)?);
    }
    Ok(standing)
}
