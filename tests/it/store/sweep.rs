//! What a sweep takes away, and what it leaves.

use std::time::Duration;

use oncegate::store::{Store, Sweep};
use time::OffsetDateTime;
use tokio::task::JoinSet;

use crate::harness::TestStore;
use crate::harness::goods::{KEY_TTL, account, answer, asked, claimed, fence};
use crate::harness::life::{by_balance, by_card, shop};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A record: key, whether it is done, seconds to the end of its lease, seconds to its expiry, whether it goes.
const RECORDS: [(&str, bool, i64, i64, bool); 11] = [
    ("processing-fresh", false, 300, 86_400, false),
    ("processing-lease-over", false, -60, 3_600, false),
    ("processing-lease-runs-past-its-expiry", false, 60, -60, false),
    ("processing-lease-over-and-expired", false, -60, -60, true),
    ("processing-lease-just-over-and-expired", false, 0, -1, true),
    ("processing-lease-runs-for-a-second-and-expired", false, 1, -1, false),
    ("done-fresh", true, -60, 3_600, false),
    ("done-expired", true, -60, -60, true),
    ("done-a-second-before-the-limit", true, -60, 1, false),
    ("done-at-the-limit", true, -60, 0, true),
    ("done-a-second-after-the-limit", true, -60, -1, true),
];

async fn arrange(t: &TestStore) {
    let buyer = account(&t.store, 0).await;
    for (key, done, lease, expiry, _) in RECORDS {
        let batch = claimed(&t.store, vec![asked(buyer, key, &[("A", 1)])]).await;
        if done {
            assert!(t.store.complete(&fence(&batch[0]), &answer(201, None, "x".into()), KEY_TTL).await.unwrap());
        }
        let (lease, expiry) = (t.sql.moment(lease), t.sql.moment(expiry));
        t.sql
            .run(&format!(
                "UPDATE idempotency_records SET lease_expires_at = {lease}, expires_at = {expiry} WHERE key = '{key}'"
            ))
            .await;
    }
}

