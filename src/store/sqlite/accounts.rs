//! Accounts: who orders, what they have, what they were granted.

use sqlx::types::Json;
use uuid::Uuid;

use super::row::{get, parsed_or_null, time, uuid};
use super::{Commit, Result, Sqlite, StoreError, Tx, fault, now};
use crate::order::Order;
use crate::order::values::{AccountId, Cents, Key, OrderId, Subject};
use crate::store::{Buyer, Coupon};

pub(super) async fn find(db: impl sqlx::SqliteExecutor<'_>, subject: &Subject) -> Result<Option<AccountId>> {
    sqlx::query("SELECT id FROM accounts WHERE subject = $1")
        .bind(subject.as_str())
        .fetch_optional(db)
        .await
        .map_err(fault)?
        .map(|row| uuid(&row, "id").map(AccountId))
        .transpose()
}

/// Quick: an account that nothing durable has built on yet may be opened again.
pub(super) async fn open(store: &Sqlite, subject: &Subject, opening: Cents) -> Result<AccountId> {
    if let Some(id) = find(&store.readers, subject).await? {
        return Ok(id);
    }
    let mut tx = store.begin(Commit::Quick).await?;
    if let Some(id) = find(&mut *tx, subject).await? {
        return Ok(id);
    }
    let id = AccountId::new();
    sqlx::query("INSERT INTO accounts (id, subject, balance) VALUES ($1, $2, $3)")
        .bind(id.0.hyphenated())
        .bind(subject.as_str())
        .bind(opening)
        .execute(&mut *tx)
        .await
        .map_err(fault)?;
    if opening != 0 {
        sqlx::query("INSERT INTO account_entries (account_id, kind, amount) VALUES ($1, 'opening', $2)")
            .bind(id.0.hyphenated())
            .bind(opening)
            .execute(&mut *tx)
            .await
            .map_err(fault)?;
    }
    tx.commit().await.map_err(fault)?;
    Ok(id)
}

/// An account is never deleted, so one that is missing is a bug.
pub(super) async fn balance(store: &Sqlite, account: AccountId) -> Result<Cents> {
    sqlx::query_scalar("SELECT balance FROM accounts WHERE id = $1")
        .bind(account.0.hyphenated())
        .fetch_optional(&store.readers)
        .await
        .map_err(fault)?
        .ok_or_else(|| missing(account))
}

pub(super) async fn buyer(store: &Sqlite, account: AccountId) -> Result<Buyer> {
    let row = sqlx::query(concat!(
        "SELECT a.balance, (SELECT r.key FROM idempotency_records r
            WHERE r.account_id = a.id AND r.operation = 'place_order' AND r.status = 'processing'
                AND r.lease_expires_at > ",
        now!(),
        " ORDER BY r.created_at DESC, r.key LIMIT 1) AS under_way
         FROM accounts a WHERE a.id = $1"
    ))
    .bind(account.0.hyphenated())
    .fetch_optional(&store.readers)
    .await
    .map_err(fault)?
    .ok_or_else(|| missing(account))?;
    Ok(Buyer { balance: get(&row, "balance")?, under_way: parsed_or_null(&row, "under_way", Key::parse)? })
}

pub(super) fn missing(account: AccountId) -> StoreError {
    StoreError::Broken(format!("there is no account {account}"))
}

/// Writes what is left to accounts; the parameter: ids with their balance.
macro_rules! write_balances {
    ($left:literal) => {
        concat!(
            "UPDATE accounts AS a SET balance = rest.value ->> 1 FROM json_each(",
            $left,
            ") AS rest WHERE a.id = rest.value ->> 0"
        )
    };
}
pub(super) use write_balances;

pub(super) const WRITE_BALANCES: &str = write_balances!("$1");

pub(super) async fn write_balance(tx: &mut Tx, account: AccountId, balance: Cents) -> Result<()> {
    let left = Json([(account.0, balance)]);
    sqlx::query(WRITE_BALANCES).bind(left).execute(&mut **tx).await.map_err(fault)?;
    Ok(())
}

/// Why money moved because of an order.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Charge,
    Refund,
}

/// Writes why balances moved, once per order and kind: a second one is refused by the index. The parameters: accounts with
/// order and amount; the kind; the clock.
macro_rules! insert_entries {
    ($entries:literal, $kind:literal, $now:literal) => {
        concat!(
            "INSERT INTO account_entries (account_id, order_id, kind, amount, created_at)
             SELECT new.value ->> 0, new.value ->> 1, ",
            $kind,
            ", new.value ->> 2, ",
            $now,
            " FROM json_each(",
            $entries,
            ") AS new"
        )
    };
}
pub(super) use insert_entries;

/// An account's entry for an order, as [`insert_entries!`] takes it.
pub(super) fn entry(order: &Order, amount: Cents) -> (Uuid, Uuid, Cents) {
    (order.account.0, order.id.0, amount)
}

pub(super) async fn insert_entry(tx: &mut Tx, order: &Order, amount: Cents, kind: Kind, now: i64) -> Result<()> {
    let kind = match kind {
        Kind::Charge => "charge",
        Kind::Refund => "refund",
    };
    sqlx::query(insert_entries!("$1", "$2", "$3"))
        .bind(Json([entry(order, amount)]))
        .bind(kind)
        .bind(now)
        .execute(&mut **tx)
        .await
        .map_err(fault)?;
    Ok(())
}

pub(super) async fn coupons(store: &Sqlite, account: AccountId) -> Result<Vec<Coupon>> {
    sqlx::query(
        "SELECT code, campaign, order_id, granted_at FROM coupons
         WHERE account_id = $1 ORDER BY granted_at DESC, code",
    )
    .bind(account.0.hyphenated())
    .fetch_all(&store.readers)
    .await
    .map_err(fault)?
    .iter()
    .map(|row| {
        Ok(Coupon {
            code: get(row, "code")?,
            campaign: get(row, "campaign")?,
            order: OrderId(uuid(row, "order_id")?),
            granted_at: time(row, "granted_at")?,
        })
    })
    .collect()
}
