//! The effect of messages: coupons. The write lock is held: whoever cancels an order comes before, or after.

use std::collections::{HashMap, HashSet};

use sqlx::types::Json;
use uuid::Uuid;

use super::row::get;
use super::{Commit, Result, Sqlite, Tx, fault, now};
use crate::order::values::OrderId;
use crate::store::{Grant, Granted};

/// The clock, and for each message whose order is there: its place, the order's account and status, whether the
/// consumer has had the message, and whether the order has its coupon. `$1`: messages and orders; `$2`: the consumer;
/// `$3`: the campaign.
pub(super) const STAND: &str = concat!(
    "SELECT ",
    now!(),
    " AS now, (
         SELECT json_group_array(json_array(told.key, o.account_id, o.status IN ('paid', 'shipped'),
             EXISTS (SELECT 1 FROM consumed_messages AS m
                     WHERE m.consumer = $2 AND m.message_id = told.value ->> 'message'),
             EXISTS (SELECT 1 FROM coupons AS c WHERE c.order_id = o.id AND c.campaign = $3)))
         FROM json_each($1) AS told CROSS JOIN orders AS o WHERE o.id = told.value ->> 'order'
     ) AS stand"
);

/// Its place, account, and whether: due, consumed, granted.
type StandRow = (usize, Uuid, u8, u8, u8);

/// What is to be written for a batch of messages.
#[derive(Default)]
struct Writes<'a> {
    /// The messages that have their effect now.
    consumed: Vec<Uuid>,
    /// All messages that need not be told again.
    told: Vec<Uuid>,
    /// Code, account and order of new coupons.
    coupons: Vec<(&'a str, Uuid, Uuid)>,
}

/// Durable: a code that somebody has seen stays good.
pub(super) async fn grant(store: &Sqlite, consumer: &str, campaign: &str, grants: &[Grant]) -> Result<Vec<Granted>> {
    if grants.is_empty() {
        return Ok(Vec::new());
    }
    let mut tx = store.begin(Commit::Durable).await?;
    let told: Vec<_> =
        grants.iter().map(|grant| HashMap::from([("message", grant.message), ("order", grant.order.0)])).collect();
    let query = sqlx::query(STAND).bind(Json(told)).bind(consumer).bind(campaign);
    let row = query.fetch_one(&mut *tx).await.map_err(fault)?;
    let (now, Json(stand)) = (get(&row, "now")?, get::<Json<Vec<StandRow>>>(&row, "stand")?);
    let (granted, writes) = judge(grants, &stand);
    writes.write(&mut tx, consumer, campaign, now).await?;
    tx.commit().await.map_err(fault)?;
    Ok(granted)
}

/// What comes of each. The second message of a batch for one order finds the coupon of the first.
fn judge<'a>(grants: &'a [Grant], stand: &[StandRow]) -> (Vec<Granted>, Writes<'a>) {
    let mut granted = vec![Granted::Unknown; grants.len()];
    let (mut writes, mut given) = (Writes::default(), HashSet::<OrderId>::new());
    for &(place, account, due, consumed, coupon) in stand {
        let Some((grant, outcome)) = grants.get(place).zip(granted.get_mut(place)) else { continue };
        writes.told.push(grant.message);
        if consumed != 0 {
            *outcome = Granted::Duplicate;
            continue;
        }
        writes.consumed.push(grant.message);
        *outcome = match (due != 0, coupon != 0 || given.contains(&grant.order)) {
            (false, _) => Granted::NotDue,
            (true, true) => Granted::Duplicate,
            (true, false) => {
                given.insert(grant.order);
                writes.coupons.push((&grant.code, account, grant.order.0));
                Granted::New
            }
        };
    }
    (granted, writes)
}

pub(super) const HEARD: &str = "
    UPDATE outbox SET consumed_at = $2, published_at = coalesce(published_at, $2)
    WHERE id IN (SELECT value FROM json_each($1)) AND consumed_at IS NULL";

impl Writes<'_> {
    async fn write(self, tx: &mut Tx, consumer: &str, campaign: &str, now: i64) -> Result<()> {
        sqlx::query(
            "INSERT INTO consumed_messages (consumer, message_id, consumed_at)
             SELECT $2, value, $3 FROM json_each($1)",
        )
        .bind(Json(self.consumed))
        .bind(consumer)
        .bind(now)
        .execute(&mut **tx)
        .await
        .map_err(fault)?;
        sqlx::query(HEARD).bind(Json(self.told)).bind(now).execute(&mut **tx).await.map_err(fault)?;
        sqlx::query(
            "INSERT INTO coupons (code, account_id, order_id, campaign, granted_at)
             SELECT value ->> 0, value ->> 1, value ->> 2, $2, $3 FROM json_each($1)",
        )
        .bind(Json(self.coupons))
        .bind(campaign)
        .bind(now)
        .execute(&mut **tx)
        .await
        .map_err(fault)?;
        Ok(())
    }
}
