//! Accounts, their balances and coupons.

use super::errors::{broken, column};
use super::pools::Pools;
use crate::order::values::{AccountId, Cents, OrderId, Subject};
use crate::store::{Coupon, Result};

statements! {
    FIND = "SELECT id FROM accounts WHERE subject = $1";

    /// Account and opening entry, or nothing where the subject has one already. The account of another transaction
    /// that commits meanwhile is not visible to this statement: it is looked for by the next.
    OPEN = "
        WITH opened AS (
            INSERT INTO accounts (id, subject, balance) VALUES ($1, $2, $3)
            ON CONFLICT (subject) DO NOTHING RETURNING id
        ), opening AS (
            INSERT INTO account_entries (account_id, kind, amount) SELECT id, 'opening', $3 FROM opened WHERE $3 <> 0
        )
        SELECT id FROM opened";

    BALANCE = "SELECT balance FROM accounts WHERE id = $1";

    COUPONS = "
        SELECT code, campaign, order_id, granted_at FROM coupons WHERE account_id = $1
        ORDER BY granted_at DESC, code";
}

pub(super) async fn find(pools: &Pools, subject: &Subject) -> Result<Option<AccountId>> {
    let row = pools.query_one(|| sqlx::query(FIND).bind(subject.as_str().to_owned())).await?;
    row.map(|row| column(&row, "id").map(AccountId)).transpose()
}

pub(super) async fn open(pools: &Pools, subject: &Subject, opening: Cents) -> Result<AccountId> {
    let id = AccountId::new();
    let statement = || sqlx::query(OPEN).bind(id.0).bind(subject.as_str().to_owned()).bind(opening);
    if pools.query_one(statement).await?.is_some() {
        return Ok(id);
    }
    find(pools, subject).await?.ok_or_else(|| broken(format!("the account of {subject} is neither there nor new")))
}

pub(super) async fn balance(pools: &Pools, account: AccountId) -> Result<Cents> {
    let row = pools.query_one(|| sqlx::query(BALANCE).bind(account.0)).await?;
    column(&row.ok_or_else(|| broken(format!("there is no account {account}")))?, "balance")
}

pub(super) async fn coupons(pools: &Pools, account: AccountId) -> Result<Vec<Coupon>> {
    let rows = pools.query(|| sqlx::query(COUPONS).bind(account.0)).await?;
    let coupon = |row| {
        Ok(Coupon {
            code: column(row, "code")?,
            campaign: column(row, "campaign")?,
            order: OrderId(column(row, "order_id")?),
            granted_at: column(row, "granted_at")?,
        })
    };
    rows.iter().map(coupon).collect()
}
