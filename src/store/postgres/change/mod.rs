//! Changing one order in one transaction: lock, load, judge, write, commit.
//!
//! Locks are taken in the order of [`settle`](super::settle): products (by SKU, only where stock may come back), the
//! account, the order and its attempts, the record. Which products they are is read before any lock: the lines of an
//! order never change. Everything else that is judged is read when all locks are held. The row of a callback's event
//! comes first of all: its copies wait there, holding nothing.

pub(super) mod write;

use sqlx::Executor;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::errors::{Stop, broken, column};
use super::orders::{self, by_id};
use super::pools::Pools;
use super::{payments, records};
use crate::order::life::{Happening, Life, Verdict, Writes};
use crate::store::{Change, ChangeRules, Changed, Conclusion, Result};

/// How often a change begins anew after a deadlock or a serialization failure.
const ATTEMPTS: usize = 5;

statements! {
    LOOK = concat!("
        SELECT o.account_id, ARRAY(SELECT l.sku FROM order_lines l WHERE l.order_id = o.id) AS skus
        FROM orders o WHERE ", by_id!());

    LOCK_PRODUCTS = "SELECT sku FROM products WHERE sku = ANY($1) ORDER BY sku FOR NO KEY UPDATE";

    LOCK_ACCOUNT = "SELECT id FROM accounts WHERE id = $1 FOR NO KEY UPDATE";

    LOCK_ORDER = concat!("SELECT o.id FROM orders o WHERE ", by_id!(), " FOR NO KEY UPDATE");

    LOCK_ATTEMPTS = "SELECT attempt FROM payments WHERE order_id = $1 ORDER BY attempt FOR NO KEY UPDATE";

    OUTCOME = "UPDATE payment_events SET outcome = $3 WHERE provider = $1 AND event_id = $2";
}

pub(super) async fn change(pools: &Pools, change: &Change, rules: &ChangeRules) -> Result<Changed> {
    let mut last = broken("a change was not tried");
    for _ in 0..ATTEMPTS {
        match pools.in_time(attempt(pools, change, rules)).await? {
            Ok(changed) => return Ok(changed),
            Err(Stop::MakesWay(error)) => last = error,
            Err(Stop::Failed(error)) => return Err(error),
        }
    }
    Err(last)
}

async fn attempt(pools: &Pools, change: &Change, rules: &ChangeRules) -> std::result::Result<Changed, Stop> {
    let mut transaction = pools.begin(rules.lock_wait).await?;
    let (changed, wrote) = within(&mut transaction, change, rules).await?;
    if wrote {
        transaction.commit().await?;
    } else {
        transaction.rollback().await?;
    }
    Ok(changed)
}

/// What came of it, and whether anything was written that is to be kept.
async fn within(
    transaction: &mut PgConnection,
    change: &Change,
    rules: &ChangeRules,
) -> std::result::Result<(Changed, bool), Stop> {
    if let Some(event) = &change.event {
        // Its outcome is not known yet.
        let statement = payments::insert_event(event, Some(change.order), Verdict::Done.as_str());
        if transaction.fetch_optional(statement).await?.is_none() {
            return Ok((Changed::Known, false));
        }
    }
    let Some(mut life) = load(transaction, change).await? else { return Ok((Changed::NotFound, false)) };
    let before = life.clone();
    let (verdict, writes) = life.meet(&change.happening);
    if verdict == Verdict::NoAttempt && change.event.is_some() {
        return Ok((Changed::Met { verdict, life, conclusion: Conclusion::Keep }, false));
    }
    let mut wrote = writes != Writes::default();
    if wrote {
        write::all(transaction, &before, &life, &writes, rules.first_check).await?;
    }
    if let Some(event) = change.event.as_ref().filter(|_| verdict != Verdict::Done) {
        let statement = sqlx::query(OUTCOME).bind(event.provider).bind(event.id.clone()).bind(verdict.as_str());
        transaction.execute(statement).await?;
    }
    let mut conclusion = Conclusion::Keep;
    if let Some(fence) = &change.claim {
        conclusion = (rules.conclude)(verdict, &change.happening, &life);
        if !records::conclude(transaction, fence, &conclusion, rules.key_ttl).await? {
            return Ok((Changed::Fenced, false));
        }
    }
    wrote |= change.event.is_some() || conclusion != Conclusion::Keep;
    Ok((Changed::Met { verdict, life, conclusion }, wrote))
}

/// Locks everything that the change may touch, then reads it.
async fn load(transaction: &mut PgConnection, change: &Change) -> std::result::Result<Option<Life>, Stop> {
    let id = change.order;
    let Some(row) = transaction.fetch_optional(sqlx::query(LOOK).bind(id.0)).await? else { return Ok(None) };
    let account: Uuid = column(&row, "account_id")?;
    if change.account.is_some_and(|owner| owner.0 != account) {
        return Ok(None);
    }
    if matches!(change.happening, Happening::Cancel | Happening::WindowOver) {
        let skus: Vec<String> = column(&row, "skus")?;
        transaction.fetch_all(sqlx::query(LOCK_PRODUCTS).bind(skus)).await?;
    }
    transaction.fetch_all(sqlx::query(LOCK_ACCOUNT).bind(account)).await?;
    transaction.fetch_all(sqlx::query(LOCK_ORDER).bind(id.0)).await?;
    transaction.fetch_all(sqlx::query(LOCK_ATTEMPTS).bind(id.0)).await?;
    let row = transaction.fetch_optional(orders::select_life(id)).await?;
    Ok(row.map(|row| orders::whole_life(&row)).transpose()?)
}
