//! `kill -9` while money moves, and changes that fail half-way (E5, E6, E10).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{BAD, HASTY, PATIENT, Shop, becomes, cups, cups_with, is, now, shown};
use crate::harness::Sql;
use crate::harness::client::{Client, Seen};
use crate::harness::service::Service;
use crate::harness::site::eventually;

/// In seconds, as in [`HASTY`].
const LEASE: u64 = 4;
/// The charge is made at once, its answer comes this much later: time enough to kill whoever waits for it.
const LATENCY: &[&str] = &["--latency", "700ms", "--callbacks", "none"];

/// Sends something, waits until the provider has charged, and kills the service before it hears of it.
async fn killed_after(shop: &Shop, service: Service, work: impl Future<Output = reqwest::Result<Seen>>) {
    let killed = async {
        eventually("the provider has charged", async || shop.till.charges().await == 1).await;
        service.signal(Signal::SIGKILL);
        assert_eq!(service.end().await.0, None, "it was killed");
    };
    let (answer, ()) = tokio::join!(work, killed);
    assert!(answer.is_err(), "no answer was given: {answer:?}");
    assert_eq!(shop.count("FROM payments WHERE status = 'started'").await, 1, "its outcome is not known");
}

/// Asks again until there is an answer; nothing but "in progress" and "unavailable" may come before.
async fn retry(client: &Client, at: SocketAddr, path: &str, key: &str, body: &Value) -> Seen {
    let begun = Instant::now();
    loop {
        let seen = client.try_post(at, path, Some(key), Some(body)).await.unwrap();
        if seen.status < 300 {
            return seen;
        }
        assert!(seen.is_in_progress(LEASE) || seen.is_unavailable(), "{seen:?}");
        assert!(begun.elapsed() < Duration::from_secs(LEASE + 10), "{key} is not finished within its lease");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn killed_between_charge_and_commit_a_retry_finishes_the_order_with_the_one_charge() {
    let shop = Shop::open(LATENCY, HASTY).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let order = cups(2);
    let lost = anna.try_order(service.main, "k", &order);
    killed_after(&shop, service, lost).await;
    let service = shop.start().await;
    let placed = retry(&anna, service.main, "/api/orders", "k", &cups(2)).await;
    assert_eq!(shown(&placed), is(201, "paid", "card", "captured"), "{placed:?}");
    assert!(anna.order(service.main, "k", &cups(2)).await.same_as(&placed));
    assert_eq!((shop.till.charges().await, shop.attempts(&placed.order().unwrap()).await.len()), (1, 1));
    assert_eq!(shop.stock("CUP").await, 8);
    shop.holds().await;
}

#[tokio::test]
async fn killed_between_charge_and_commit_the_reconciler_finishes_the_order_where_nobody_retries() {
    let shop = Shop::open(LATENCY, HASTY).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let order = cups(2);
    let lost = anna.try_order(service.main, "k", &order);
    killed_after(&shop, service, lost).await;
    let service = shop.start().await;
    let order = anna.get(service.main, "/api/orders").await.json()["orders"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(now(&anna, service.main, &order).await, is(200, "pending", "card", "started"));
    becomes(&anna, service.main, &order, "paid", "captured").await;
    assert_eq!(shop.till.charges().await, 1);
    let late = anna.order(service.main, "k", &cups(2)).await;
    assert_eq!((shown(&late), late.order()), (is(201, "paid", "card", "captured"), Some(order)));
    shop.holds().await;
}

#[tokio::test]
async fn killed_while_an_order_is_paid_anew_a_retry_resumes_that_attempt() {
    let shop = Shop::open(LATENCY, HASTY).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let order = anna.order_to_the_end(service.main, "k", &cups_with(1, BAD)).await.order().unwrap();
    let (path, card) = (format!("/api/orders/{order}/pay"), json!({"payment_method": "pm_card_visa"}));
    let lost = anna.try_post(service.main, &path, Some("p"), Some(&card));
    killed_after(&shop, service, lost).await;
    let service = shop.start().await;
    let paid = retry(&anna, service.main, &path, "p", &card).await;
    assert_eq!(shown(&paid), is(200, "paid", "card", "captured"), "{paid:?}");
    assert_eq!(
        (shop.till.charges().await, shop.attempts(&order).await),
        (1, vec!["declined".into(), "captured".into()])
    );
    shop.holds().await;
}

#[tokio::test]
async fn killed_while_an_order_is_paid_anew_the_reconciler_finishes_it_where_nobody_retries() {
    let shop = Shop::open(LATENCY, HASTY).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let order = anna.order_to_the_end(service.main, "k", &cups_with(1, BAD)).await.order().unwrap();
    let (path, card) = (format!("/api/orders/{order}/pay"), json!({"payment_method": "pm_card_visa"}));
    let lost = anna.try_post(service.main, &path, Some("p"), Some(&card));
    killed_after(&shop, service, lost).await;
    let service = shop.start().await;
    becomes(&anna, service.main, &order, "paid", "captured").await;
    assert_eq!(shop.till.charges().await, 1);
    shop.holds().await;
}

/// Cancelled while the process that charged was dead: what it took goes back, once.
#[tokio::test]
async fn killed_between_charge_and_commit_and_then_cancelled_the_money_goes_back() {
    let shop = Shop::open(LATENCY, HASTY).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let order = cups(2);
    let lost = anna.try_order(service.main, "k", &order);
    killed_after(&shop, service, lost).await;
    let service = shop.start().await;
    let order = anna.get(service.main, "/api/orders").await.json()["orders"][0]["id"].as_str().unwrap().to_owned();
    let cancelled = anna.wish(service.main, &order, "cancel", "c", None).await;
    assert_eq!(shown(&cancelled).1, "cancelled", "{cancelled:?}");
    assert_eq!(shop.stock("CUP").await, 10);
    becomes(&anna, service.main, &order, "cancelled", "refunded").await;
    let log = shop.till.log().await;
    assert_eq!((log.len(), log[1].refund), (2, true), "{log:?}");
    let told = anna.order(service.main, "k", &cups(2)).await;
    assert_eq!((told.status, shown(&told).1), (201, "cancelled".to_owned()), "the order as it is: {told:?}");
    shop.holds().await;
}

/// The provider has paid back, and nobody wrote it down: it is asked again under the same key, and pays nothing more.
#[tokio::test]
async fn killed_between_a_refund_and_its_commit_the_money_goes_back_once() {
    let shop = Shop::open(LATENCY, HASTY).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let order = anna.order_to_the_end(service.main, "k", &cups(2)).await.order().unwrap();
    let refunds = async || shop.till.log().await.into_iter().filter(|line| line.refund).collect::<Vec<_>>();
    let cancelled = anna.wish(service.main, &order, "cancel", "c", None).await;
    assert_eq!(shown(&cancelled), is(200, "cancelled", "card", "refund_due"), "{cancelled:?}");
    eventually("the provider has paid it back", async || refunds().await.len() == 1).await;
    service.signal(Signal::SIGKILL);
    assert_eq!(service.end().await.0, None, "it was killed");
    assert_eq!(shop.attempts(&order).await, ["refund_due"], "nobody knows");
    let service = shop.start().await;
    becomes(&anna, service.main, &order, "cancelled", "refunded").await;
    assert_eq!(refunds().await.len(), 1);
    shop.holds().await;
}

/// A stop waits for the provider's answer and writes it down.
#[tokio::test]
async fn a_stop_while_the_provider_thinks_finishes_the_order_first() {
    let shop = Shop::open(LATENCY, PATIENT).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let placed = tokio::spawn({
        let (anna, at) = (anna.clone(), service.main);
        async move { anna.order(at, "k", &cups(1)).await }
    });
    eventually("the provider has charged", async || shop.till.charges().await == 1).await;
    service.signal(Signal::SIGTERM);
    assert_eq!(service.end().await.0, Some(0));
    assert_eq!(shown(&placed.await.unwrap()), is(201, "paid", "card", "captured"));
    shop.holds().await;
}

/// The client leaves while the provider thinks.
#[tokio::test]
async fn a_client_that_leaves_does_not_cut_its_payment_in_half() {
    let shop = Shop::open(LATENCY, PATIENT).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let left = tokio::spawn({
        let (anna, at) = (anna.clone(), service.main);
        async move { anna.try_order(at, "k", &cups(1)).await }
    });
    eventually("the provider has charged", async || shop.till.charges().await == 1).await;
    left.abort();
    shop.settles().await;
    let again = anna.order(service.main, "k", &cups(1)).await;
    assert_eq!((shown(&again), again.replayed()), (is(201, "paid", "card", "captured"), true));
    shop.holds().await;
}

/// The event's row and what it changes are one transaction: where the change fails, the event was never heard of.
#[tokio::test]
async fn a_callback_whose_change_fails_is_applied_when_it_comes_again() {
    let shop = Shop::open(&["--lose-answer", "1"], PATIENT).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    shop.till.courier.hold();
    assert!(anna.order(service.main, "k", &cups(1)).await.is_unavailable());
    eventually("the callback was sent", async || !shop.till.courier.bag().is_empty()).await;
    let callback = shop.till.courier.bag().remove(0);
    let order = callback.object()["metadata"]["order_id"].as_str().unwrap().to_owned();

    let sql = &shop.site.under.sql;
    let (fail, heal) = match sql {
        Sql::Postgres(_) => (
            "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
             CREATE TRIGGER fail BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION fail()",
            "DROP TRIGGER fail ON orders",
        ),
        Sql::Sqlite(_) => {
            ("CREATE TRIGGER fail BEFORE UPDATE ON orders BEGIN SELECT RAISE(ABORT, 'no'); END", "DROP TRIGGER fail")
        }
    };
    for statement in fail.split_inclusive("$$;") {
        sql.run(statement).await;
    }
    assert_eq!(callback.deliver(service.main).await, 500);
    assert_eq!(shop.count("FROM payment_events").await, 0, "not marked as heard");
    assert_eq!(now(&anna, service.main, &order).await, is(200, "pending", "card", "unknown"));
    sql.run(heal).await;
    assert_eq!(callback.deliver(service.main).await, 200);
    assert_eq!(now(&anna, service.main, &order).await, is(200, "paid", "card", "captured"));
    assert_eq!(callback.deliver(service.main).await, 200);
    shop.holds().await;
}
