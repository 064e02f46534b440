//! What is not the provider's word, or not about us: refused, or taken and changing nothing.

use serde_json::{Value, json};

use super::super::{BAD, PATIENT, Shop, cups, cups_with, is, now, of, paid};
use super::{losing, unheard_of};
use crate::harness::http;
use crate::harness::till::Callback;

#[tokio::test]
async fn a_signature_that_is_missing_forged_or_stale_is_refused_and_nothing_is_read() {
    let (shop, service, anna) = losing().await;
    let (order, callback) = unheard_of(&shop, &service, &anna).await;
    let url = format!("http://{}/api/payments/callback", service.main);
    let post = |signature: Option<String>, body: Vec<u8>| {
        let request = http().build().unwrap().post(&url).body(body);
        match signature {
            Some(signature) => request.header("stripe-signature", signature),
            None => request,
        }
    };
    let body = callback.body.to_vec();
    let stale = Callback::signed_as_of(body.clone(), -301).signature;
    let future = Callback::signed_as_of(body.clone(), 600).signature;
    let other =
        oncegate::payment::signature::sign("another secret", &body, time::OffsetDateTime::now_utc().unix_timestamp());
    let good = &callback.signature;
    for (what, request) in [
        ("missing", post(None, body.clone())),
        ("empty", post(Some(String::new()), body.clone())),
        ("no signature", post(Some("t=1".into()), body.clone())),
        ("another secret", post(Some(other), body.clone())),
        ("stale", post(Some(stale), body.clone())),
        ("from the future", post(Some(future), body.clone())),
        ("another body", post(Some(good.clone()), [&body[..], b" "].concat())),
        ("twice", post(Some(good.clone()), body.clone()).header("stripe-signature", good)),
    ] {
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 400, "{what}");
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
        let problem: Value = answer.json().await.unwrap();
        assert_eq!(
            (&problem["type"], &problem["retryable"]),
            (&json!("/problems/signature-invalid"), &json!(false)),
            "{what}"
        );
        assert_eq!(problem["instance"], "/api/payments/callback");
    }
    assert_eq!(http().build().unwrap().get(&url).send().await.unwrap().status(), 405);
    assert_eq!(Callback::signed(vec![b' '; 64 * 1024 + 1]).deliver(service.main).await, 413);
    assert_eq!(shop.count("FROM payment_events").await, 0);
    assert_eq!(now(&anna, service.main, &order).await, is(200, "pending", "card", "unknown"));
    assert_eq!(Callback::signed_as_of(body, -290).deliver(service.main).await, 200, "within five minutes");
    assert_eq!(now(&anna, service.main, &order).await, is(200, "paid", "card", "captured"));
    shop.holds().await;
}

#[tokio::test]
async fn a_signed_callback_that_cannot_be_read_is_malformed() {
    let shop = Shop::open(&[], PATIENT).await;
    let service = shop.start().await;
    // What no database could keep, either.
    let named = |id: &str, kind: &str, intent: &str| {
        let object = json!({"id": intent, "payment_intent": intent, "amount": 1, "currency": "eur"});
        json!({"id": id, "type": kind, "data": {"object": object}}).to_string()
    };
    let (succeeded, long) = ("payment_intent.succeeded", "x".repeat(256));
    let odd = [
        named("a\0", succeeded, "pi"),
        named(&long, succeeded, "pi"),
        named("a", "cust\0omer", "pi"),
        named("a", succeeded, "pi\0"),
        named("a", "charge.refunded", &long),
        named("", succeeded, "pi"),
    ];
    for body in
        ["", "{", "[]", "{}", r#"{"id":"e","type":"payment_intent.succeeded","data":{"object":{"id":1}}}"#, "\u{fffd}"]
            .into_iter()
            .chain(odd.iter().map(String::as_str))
    {
        let answer = Callback::signed(body.to_owned()).try_deliver(service.main).await.unwrap();
        assert_eq!(answer.status(), 400, "{body}");
        assert_eq!(answer.json::<Value>().await.unwrap()["type"], "/problems/malformed-request", "{body}");
    }
    assert_eq!(shop.count("FROM payment_events").await, 0);
}

#[tokio::test]
async fn an_unknown_order_or_attempt_comes_again_and_an_unknown_kind_does_not() {
    let shop = Shop::open(&[], PATIENT).await;
    let (service, anna) = (shop.start().await, shop.site.client("anna").await);
    let order = paid(&anna, service.main, "k", &cups(1)).await;
    let intent = |id: &str, order: &str, attempt: &str| {
        json!({"id": id, "amount": 100, "currency": "eur", "status": "succeeded",
            "metadata": {"order_id": order, "attempt": attempt}})
    };
    let stranger = uuid::Uuid::now_v7().to_string();
    for object in [
        intent("pi_x", &stranger, "1"),
        intent("pi_x", "not an id", "1"),
        intent("pi_x", &order, "7"),
        intent("pi_x", &order, "one"),
        json!({"id": "pi_x", "amount": 100, "currency": "eur"}),
    ] {
        let callback = Callback::about("payment_intent.succeeded", &object);
        assert_eq!(callback.deliver(service.main).await, 404, "{object}");
        assert_eq!(callback.deliver(service.main).await, 404, "it is not marked as heard: {object}");
    }
    let refund = Callback::about("charge.refunded", &json!({"id": "ch_x", "payment_intent": "pi_x"}));
    assert_eq!(refund.deliver(service.main).await, 404);
    let before = shop.count("FROM payment_events").await;
    let other = Callback::about("customer.created", &json!({"id": "cus_1"}));
    assert_eq!((other.deliver(service.main).await, other.deliver(service.main).await), (200, 200));
    assert_eq!(shop.count("FROM payment_events").await, before + 1);
    assert_eq!(now(&anna, service.main, &order).await, is(200, "paid", "card", "captured"));
    shop.holds().await;
}

#[tokio::test]
async fn amount_currency_and_order_have_to_fit_or_nothing_is_changed() {
    let (shop, service, anna) = losing().await;
    let (order, callback) = unheard_of(&shop, &service, &anna).await;
    let changed = |member: &str, value: Value| {
        let mut object = callback.object();
        object[member] = value;
        Callback::about("payment_intent.succeeded", &object)
    };
    for wrong in [changed("amount", json!(199)), changed("amount", json!(-200)), changed("currency", json!("usd"))] {
        assert_eq!((wrong.deliver(service.main).await, wrong.deliver(service.main).await), (200, 200));
    }
    assert_eq!(shop.count("FROM payment_events WHERE outcome = 'mismatch'").await, 3);
    assert_eq!(now(&anna, service.main, &order).await, is(200, "pending", "card", "unknown"));
    assert_eq!(callback.deliver(service.main).await, 200);
    assert_eq!(now(&anna, service.main, &order).await, is(200, "paid", "card", "captured"));

    // The payment of one order, said to be another's.
    let other = anna.order_to_the_end(service.main, "k-2", &cups_with(2, BAD)).await.order().unwrap();
    let stolen = changed("metadata", json!({"order_id": other, "attempt": "1"}));
    assert_eq!(stolen.deliver(service.main).await, 200);
    assert_eq!(shop.count("FROM payment_events WHERE outcome = 'mismatch'").await, 4);
    assert_eq!(now(&anna, service.main, &other).await, is(200, "pending", "card", "declined"));
    assert_eq!(shop.count(&format!("FROM payments WHERE {}", of(&other))).await, 1);
    shop.holds().await;
}
