//! Taking away what is over. The inner question finds rows that nobody holds and takes them (`FOR UPDATE SKIP LOCKED` looks
//! at the condition once more on the row as it is then), so two sweepers share the work and neither waits for a buyer; the
//! outer condition holds whatever becomes of that plan.

use super::errors::column;
use super::pools::Pools;
use super::records::millis;
use crate::store::{Result, Sweep};

/// `$1`: at most so many.
macro_rules! sweep {
    ($table:literal, $over:literal, $by:literal) => {
        concat!(
            "WITH gone AS (DELETE FROM ",
            $table,
            " WHERE ctid = ANY(ARRAY(
                SELECT ctid FROM ",
            $table,
            " WHERE ",
            $over,
            " ORDER BY ",
            $by,
            " LIMIT $1 FOR UPDATE SKIP LOCKED
            )) AND ",
            $over,
            " RETURNING 1) SELECT count(*) AS rows FROM gone"
        )
    };
}

statements! {
    SWEEP_RECORDS = sweep!("idempotency_records",
        "expires_at <= now() AND (status = 'done' OR lease_expires_at <= now())", "expires_at");
    SWEEP_SESSIONS = sweep!("sessions", "expires_at <= now()", "expires_at");
    /// `$2`: older than so many milliseconds; also below.
    SWEEP_OUTBOX = sweep!("outbox", "consumed_at <= now() - $2 * interval '1 ms'", "consumed_at");
    SWEEP_CONSUMED = sweep!("consumed_messages", "consumed_at <= now() - $2 * interval '1 ms'", "consumed_at");
    SWEEP_EVENTS = sweep!("payment_events", "received_at <= now() - $2 * interval '1 ms'", "received_at");
}

/// Run twice after a lost answer it tells only of the second time.
pub(super) async fn sweep(pools: &Pools, what: Sweep, limit: u32) -> Result<u64> {
    let (text, age) = match what {
        Sweep::Records => (SWEEP_RECORDS, None),
        Sweep::Sessions => (SWEEP_SESSIONS, None),
        Sweep::Outbox(age) => (SWEEP_OUTBOX, Some(age)),
        Sweep::ConsumedMessages(age) => (SWEEP_CONSUMED, Some(age)),
        Sweep::PaymentEvents(age) => (SWEEP_EVENTS, Some(age)),
    };
    let statement = || {
        let statement = sqlx::query(text).bind(i64::from(limit));
        match age {
            Some(age) => statement.bind(millis(age)),
            None => statement,
        }
    };
    let Some(row) = pools.query_one(statement).await? else { return Ok(0) };
    let rows: i64 = column(&row, "rows")?;
    Ok(rows.unsigned_abs())
}
