//! A provider that takes its time holds up nobody but those who wait for it (D9).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{PATIENT, Shop, cups_with, is, shown};
use crate::harness::client::{Client, Seen, want};
use crate::harness::http;
use crate::harness::service::Service;
use crate::harness::site::eventually;
use crate::races::at_once;

/// What a page takes at most.
const QUICK: Duration = Duration::from_millis(200);
/// How much longer than before it may take on a machine that has something else to do.
const STARVED: u32 = 4;

/// Asks this again and again while the others wait; the time that half of the answers took at most.
async fn median(url: String, client: Client, waiting: Arc<AtomicBool>) -> Duration {
    let (http, mut times) = (http().build().unwrap(), Vec::new());
    while waiting.load(Ordering::SeqCst) {
        let begun = Instant::now();
        let answer = http.get(&url).bearer_auth(client.token()).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        times.push(begun.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    times.sort_unstable();
    times[times.len() / 2]
}

/// What these pages take for as long as the work takes.
async fn medians<T>(client: &Client, at: SocketAddr, work: impl Future<Output = T>) -> (Vec<Duration>, T) {
    let waiting = Arc::new(AtomicBool::new(true));
    let pages = ["/orders/new", "/healthz", "/readyz", "/api/products", "/api/orders"]
        .map(|path| tokio::spawn(median(format!("http://{at}{path}"), client.clone(), waiting.clone())));
    let done = work.await;
    waiting.store(false, Ordering::SeqCst);
    let mut medians = Vec::new();
    for page in pages {
        medians.push(page.await.unwrap());
    }
    (medians, done)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_thirty_orders_wait_for_a_slow_provider_everybody_else_is_served_at_once() {
    let shop = Shop::open(&["--latency", "5s"], PATIENT).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    anna.order(service.main, "first", &want(&[("TEA", 1)])).await;
    let (before, ()) = medians(&anna, service.main, tokio::time::sleep(Duration::from_secs(1))).await;
    let (during, placed) = medians(&anna, service.main, thirty_wait(&shop, &service, &anna)).await;
    for (before, during) in before.into_iter().zip(during) {
        assert!(during < QUICK.max(before * STARVED), "{during:?}, and before it was {before:?}");
    }
    for (n, seen) in placed.into_iter().enumerate() {
        // Where even this was too slow for the starved provider, the same request finds out.
        let seen = if seen.is_unavailable() { anna.order(service.main, &format!("k{n}"), &pot()).await } else { seen };
        assert_eq!(shown(&seen), is(201, "paid", "card", "captured"), "{seen:?}");
    }
    assert_eq!(shop.till.charges().await, 30);
    shop.holds().await;
}

/// One pot, by card.
fn pot() -> Value {
    json!({"lines": [{"sku": "POT", "quantity": 1}], "payment": "card"})
}

/// Thirty buyers of the same goods wait for the provider; meanwhile no transaction is open, no row is locked, and the desk is
/// free.
async fn thirty_wait(shop: &Shop, service: &Service, anna: &Client) -> Vec<Seen> {
    let (anna_, at) = (anna.clone(), service.main);
    let placing = tokio::spawn(at_once(30, move |n| {
        let anna = anna_.clone();
        async move { anna.order(at, &format!("k{n}"), &pot()).await }
    }));
    eventually("the provider has them all", async || shop.till.charges().await == 30).await;
    let other = anna.order(service.main, "other", &want(&[("POT", 1)])).await;
    assert_eq!(shown(&other), is(201, "paid", "balance", "captured"));
    assert!(!placing.is_finished(), "it did not wait for them");
    if shop.site.shares_a_server() {
        let idle = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND state LIKE 'idle in transaction%' AND clock_timestamp() - state_change > interval '1 second'";
        while !placing.is_finished() {
            assert_eq!(shop.site.under.sql.int(idle).await, 0, "no transaction waits for the provider");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    placing.await.unwrap()
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
