//! Many at once on one order, and on the same products and accounts.

use std::sync::Arc;

use oncegate::order::life::{Happening, Verdict};
use oncegate::order::values::OrderId;
use oncegate::order::{Method, PaymentStatus, Status};
use oncegate::store::{Changed, Settled, Store};
use tokio::task::JoinSet;

use crate::harness::TestStore;
use crate::harness::goods::{account, asked, place, product};
use crate::harness::life::{
    Captured, Declined, Processing, TOTAL, by_balance, by_card, change_rules, happens, met, of_anybody, pay, shop,
    told_by, word,
};

/// Lets all of them happen at the same time, by two processes, and tells what came of each.
async fn at_once(
    t: &TestStore,
    second: &Arc<dyn Store>,
    all: impl IntoIterator<Item = (OrderId, Happening)>,
) -> Vec<Verdict> {
    let mut work = JoinSet::new();
    for (n, (order, happening)) in all.into_iter().enumerate() {
        let store = if n % 2 == 0 { t.store.clone() } else { second.clone() };
        work.spawn(async move { happens(&store, order, happening).await.0 });
    }
    work.join_all().await
}

fn count(verdicts: &[Verdict], wanted: Verdict) -> usize {
    verdicts.iter().filter(|verdict| **verdict == wanted).count()
}

