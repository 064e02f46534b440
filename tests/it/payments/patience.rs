//! A provider that takes its time holds up nobody but those who wait for it (D9).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::{PATIENT, Shop, cups_with, is, shown};
use crate::harness::client::{Client, want};
use crate::harness::http;
use crate::harness::site::eventually;
use crate::races::at_once;

/// What a page takes at most, as a rule.
const QUICK: Duration = Duration::from_millis(200);
/// And on a machine that has something else to do.
const STARVED: Duration = Duration::from_secs(2);

/// Asks this again and again while the others wait; how long each answer took.
async fn times(url: String, client: Client, waiting: Arc<AtomicBool>) -> Vec<Duration> {
    let (http, mut times) = (http().build().unwrap(), Vec::new());
    while waiting.load(Ordering::SeqCst) {
        let begun = Instant::now();
        let answer = http.get(&url).bearer_auth(client.token()).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        times.push(begun.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    times.sort_unstable();
    times
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_thirty_orders_wait_for_a_slow_provider_everybody_else_is_served_at_once() {
    let shop = Shop::open(&["--latency", "5s"], PATIENT).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let order = json!({"lines": [{"sku": "POT", "quantity": 1}], "payment": "card"});
    let waiting = Arc::new(AtomicBool::new(true));
    let pages: Vec<_> = ["/orders/new", "/healthz", "/readyz", "/api/products", "/api/orders"]
        .map(|path| tokio::spawn(times(format!("http://{}{path}", service.main), anna.clone(), waiting.clone())))
        .into();
    let placing = tokio::spawn({
        let (anna, at, order) = (anna.clone(), service.main, order.clone());
        async move {
            at_once(30, |n| {
                let (anna, order) = (anna.clone(), order.clone());
                async move { anna.order(at, &format!("k{n}"), &order).await }
            })
            .await
        }
    });
    eventually("the provider has them all", async || shop.till.charges().await == 30).await;
    // The same goods, the same account, by balance: no row is locked and the desk is free.
    let begun = Instant::now();
    let other = anna.order(service.main, "other", &want(&[("POT", 1)])).await;
    assert_eq!(shown(&other), is(201, "paid", "balance", "captured"));
    assert!(begun.elapsed() < STARVED, "{:?}", begun.elapsed());
    if shop.site.shares_a_server() {
        // Looked at for a while, from the database's side.
        let idle = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND state LIKE 'idle in transaction%' AND clock_timestamp() - state_change > interval '1 second'";
        while !placing.is_finished() {
            assert_eq!(shop.site.under.sql.int(idle).await, 0, "no transaction waits for the provider");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    for seen in placing.await.unwrap() {
        assert_eq!(shown(&seen), is(201, "paid", "card", "captured"));
    }
    waiting.store(false, Ordering::SeqCst);
    for page in pages {
        let times = page.await.unwrap();
        let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
        assert!(median < QUICK && longest < STARVED, "median {median:?}, longest {longest:?} of {}", times.len());
    }
    shop.holds().await;
}

/// Other processes of the service see the order as soon as it is made, not when it is paid.
#[tokio::test]
async fn an_order_that_waits_for_the_provider_is_seen_by_everybody_and_can_be_asked_about() {
    let shop = Shop::open(&["--latency", "3s", "--callbacks", "none"], PATIENT).await;
    let (service, second) = (shop.start().await, shop.site.start().await);
    let anna = shop.site.client("anna").await;
    let placing = tokio::spawn({
        let (anna, at) = (anna.clone(), service.main);
        async move { anna.order(at, "k", &cups_with(1, "pm_card_visa")).await }
    });
    eventually("the provider has it", async || shop.till.charges().await == 1).await;
    let seen = anna.get(second.main, "/api/orders").await.json()["orders"][0].clone();
    assert_eq!((&seen["status"], &seen["payment"]["status"]), (&json!("pending"), &json!("started")));
    let repeat = anna.order(second.main, "k", &cups_with(1, "pm_card_visa")).await;
    assert!(repeat.is_in_progress(60), "{repeat:?}");
    let id = seen["id"].as_str().unwrap();
    assert!(anna.wish(second.main, id, "pay", "p", None).await.is_in_progress(60));
    assert_eq!(shown(&placing.await.unwrap()), is(201, "paid", "card", "captured"));
    assert_eq!(shop.till.charges().await, 1);
    shop.holds().await;
}
