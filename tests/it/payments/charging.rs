//! Paying by card: what the provider says becomes the answer, once, under one key per attempt (E9, E11, E16, lost answers).

use super::{BAD, HASTY, PATIENT, SLOW, Shop, becomes, cups, cups_with, is, now, of, paid, shown, site_at};
use crate::harness::client::want;
use crate::harness::proxy::{Fault, Proxy};
use crate::harness::site::eventually;
use crate::harness::till::Till;
use crate::races::at_once;
use serde_json::json;

#[tokio::test]
async fn a_card_order_is_charged_once_and_its_repeat_is_answered_the_same() {
    let shop = Shop::open(&[], PATIENT).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let first = anna.order(service.main, "k", &cups_with(2, "pm_card_visa")).await;
    assert_eq!(shown(&first), is(201, "paid", "card", "captured"), "{first:?}");
    let again = anna.order(service.main, "k", &cups_with(2, "pm_card_visa")).await;
    assert!(again.same_as(&first) && again.replayed() && !first.replayed());
    assert_eq!(anna.order(service.main, "k", &cups(2)).await.problem(), "idempotency-key-reused");
    assert_eq!(service.counted("constraint", "inserted").await, 1, "an order by card is an order");

    let (log, order) = (shop.till.log().await, first.order().unwrap());
    assert_eq!(log.len(), 1, "{log:?}");
    assert_eq!((log[0].order.as_str(), log[0].attempt.as_str(), log[0].amount), (order.as_str(), "1", 200));
    let key = shop.site.under.sql.text(&format!("SELECT provider_key FROM payments WHERE {}", of(&order))).await;
    assert_eq!(log[0].key, key, "the key that was kept before the call");
    // Before ours or after it.
    eventually("the provider's word comes too", async || {
        shop.count("FROM payment_events WHERE outcome IN ('applied', 'already')").await == 1
    })
    .await;
    shop.holds().await;
}

#[tokio::test]
async fn a_declined_card_leaves_a_pending_order_that_can_be_paid_with_another_under_a_new_attempt() {
    let shop = Shop::open(&[], PATIENT).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let first = anna.order(service.main, "k", &cups_with(1, BAD)).await;
    assert_eq!((first.status, first.problem().as_str()), (402, "payment-declined"));
    let order = first.json()["order"].as_str().unwrap().to_owned();
    assert_eq!(first.header("location"), format!("/api/orders/{order}"));
    assert_eq!(first.json()["instance"], "/api/orders");
    assert!(anna.order(service.main, "k", &cups_with(1, BAD)).await.same_as(&first), "kept under the key");
    assert_eq!(now(&anna, service.main, &order).await, is(200, "pending", "card", "declined"));
    assert_eq!((shop.stock("CUP").await, shop.till.charges().await), (9, 0), "reserved, and nothing taken");

    let other = json!({"payment_method": BAD});
    let declined = anna.wish(service.main, &order, "pay", "p-1", Some(&other)).await;
    assert_eq!((declined.status, declined.problem().as_str()), (402, "payment-declined"));
    assert_eq!(declined.json()["instance"], format!("/api/orders/{order}/pay"));
    let good = json!({"payment": "card", "payment_method": "pm_card_visa"});
    assert_eq!(
        anna.wish(service.main, &order, "pay", "p-1", Some(&good)).await.problem(),
        "idempotency-key-reused",
        "another card is another content"
    );
    let paid = anna.wish(service.main, &order, "pay", "p-2", Some(&good)).await;
    assert_eq!(shown(&paid), is(200, "paid", "card", "captured"), "{paid:?}");
    let again = anna.wish(service.main, &order, "pay", "p-2", Some(&good)).await;
    assert!(again.same_as(&paid) && again.replayed());
    let once_more = anna.wish(service.main, &order, "pay", "p-3", None).await;
    assert_eq!((shown(&once_more), once_more.replayed()), (is(200, "paid", "card", "captured"), false));

    assert_eq!(shop.attempts(&order).await, ["declined", "declined", "captured"]);
    assert_eq!(shop.count("FROM (SELECT DISTINCT provider_key FROM payments) AS keys").await, 3);
    assert_eq!(shop.till.charges().await, 1);
    shop.holds().await;
}

