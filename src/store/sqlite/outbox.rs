//! What other parts must hear of, written in the transaction that makes it true.

use serde_json::json;
use uuid::Uuid;

use super::{Result, Tx, fault};
use crate::order::Order;

/// What the relay tells about an order that is paid.
const PAID_TOPIC: &str = "order.paid";

pub(super) async fn tell_paid(tx: &mut Tx, order: &Order, now: i64) -> Result<()> {
    let payload = json!({ "order_id": order.id.to_string(), "account_id": order.account.to_string() });
    sqlx::query("INSERT INTO outbox (id, topic, payload, created_at) VALUES ($1, $2, $3, $4)")
        .bind(Uuid::now_v7().hyphenated())
        .bind(PAID_TOPIC)
        .bind(payload.to_string())
        .bind(now)
        .execute(&mut **tx)
        .await
        .map_err(fault)?;
    Ok(())
}
