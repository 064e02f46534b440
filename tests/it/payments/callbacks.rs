//! The provider's word: forged, repeated, late, early, out of order, wrong, unknown (E1, E2, E5, E9).

mod forged;

use serde_json::json;

use super::{BAD, HASTY, PATIENT, SLOW, Shop, becomes, cups, cups_with, is, now, paid, shown};
use crate::harness::client::Client;
use crate::harness::service::Service;
use crate::harness::site::eventually;
use crate::harness::till::Callback;
use crate::races::at_once;

/// An order whose answer was lost and whose callback is in the test's hands.
async fn unheard_of(shop: &Shop, service: &Service, anna: &Client) -> (String, Callback) {
    shop.till.courier.hold();
    assert!(anna.order(service.main, "k", &cups(2)).await.is_unavailable());
    eventually("the callback was sent", async || shop.till.courier.bag().len() == 1).await;
    let callback = shop.till.courier.bag().remove(0);
    let order = callback.object()["metadata"]["order_id"].as_str().unwrap().to_owned();
    (order, callback)
}

async fn losing() -> (Shop, Service, Client) {
    let shop = Shop::open(&["--lose-answer", "1"], PATIENT).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    (shop, service, anna)
}

#[tokio::test]
async fn a_callback_pays_the_order_once_however_often_it_comes() {
    let (shop, service, anna) = losing().await;
    let (order, callback) = unheard_of(&shop, &service, &anna).await;
    assert_eq!(now(&anna, service.main, &order).await, is(200, "pending", "card", "unknown"));
    // A first delivery that the provider gave up on.
    let gave_up = tokio::spawn({
        let (callback, at) = (callback.clone(), service.main);
        async move { callback.try_deliver(at).await }
    });
    tokio::task::yield_now().await;
    gave_up.abort();
    let answers = at_once(20, |_| {
        let (callback, at) = (callback.clone(), service.main);
        async move { callback.deliver(at).await }
    })
    .await;
    assert_eq!(answers, [200; 20]);
    assert_eq!(callback.deliver(service.main).await, 200);
    // The same news under new ids.
    for _ in 0..3 {
        assert_eq!(Callback::about("payment_intent.succeeded", &callback.object()).deliver(service.main).await, 200);
    }
    assert_eq!(now(&anna, service.main, &order).await, is(200, "paid", "card", "captured"));
    assert_eq!((shop.attempts(&order).await, shop.stock("CUP").await), (vec!["captured".to_owned()], 8));
    assert_eq!(shop.count("FROM payment_events WHERE outcome = 'applied'").await, 1);
    assert_eq!(shop.count("FROM payment_events").await, 4);
    assert_eq!(shop.count("FROM outbox").await, 1);
    let placed = anna.order(service.main, "k", &cups(2)).await;
    assert_eq!((shown(&placed), placed.order()), (is(201, "paid", "card", "captured"), Some(order)));
    shop.holds().await;
}

#[tokio::test]
async fn two_processes_that_get_the_same_callback_apply_it_once() {
    let (shop, service, anna) = losing().await;
    let second = shop.site.start().await;
    let (order, callback) = unheard_of(&shop, &service, &anna).await;
    let answers = at_once(20, |n| {
        let (callback, at) = (callback.clone(), [service.main, second.main][n % 2]);
        async move { callback.deliver(at).await }
    })
    .await;
    assert_eq!(answers, [200; 20]);
    assert_eq!(now(&anna, second.main, &order).await, is(200, "paid", "card", "captured"));
    assert_eq!(shop.count("FROM payment_events").await, 1);
    shop.holds().await;
}

