//! Taking away what is over. The write lock is held from the first read on, so what is found over is over when it goes.

use super::row::span;
use super::{Commit, Result, Sqlite, clock, fault};
use crate::store::Sweep;

/// `$1`: the clock, or what is older than this; `$2`: at most so many.
macro_rules! sweep {
    ($table:literal, $key:literal, $over:literal, $by:literal) => {
        concat!(
            "DELETE FROM ",
            $table,
            " WHERE (",
            $key,
            ") IN (
                SELECT ",
            $key,
            " FROM ",
            $table,
            " WHERE ",
            $over,
            " ORDER BY ",
            $by,
            " LIMIT $2)"
        )
    };
}

pub(super) const RECORDS: &str = sweep!(
    "idempotency_records",
    "rowid",
    "expires_at <= $1 AND (status = 'done' OR lease_expires_at <= $1)",
    "expires_at"
);
pub(super) const SESSIONS: &str = sweep!("sessions", "rowid", "expires_at <= $1", "expires_at");
pub(super) const OUTBOX: &str = sweep!("outbox", "rowid", "consumed_at <= $1", "consumed_at");
pub(super) const CONSUMED: &str =
    sweep!("consumed_messages", "consumer, message_id", "consumed_at <= $1", "consumed_at");
pub(super) const EVENTS: &str = sweep!("payment_events", "provider, event_id", "received_at <= $1", "received_at");

/// Quick: what a power cut brings back is swept again.
pub(super) async fn sweep(store: &Sqlite, what: Sweep, limit: u32) -> Result<u64> {
    let (text, age) = match what {
        Sweep::Records => (RECORDS, 0),
        Sweep::Sessions => (SESSIONS, 0),
        Sweep::Outbox(age) => (OUTBOX, span(age)),
        Sweep::ConsumedMessages(age) => (CONSUMED, span(age)),
        Sweep::PaymentEvents(age) => (EVENTS, span(age)),
    };
    let mut tx = store.begin(Commit::Quick).await?;
    let now = clock(&mut tx).await?;
    let swept = sqlx::query(text).bind(now - age).bind(limit).execute(&mut *tx).await.map_err(fault)?;
    tx.commit().await.map_err(fault)?;
    Ok(swept.rows_affected())
}
