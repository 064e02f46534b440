//! Two things at once: one of them wins, and goods and money move once (E14, F3).

use std::net::SocketAddr;

use serde_json::json;

use super::super::{BAD, HASTY, PATIENT, Shop, becomes, cups_with, is, now, paid};
use super::{Cast, tea};
use crate::harness::client::{Client, want};
use crate::harness::service::Service;
use crate::harness::site::{Site, eventually, in_turn};
use crate::races::at_once;

#[tokio::test]
async fn a_cancelled_card_order_is_paid_back_by_the_provider_once() {
    let cast = Cast::open(&[], HASTY).await;
    let second = cast.shop.site.start().await;
    let order = cast.order_that_is("paid by card", "k").await;
    let answers = at_once(20, |n| {
        let (anna, order, at) = (cast.anna.clone(), order.clone(), [cast.service.main, second.main][n % 2]);
        // Ten times under one key, and ten times under another each.
        async move { anna.wish(at, &order, "cancel", &format!("c{}", n.saturating_sub(10)), None).await }
    })
    .await;
    for seen in &answers {
        assert!(seen.status == 200 || seen.is_in_progress(4), "{seen:?}");
    }
    assert!(answers.iter().any(|seen| seen.status == 200));
    assert_eq!(cast.shop.stock("TEA").await, 1_000_000);
    becomes(&cast.anna, second.main, &order, "cancelled", "refunded").await;
    assert_eq!(cast.shop.till.log().await.iter().filter(|line| line.refund).count(), 1);
    assert_eq!(cast.shop.stock("TEA").await, 1_000_000);
    cast.shop.holds().await;
}

/// How often two things race, in so many lanes beside each other.
const ROUNDS: usize = 200;
const LANES: usize = 4;

/// Everybody who takes part in a race.
#[derive(Clone)]
struct Race {
    anna: Client,
    operator: Client,
    at: [SocketAddr; 2],
}