#[tokio::test]
async fn a_late_failure_takes_nothing_back() {
    let shop = Shop::open(&[], PATIENT).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let operator = shop.site.operator().await;
    shop.till.courier.hold();
    // Of the same payment.
    let order = paid(&anna, service.main, "k-1", &cups(1)).await;
    eventually("its callback was sent", async || shop.till.courier.bag().len() == 1).await;
    let success = shop.till.courier.bag().remove(0);
    let failure = Callback::about("payment_intent.payment_failed", &success.object());
    for callback in [&success, &failure, &failure] {
        assert_eq!(callback.deliver(service.main).await, 200);
    }
    assert_eq!(now(&anna, service.main, &order).await, is(200, "paid", "card", "captured"));
    assert_eq!(operator.ship(service.main, &order).await.status, 200);
    let again = Callback::about("payment_intent.payment_failed", &success.object());
    assert_eq!(again.deliver(service.main).await, 200);
    assert_eq!(now(&anna, service.main, &order).await, is(200, "shipped", "card", "captured"));

    // Of an earlier attempt, whose answer came, and whose callback comes after the second attempt has paid.
    let order = anna.order(service.main, "k-2", &cups_with(1, BAD)).await.order().unwrap();
    let first = || shop.till.courier.of_kind("payment_intent.payment_failed");
    eventually("its callback was sent", async || !first().is_empty()).await;
    let card = json!({"payment_method": "pm_card_visa"});
    assert_eq!(anna.wish(service.main, &order, "pay", "p", Some(&card)).await.status, 200);
    assert_eq!(first()[0].deliver(service.main).await, 200);
    assert_eq!(now(&anna, service.main, &order).await, is(200, "paid", "card", "captured"));
    assert_eq!(shop.attempts(&order).await, ["declined", "captured"]);
    assert_eq!(operator.ship(service.main, &order).await.status, 200);
    let again = Callback::about("payment_intent.payment_failed", &first()[0].object());
    assert_eq!(again.deliver(service.main).await, 200);
    assert_eq!(now(&anna, service.main, &order).await, is(200, "shipped", "card", "captured"));
    shop.holds().await;
}

/// The failure of an attempt whose answer never came is recorded on that attempt, and the order can be paid anew.
#[tokio::test]
async fn a_failure_that_only_the_callback_tells_opens_the_way_for_another_card() {
    let shop = Shop::open(&[], PATIENT).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    shop.till.courier.hold();
    let order = anna.order(service.main, "k", &cups_with(1, SLOW)).await.order().unwrap();
    let told = || shop.till.courier.of_kind("payment_intent.processing");
    eventually("it tells that it works on it", async || !told().is_empty()).await;
    let failure = Callback::about("payment_intent.payment_failed", &told()[0].object());
    assert_eq!(failure.deliver(service.main).await, 200);
    assert_eq!(now(&anna, service.main, &order).await, is(200, "pending", "card", "declined"));
    let paid = anna.wish(service.main, &order, "pay", "p", Some(&json!({"payment": "balance"}))).await;
    assert_eq!(shown(&paid), is(200, "paid", "balance", "captured"), "{paid:?}");
    // The provider changes its mind: what it took goes back, as the order is paid already.
    let word = || shop.till.courier.of_kind("payment_intent.succeeded");
    eventually("it comes through", async || !word().is_empty()).await;
    assert_eq!(word()[0].deliver(service.main).await, 200);
    eventually("it is paid back", async || shop.attempts(&order).await == ["refunded", "captured"]).await;
    assert_eq!(now(&anna, service.main, &order).await, is(200, "paid", "balance", "captured"));
    shop.holds().await;
}

#[tokio::test]
async fn a_second_payment_of_one_order_is_paid_back_and_never_dropped() {
    let shop = Shop::open(&[], HASTY).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let order = paid(&anna, service.main, "k", &cups(2)).await;
    shop.till.charge(&order, 1, 200, "a-second-payment-that-nobody-asked-for").await;
    eventually("it is heard of", async || shop.attempts(&order).await.len() == 2).await;
    shop.settles().await;
    assert_eq!(shop.attempts(&order).await, ["captured", "refunded"]);
    assert_eq!(now(&anna, service.main, &order).await, is(200, "paid", "card", "captured"));
    let refunds: Vec<_> = shop.till.log().await.into_iter().filter(|line| line.refund).collect();
    assert_eq!(refunds.len(), 1, "{refunds:?}");
    assert!(shop.till.courier.refused().is_empty());
    shop.holds().await;
}

#[tokio::test]
async fn a_payment_that_comes_after_the_order_was_cancelled_is_paid_back_once() {
    let shop = Shop::open(&["--callback-delay", "3s"], HASTY).await;
    let (service, second) = (shop.start().await, shop.site.start().await);
    let anna = shop.site.client("anna").await;
    let order = anna.order(service.main, "k", &cups_with(2, SLOW)).await.order().unwrap();
    let cancelled = anna.wish(service.main, &order, "cancel", "c", None).await;
    assert_eq!(shown(&cancelled), is(200, "cancelled", "card", "processing"), "{cancelled:?}");
    assert_eq!(shop.stock("CUP").await, 10);
    becomes(&anna, second.main, &order, "cancelled", "refunded").await;
    eventually("the provider tells of the refund", async || {
        shop.count("FROM payment_events WHERE kind = 'charge.refunded'").await == 1
    })
    .await;
    let log = shop.till.log().await;
    assert_eq!(log.iter().map(|line| line.refund).collect::<Vec<_>>(), [false, true], "{log:?}");
    assert_eq!(shop.stock("CUP").await, 10, "back once");
    shop.holds().await;
}

