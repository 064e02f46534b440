//! Layer 2 in PostgreSQL. Only the server's clock judges: `clock_timestamp()`, not `now()`, because a statement that
//! waited for another's commit must not judge by the time it began.

use std::time::Duration;

use bytes::Bytes;
use sqlx::postgres::PgRow;
use sqlx::{Executor, PgConnection};
use uuid::Uuid;

use super::errors::{Stop, broken, column};
use super::pools::{Pools, Statement};
use crate::order::values::{Fingerprint, OrderId};
use crate::store::{Answer, ClaimRequest, ClaimResult, Conclusion, Fence, Record, RecordId, RecordState, Result};

/// How often a claim is tried: again after a deadlock, and for a record that was there when it was claimed and gone
/// when it was read (swept or released by hand in between). Twice would do; it must only end.
const CLAIM_ROUNDS: usize = 4;
/// A hundred years: what any longer time-to-live is cut to, so that no sum with it overflows.
const LONGEST_MILLIS: u128 = 100 * 365 * 24 * 60 * 60 * 1000;

/// The columns of a record that stands.
macro_rules! columns {
    () => {
        "r.fingerprint, r.epoch, r.status,
        greatest(0, ceil(extract(epoch FROM r.lease_expires_at - clock_timestamp()) * 1000))::bigint AS lease_left,
        r.response_status, r.response_content_type, r.response_location, r.response_body, r.order_id"
    };
}

pub(super) use columns;

statements! {
    /// All keys at once: what stands finished is told, everything else is claimed, in the order of the index, so that two
    /// overlapping batches cannot wait for each other. `created_at` is kept on a take-over, and so tells it from a record that is
    /// new or begins anew.
    ///
    /// A conflict with a finished record would lock its row, which is a write, for each replay. Looking first only saves
    /// that: what is finished in between is met as a conflict after all.
    CLAIM = concat!("
        WITH asked AS MATERIALIZED (
            SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[])
                WITH ORDINALITY AS asked (account_id, operation, key, content, n)
        ), finished AS MATERIALIZED (
            SELECT asked.n, r.* FROM asked
            CROSS JOIN LATERAL (SELECT ", columns!(), " FROM idempotency_records r
                WHERE r.account_id = asked.account_id AND r.operation = asked.operation AND r.key = asked.key
                    AND r.status = 'done' AND r.expires_at > clock_timestamp()
                LIMIT 1) r
        ), won AS (
            INSERT INTO idempotency_records AS r
                (account_id, operation, key, fingerprint, status, epoch, lease_expires_at, expires_at)
            SELECT account_id, operation, key, content, 'processing', 1,
                clock_timestamp() + $5 * interval '1 ms', clock_timestamp() + interval '1 day'
            FROM asked WHERE n NOT IN (SELECT n FROM finished)
            ORDER BY account_id, operation COLLATE \"C\", key COLLATE \"C\"
            ON CONFLICT (account_id, operation, key) DO UPDATE SET
                fingerprint = excluded.fingerprint, status = 'processing', epoch = r.epoch + 1,
                lease_expires_at = excluded.lease_expires_at, expires_at = excluded.expires_at,
                created_at = CASE r.status WHEN 'done' THEN now() ELSE r.created_at END, completed_at = NULL,
                response_status = NULL, response_content_type = NULL, response_location = NULL, response_body = NULL,
                order_id = CASE r.status WHEN 'done' THEN NULL ELSE r.order_id END
            WHERE r.status = 'processing' AND r.lease_expires_at <= clock_timestamp()
                    AND r.fingerprint = excluded.fingerprint
                OR r.status = 'done' AND r.expires_at <= clock_timestamp()
            RETURNING r.account_id, r.operation, r.key, r.epoch, r.created_at <> now() AS taken_over
        )
        SELECT asked.n, won.epoch AS won, won.taken_over, f.fingerprint, f.epoch, f.status, f.lease_left,
            f.response_status, f.response_content_type, f.response_location, f.response_body, f.order_id
        FROM asked LEFT JOIN won USING (account_id, operation, key) LEFT JOIN finished f ON f.n = asked.n
        WHERE won.epoch IS NOT NULL OR f.n IS NOT NULL");

    LOST = concat!("
        SELECT asked.n, r.*
        FROM unnest($1::uuid[], $2::text[], $3::text[]) WITH ORDINALITY AS asked (account_id, operation, key, n)
        CROSS JOIN LATERAL (SELECT ", columns!(), " FROM idempotency_records r
            WHERE r.account_id = asked.account_id AND r.operation = asked.operation AND r.key = asked.key
                AND (r.status = 'processing' OR r.expires_at > clock_timestamp())
            LIMIT 1) r");

    RECORD = concat!("SELECT ", columns!(), " FROM idempotency_records r
        WHERE r.account_id = $1 AND r.operation = $2 AND r.key = $3
            AND (r.status = 'processing' OR r.expires_at > clock_timestamp())");

    COMPLETE = "
        UPDATE idempotency_records SET status = 'done', completed_at = clock_timestamp(),
            expires_at = clock_timestamp() + $5 * interval '1 ms', response_status = $6, response_content_type = $7,
            response_location = $8, response_body = $9, order_id = $10
        WHERE account_id = $1 AND operation = $2 AND key = $3 AND epoch = $4 AND status = 'processing'";

    RELEASE = "
        UPDATE idempotency_records SET lease_expires_at = least(lease_expires_at, clock_timestamp())
        WHERE account_id = $1 AND operation = $2 AND key = $3 AND epoch = $4 AND status = 'processing'";

    /// Whether the fence holds, and that it goes on to until the transaction is over.
    HOLD = "
        SELECT key FROM idempotency_records
        WHERE account_id = $1 AND operation = $2 AND key = $3 AND epoch = $4 AND status = 'processing'
        FOR NO KEY UPDATE";
}

/// A time as the statements take it.
pub(super) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis().min(LONGEST_MILLIS)).unwrap_or(i64::MAX)
}