impl Race {
    /// Runs a round so often: `work` gets its number, and the two processes in an order that changes.
    async fn run<T: Send + 'static, W: Future<Output = T> + Send + 'static>(
        cast: &Cast,
        second: &Service,
        work: impl Fn(Self, usize) -> W + Clone + Send + Sync + 'static,
    ) -> Vec<T> {
        let race =
            Self { anna: cast.anna.clone(), operator: cast.operator.clone(), at: [cast.service.main, second.main] };
        let lanes = at_once(LANES, move |lane| {
            let (race, work) = (race.clone(), work.clone());
            async move {
                let mut done = Vec::new();
                for round in (lane..ROUNDS).step_by(LANES) {
                    let mut race = race.clone();
                    race.at.rotate_left(round % 2);
                    done.push(work(race, round).await);
                }
                done
            }
        })
        .await;
        lanes.into_iter().flatten().collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_cancelling_and_shipping_at_once_one_wins() {
    let cast = Cast::open(&[], PATIENT).await;
    let second = cast.shop.site.start().await;
    let won = Race::run(&cast, &second, |race, round| async move {
        let Race { anna, operator, at: [one, other] } = race;
        let order = paid(&anna, one, &format!("k{round}"), &want(&[("TEA", 1)])).await;
        let key = format!("c{round}");
        let (cancel, ship) = tokio::join!(anna.wish(one, &order, "cancel", &key, None), operator.ship(other, &order));
        let (won, lost) = match (cancel.status, ship.status) {
            (200, 409) => ("cancelled", ship),
            (409, 200) => ("shipped", cancel),
            _ => panic!("both or neither: {cancel:?} {ship:?}"),
        };
        assert_eq!(lost.problem(), "illegal-transition");
        (order, won)
    })
    .await;
    assert_eq!(won.len(), ROUNDS);
    for (order, won) in won {
        let status = format!("SELECT status FROM orders WHERE CAST(id AS text) = '{order}'");
        assert_eq!(cast.shop.site.under.sql.text(&status).await, won);
    }
    cast.shop.holds().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_cancelling_and_paying_at_once_the_order_is_cancelled_and_what_was_taken_is_given_back() {
    let cast = Cast::open(&["--callbacks", "none"], PATIENT).await;
    let second = cast.shop.site.start().await;
    Race::run(&cast, &second, |race, round| async move {
        let Race { anna, at: [one, other], .. } = race;
        let placed = anna.order(one, &format!("k{round}"), &tea(Some(BAD))).await;
        let order = placed.order().unwrap_or_else(|| panic!("no order: {placed:?}"));
        let how = json!({"payment": if round % 3 == 0 { "balance" } else { "card" }});
        let (c, p) = (format!("c{round}"), format!("p{round}"));
        let (cancel, pay) =
            tokio::join!(anna.wish(one, &order, "cancel", &c, None), anna.wish(other, &order, "pay", &p, Some(&how)));
        assert_eq!(cancel.status, 200, "a pending or paid order can be cancelled: {cancel:?}");
        let refused = pay.status == 409 && pay.problem() == "illegal-transition";
        assert!(pay.status == 200 || refused, "it was paid before, or not at all: {pay:?}");
    })
    .await;
    assert_eq!(cast.shop.count("FROM orders WHERE status = 'cancelled'").await, 200);
    assert_eq!(cast.shop.count("FROM payments WHERE status = 'captured'").await, 0);
    cast.shop.holds().await;
}

/// Settings under which an unpaid order is soon overdue.
const SOON: [(&str, &str); 3] =
    [("ONCEGATE_PAYMENT_WINDOW", "3s"), ("ONCEGATE_SWEEP_INTERVAL", "200ms"), ("ONCEGATE_LEASE", "60s")];

#[tokio::test]
async fn an_order_that_nobody_pays_is_cancelled_after_its_window_and_its_goods_go_back() {
    let cast = Cast::open(&["--callback-delay", "8s"], &SOON).await;
    let at = cast.service.main;
    let unpaid = cast.order_that_is("pending", "unpaid").await;
    let in_flight = cast.order_that_is("processing", "in-flight").await;
    let settled = cast.order_that_is("paid by card", "paid").await;
    becomes(&cast.anna, at, &unpaid, "cancelled", "declined").await;
    assert_eq!(
        now(&cast.anna, at, &in_flight).await,
        is(200, "pending", "card", "processing"),
        "its outcome comes first"
    );
    assert_eq!(cast.shop.stock("TEA").await, 999_998);
    let late = cast.anna.wish(at, &unpaid, "pay", "p", None).await;
    assert_eq!((late.status, late.problem().as_str()), (409, "illegal-transition"));
    becomes(&cast.anna, at, &in_flight, "paid", "captured").await;
    assert_eq!(now(&cast.anna, at, &settled).await, is(200, "paid", "card", "captured"));
    cast.shop.holds().await;
}

/// Between a sweeper's look and its change the buyer has paid: the window is over, and the order is none of its business.
/// PostgreSQL only, where a reader need not wait for a writer.
#[tokio::test]
async fn an_order_that_is_paid_while_the_sweeper_waits_for_it_stays_paid() {
    let settings = [("ONCEGATE_PAYMENT_WINDOW", "1ms"), ("ONCEGATE_SWEEP_INTERVAL", "0s"), PATIENT[0]];
    let cast = Cast::open(&[], &settings).await;
    if !cast.shop.site.shares_a_server() {
        return;
    }
    let (at, order) = (cast.service.main, cast.order_that_is("pending", "k").await);
    let in_line = async |many| {
        let waiting = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        eventually("they wait", async || cast.shop.count(waiting).await == many).await;
    };
    let held = cast.shop.site.under.sql.keep_open("SELECT attempt FROM payments FOR UPDATE").await;
    let paying = async {
        let seen = cast.anna.wish(at, &order, "pay", "p", Some(&json!({"payment": "balance"}))).await;
        assert_eq!(seen.status, 200, "{seen:?}");
    };
    let sweeping = async {
        in_line(1).await;
        let sweep = cast.shop.site.sweep();
        let released = async {
            in_line(2).await;
            held.commit().await;
        };
        tokio::join!(sweep, released);
    };
    tokio::join!(paying, sweeping);
    assert_eq!(now(&cast.anna, at, &order).await, is(200, "paid", "balance", "captured"));
    cast.shop.holds().await;
}

#[tokio::test]
async fn without_a_sweeper_an_unpaid_order_stays() {
    let settings = [("ONCEGATE_PAYMENT_WINDOW", "1ms"), ("ONCEGATE_SWEEP_INTERVAL", "0s")];
    let cast = Cast::open(&[], &settings).await;
    let order = cast.order_that_is("pending", "k").await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(now(&cast.anna, cast.service.main, &order).await, is(200, "pending", "card", "declined"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_twenty_times_and_swept_by_two_processes_the_goods_go_back_once() {
    let shop = Shop::open(&[], &SOON).await;
    let services = shop.site.start_two().await;
    shop.till.courier.bring_to(services[0].main);
    let anna = shop.site.client("anna").await;
    let mut orders = Vec::new();
    for n in 0..5 {
        orders.push(anna.order(services[0].main, &format!("k{n}"), &cups_with(2, BAD)).await.order().unwrap());
    }
    assert_eq!(shop.stock("CUP").await, 0);
    // About when the window ends.
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    for (n, order) in orders.iter().enumerate() {
        let answers = at_once(20, |m| {
            let (anna, order, at) = (anna.clone(), order.clone(), in_turn(&services, m));
            async move { anna.wish(at, &order, "cancel", &format!("c{n}-{m}"), None).await.status }
        })
        .await;
        assert_eq!(answers, [200; 20]);
    }
    eventually("they are cancelled", async || shop.count("FROM orders WHERE status = 'cancelled'").await == 5).await;
    assert_eq!(shop.stock("CUP").await, 10);
    shop.holds().await;
}

/// Stock comes back also where nothing but the balance was ever offered.
#[tokio::test]
async fn cancelled_by_twenty_requests_at_once_an_order_gives_its_goods_back_once() {
    let site = Site::open(PATIENT).await;
    let services = site.start_two().await;
    let anna = site.client("anna").await;
    let order = paid(&anna, services[0].main, "k", &want(&[("CUP", 4)])).await;
    let answers = at_once(20, |n| {
        let (anna, order, at) = (anna.clone(), order.clone(), in_turn(&services, n));
        async move { anna.wish(at, &order, "cancel", &format!("c{n}"), None).await.status }
    })
    .await;
    assert_eq!(answers, [200; 20]);
    assert_eq!(site.under.sql.int("SELECT stock FROM products WHERE sku = 'CUP'").await, 10);
    assert_eq!(site.under.sql.int("SELECT count(*) FROM account_entries WHERE kind = 'refund'").await, 1);
    site.holds_with_cards().await;
}
