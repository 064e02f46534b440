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

pub(super) const WRITE_BALANCES: &str = "
    UPDATE accounts AS a SET balance = new.value ->> 1 FROM json_each($1) AS new WHERE a.id = new.value ->> 0";

pub(super) async fn write_balances(tx: &mut Tx, balances: &[(Uuid, Cents)]) -> Result<()> {
    sqlx::query(WRITE_BALANCES).bind(Json(balances)).execute(&mut **tx).await.map_err(fault)?;
    Ok(())
}

/// Why money moved because of an order.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Charge,
    Refund,
}

/// Once per order and kind: a second one is refused by the index.
pub(super) async fn insert_entries(tx: &mut Tx, entries: &[(&Order, Cents)], kind: Kind, now: i64) -> Result<()> {
    let kind = match kind {
        Kind::Charge => "charge",
        Kind::Refund => "refund",
    };
    if entries.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = entries.iter().map(|(order, amount)| (order.account.0, order.id.0, *amount)).collect();
    sqlx::query(
        "INSERT INTO account_entries (account_id, order_id, kind, amount, created_at)
         SELECT new.value ->> 0, new.value ->> 1, $2, new.value ->> 2, $3 FROM json_each($1) AS new",
    )
    .bind(Json(rows))
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
