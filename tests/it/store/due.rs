//! What the reconciler and the sweeper are given to look at.

use std::collections::HashSet;
use std::time::Duration;

use oncegate::order::life::Happening;
use oncegate::order::values::OrderId;
use tokio::task::JoinSet;

use crate::harness::TestStore;
use crate::harness::goods::{account, product};
use crate::harness::life::{Captured, Declined, Processing, TOTAL, Unknown, by_balance, by_card, happens, shop, word};

const BASE: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(35);
const WINDOW: Duration = Duration::from_secs(30 * 60);

async fn due(t: &TestStore) -> Vec<OrderId> {
    t.store.due_payments(100, BASE, LONGEST).await.unwrap().into_iter().map(|due| due.order).collect()
}

/// Puts a time of a row so many seconds back.
async fn age(t: &TestStore, table: &str, column: &str, id: (&str, OrderId), seconds: i64) {
    let (name, order) = id;
    let past = match &t.sql {
        crate::harness::Sql::Postgres(_) => format!("now() - {seconds} * interval '1 s'"),
        crate::harness::Sql::Sqlite(_) => format!("CAST(unixepoch('subsec') * 1000 AS INTEGER) - {seconds} * 1000"),
    };
    t.sql.run(&format!("UPDATE {table} SET {column} = {past} WHERE {name} = '{order}'")).await;
}

async fn make_due(t: &TestStore, order: OrderId, seconds_ago: i64) {
    age(t, "payments", "next_check_at", ("order_id", order), seconds_ago).await;
}