#[tokio::test]
async fn a_declined_amount_can_be_paid_from_the_balance() {
    let shop = Shop::open(&["--decline-amount", "300", "--decline-amount", "500"], PATIENT).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let declined = anna.order(service.main, "k", &cups(3)).await;
    assert_eq!(declined.problem(), "payment-declined");
    let order = declined.order().unwrap();
    let paid = anna.wish(service.main, &order, "pay", "p", Some(&json!({"payment": "balance"}))).await;
    assert_eq!(shown(&paid), is(200, "paid", "balance", "captured"), "{paid:?}");
    assert_eq!(shop.attempts(&order).await, ["declined", "captured"]);
    assert_eq!(shop.till.charges().await, 0);
    shop.holds().await;
}

#[tokio::test]
async fn a_balance_that_does_not_cover_it_pays_nothing_and_says_so() {
    let shop = Shop::open(&[], &[PATIENT[0], ("ONCEGATE_OPENING_BALANCE", "50")]).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let order = anna.order(service.main, "k", &cups_with(1, BAD)).await.order().unwrap();
    let balance = json!({"payment": "balance"});
    let poor = anna.wish(service.main, &order, "pay", "p", Some(&balance)).await;
    assert_eq!((poor.status, poor.problem().as_str()), (402, "insufficient-funds"));
    assert!(anna.wish(service.main, &order, "pay", "p", Some(&balance)).await.replayed());
    assert_eq!(now(&anna, service.main, &order).await, is(200, "pending", "card", "declined"));
    shop.holds().await;
}

#[tokio::test]
async fn pending_is_answered_only_where_the_provider_says_processing_and_its_later_word_pays_the_order() {
    let shop = Shop::open(&["--callback-delay", "3s"], PATIENT).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let first = anna.order(service.main, "k", &cups_with(1, SLOW)).await;
    assert_eq!(shown(&first), is(201, "pending", "card", "processing"), "{first:?}");
    let order = first.order().unwrap();
    let busy = anna.wish(service.main, &order, "pay", "p", None).await;
    assert!(busy.is_in_progress(60), "{busy:?}");
    becomes(&anna, service.main, &order, "paid", "captured").await;
    assert_eq!(shown(&anna.wish(service.main, &order, "pay", "p", None).await), is(200, "paid", "card", "captured"));
    assert!(anna.order(service.main, "k", &cups_with(1, SLOW)).await.same_as(&first), "the first answer stays");
    shop.holds().await;
}

#[tokio::test]
async fn what_the_provider_accepts_and_never_tells_of_is_found_out_by_the_reconciler() {
    let shop = Shop::open(&["--callbacks", "none"], HASTY).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let first = anna.order(service.main, "k", &cups_with(1, SLOW)).await;
    assert_eq!(shown(&first), is(201, "pending", "card", "processing"), "{first:?}");
    becomes(&anna, service.main, &first.order().unwrap(), "paid", "captured").await;
    assert!(shop.till.courier.bag().is_empty());
    shop.holds().await;
}

#[tokio::test]
async fn a_lost_answer_is_unknown_and_the_same_request_gets_the_outcome_without_a_second_charge() {
    let shop = Shop::open(&["--lose-answer", "1", "--callbacks", "none"], PATIENT).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let lost = anna.order(service.main, "k", &cups(1)).await;
    assert!(lost.is_unavailable(), "{lost:?}");
    assert_eq!(shop.count("FROM payments WHERE status = 'unknown'").await, 1);
    let placed = anna.order(service.main, "k", &cups(1)).await;
    assert_eq!((shown(&placed), placed.replayed()), (is(201, "paid", "card", "captured"), false));
    assert_eq!((shop.till.charges().await, shop.attempts(&placed.order().unwrap()).await.len()), (1, 1));

    let order = {
        let declined = anna.order(service.main, "k-2", &cups_with(2, BAD)).await;
        declined.order().unwrap()
    };
    assert!(anna.wish(service.main, &order, "pay", "p", Some(&json!({"payment_method": "x"}))).await.is_unavailable());
    let other = anna.wish(service.main, &order, "pay", "q", Some(&json!({"payment_method": "y"}))).await;
    assert!(other.is_in_progress(60), "another card has to wait: {other:?}");
    let other = anna.wish(service.main, &order, "pay", "q", Some(&json!({"payment_method": "y"}))).await;
    assert!(other.is_in_progress(60), "also when it asks again: {other:?}");
    let paid = anna.wish(service.main, &order, "pay", "p", Some(&json!({"payment_method": "x"}))).await;
    assert_eq!(shown(&paid), is(200, "paid", "card", "captured"), "{paid:?}");
    assert_eq!(shop.till.charges().await, 2);
    shop.holds().await;
}