/// An HTTP status as its column takes it.
pub(super) fn smallint(status: u16) -> i16 {
    i16::try_from(status).unwrap_or(i16::MAX)
}

pub(super) async fn claim(pools: &Pools, requests: &[ClaimRequest], lease: Duration) -> Result<Vec<ClaimResult>> {
    let mut results: Vec<Option<ClaimResult>> = vec![None; requests.len()];
    let mut last = broken("a record is neither claimed nor there");
    for _ in 0..CLAIM_ROUNDS {
        let open: Vec<usize> = (0..requests.len()).filter(|n| results[*n].is_none()).collect();
        if open.is_empty() {
            break;
        }
        let asked: Vec<&ClaimRequest> = open.iter().map(|n| &requests[*n]).collect();
        match pools.on_claims(async |connection| claim_once(connection, &asked, lease).await).await {
            Ok(found) => open.into_iter().zip(found).for_each(|(n, result)| results[n] = result),
            Err(Stop::MakesWay(error)) => last = error,
            Err(Stop::Failed(error)) => return Err(error),
        }
    }
    results.into_iter().collect::<Option<_>>().ok_or(last)
}

/// One round: those won or finished, then what the others lost to; `None` for a record that vanished in between.
async fn claim_once(
    connection: &mut PgConnection,
    asked: &[&ClaimRequest],
    lease: Duration,
) -> std::result::Result<Vec<Option<ClaimResult>>, Stop> {
    let mut results = vec![None; asked.len()];
    let ids: Vec<&RecordId> = asked.iter().map(|request| &request.id).collect();
    let contents: Vec<String> = asked.iter().map(|request| request.fingerprint.as_str().to_owned()).collect();
    for row in connection.fetch_all(of_all(CLAIM, &ids).bind(contents).bind(millis(lease))).await? {
        let place = place(&row, &results)?;
        results[place] = Some(match column(&row, "won")? {
            Some(epoch) => ClaimResult::Won { epoch, taken_over: column(&row, "taken_over")? },
            None => ClaimResult::Lost(standing(&row)?),
        });
    }
    let lost: Vec<usize> = (0..asked.len()).filter(|n| results[*n].is_none()).collect();
    if lost.is_empty() {
        return Ok(results);
    }
    let ids: Vec<&RecordId> = lost.iter().map(|n| &asked[*n].id).collect();
    for row in connection.fetch_all(of_all(LOST, &ids)).await? {
        results[lost[place(&row, &lost)?]] = Some(ClaimResult::Lost(standing(&row)?));
    }
    Ok(results)
}