/// In how many seconds a payment is looked at next, and how often it was.
async fn next_look(t: &TestStore, order: OrderId) -> (i64, i64) {
    let seconds = match &t.sql {
        crate::harness::Sql::Postgres(_) => "CAST(extract(epoch FROM next_check_at - now()) AS bigint)",
        crate::harness::Sql::Sqlite(_) => "(next_check_at - CAST(unixepoch('subsec') * 1000 AS INTEGER) + 500) / 1000",
    };
    let of = format!("FROM payments WHERE order_id = '{order}'");
    let checks = t.sql.int(&format!("SELECT CAST(checks AS bigint) {of}")).await;
    (t.sql.int(&format!("SELECT {seconds} {of}")).await, checks)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_doubt_or_to_be_paid_back_is_due_when_its_time_has_come_oldest_first() {
    let t = shop().await;
    t.store.import_products(&[product("A", 100, 100)]).await.unwrap();
    let buyer = account(&t.store, TOTAL).await;
    let mut orders = Vec::new();
    for (n, said) in
        [None, Some(Unknown), Some(Processing), Some(Captured), Some(Declined), Some(Captured)].into_iter().enumerate()
    {
        let order = by_card(&t.store, buyer, &format!("k{n}")).await;
        if let Some(said) = said {
            happens(&t.store, order, word(&format!("pi_{n}"), said)).await;
        }
        orders.push(order);
    }
    happens(&t.store, orders[5], Happening::Cancel).await;
    orders.push(by_balance(&t.store, buyer, "balance").await);
    assert_eq!(due(&t).await, [orders[5]], "a refund at once, nothing else before its first check");
    for (n, order) in orders.iter().enumerate() {
        make_due(&t, *order, i64::try_from(n).unwrap() * 60 + 60).await;
    }
    let two = t.store.due_payments(2, BASE, LONGEST).await.unwrap();
    assert_eq!(two.iter().map(|due| (due.order, due.attempt)).collect::<Vec<_>>(), [(orders[5], 1), (orders[2], 1)]);
    assert_eq!(due(&t).await, [orders[1], orders[0]], "neither what is settled nor what was just given");
    assert_eq!(due(&t).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_look_doubles_the_pause_up_to_the_longest_and_a_refund_begins_anew() {
    let t = shop().await;
    let buyer = account(&t.store, 0).await;
    let order = by_card(&t.store, buyer, "k").await;
    let near = |seconds: i64, expected: i64| (expected - 5..=expected).contains(&seconds);
    let (first, checks) = next_look(&t, order).await;
    assert!(near(first, 300) && checks == 0, "{first}");
    for (n, expected) in [10, 20, 35, 35].into_iter().enumerate() {
        make_due(&t, order, 1).await;
        assert_eq!(due(&t).await, [order]);
        let (seconds, checks) = next_look(&t, order).await;
        assert!(near(seconds, expected), "{seconds} is not {expected}");
        assert_eq!(checks, i64::try_from(n).unwrap() + 1);
    }
    t.sql.run("UPDATE payments SET checks = 2000000000").await;
    make_due(&t, order, 1).await;
    assert_eq!(due(&t).await, [order], "however often it was looked at");
    happens(&t.store, order, word("pi_1", Processing)).await;
    let (seconds, checks) = next_look(&t, order).await;
    assert!(near(seconds, 35) && checks > 1, "a word without an outcome changes nothing here: {seconds}");
    happens(&t.store, order, Happening::Cancel).await;
    happens(&t.store, order, word("pi_1", Captured)).await;
    let (seconds, checks) = next_look(&t, order).await;
    assert!(near(seconds, 0) && checks == 0, "a refund is due at once: {seconds} {checks}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_reconcilers_are_given_the_same() {
    let t = shop().await;
    t.store.import_products(&[product("A", 100, 1_000)]).await.unwrap();
    let second = t.second().await;
    let buyer = account(&t.store, 0).await;
    for n in 0..40 {
        by_card(&t.store, buyer, &format!("k{n}")).await;
    }
    t.sql.run("UPDATE payments SET next_check_at = created_at").await;
    let mut work = JoinSet::new();
    for n in 0..16 {
        let store = if n % 2 == 0 { t.store.clone() } else { second.clone() };
        work.spawn(async move { store.due_payments(7, BASE, LONGEST).await.unwrap() });
    }
    let mut given: Vec<OrderId> = work.join_all().await.into_iter().flatten().map(|due| due.order).collect();
    given.extend(due(&t).await);
    let distinct: HashSet<_> = given.iter().collect();
    assert_eq!((given.len(), distinct.len()), (40, 40));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unpaid_order_is_overdue_after_its_window_unless_an_attempt_is_in_flight() {
    let t = shop().await;
    t.store.import_products(&[product("A", 100, 100)]).await.unwrap();
    let buyer = account(&t.store, TOTAL).await;
    let window = i64::try_from(WINDOW.as_secs()).unwrap();
    let mut overdue = Vec::new();
    for (n, (said, seconds, expected)) in [
        (Some(Declined), window + 60, true),
        (Some(Declined), window + 120, true),
        (Some(Declined), window - 60, false),
        (None, window + 60, false),
        (Some(Unknown), window + 60, false),
        (Some(Processing), window + 60, false),
        (Some(Captured), window + 60, false),
    ]
    .into_iter()
    .enumerate()
    {
        let order = by_card(&t.store, buyer, &format!("k{n}")).await;
        if let Some(said) = said {
            happens(&t.store, order, word(&format!("pi_{n}"), said)).await;
        }
        age(&t, "orders", "created_at", ("id", order), seconds).await;
        if expected {
            overdue.insert(0, order);
        }
    }
    assert_eq!(t.store.overdue_orders(WINDOW, 100).await.unwrap(), overdue, "oldest first");
    assert_eq!(t.store.overdue_orders(WINDOW, 1).await.unwrap(), overdue[..1]);
    for order in &overdue {
        happens(&t.store, *order, Happening::WindowOver).await;
    }
    assert_eq!(t.store.overdue_orders(WINDOW, 100).await.unwrap(), []);
    t.assert_sound(100).await;
}

/// As a test of the black-box kind or an operator might add one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_whose_time_nobody_set_is_due_at_once() {
    let t = shop().await;
    let buyer = account(&t.store, 0).await;
    let order = by_card(&t.store, buyer, "k").await;
    happens(&t.store, order, word("pi_1", Declined)).await;
    let row = format!(
        "INSERT INTO payments (order_id, attempt, method, amount, status) VALUES ('{order}', 2, 'card', 1, 'unknown')"
    );
    t.sql.run(&row).await;
    assert_eq!(due(&t).await, [order]);
}
