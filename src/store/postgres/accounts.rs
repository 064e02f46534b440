//! Accounts, their balances and coupons.

use std::sync::Arc;

use sqlx::postgres::PgRow;

use super::errors::{broken, column, stored_option};
use super::gather::{Gather, place};
use super::pools::Pools;
use crate::order::values::{AccountId, Cents, Key, OrderId, Subject};
use crate::store::{Buyer, Coupon, Result, StoreError};

statements! {
    FIND = "SELECT id FROM accounts WHERE subject = $1";

    /// The account that is there, or a new one with its opening entry; nothing for one that another transaction opens
    /// meanwhile: it is not visible to this statement, and is looked for by the next.
    OPEN = concat!("
        WITH asked AS MATERIALIZED (
            SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[])
                WITH ORDINALITY AS asked (id, subject, balance, n)
        ), opened AS (
            INSERT INTO accounts (id, subject, balance) SELECT id, subject, balance FROM asked ORDER BY subject, n
            ON CONFLICT (subject) DO NOTHING RETURNING id, subject, balance
        ), opening AS (
            INSERT INTO account_entries (account_id, kind, amount)
            SELECT id, 'opening', balance FROM opened WHERE balance <> 0
        )
        SELECT asked.n, coalesce(opened.id, there.id) AS id, ", unhurried!(), "
        FROM asked LEFT JOIN opened USING (subject)
        LEFT JOIN LATERAL (SELECT id FROM accounts WHERE subject = asked.subject LIMIT 1) there ON true");

    BALANCE = "SELECT balance FROM accounts WHERE id = $1";

    BUYERS = "
        SELECT asked.n, a.balance,
            (SELECT r.key FROM idempotency_records r
                WHERE r.account_id = asked.id AND r.operation = 'place_order' AND r.status = 'processing'
                    AND r.lease_expires_at > clock_timestamp()
                ORDER BY r.created_at DESC LIMIT 1) AS under_way
        FROM unnest($1::uuid[]) WITH ORDINALITY AS asked (id, n)
        CROSS JOIN LATERAL (SELECT balance FROM accounts WHERE id = asked.id LIMIT 1) a";

    COUPONS = "
        SELECT code, campaign, order_id, granted_at FROM coupons WHERE account_id = $1
        ORDER BY granted_at DESC, code";
}

/// An account to be opened.
struct Opening {
    id: AccountId,
    subject: Subject,
    balance: Cents,
}

/// Accounts, as pages ask for them.
pub(super) struct Accounts {
    pools: Arc<Pools>,
    open: Gather<Opening, Option<AccountId>>,
    buyers: Gather<AccountId, Result<Buyer>>,
}

impl Accounts {
    pub(super) fn new(pools: &Arc<Pools>) -> Self {
        let (opening, looking) = (pools.clone(), pools.clone());
        Self {
            pools: pools.clone(),
            open: Gather::new(move |asked| open_all(opening.clone(), asked)),
            buyers: Gather::new(move |accounts| buyers(looking.clone(), accounts)),
        }
    }

    pub(super) async fn find(&self, subject: &Subject) -> Result<Option<AccountId>> {
        let row = self.pools.query_one(|| sqlx::query(FIND).bind(subject.as_str().to_owned())).await?;
        row.map(|row| column(&row, "id").map(AccountId)).transpose()
    }

    pub(super) async fn open(&self, subject: &Subject, opening: Cents) -> Result<AccountId> {
        let asked = Opening { id: AccountId::new(), subject: subject.clone(), balance: opening };
        if let Some(id) = self.open.ask(asked).await? {
            return Ok(id);
        }
        let found = self.find(subject).await?;
        found.ok_or_else(|| broken(format!("the account of {subject} is neither there nor new")))
    }

    pub(super) async fn balance(&self, account: AccountId) -> Result<Cents> {
        let row = self.pools.query_one(|| sqlx::query(BALANCE).bind(account.0)).await?;
        column(&row.ok_or_else(|| missing(account))?, "balance")
    }

    pub(super) async fn buyer(&self, account: AccountId) -> Result<Buyer> {
        self.buyers.ask(account).await?
    }
}

fn missing(account: AccountId) -> StoreError {
    broken(format!("there is no account {account}"))
}

async fn open_all(pools: Arc<Pools>, asked: Vec<Opening>) -> Result<Vec<Option<AccountId>>> {
    let mut ids = vec![None; asked.len()];
    let statement = || {
        sqlx::query(OPEN)
            .bind(asked.iter().map(|one| one.id.0).collect::<Vec<_>>())
            .bind(asked.iter().map(|one| one.subject.as_str().to_owned()).collect::<Vec<_>>())
            .bind(asked.iter().map(|one| one.balance).collect::<Vec<_>>())
    };
    for row in pools.query(statement).await? {
        *place(&row, &mut ids)? = column::<Option<_>>(&row, "id")?.map(AccountId);
    }
    Ok(ids)
}

async fn buyers(pools: Arc<Pools>, accounts: Vec<AccountId>) -> Result<Vec<Result<Buyer>>> {
    let ids: Vec<_> = accounts.iter().map(|account| account.0).collect();
    let mut found: Vec<_> = accounts.into_iter().map(|account| Err(missing(account))).collect();
    for row in pools.query(|| sqlx::query(BUYERS).bind(ids.clone())).await? {
        *place(&row, &mut found)? = seen(&row);
    }
    Ok(found)
}

fn seen(row: &PgRow) -> Result<Buyer> {
    Ok(Buyer { balance: column(row, "balance")?, under_way: stored_option(row, "under_way", Key::parse)? })
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
