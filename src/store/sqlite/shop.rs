//! What a decision needs, read under the write lock: one statement, one row, however many orders. And the clock: one "now"
//! for all that the transaction does.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use serde::Serialize;
use sqlx::sqlite::SqliteRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::row::{damaged, from_millis, get, span};
use super::{Result, StoreError, Tx, fault, now};
use crate::order::Product;
use crate::order::decide::{Asked, Shop, Standing};
use crate::order::values::{AccountId, Cents, Currency, Fingerprint, Key, OrderId, Reference, Sku};

/// The columns of a standing order that is found by an index of its account.
macro_rules! standing {
    ($which:literal) => {
        concat!(
            "SELECT o.id, o.account_id, o.idempotency_key, o.reference, o.fingerprint, o.created_at
             FROM asked CROSS JOIN orders AS o WHERE o.account_id = asked.account_id AND ",
            $which
        )
    };
}

/// Lists of lists. `$1`: what is asked; `$2`: SKUs; `$3`: accounts. The orders that bear on what is asked are those of
/// the same account with the same key, the same reference, or the same content recently enough for the repeat notice;
/// three questions, so that each has its index whatever SQLite thinks of an OR.
pub(super) const SHOP: &str = concat!(
    "WITH clock AS MATERIALIZED (SELECT ",
    now!(),
    " AS now), asked AS MATERIALIZED (
         SELECT each.key AS place, value ->> 'account' AS account_id, value ->> 'key' AS key,
                value ->> 'reference' AS reference, value ->> 'content' AS content,
                clock.now - (value ->> 'notice') AS since
         FROM clock CROSS JOIN json_each($1) AS each
     )
     SELECT clock.now,
         (SELECT json_group_array(json_array(asked.place, r.epoch, r.status = 'processing'))
          FROM asked CROSS JOIN idempotency_records AS r
          WHERE r.account_id = asked.account_id AND r.operation = 'place_order' AND r.key = asked.key) AS records,
         (SELECT json_group_array(json_array(p.sku, p.name, p.unit_price, p.currency, p.stock))
          FROM json_each($2) AS wanted CROSS JOIN products AS p WHERE p.sku = wanted.value) AS products,
         (SELECT json_group_array(json_array(a.id, a.balance))
          FROM json_each($3) AS buyer CROSS JOIN accounts AS a WHERE a.id = buyer.value) AS balances,
         (SELECT json_group_array(json_array(id, account_id, idempotency_key, reference, fingerprint, created_at))
          FROM (",
    standing!("o.idempotency_key = asked.key"),
    " UNION ALL ",
    standing!("o.reference = asked.reference"),
    " UNION ALL ",
    standing!("o.created_at > asked.since AND o.fingerprint = asked.content AND o.status <> 'cancelled'"),
    ")) AS standing
     FROM clock"
);

/// What is asked, as far as orders that stand bear on it.
#[derive(Serialize)]
struct Question<'a> {
    account: Uuid,
    key: &'a str,
    reference: Option<&'a str>,
    content: &'a str,
    /// For how long the same content is too recent, in milliseconds.
    notice: Option<i64>,
}

impl<'a> Question<'a> {
    fn of(asked: &&'a Asked) -> Self {
        Self {
            account: asked.account.0,
            key: asked.key.as_str(),
            reference: asked.request.reference.as_ref().map(Reference::as_str),
            content: asked.fingerprint.as_str(),
            notice: asked.repeat_notice.map(|seconds| span(Duration::from_secs(seconds))),
        }
    }
}

/// A record that is there, in short.
#[derive(Clone, Copy)]
pub(super) struct RecordThere {
    epoch: i64,
    processing: bool,
}

impl RecordThere {
    /// Whether it is still that of a claim with this epoch.
    pub(super) fn is_claimed_under(self, epoch: i64) -> bool {
        self.processing && self.epoch == epoch
    }
}

/// What the database says to a batch.
pub(super) struct Loaded {
    pub(super) shop: Shop,
    /// Milliseconds since 1970.
    pub(super) now: i64,
    /// Of each of the batch, if it is there.
    pub(super) records: Vec<Option<RecordThere>>,
}

pub(super) async fn load(tx: &mut Tx, asked: &[&Asked]) -> Result<Loaded> {
    let questions: Vec<_> = asked.iter().map(Question::of).collect();
    let skus: BTreeSet<&str> =
        asked.iter().flat_map(|asked| &asked.request.lines).map(|line| line.sku.as_str()).collect();
    let buyers: BTreeSet<Uuid> = asked.iter().map(|asked| asked.account.0).collect();
    let row = sqlx::query(SHOP)
        .bind(Json(questions))
        .bind(Json(skus))
        .bind(Json(buyers))
        .fetch_one(&mut **tx)
        .await
        .map_err(fault)?;
    let now = get(&row, "now")?;
    let clock = from_millis(now).ok_or_else(|| StoreError::Broken("the clock is out of range".into()))?;
    let shop = Shop { products: products(&row)?, balances: balances(&row)?, standing: standing(&row)?, now: clock };
    Ok(Loaded { shop, now, records: records(&row, asked.len())? })
}

fn records(row: &SqliteRow, asked: usize) -> Result<Vec<Option<RecordThere>>> {
    let Json(rows) = get::<Json<Vec<(usize, i64, u8)>>>(row, "records")?;
    let mut records = vec![None; asked];
    for (place, epoch, processing) in rows {
        if let Some(record) = records.get_mut(place) {
            *record = Some(RecordThere { epoch, processing: processing != 0 });
        }
    }
    Ok(records)
}

fn products(row: &SqliteRow) -> Result<BTreeMap<Sku, Product>> {
    let Json(rows) = get::<Json<Vec<(String, String, Cents, String, i64)>>>(row, "products")?;
    let product = |(sku, name, unit_price, currency, stock): (String, String, Cents, String, i64)| {
        let (sku, currency) = (Sku::parse(&sku)?, Currency::parse(&currency)?);
        Some((sku.clone(), Product { sku, name, unit_price, currency, stock }))
    };
    rows.into_iter().map(product).collect::<Option<_>>().ok_or_else(|| damaged("products"))
}

fn balances(row: &SqliteRow) -> Result<HashMap<AccountId, Cents>> {
    let Json(rows) = get::<Json<Vec<(Uuid, Cents)>>>(row, "balances")?;
    Ok(rows.into_iter().map(|(id, balance)| (AccountId(id), balance)).collect())
}

/// Id, account, key, reference, fingerprint, time of placing in milliseconds since 1970.
type StandingRow = (Uuid, Uuid, String, Option<String>, String, i64);

/// Each once, however many of the batch it bears on.
fn standing(row: &SqliteRow) -> Result<Vec<Standing>> {
    let Json(rows) = get::<Json<Vec<StandingRow>>>(row, "standing")?;
    let standing: Option<BTreeMap<OrderId, Standing>> = rows.into_iter().map(standing_order).collect();
    Ok(standing.ok_or_else(|| damaged("orders"))?.into_values().collect())
}

fn standing_order((id, account, key, reference, fingerprint, created_at): StandingRow) -> Option<(OrderId, Standing)> {
    let reference = match reference {
        Some(reference) => Some(Reference::parse(&reference)?),
        None => None,
    };
    let standing = Standing {
        id: OrderId(id),
        account: AccountId(account),
        key: Key::parse(&key)?,
        reference,
        fingerprint: Fingerprint::stored(&fingerprint),
        created_at: from_millis(created_at)?,
    };
    Some((standing.id, standing))
}
