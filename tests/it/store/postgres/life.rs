//! Changes of orders while somebody else holds their rows.

use std::time::{Duration, Instant};

use oncegate::order::life::Happening;
use oncegate::store::{ChangeRules, StoreError};
use sqlx::Executor;

use crate::harness::TestStore;
use crate::harness::goods::{account, product};
use crate::harness::life::{Captured, Declined, by_card, change_rules, happens, met, of_anybody, told_by, word};

async fn shop() -> Option<TestStore> {
    let t = TestStore::on_postgres().await?;
    t.store.import_products(&[product("A", 100, 100)]).await.unwrap();
    Some(t)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_of_a_change_is_written_by_one_transaction() {
    let Some(t) = shop().await else { return };
    let buyer = account(&t.store, 200).await;
    let order = by_card(&t.store, buyer, "k").await;
    t.store.change(&told_by("evt_1", order, word("pi_1", Captured)), &change_rules()).await.unwrap();
    let writers = "SELECT count(DISTINCT xmin::text) FROM (SELECT xmin FROM orders UNION ALL SELECT xmin FROM payments
        UNION ALL SELECT xmin FROM outbox UNION ALL SELECT xmin FROM payment_events) written";
    assert_eq!(t.sql.int(writers).await, 1);
    happens(&t.store, order, Happening::Cancel).await;
    let writers = "SELECT count(DISTINCT xmin::text) FROM (SELECT xmin FROM orders UNION ALL SELECT xmin FROM payments
        UNION ALL SELECT xmin FROM products) written";
    assert_eq!(t.sql.int(writers).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_row_makes_a_change_busy_within_the_lock_wait_and_nothing_is_written() {
    let Some(t) = shop().await else { return };
    let buyer = account(&t.store, 0).await;
    let order = by_card(&t.store, buyer, "k").await;
    let paid = told_by("evt_1", order, word("pi_1", Captured));
    let cancel = of_anybody(order, Happening::Cancel);
    let short = ChangeRules { lock_wait: Duration::from_millis(200), ..change_rules() };
    for (held, change) in [
        ("SELECT 1 FROM products FOR NO KEY UPDATE", &cancel),
        ("SELECT 1 FROM accounts FOR NO KEY UPDATE", &paid),
        ("SELECT 1 FROM orders FOR NO KEY UPDATE", &paid),
        ("SELECT 1 FROM payments FOR NO KEY UPDATE", &paid),
        ("INSERT INTO payment_events VALUES ('standin', 'evt_1', 'k', NULL, 'o')", &paid),
    ] {
        let mut outside = t.sql.postgres().begin().await.unwrap();
        outside.execute(held).await.unwrap();
        let begun = Instant::now();
        let error = t.store.change(change, &short).await.unwrap_err();
        assert!(matches!(error, StoreError::Busy(_)), "{held}: {error}");
        assert!(begun.elapsed() >= short.lock_wait && begun.elapsed() < Duration::from_secs(3), "{held}");
        outside.rollback().await.unwrap();
        assert_eq!(t.sql.int("SELECT count(*) FROM payment_events").await, 0);
    }
    met(t.store.change(&paid, &short).await.unwrap());
    t.assert_sound(100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_that_somebody_works_on_is_skipped_by_the_reconciler() {
    let Some(t) = shop().await else { return };
    let buyer = account(&t.store, 0).await;
    let (held, free) = (by_card(&t.store, buyer, "k1").await, by_card(&t.store, buyer, "k2").await);
    let settled = by_card(&t.store, buyer, "k3").await;
    happens(&t.store, settled, word("pi_3", Declined)).await;
    t.sql.run("UPDATE payments SET next_check_at = created_at").await;
    let mut outside = t.sql.postgres().begin().await.unwrap();
    let lock = format!("SELECT 1 FROM payments WHERE order_id = '{held}' FOR NO KEY UPDATE");
    outside.execute(sqlx::AssertSqlSafe(lock)).await.unwrap();
    let due = async || {
        let due = t.store.due_payments(10, Duration::from_secs(60), Duration::from_secs(60)).await.unwrap();
        due.into_iter().map(|due| due.order).collect::<Vec<_>>()
    };
    assert_eq!(due().await, [free]);
    outside.rollback().await.unwrap();
    assert_eq!(due().await, [held]);
}
