//! Those who leave before their answer comes (D1): a buyer, an operator, the provider. What they asked for is done.

use std::net::SocketAddr;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{BAD, PATIENT, Shop, becomes, cups, cups_with, is, now, paid};
use crate::harness::Sql;
use crate::harness::client::{Client, want};
use crate::harness::site::eventually;
use crate::harness::till::Callback;

impl Shop {
    /// Waits until somebody waits for what the test holds.
    async fn somebody_waits_in_line(&self) {
        if let Sql::Sqlite(_) = self.site.under.sql {
            // Nothing shows: it waits for the file's lock.
            return tokio::time::sleep(Duration::from_millis(300)).await;
        }
        // The coupons wait as well, in a statement of another kind.
        let waiting = "FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock' AND ltrim(query) LIKE 'SELECT%'";
        eventually("somebody waits", async || self.count(waiting).await > 0).await;
    }

    /// A payment that only a callback tells of, and that callback.
    async fn an_order_that_waits_for_its_callback(&self, at: SocketAddr) -> (String, Callback) {
        self.till.courier.hold();
        assert!(self.site.client("anna").await.order(at, "lost", &cups(1)).await.is_unavailable());
        let told = || self.till.courier.of_kind("payment_intent.succeeded");
        eventually("the callback was sent", async || !told().is_empty()).await;
        let callback = told().remove(0);
        (callback.object()["metadata"]["order_id"].as_str().unwrap().to_owned(), callback)
    }
}

#[tokio::test]
async fn what_was_wished_of_an_order_and_told_of_it_is_done_although_everybody_has_left() {
    let shop = Shop::open(&["--lose-answer", "1"], PATIENT).await;
    let (service, anna, operator) = (shop.start().await, shop.site.client("anna").await, shop.site.operator().await);
    let at = service.main;
    let [cancelled, shipped] = ["c", "s"].map(async |key| paid(&anna, at, key, &want(&[("CUP", 1)])).await);
    let (cancelled, shipped) = (cancelled.await, shipped.await);
    let declined = anna.order(at, "d", &cups_with(1, BAD)).await.order().unwrap();
    let (told, callback) = shop.an_order_that_waits_for_its_callback(at).await;

    let wish = |client: &Client, order: &str, what: &str, body: Option<Value>| {
        let (client, path) = (client.clone(), format!("/api/orders/{order}/{what}"));
        tokio::spawn(async move { drop(client.try_post(at, &path, Some(&path), body.as_ref()).await) })
    };
    for (what, order) in [("cancel", &cancelled), ("ship", &shipped), ("pay", &declined), ("callback", &told)] {
        // Of this order alone, or the reconciler at another one would be taken for who is waited for.
        let held = shop.site.under.sql.keep_open(&format!("UPDATE orders SET note = note WHERE id = '{order}'")).await;
        let leaving = match what {
            "cancel" => wish(&anna, &cancelled, what, None),
            "ship" => wish(&operator, &shipped, what, None),
            "pay" => wish(&anna, &declined, what, Some(json!({"payment": "balance"}))),
            _ => {
                let callback = callback.clone();
                tokio::spawn(async move { drop(callback.try_deliver(at).await) })
            }
        };
        shop.somebody_waits_in_line().await;
        leaving.abort();
        // Time to notice who has gone.
        tokio::time::sleep(Duration::from_millis(200)).await;
        held.commit().await;
    }
    becomes(&anna, at, &cancelled, "cancelled", "refunded").await;
    becomes(&anna, at, &shipped, "shipped", "captured").await;
    becomes(&anna, at, &declined, "paid", "captured").await;
    becomes(&anna, at, &told, "paid", "captured").await;
    shop.holds().await;
}

/// A stop waits for them as well.
#[tokio::test]
async fn a_stop_finishes_what_was_wished_although_everybody_has_left() {
    let shop = Shop::open(&[], PATIENT).await;
    let (mut service, anna, operator) =
        (shop.start().await, shop.site.client("anna").await, shop.site.operator().await);
    let order = paid(&anna, service.main, "k", &want(&[("CUP", 1)])).await;
    let held = shop.site.under.sql.keep_open("UPDATE orders SET note = note").await;
    let (at, path) = (service.main, format!("/api/orders/{order}/ship"));
    let leaving = tokio::spawn(async move { operator.try_post(at, &path, None, None).await });
    shop.somebody_waits_in_line().await;
    leaving.abort();
    service.signal(Signal::SIGTERM);
    service.wait_for("stopping").await;
    // Longer than a stop waits for the database alone.
    tokio::time::sleep(Duration::from_millis(3_200)).await;
    held.commit().await;
    assert_eq!(service.end().await.0, Some(0));
    let service = shop.start().await;
    assert_eq!(now(&anna, service.main, &order).await, is(200, "shipped", "balance", "captured"));
    shop.holds().await;
}

/// The row of the event is written and what it tells is not: neither is there afterwards (E6).
#[tokio::test]
async fn a_callback_whose_process_is_killed_half_way_is_applied_when_it_comes_again() {
    let shop = Shop::open(&["--lose-answer", "1"], PATIENT).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let (order, callback) = shop.an_order_that_waits_for_its_callback(service.main).await;
    let held = shop.site.under.sql.keep_open("UPDATE orders SET note = note").await;
    let (at, first) = (service.main, callback.clone());
    let told = tokio::spawn(async move { first.try_deliver(at).await });
    shop.somebody_waits_in_line().await;
    service.signal(Signal::SIGKILL);
    assert_eq!(service.end().await.0, None, "it was killed");
    assert!(told.await.unwrap().is_err());
    held.commit().await;
    let service = shop.start().await;
    eventually("nothing of it is left", async || shop.count("FROM payment_events").await == 0).await;
    assert_eq!(callback.deliver(service.main).await, 200);
    assert_eq!(now(&anna, service.main, &order).await, is(200, "paid", "card", "captured"));
    assert_eq!((callback.deliver(service.main).await, shop.count("FROM payment_events").await), (200, 1));
    shop.holds().await;
}
