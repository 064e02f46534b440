//! The outbox on its way to the queue, and the effect of its messages.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::errors::{broken, column};
use super::pools::Pools;
use super::records::millis;
use crate::order::values::OrderId;
use crate::store::{Grant, Granted, Message, ORDER_PAID, Republish, Result};

statements! {
    /// Rows that another relay is taking are skipped. The clock is that of the statement's begin, which an index can be
    /// searched by. The rows are held by then: to ask again whether they are consumed would only tempt the planner to look for
    /// them in the index of those that are not (also below). A message that comes again was published before.
    TAKE = "
        WITH due AS (
            SELECT id FROM outbox WHERE consumed_at IS NULL AND due_at <= now()
            ORDER BY due_at LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE outbox SET publishings = publishings + 1,
            published_at = CASE WHEN publishings > 0 THEN coalesce(published_at, clock_timestamp()) ELSE published_at END,
            due_at = clock_timestamp()
                + least($3::bigint, $2::bigint * power(2, least(publishings, 30))) * interval '1 ms'
        WHERE id = ANY(ARRAY(SELECT id FROM due)) AND due_at <= now()
        RETURNING id, topic, payload";

    /// In the order in which [`GRANT`] takes them. Due as from the first, so that the oldest stays the first.
    GIVE_BACK = "
        WITH held AS MATERIALIZED (SELECT id FROM outbox WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE)
        UPDATE outbox SET publishings = greatest(publishings - 1, 0), due_at = least(created_at, clock_timestamp())
        WHERE id = ANY(ARRAY(SELECT id FROM held))";

    /// Found by the relay's own index, in which what was never taken comes first: its time to be taken is that of its creation.
    LAG = "
        SELECT floor(extract(epoch FROM clock_timestamp() - created_at) * 1000)::bigint AS lag FROM outbox
        WHERE consumed_at IS NULL AND publishings = 0 AND due_at > '-infinity' ORDER BY due_at LIMIT 1";

    /// `payload` is compared only for the rows of that time, which an index finds.
    CONSUMED = "
        SELECT id, topic, payload FROM outbox
        WHERE consumed_at > now() - $2 * interval '1 ms' AND topic = $3 AND payload::json ->> 'order_id' = $1
        ORDER BY consumed_at DESC LIMIT 1";

    /// The order's row is shared with nobody who changes it: a cancellation comes either before (and there is no coupon) or
    /// after. The message of an order that is not there is not marked, so that it comes again. Everything is taken
    /// in one order (orders, messages, coupons, outbox rows, each by id), so that two consumers cannot wait for each other;
    /// an update by itself takes its rows as they lie, and where they lie changes with each update.
    GRANT = "
        WITH told AS MATERIALIZED (
            SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS told (message, order_id, code)
        ), standing AS MATERIALIZED (
            SELECT id, account_id, status FROM orders WHERE id = ANY($2) ORDER BY id FOR SHARE
        ), consumed AS (
            INSERT INTO consumed_messages (consumer, message_id, consumed_at)
            SELECT $4, message::text, clock_timestamp() FROM told JOIN standing ON standing.id = told.order_id
            ORDER BY message
            ON CONFLICT (consumer, message_id) DO NOTHING RETURNING message_id
        ), granted AS (
            INSERT INTO coupons (code, account_id, order_id, campaign, granted_at)
            SELECT told.code, standing.account_id, standing.id, $5, date_trunc('milliseconds', clock_timestamp())
            FROM told JOIN standing ON standing.id = told.order_id
                JOIN consumed ON consumed.message_id = told.message::text
            WHERE standing.status IN ('paid', 'shipped')
            ORDER BY standing.id
            ON CONFLICT (order_id, campaign) DO NOTHING RETURNING code
        ), held AS MATERIALIZED (
            SELECT id FROM outbox
            WHERE id = ANY(ARRAY(SELECT message FROM told JOIN standing ON standing.id = told.order_id))
            ORDER BY id FOR NO KEY UPDATE
        ), heard AS (
            UPDATE outbox SET consumed_at = coalesce(consumed_at, clock_timestamp()),
                published_at = coalesce(published_at, clock_timestamp())
            WHERE id = ANY(ARRAY(SELECT id FROM held))
        )
        SELECT told.message, standing.status, consumed.message_id IS NOT NULL AS consumed,
            granted.code IS NOT NULL AS granted
        FROM told LEFT JOIN standing ON standing.id = told.order_id
            LEFT JOIN consumed ON consumed.message_id = told.message::text
            LEFT JOIN granted ON granted.code = told.code";
}

/// Where the answer is lost and the question asked again, the messages of the lost answer wait until they are due again.
pub(super) async fn take(pools: &Pools, limit: u32, republish: Republish) -> Result<Vec<Message>> {
    let statement =
        || sqlx::query(TAKE).bind(i64::from(limit)).bind(millis(republish.first)).bind(millis(republish.longest));
    let mut messages: Vec<Message> = pools.query(statement).await?.iter().map(message).collect::<Result<_>>()?;
    messages.sort_by_key(|message| message.id);
    Ok(messages)
}

/// Run twice after a lost answer it forgets one publishing too many, which does no harm.
pub(super) async fn give_back(pools: &Pools, messages: &[Uuid]) -> Result<()> {
    pools.query(|| sqlx::query(GIVE_BACK).bind(messages.to_vec())).await.map(drop)
}

fn message(row: &PgRow) -> Result<Message> {
    Ok(Message { id: column(row, "id")?, topic: column(row, "topic")?, payload: column(row, "payload")? })
}

pub(super) async fn consumed(pools: &Pools, order: OrderId, within: Duration) -> Result<Option<Message>> {
    let statement = || sqlx::query(CONSUMED).bind(order.to_string()).bind(millis(within)).bind(ORDER_PAID);
    pools.query_one(statement).await?.map(|row| message(&row)).transpose()
}

pub(super) async fn lag(pools: &Pools) -> Result<Duration> {
    let Some(row) = pools.query_one(|| sqlx::query(LAG)).await? else { return Ok(Duration::ZERO) };
    let millis: i64 = column(&row, "lag")?;
    Ok(Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
}

/// Run twice after a lost answer it finds everything done: [`Granted::Duplicate`].
pub(super) async fn grant(pools: &Pools, consumer: &str, campaign: &str, grants: &[Grant]) -> Result<Vec<Granted>> {
    let statement = || {
        sqlx::query(GRANT)
            .bind(grants.iter().map(|grant| grant.message).collect::<Vec<_>>())
            .bind(grants.iter().map(|grant| grant.order.0).collect::<Vec<_>>())
            .bind(grants.iter().map(|grant| grant.code.clone()).collect::<Vec<_>>())
            .bind(consumer.to_owned())
            .bind(campaign.to_owned())
    };
    let rows = pools.query(statement).await?;
    let outcome = |row| Ok((column::<Uuid>(row, "message")?, granted(row)?));
    let outcomes: HashMap<Uuid, Granted> = rows.iter().map(outcome).collect::<Result<_>>()?;
    let missing = || broken("a grant without an outcome");
    grants.iter().map(|grant| outcomes.get(&grant.message).copied().ok_or_else(missing)).collect()
}

fn granted(row: &PgRow) -> Result<Granted> {
    let status: Option<&str> = column(row, "status")?;
    Ok(match (status, column(row, "consumed")?, column(row, "granted")?) {
        (None, ..) => Granted::Unknown,
        (Some(_), _, true) => Granted::New,
        (Some("paid" | "shipped"), ..) | (Some(_), false, _) => Granted::Duplicate,
        (Some(_), true, _) => Granted::NotDue,
    })
}