/// Which of these a row is about.
fn place<T>(row: &PgRow, of: &[T]) -> Result<usize> {
    let n: i64 = column(row, "n")?; // counted from 1
    usize::try_from(n - 1).ok().filter(|n| *n < of.len()).ok_or_else(|| broken("a stray row"))
}

/// A statement whose first three parameters are the ids as arrays.
fn of_all(sql: &'static str, ids: &[&RecordId]) -> Statement {
    sqlx::query(sql)
        .bind(ids.iter().map(|id| id.account.0).collect::<Vec<_>>())
        .bind(ids.iter().map(|id| id.operation).collect::<Vec<_>>())
        .bind(ids.iter().map(|id| id.key.as_str().to_owned()).collect::<Vec<_>>())
}

/// A statement whose first three parameters are the id.
fn of_one(sql: &'static str, id: &RecordId) -> Statement {
    sqlx::query(sql).bind(id.account.0).bind(id.operation).bind(id.key.as_str().to_owned())
}

pub(super) fn standing(row: &PgRow) -> Result<Record> {
    let state = match column(row, "status")? {
        "processing" => RecordState::Processing { lease_left: lease_left(column(row, "lease_left")?) },
        "done" => RecordState::Done(answer(row)?),
        other => return Err(broken(format!("column status holds {other:?}"))),
    };
    let fingerprint = Fingerprint::stored(column(row, "fingerprint")?);
    Ok(Record { fingerprint, epoch: column(row, "epoch")?, state })
}

fn lease_left(millis: i64) -> Duration {
    Duration::from_millis(millis.unsigned_abs()) // the statement gives no negative ones
}

fn answer(row: &PgRow) -> Result<Answer> {
    let status: i16 = column(row, "response_status")?;
    let content_type: Option<&str> = column(row, "response_content_type")?;
    let body: Vec<u8> = column(row, "response_body")?;
    let order: Option<Uuid> = column(row, "order_id")?;
    Ok(Answer {
        status: u16::try_from(status).map_err(|_| broken(format!("column response_status holds {status}")))?,
        content_type: Answer::known_content_type(content_type.unwrap_or_default()),
        location: column(row, "response_location")?,
        body: Bytes::from(body),
        order: order.map(OrderId),
    })
}

pub(super) async fn record(pools: &Pools, id: &RecordId) -> Result<Option<Record>> {
    pools.query_one(|| of_one(RECORD, id)).await?.map(|row| standing(&row)).transpose()
}

pub(super) async fn complete(pools: &Pools, fence: &Fence, answer: &Answer, key_ttl: Duration) -> Result<bool> {
    Ok(pools.execute(completion(fence, answer, key_ttl)).await?.rows_affected() == 1)
}

/// Fenced: touches one row or none.
fn completion(fence: &Fence, answer: &Answer, key_ttl: Duration) -> Statement {
    of_one(COMPLETE, &fence.id)
        .bind(fence.epoch)
        .bind(millis(key_ttl))
        .bind(smallint(answer.status))
        .bind(answer.content_type)
        .bind(answer.location.clone())
        .bind(answer.body.to_vec())
        .bind(answer.order.map(|id| id.0))
}

/// Does with a claim's record what was concluded, inside the transaction of its work; `false`: the fence does not hold.
pub(super) async fn conclude(
    transaction: &mut PgConnection,
    fence: &Fence,
    conclusion: &Conclusion,
    key_ttl: Duration,
) -> std::result::Result<bool, Stop> {
    let statement = match conclusion {
        Conclusion::Answer(answer) => completion(fence, answer, key_ttl),
        Conclusion::Release => of_one(RELEASE, &fence.id).bind(fence.epoch),
        Conclusion::Keep => of_one(HOLD, &fence.id).bind(fence.epoch),
    };
    Ok(transaction.execute(statement).await?.rows_affected() == 1)
}

/// One by one: it is what follows a failure, never a walk that has to be fast, and so no two of them can wait for
/// each other's rows.
pub(super) async fn release(pools: &Pools, fences: &[Fence]) -> Result<()> {
    for fence in fences {
        pools.query(|| of_one(RELEASE, &fence.id).bind(fence.epoch)).await?;
    }
    Ok(())
}