#[tokio::test]
async fn a_lost_answer_is_found_out_by_the_reconciler_where_nobody_asks_again() {
    let shop = Shop::open(&["--lose-answer", "1", "--callbacks", "none"], HASTY).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    assert!(anna.order(service.main, "k", &cups(1)).await.is_unavailable());
    let order = anna.get(service.main, "/api/orders").await.json()["orders"][0]["id"].as_str().unwrap().to_owned();
    becomes(&anna, service.main, &order, "paid", "captured").await;
    let late = anna.order(service.main, "k", &cups(1)).await;
    assert_eq!((shown(&late), late.order()), (is(201, "paid", "card", "captured"), Some(order)));
    assert_eq!(shop.till.charges().await, 1);
    shop.holds().await;
}

#[tokio::test]
async fn a_silent_provider_is_answered_503_and_a_retry_under_the_same_key_gets_one_charge() {
    // Slower than the shop waits (two thirds of the lease, and of that three quarters).
    let shop = Shop::open(&["--latency", "2500ms", "--callbacks", "none"], HASTY).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let silent = anna.order(service.main, "k", &cups(1)).await;
    assert!(silent.is_unavailable(), "{silent:?}");
    let mut placed = None;
    eventually("it is placed", async || {
        let seen = anna.order(service.main, "k", &cups(1)).await;
        assert!(seen.status == 201 || seen.is_unavailable() || seen.is_in_progress(4), "{seen:?}");
        placed = (seen.status == 201).then_some(seen);
        placed.is_some()
    })
    .await;
    assert_eq!(shown(&placed.unwrap()), is(201, "paid", "card", "captured"));
    assert_eq!((shop.till.charges().await, shop.count("FROM payments").await), (1, 1));
    shop.holds().await;
}

#[tokio::test]
async fn a_provider_that_cannot_be_reached_takes_the_money_once_it_can() {
    let till = Till::open(&[]).await;
    let proxy = Proxy::start(till.at).await;
    proxy.set(Fault::Refuse);
    let shop = Shop { site: site_at(proxy.addr(), HASTY).await, till };
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    assert!(anna.order(service.main, "k", &cups(1)).await.is_unavailable());
    assert!(anna.order(service.main, "k", &cups(1)).await.is_unavailable());
    proxy.set(Fault::None);
    let order = anna.get(service.main, "/api/orders").await.json()["orders"][0]["id"].as_str().unwrap().to_owned();
    becomes(&anna, service.main, &order, "paid", "captured").await;
    shop.holds().await;
}

#[tokio::test]
async fn two_tabs_that_pay_one_order_at_once_pay_it_once() {
    let shop = Shop::open(&["--latency", "300ms"], PATIENT).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    for round in 0..5 {
        let order = anna.order(service.main, &format!("k{round}"), &cups_with(1, BAD)).await.order().unwrap();
        let answers = at_once(4, |n| {
            let (anna, order) = (anna.clone(), order.clone());
            async move {
                anna.wish(
                    service.main,
                    &order,
                    "pay",
                    &format!("p{round}-{n}"),
                    Some(&json!({"payment_method": "pm_card_visa"})),
                )
                .await
            }
        })
        .await;
        let done = answers.iter().filter(|seen| seen.status == 200).count();
        assert!(done >= 1 && answers.iter().all(|seen| seen.status == 200 || seen.is_in_progress(60)), "{answers:?}");
        assert_eq!(shop.till.charges().await, round + 1);
        assert_eq!(shop.attempts(&order).await, ["declined", "captured"]);
    }
    shop.holds().await;
}