async fn status(t: &TestStore, order: OrderId) -> Status {
    t.store.life(order).await.unwrap().unwrap().order.status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_cancels_at_once_together_with_the_sweep_give_the_stock_back_once() {
    let t = shop().await;
    let second = t.second().await;
    let buyer = account(&t.store, TOTAL).await;
    let unpaid = by_card(&t.store, buyer, "k1").await;
    happens(&t.store, unpaid, word("pi_1", Declined)).await;
    let both = |n: usize| if n.is_multiple_of(2) { Happening::Cancel } else { Happening::WindowOver };
    let verdicts = at_once(&t, &second, (0..20).map(|n| (unpaid, both(n / 2)))).await;
    assert_eq!((count(&verdicts, Verdict::Done), count(&verdicts, Verdict::Already)), (1, 19), "{verdicts:?}");

    let paid = by_balance(&t.store, buyer, "k2").await;
    let verdicts = at_once(&t, &second, (0..20).map(|_| (paid, Happening::Cancel))).await;
    assert_eq!((count(&verdicts, Verdict::Done), count(&verdicts, Verdict::Already)), (1, 19), "{verdicts:?}");
    assert_eq!(t.sql.int("SELECT stock FROM products WHERE sku = 'A'").await, 10);
    assert_eq!(t.store.balance(buyer).await.unwrap(), TOTAL);
    t.assert_sound(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_cancel_and_ship_exactly_one_wins() {
    let t = shop().await;
    t.store.import_products(&[product("A", 100, 100)]).await.unwrap();
    let second = t.second().await;
    let buyer = account(&t.store, 20 * TOTAL).await;
    for n in 0..20 {
        let order = by_balance(&t.store, buyer, &format!("k{n}")).await;
        let two = [Happening::Cancel, Happening::Ship];
        let two = if n % 2 == 0 { two } else { [two[1].clone(), two[0].clone()] };
        let verdicts = at_once(&t, &second, two.map(|happening| (order, happening))).await;
        assert_eq!((count(&verdicts, Verdict::Done), count(&verdicts, Verdict::Illegal)), (1, 1), "{verdicts:?}");
        assert!(matches!(status(&t, order).await, Status::Cancelled | Status::Shipped));
    }
    t.assert_sound(100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whichever_of_cancel_and_payment_comes_first_no_money_is_kept_for_nothing() {
    let t = shop().await;
    t.store.import_products(&[product("A", 100, 100)]).await.unwrap();
    let second = t.second().await;
    let buyer = account(&t.store, 20 * TOTAL).await;
    for n in 0..20 {
        let order = by_card(&t.store, buyer, &format!("k{n}")).await;
        let paid = word(&format!("pi_{n}"), Captured);
        let verdicts = at_once(&t, &second, [(order, paid), (order, Happening::Cancel)]).await;
        assert_eq!(count(&verdicts, Verdict::Done), 2, "{verdicts:?}");
        let life = t.store.life(order).await.unwrap().unwrap();
        assert_eq!((life.order.status, life.attempts[0].status), (Status::Cancelled, PaymentStatus::RefundDue));
    }
    t.assert_sound(100).await;
}

/// The callback comes while the charge answer is being written, in twenty copies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_told_by_its_answer_and_by_twenty_callbacks_is_written_once() {
    let t = shop().await;
    let second = t.second().await;
    let buyer = account(&t.store, 0).await;
    let order = by_card(&t.store, buyer, "k").await;
    let mut work = JoinSet::new();
    for n in 0..24 {
        let store = if n % 2 == 0 { t.store.clone() } else { second.clone() };
        let change = match n % 6 {
            0 => of_anybody(order, word("pi_1", Captured)),
            1 => told_by("evt_processing", order, word("pi_1", Processing)),
            _ => told_by("evt_paid", order, word("pi_1", Captured)),
        };
        work.spawn(async move { store.change(&change, &change_rules()).await.unwrap() });
    }
    let changed = work.join_all().await;
    let known = changed.iter().filter(|changed| matches!(changed, Changed::Known)).count();
    assert_eq!(known, 24 - 4 - 2, "of each event one copy was new: {changed:?}");
    let paid = changed.into_iter().filter(|changed| !matches!(changed, Changed::Known)).map(met);
    let paid = paid.filter(|(verdict, life)| *verdict == Verdict::Done && life.order.status == Status::Paid).count();
    assert_eq!(paid, 1);
    assert_eq!(t.sql.int("SELECT count(*) FROM payments").await, 1);
    assert_eq!(t.sql.int("SELECT count(*) FROM payment_events").await, 2);
    t.assert_sound(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_ten_wishes_to_pay_one_makes_an_attempt() {
    let t = shop().await;
    let second = t.second().await;
    let buyer = account(&t.store, TOTAL).await;
    let order = by_card(&t.store, buyer, "k").await;
    happens(&t.store, order, word("pi_1", Declined)).await;
    let verdicts = at_once(&t, &second, (0..10).map(|_| (order, pay(Method::Card)))).await;
    assert_eq!((count(&verdicts, Verdict::Charge), count(&verdicts, Verdict::InFlight)), (1, 9), "{verdicts:?}");
    assert_eq!(t.sql.int("SELECT count(*) FROM payments").await, 2);

    let other = by_card(&t.store, buyer, "k2").await;
    happens(&t.store, other, word("pi_2", Declined)).await;
    let verdicts = at_once(&t, &second, (0..10).map(|_| (other, pay(Method::Balance)))).await;
    assert_eq!((count(&verdicts, Verdict::Done), count(&verdicts, Verdict::Already)), (1, 9), "{verdicts:?}");
    t.assert_sound(10).await;
}

/// Orders are placed, paid, called off and sent off on the same two products by the same few accounts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_changes_and_settlings_of_the_same_rows_all_come_through() {
    let t = shop().await;
    t.store.import_products(&[product("A", 1, 1_000), product("B", 1, 1_000)]).await.unwrap();
    let second = t.second().await;
    let mut orders = Vec::new();
    let mut buyers = Vec::new();
    for n in 0..4 {
        let buyer = account(&t.store, 1_000).await;
        buyers.push(buyer);
        for m in 0..5 {
            let wanted = if m % 2 == 0 { [("A", 1), ("B", 1)] } else { [("B", 1), ("A", 1)] };
            let ask = asked(buyer, &format!("before{n}-{m}"), &wanted);
            orders.push(ask.id);
            place(&t.store, vec![ask]).await;
        }
    }
    let mut work = JoinSet::new();
    for n in 0..40 {
        let store = if n % 2 == 0 { t.store.clone() } else { second.clone() };
        let (buyers, order) = (buyers.clone(), orders[n / 2]);
        work.spawn(async move {
            if n % 2 == 0 {
                let happening = if n % 8 == 0 { Happening::Ship } else { Happening::Cancel };
                assert_eq!(happens(&store, order, happening).await.0, Verdict::Done);
                return;
            }
            let batch = buyers.iter().rev().enumerate().map(|(m, buyer)| {
                let wanted = if (m + n) % 3 == 0 { [("B", 1), ("A", 1)] } else { [("A", 1), ("B", 1)] };
                asked(*buyer, &format!("k{n}"), &wanted)
            });
            let settled = place(&store, batch.collect()).await;
            assert!(settled.iter().all(|settled| matches!(settled, Settled::Decided { .. })), "{settled:?}");
        });
    }
    work.join_all().await;
    let statuses = "SELECT count(*) FROM orders WHERE status = 'cancelled'";
    assert_eq!((t.sql.int(statuses).await, t.sql.int("SELECT count(*) FROM orders").await), (15, 20 + 80));
    t.assert_sound(1_000).await;
}