async fn sweep_all(store: &dyn Store, what: Sweep, limit: u32) -> u64 {
    let mut total = 0;
    loop {
        match store.sweep(what, limit).await.unwrap() {
            0 => return total,
            rows => total += rows,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_has_expired_goes_and_never_what_a_lease_protects() {
    let t = shop().await;
    let buyer = account(&t.store, 1_000).await;
    by_balance(&t.store, buyer, "paid").await;
    by_card(&t.store, buyer, "attempt-in-flight").await;
    loop {
        let begun = t.sql.clock().await;
        arrange(&t).await;
        t.store.sweep(Sweep::Records, 100).await.unwrap();
        let took = t.sql.clock().await - begun;
        if took < 900 {
            break;
        }
        // On a machine this slow a second is no distance: again.
        t.sql.run("DELETE FROM idempotency_records WHERE key LIKE 'processing-%' OR key LIKE 'done-%'").await;
    }
    for (key, _, _, _, goes) in RECORDS {
        let left = t.sql.int(&format!("SELECT count(*) FROM idempotency_records WHERE key = '{key}'")).await;
        assert_eq!(left, i64::from(!goes), "{key}");
    }
    for (table, rows) in [("orders", 2), ("order_lines", 2), ("payments", 2), ("account_entries", 2)] {
        assert_eq!(t.sql.int(&format!("SELECT count(*) FROM {table}")).await, rows, "{table}");
    }
    assert_eq!(
        t.sql.int("SELECT count(*) FROM idempotency_records WHERE key IN ('paid', 'attempt-in-flight')").await,
        2
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finished_record_that_is_let_expire_is_swept_and_one_that_is_under_way_cannot_be() {
    let t = shop().await;
    let (buyer, other) = (account(&t.store, 0).await, account(&t.store, 0).await);
    let batch = claimed(&t.store, ["done", "under-way"].map(|key| asked(buyer, key, &[("A", 1)])).into()).await;
    let namesake = claimed(&t.store, vec![asked(other, "done", &[("A", 1)])]).await;
    for placing in [&batch[0], &namesake[0]] {
        assert!(t.store.complete(&fence(placing), &answer(201, None, "x".into()), KEY_TTL).await.unwrap());
    }
    assert!(t.store.let_expire(&fence(&batch[0]).id).await.unwrap());
    assert!(!t.store.let_expire(&fence(&batch[1]).id).await.unwrap());
    assert_eq!(t.store.sweep(Sweep::Records, 100).await.unwrap(), 1);
    assert!(!t.store.let_expire(&fence(&batch[0]).id).await.unwrap(), "it is gone");
    assert_eq!(t.sql.int("SELECT count(*) FROM idempotency_records").await, 2, "another's and the unfinished one stay");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_taken_over_while_the_sweep_looks_lives() {
    let t = shop().await;
    let buyer = account(&t.store, 0).await;
    claimed(&t.store, vec![asked(buyer, "k", &[("A", 1)])]).await;
    t.end_leases().await;
    t.expire_records().await;
    let (lease, expiry) = (t.sql.moment(300), t.sql.moment(86_400));
    let renew = format!("UPDATE idempotency_records SET epoch = 2, lease_expires_at = {lease}, expires_at = {expiry}");
    let taking_over = t.sql.keep_open(&renew).await;
    let store = t.store.clone();
    let sweep = tokio::spawn(async move { store.sweep(Sweep::Records, 100).await.unwrap() });
    // On PostgreSQL it passes by, on SQLite it waits for its turn.
    if std::env::var_os("TEST_DATABASE_URL").is_some() {
        assert_eq!(sweep.await.unwrap(), 0);
        taking_over.commit().await;
    } else {
        taking_over.commit().await;
        assert_eq!(sweep.await.unwrap(), 0);
    }
    assert_eq!(t.store.sweep(Sweep::Records, 100).await.unwrap(), 0);
    assert_eq!(t.sql.int("SELECT CAST(epoch AS bigint) FROM idempotency_records").await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_goes_when_it_has_expired_and_one_that_is_renewed_meanwhile_lives() {
    let t = TestStore::new().await;
    let now = OffsetDateTime::now_utc();
    for (id, expires) in [("old", now - Duration::from_secs(60)), ("young", now + Duration::from_secs(60))] {
        t.store.create_session(id, b"x", expires).await.unwrap();
    }
    let renewing = t.sql.keep_open(&format!("UPDATE sessions SET expires_at = {}", t.sql.moment(3_600))).await;
    let store = t.store.clone();
    let sweep = tokio::spawn(async move { store.sweep(Sweep::Sessions, 100).await.unwrap() });
    if std::env::var_os("TEST_DATABASE_URL").is_some() {
        assert_eq!(sweep.await.unwrap(), 0);
        renewing.commit().await;
    } else {
        renewing.commit().await;
        assert_eq!(sweep.await.unwrap(), 0);
    }
    t.store.save_session("old", b"x", now - Duration::from_secs(60)).await.unwrap();
    assert_eq!(t.store.sweep(Sweep::Sessions, 100).await.unwrap(), 1);
    assert_eq!(t.sql.text("SELECT id FROM sessions").await, "young");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_the_queue_and_of_the_provider_go_by_age_and_a_message_without_effect_never() {
    let t = TestStore::new().await;
    let id = |n: u8| uuid::Uuid::from_bytes([n; 16]);
    for (n, published, consumed) in [(1, -9, Some(-8)), (2, -9, Some(-6)), (3, -9, None)] {
        let day = 24 * 3600;
        let time = |days: i64| t.sql.moment(days * day);
        let consumed = consumed.map_or_else(|| "NULL".to_owned(), time);
        t.sql
            .run(&format!(
                "INSERT INTO outbox (id, topic, payload, created_at, published_at, consumed_at)
                VALUES ('{}', 'order.paid', '{{}}', {}, {}, {consumed})",
                id(n),
                time(-9),
                time(published)
            ))
            .await;
    }
    for (n, days) in [(1, -31), (2, -29)] {
        let at = t.sql.moment(days * 24 * 3600);
        t.sql.run(&format!("INSERT INTO consumed_messages VALUES ('coupons', '{n}', {at})")).await;
        t.sql.run(&format!("INSERT INTO payment_events VALUES ('p', '{n}', 'k', NULL, 'done', {at})")).await;
    }
    assert_eq!(t.store.sweep(Sweep::Outbox(DAY * 7), 100).await.unwrap(), 1);
    assert_eq!(t.store.sweep(Sweep::ConsumedMessages(DAY * 30), 100).await.unwrap(), 1);
    assert_eq!(t.store.sweep(Sweep::PaymentEvents(DAY * 30), 100).await.unwrap(), 1);
    assert_eq!(t.sql.int(&format!("SELECT count(*) FROM outbox WHERE id <> '{}'", id(1))).await, 2);
    assert_eq!(t.sql.text("SELECT message_id FROM consumed_messages").await, "2");
    assert_eq!(t.sql.text("SELECT event_id FROM payment_events").await, "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_takes_no_more_than_it_may_and_several_share_the_work() {
    let t = shop().await;
    let second = t.second().await;
    let buyer = account(&t.store, 0).await;
    for chunk in (0..600).collect::<Vec<_>>().chunks(60) {
        claimed(&t.store, chunk.iter().map(|n| asked(buyer, &format!("k{n}"), &[("A", 1)])).collect()).await;
    }
    t.end_leases().await;
    t.expire_records().await;
    assert_eq!(t.store.sweep(Sweep::Records, 100).await.unwrap(), 100);
    let mut sweepers = JoinSet::new();
    for store in [t.store.clone(), second.clone(), t.store.clone(), second] {
        sweepers.spawn(async move { sweep_all(&*store, Sweep::Records, 20).await });
    }
    assert_eq!(sweepers.join_all().await.iter().sum::<u64>() + sweep_all(&*t.store, Sweep::Records, 100).await, 500);
    assert_eq!(t.sql.int("SELECT count(*) FROM idempotency_records").await, 0);
}