#[tokio::test]
async fn the_last_piece_is_charged_to_whoever_gets_it_and_to_nobody_else() {
    let shop = Shop::open(&["--latency", "200ms"], PATIENT).await;
    let service = shop.start().await;
    let clients = [shop.site.client("a").await, shop.site.client("b").await, shop.site.client("c").await];
    paid(&clients[0], service.main, "all-but-one", &cups(9)).await;
    let answers = at_once(3, |n| {
        let client = clients[n].clone();
        async move { client.order(service.main, "k", &cups(1)).await }
    })
    .await;
    assert_eq!(answers.iter().filter(|seen| seen.status == 201).count(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|seen| seen.status == 409 && seen.problem() == "out-of-stock").count(), 2);
    assert_eq!((shop.till.charges().await, shop.stock("CUP").await), (2, 0));
    shop.holds().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_buyers_of_the_last_ten_pieces_are_ten_orders_and_ten_charges() {
    let shop = Shop::open(&["--callbacks", "twice"], PATIENT).await;
    let [first, second] = shop.site.start_two().await;
    shop.till.courier.bring_to(first.main);
    let mut clients = Vec::new();
    for n in 0..5 {
        clients.push(shop.site.client(&format!("buyer-{n}")).await);
    }
    let answers = at_once(100, |n| {
        let (client, at) = (clients[n % 5].clone(), [first.main, second.main][n % 2]);
        async move { client.order(at, &format!("k{n}"), &cups(1)).await }
    })
    .await;
    let (placed, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|seen| seen.status == 201);
    assert_eq!((placed.len(), shop.till.charges().await), (10, 10));
    for seen in placed {
        assert_eq!(shown(seen), is(201, "paid", "card", "captured"));
    }
    for seen in refused {
        assert_eq!((seen.status, seen.problem().as_str()), (409, "out-of-stock"), "{seen:?}");
    }
    shop.holds().await;
}

#[tokio::test]
async fn without_a_provider_card_is_not_offered_and_nobody_takes_callbacks() {
    let site = crate::harness::site::Site::open(PATIENT).await;
    let (service, anna) = (site.start().await, site.client("anna").await);
    let refused = anna.order(service.main, "k", &cups(1)).await;
    assert_eq!((refused.status, refused.problem().as_str()), (422, "validation-failed"));
    assert_eq!(refused.json()["errors"][0]["field"], "/payment");
    let order = anna.order(service.main, "k", &want(&[("CUP", 1)])).await.order().unwrap();
    let refused = anna.wish(service.main, &order, "pay", "p", Some(&json!({"payment": "card"}))).await;
    assert_eq!((refused.status, refused.json()["errors"][0]["field"].clone()), (422, json!("/payment")));
    assert_eq!(anna.wish(service.main, &order, "pay", "p", None).await.status, 200, "it is paid");
    let callback = crate::harness::till::Callback::signed("{}");
    assert_eq!(callback.deliver(service.main).await, 404);
    let form = site.buyer().get(service.main, "/orders/new").await.text();
    assert!(!form.contains("value=\"card\""));
    site.holds_with_cards().await;
}

#[tokio::test]
async fn a_card_order_that_outlives_its_provider_is_not_sent_to_nobody() {
    let shop = Shop::open(&[], PATIENT).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let order = anna.order(service.main, "k", &cups_with(1, BAD)).await.order().unwrap();
    drop(service);
    let without = [("ONCEGATE_GATEWAY_URL", ""), ("ONCEGATE_GATEWAY_KEY", ""), ("ONCEGATE_GATEWAY_WEBHOOK_SECRET", "")];
    let service = shop.site.start_with(&without).await;
    let refused = anna.wish(service.main, &order, "pay", "p", None).await;
    assert_eq!((refused.status, refused.json()["errors"][0]["field"].clone()), (422, json!("/payment")));
    let paid = anna.wish(service.main, &order, "pay", "p", Some(&json!({"payment": "balance"}))).await;
    assert_eq!(shown(&paid), is(200, "paid", "balance", "captured"), "the key is unused after a 422: {paid:?}");
    shop.holds().await;
}