/// Whatever the provider does about its callbacks, the orders end the same.
async fn with_callbacks(mode: &str, delay: &str) {
    // Long enough for a first answer on a starved machine, short enough for what is then found out without being told.
    let settings = [("ONCEGATE_LEASE", "6s")];
    let shop = Shop::open(&["--callbacks", mode, "--callback-delay", delay], &settings).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let mut orders = Vec::new();
    for n in 0..3 {
        let placed = anna.order_to_the_end(service.main, &format!("k{n}"), &cups(1)).await;
        assert_eq!(shown(&placed), is(201, "paid", "card", "captured"), "{placed:?}");
        orders.push(placed.order().unwrap());
    }
    let slow = anna.order_to_the_end(service.main, "slow", &cups_with(1, SLOW)).await;
    assert_eq!(slow.status, 201, "{slow:?}");
    orders.push(slow.order().unwrap());
    let declined = anna.order_to_the_end(service.main, "bad", &cups_with(1, BAD)).await;
    assert_eq!(declined.problem(), "payment-declined");
    let cancelled = anna.wish(service.main, &orders[0], "cancel", "c", None).await;
    assert_eq!(shown(&cancelled).1, "cancelled");
    shop.settles().await;
    let told = match mode {
        "none" => 0,
        "twice" => 14,
        // "processing" of each that succeeded: three at once and one by and by.
        "shuffled" => 11,
        _ => 7,
    };
    eventually("the provider has told everything", async || shop.till.courier.bag().len() >= told).await;
    assert_eq!(now(&anna, service.main, &orders[0]).await, is(200, "cancelled", "card", "refunded"));
    for order in &orders[1..] {
        assert_eq!(now(&anna, service.main, order).await, is(200, "paid", "card", "captured"));
    }
    assert_eq!(now(&anna, service.main, &declined.order().unwrap()).await, is(200, "pending", "card", "declined"));
    assert_eq!((shop.till.charges().await, shop.stock("CUP").await), (4, 6));
    let refused = shop.till.courier.refused();
    assert!(refused.is_empty(), "{refused:?}");
    shop.holds().await;
}

#[tokio::test]
async fn callbacks_twice_at_the_same_time_change_nothing() {
    with_callbacks("twice", "0s").await;
}

#[tokio::test]
async fn late_callbacks_change_nothing() {
    with_callbacks("late", "100ms").await;
}

#[tokio::test]
async fn callbacks_in_the_wrong_order_change_nothing() {
    with_callbacks("shuffled", "50ms").await;
}

#[tokio::test]
async fn callbacks_that_overtake_the_answer_change_nothing() {
    with_callbacks("early", "0s").await;
}

#[tokio::test]
async fn missing_callbacks_change_nothing() {
    with_callbacks("none", "0s").await;
}

/// Between the provider's callback and its answer, the buyer has called the order off: the answer does not bring it back.
#[tokio::test]
async fn an_answer_that_comes_late_does_not_wipe_out_what_has_happened_meanwhile() {
    let shop = Shop::open(&["--latency", "600ms", "--callbacks", "early"], PATIENT).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let placing = tokio::spawn({
        let (anna, at) = (anna.clone(), service.main);
        async move { anna.order_to_the_end(at, "k", &cups(2)).await }
    });
    eventually("the callback has paid it", async || shop.count("FROM orders WHERE status = 'paid'").await == 1).await;
    let order = anna.get(service.main, "/api/orders").await.json()["orders"][0]["id"].as_str().unwrap().to_owned();
    let cancelled = anna.wish(service.main, &order, "cancel", "c", None).await;
    assert_eq!(shown(&cancelled), is(200, "cancelled", "card", "refund_due"), "{cancelled:?}");
    let placed = placing.await.unwrap();
    assert_eq!((placed.status, shown(&placed).1), (201, "cancelled".to_owned()), "{placed:?}");
    becomes(&anna, service.main, &order, "cancelled", "refunded").await;
    assert_eq!(shop.stock("CUP").await, 10);
    shop.holds().await;
}
