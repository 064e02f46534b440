//! What only PostgreSQL can show: locks held from outside, lost connections, cancelled calls.

mod life;
mod plans;

use std::sync::Arc;
use std::time::{Duration, Instant};

use oncegate::order::decide::Decision;
use oncegate::store::postgres::{PgTuning, Postgres};
use oncegate::store::{SettleRules, Settled, Store, StoreError};
use sqlx::Executor;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::harness::TestStore;
use crate::harness::goods::{account, asked, claim_request, claimed, place_one, placed, product, rules};
use crate::harness::proxy::{Fault, Proxy};

const LEASE: Duration = Duration::from_secs(30);
const TUNING: PgTuning = PgTuning { statement_timeout: Duration::from_secs(3), connect_within: Duration::from_secs(2) };

async fn shop() -> Option<TestStore> {
    let t = TestStore::on_postgres().await?;
    t.store.import_products(&[product("A", 1, 100_000)]).await.unwrap();
    Some(t)
}

/// A store whose connections can be cut, and whose answers take so much longer.
async fn behind_proxy(t: &TestStore, delay: Duration) -> (Proxy, Arc<dyn Store>) {
    let mut url: reqwest::Url = t.database.url().parse().unwrap();
    let upstream = url.socket_addrs(|| Some(5432)).unwrap()[0];
    let proxy = Proxy::start(upstream).await;
    if !delay.is_zero() {
        proxy.set(Fault::Delay(delay));
    }
    url.set_ip_host(proxy.addr().ip()).unwrap();
    url.set_port(Some(proxy.addr().port())).unwrap();
    (proxy, Arc::new(Postgres::connect(url.as_str(), TUNING).await.unwrap()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_of_an_order_is_written_by_one_transaction() {
    let Some(t) = shop().await else { return };
    let buyer = account(&t.store, 100).await;
    place_one(&t.store, asked(buyer, "k", &[("A", 1)])).await;
    let writers = "SELECT count(DISTINCT xmin::text) FROM (
        SELECT xmin FROM orders UNION ALL SELECT xmin FROM order_lines UNION ALL SELECT xmin FROM payments
        UNION ALL SELECT xmin FROM account_entries WHERE kind = 'charge' UNION ALL SELECT xmin FROM outbox
        UNION ALL SELECT xmin FROM accounts UNION ALL SELECT xmin FROM products
        UNION ALL SELECT xmin FROM idempotency_records) written";
    assert_eq!(t.sql.int(writers).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_held_from_outside_makes_settling_busy_within_the_lock_wait_and_nothing_is_written() {
    let Some(t) = shop().await else { return };
    let buyer = account(&t.store, 100).await;
    let batch = claimed(&t.store, vec![asked(buyer, "k", &[("A", 1)])]).await;
    let mut outside = t.sql.postgres().begin().await.unwrap();
    outside.execute("SELECT 1 FROM products WHERE sku = 'A' FOR UPDATE").await.unwrap();

    let begun = Instant::now();
    let short = SettleRules { lock_wait: Duration::from_millis(300), ..rules() };
    let error = t.store.settle(&batch, &short).await.unwrap_err();
    assert!(matches!(error, StoreError::Busy(_)), "{error}");
    assert!(begun.elapsed() >= Duration::from_millis(300) && begun.elapsed() < Duration::from_secs(2));
    assert_eq!(t.sql.int("SELECT count(*) FROM orders").await, 0);
    let again = t.store.claim(&[claim_request(&batch[0].asked)], Duration::from_secs(1)).await.unwrap();
    assert!(matches!(again[0], oncegate::store::ClaimResult::Lost(_)), "a duplicate is told at once: {again:?}");

    outside.rollback().await.unwrap();
    let settled = t.store.settle(&batch, &short).await.unwrap();
    assert!(matches!(&settled[0], Settled::Decided { decision: Decision::Placed(_), .. }), "{settled:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_work_than_connections_is_busy_in_time_and_reads_go_on_beside_it() {
    let Some(t) = shop().await else { return };
    let store: Arc<dyn Store> = Arc::new(Postgres::connect(t.database.url(), TUNING).await.unwrap());
    let mut batches = Vec::new();
    for n in 0..12 {
        let buyer = account(&store, 100).await;
        batches.push(claimed(&store, vec![asked(buyer, &format!("k{n}"), &[("A", 1)])]).await);
    }
    let mut outside = t.sql.postgres().begin().await.unwrap();
    outside.execute("SELECT 1 FROM products WHERE sku = 'A' FOR UPDATE").await.unwrap();
    let begun = Instant::now();
    let mut work = JoinSet::new();
    for batch in batches {
        let (store, patient) = (store.clone(), SettleRules { lock_wait: Duration::from_millis(1500), ..rules() });
        work.spawn(async move { store.settle(&batch, &patient).await.unwrap_err() });
    }
    store.products().await.unwrap();
    assert!(begun.elapsed() < Duration::from_millis(900), "reads have connections of their own");
    let errors = work.join_all().await;
    // At most a third of it for a connection, and then the lock wait; the rest is for a starved machine.
    assert!(begun.elapsed() < TUNING.statement_timeout * 2, "{:?}", begun.elapsed());
    assert!(errors.iter().all(|e| matches!(e, StoreError::Busy(_))), "{errors:?}");
    let without = errors.iter().filter(|e| e.to_string().contains("connections")).count();
    assert!(without > 0 && without < errors.len(), "the log tells a full pool from a lock: {errors:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_went_away_is_unreachable_and_works_again_once_it_is_back() {
    let Some(t) = shop().await else { return };
    let (proxy, store) = behind_proxy(&t, Duration::ZERO).await;
    let buyer = account(&store, 100).await;
    place_one(&store, asked(buyer, "before", &[("A", 1)])).await;

    proxy.set(Fault::Refuse);
    for error in [store.ping().await.unwrap_err(), store.balance(buyer).await.unwrap_err()] {
        assert!(matches!(error, StoreError::Unreachable(_)), "{error}");
    }
    let claim = store.claim(&[claim_request(&asked(buyer, "k", &[("A", 1)]))], Duration::from_secs(1)).await;
    assert!(matches!(claim, Err(StoreError::Unreachable(_))), "{claim:?}");

    proxy.set(Fault::None);
    let (decision, _) = place_one(&store, asked(buyer, "k", &[("A", 1)])).await;
    assert_eq!(store.orders(buyer, None, 10).await.unwrap().first(), Some(placed(&decision)));
}

/// A frozen server, or a network that swallows everything: no error comes, and nothing else either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_is_given_up_in_time_and_holds_no_connection_back_afterwards() {
    let Some(t) = shop().await else { return };
    let (proxy, store) = behind_proxy(&t, Duration::ZERO).await;
    let buyer = account(&store, 100).await;
    let batch = claimed(&store, vec![asked(buyer, "stalled", &[("A", 1)])]).await;

    proxy.set(Fault::Stall);
    let began = Instant::now();
    let mut calls = JoinSet::new();
    for n in 0..8 {
        let (store, batch) = (store.clone(), batch.clone());
        calls.spawn(async move {
            match n % 3 {
                0 => store.claim(&[claim_request(&asked(buyer, &format!("k{n}"), &[("A", 1)]))], LEASE).await.map(drop),
                1 => store.settle(&batch, &rules()).await.map(drop),
                _ => store.balance(buyer).await.map(drop),
            }
        });
    }
    while let Some(outcome) = calls.join_next().await {
        let error = outcome.unwrap().unwrap_err();
        assert!(matches!(error, StoreError::Unreachable(_) | StoreError::Busy(_)), "{error}");
    }
    assert!(began.elapsed() < TUNING.statement_timeout * 5, "{:?}", began.elapsed());

    proxy.set(Fault::None);
    let settled = store.settle(&batch, &rules()).await.unwrap();
    assert!(matches!(settled[..], [Settled::Decided { .. } | Settled::Fenced]), "{settled:?}");
    for n in 0..20 {
        place_one(&store, asked(buyer, &format!("later{n}"), &[("A", 1)])).await;
    }
    assert_none_idle_in_transaction(&t).await;
}

/// What a restarted server leaves behind: every connection of every pool is dead, and none knows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_the_server_ended_are_replaced_without_a_failed_call() {
    let Some(t) = shop().await else { return };
    let (_proxy, store) = behind_proxy(&t, Duration::ZERO).await;
    let buyer = account(&store, 100).await;
    for round in 0..3 {
        let mut busy = JoinSet::new();
        for n in 0..12 {
            let store = store.clone();
            busy.spawn(async move { place_one(&store, asked(buyer, &format!("k{round}-{n}"), &[("A", 1)])).await });
        }
        busy.join_all().await;
        let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'oncegate'";
        assert!(t.sql.int(ended).await >= 3);
        let mut reads = JoinSet::new();
        for _ in 0..12 {
            let store = store.clone();
            reads.spawn(async move { store.balance(buyer).await.unwrap() });
        }
        assert_eq!(reads.join_all().await, vec![100 - 13 * round - 12; 12]);
        // A claim must not run twice, so it is not repeated: its connection is asked first after a pause.
        tokio::time::sleep(Duration::from_millis(150)).await;
        let (decision, _) = place_one(&store, asked(buyer, &format!("after-{round}"), &[("A", 1)])).await;
        assert!(matches!(decision, Decision::Placed(_)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_hundred_cancelled_calls_leave_no_transaction_open_and_lose_no_later_write() {
    let Some(t) = shop().await else { return };
    let (_proxy, store) = behind_proxy(&t, Duration::from_millis(1)).await;
    let buyer = account(&t.store, 100_000).await;
    let settle = |n: u64, patience: Duration| {
        let (store, claims, ask) = (store.clone(), t.store.clone(), asked(buyer, &format!("k{n}"), &[("A", 1)]));
        async move {
            let batch = claimed(&claims, vec![ask]).await;
            tokio::time::timeout(patience, store.settle(&batch, &rules())).await.is_ok()
        }
    };
    for n in 1000..1008 {
        assert!(settle(n, TUNING.statement_timeout).await, "the connection is open");
    }
    let begun = Instant::now();
    assert!(settle(1008, TUNING.statement_timeout).await);
    let whole = begun.elapsed();
    for n in 0..400 {
        // One after the other on the same connection, each cut a little later than the last.
        settle(n, whole * u32::try_from(n % 50).unwrap() / 50).await;
        assert_none_idle_in_transaction(&t).await; // before a later BEGIN could hide it
    }
    let before = t.sql.int("SELECT count(*) FROM orders").await;
    for n in 0..20 {
        place_one(&store, asked(buyer, &format!("later{n}"), &[("A", 1)])).await;
    }
    assert_eq!(t.sql.int("SELECT count(*) FROM orders").await, before + 20);
    assert_eq!(t.store.balance(buyer).await.unwrap(), 100_000 - before - 20);
}

async fn assert_none_idle_in_transaction(t: &TestStore) {
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'oncegate' AND state LIKE 'idle in transaction%'";
    // Sooner than the server itself ends such a session.
    let deadline = Instant::now() + TUNING.statement_timeout * 2 / 3;
    while t.sql.int(open).await > 0 {
        assert!(Instant::now() < deadline, "a transaction was left open");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connecting_to_nobody_fails_at_once_and_to_somebody_silent_within_the_deadline_without_the_password() {
    if TestStore::on_postgres().await.is_none() {
        return;
    }
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let url = format!("postgres://somebody:secret@127.0.0.1:{port}/shop");
    let begun = Instant::now();
    let error = Postgres::connect(&url, TUNING).await.err().unwrap();
    assert!(matches!(&error, StoreError::Unreachable(text) if !text.contains("secret")), "{error}");
    assert!(begun.elapsed() >= TUNING.connect_within && begun.elapsed() < TUNING.connect_within * 2);

    drop(silent);
    let error = Postgres::connect(&url, TUNING).await.err().unwrap();
    assert!(matches!(&error, StoreError::Unreachable(text) if text.contains("refused")), "{error}");
    let error = Postgres::connect("postgres://somebody:secret@:x/", TUNING).await.err().unwrap();
    assert!(matches!(&error, StoreError::Broken(text) if !text.contains("secret")), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_or_older_schema_is_told_with_the_way_out() {
    let Some(t) = TestStore::on_postgres().await else { return };
    let postgres = Postgres::connect(t.database.url(), TUNING).await.unwrap();
    postgres.schema_ready().await.unwrap();
    t.sql.run("DELETE FROM _sqlx_migrations").await;
    let error = postgres.schema_ready().await.unwrap_err().to_string();
    assert!(error.contains("migration 1") && error.contains("oncegate migrate"), "{error}");
    t.sql.run("DROP TABLE _sqlx_migrations").await;
    let error = postgres.schema_ready().await.unwrap_err().to_string();
    assert!(error.contains("there is no schema") && error.contains("oncegate migrate"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_constraints_of_orders_have_their_names() {
    let Some(t) = shop().await else { return };
    let buyer = account(&t.store, 100).await;
    place_one(&t.store, asked(buyer, "k", &[("A", 1)])).await;
    let copy = "INSERT INTO orders (id, account_id, idempotency_key, fingerprint, total, currency, payment_method)
        SELECT gen_random_uuid(), account_id, idempotency_key, fingerprint, total, currency, payment_method FROM orders";
    assert!(t.sql.try_run(copy).await.unwrap_err().contains("orders_account_key_once"));
}
