//! Every statement prepares, and none of them scans a table that grows: neither with the plan that was cached while
//! the tables were known to be empty, nor without statistics, nor with them.

use oncegate::store::postgres::{PLANNER, Postgres};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Executor, PgConnection, Row};

use crate::harness::TestStore;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_prepares() {
    let Some(t) = TestStore::on_postgres().await else { return };
    let mut connection = t.sql.postgres().acquire().await.unwrap();
    let mut count = 0;
    for (name, text) in Postgres::statements() {
        let prepared = connection.prepare(sqlx::SqlStr::from_static(text)).await;
        assert!(prepared.is_ok(), "{name}: {:?}", prepared.err());
        count += 1;
    }
    assert!(count > 20, "{count}");
}

/// An index of each table that grows, and a column that must be looked for in it: by less, it reads too much.
const LOOKED_FOR: [(&str, &str); 26] = [
    ("accounts_pkey", "id"),
    ("accounts_subject_once", "subject"),
    ("orders_pkey", "id"),
    ("orders_account_key_once", "idempotency_key"),
    ("orders_account_reference_once", "reference"),
    ("orders_by_account", "account_id"),
    ("orders_pending", "created_at"),
    ("order_lines_pkey", "order_id"),
    ("payments_pkey", "order_id"),
    ("coupons_order_campaign_once", "order_id"),
    ("coupons_by_account", "account_id"),
    ("idempotency_records_pkey", "key"),
    ("sessions_pkey", "id"),
    ("products_pkey", "sku"),
    ("payments_captured_once", "order_id"),
    ("payments_by_provider_id", "provider_id"),
    ("payments_due", "next_check_at"),
    ("payment_events_pkey", "event_id"),
    ("outbox_pkey", "id"),
    ("outbox_due", "due_at"),
    ("outbox_by_consumption", "consumed_at"),
    ("consumed_messages_by_age", "consumed_at"),
    ("payment_events_by_age", "received_at"),
    ("idempotency_records_by_expiry", "expires_at"),
    ("sessions_by_expiry", "expires_at"),
    ("consumed_messages_pkey", "message_id"),
];

/// These read a whole range on purpose: the catalogue, the migrations, the few records of one visitor, and what only
/// operators ask.
const READ_ON: [&str; 7] =
    ["PRODUCTS", "APPLIED", "BUYERS", "LIST_RECORDS", "FIND_RECORDS", "FIND_RECORDS_OF", "FREE_RECORDS"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_scans_a_table_that_grows_whatever_the_planner_knows_of_it() {
    let Some(t) = TestStore::on_postgres().await else { return };
    let mut connection = t.sql.postgres().acquire().await.unwrap();
    for (setting, value) in PLANNER {
        connection.execute(AssertSqlSafe(format!("SET {setting} = {value}"))).await.unwrap();
    }
    for (n, (_, text)) in Postgres::statements().enumerate() {
        connection.execute(AssertSqlSafe(format!("PREPARE s{n} AS {text}"))).await.unwrap();
    }
    connection.execute("VACUUM (ANALYZE)").await.unwrap();
    assert_plans(&mut connection, "known to be empty").await;
    fill(&t).await;
    assert_plans(&mut connection, "filled, thought to be empty").await;
    connection.execute("ANALYZE").await.unwrap();
    assert_plans(&mut connection, "filled and known").await;
}

/// Enough that a scan would be seen, and many records of one account, as an API client has them.
async fn fill(t: &TestStore) {
    for statement in [
        "ALTER TABLE idempotency_records SET (autovacuum_enabled = off)",
        "ALTER TABLE orders SET (autovacuum_enabled = off)",
        "INSERT INTO accounts (id, subject) SELECT gen_random_uuid(), 'client:' || n FROM generate_series(1, 2000) n",
        "INSERT INTO orders (id, account_id, idempotency_key, fingerprint, total, currency, payment_method, created_at)
            SELECT gen_random_uuid(), (SELECT id FROM accounts LIMIT 1), 'k' || n, 'f', 1, 'EUR', 'balance',
                now() - n * interval '1 s' FROM generate_series(1, 20000) n",
        "INSERT INTO order_lines SELECT id, 1, 'A', 'A', 1, 1 FROM orders",
        "INSERT INTO payments (order_id, attempt, method, amount, status) SELECT id, 1, 'balance', 1, 'captured'
            FROM orders",
        "INSERT INTO idempotency_records (account_id, operation, key, fingerprint, status, epoch, lease_expires_at,
                response_status, response_body, expires_at)
            SELECT account_id, 'place_order', idempotency_key, fingerprint, 'done', 1, now(), 201, '', now()
            FROM orders",
        "INSERT INTO outbox (id, topic, payload, published_at, consumed_at)
            SELECT gen_random_uuid(), 'order.paid', '', now(), now() FROM orders",
        "INSERT INTO consumed_messages (consumer, message_id) SELECT 'coupons', id::text FROM outbox",
        "INSERT INTO sessions (id, data, expires_at) SELECT id::text, '', now() FROM orders",
    ] {
        t.sql.run(statement).await;
    }
}

async fn assert_plans(connection: &mut PgConnection, when: &str) {
    for (n, (name, _)) in Postgres::statements().enumerate() {
        let arity =
            format!("SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 's{n}' AND from_sql");
        let arity: i32 = sqlx::query_scalar(AssertSqlSafe(arity)).fetch_one(&mut *connection).await.unwrap();
        let nulls = vec!["NULL"; usize::try_from(arity).unwrap()].join(", ");
        let values = if nulls.is_empty() { String::new() } else { format!("({nulls})") };
        let explain = format!("EXPLAIN (FORMAT JSON) EXECUTE s{n}{values}");
        let row = connection.fetch_one(AssertSqlSafe(explain)).await.unwrap();
        let plan: Value = row.get(0);
        assert_node(&plan[0]["Plan"], &format!("{name}, {when}"), READ_ON.contains(&name));
    }
}

fn assert_node(node: &Value, of: &str, reads_on: bool) {
    let kind = node["Node Type"].as_str().unwrap();
    assert!(reads_on || kind != "Seq Scan", "{of}: {node:#}");
    if let Some(index) = node["Index Name"].as_str()
        && !reads_on
    {
        let condition = node["Index Cond"].as_str().unwrap_or_default();
        let column = LOOKED_FOR.iter().find(|(name, _)| *name == index).map(|(_, column)| *column);
        let column = column.unwrap_or_else(|| panic!("{of}: {index} is not expected: {node:#}"));
        assert!(condition.contains(column), "{of}: {index} is read by {condition:?}: {node:#}");
        // Nearly every row has not expired: only who looks for those that have may look by it.
        assert!(!index.ends_with("_by_expiry") || of.starts_with("SWEEP"), "{of}: {node:#}");
    }
    for child in node["Plans"].as_array().into_iter().flatten() {
        assert_node(child, of, reads_on);
    }
}
