//! Cancel, pay, ship and the callback, held against the description: every status that they can have is one of its.

use axum::body::Body;
use axum::http::Method;
use oncegate::config::Gateway;
use secrecy::SecretBox;
use serde_json::{Value, json};

use super::{Client, Seen, token_of};
use crate::harness::goods::product;
use crate::harness::shop::Shop;
use crate::harness::till::{Callback, KEY, Till, WEBHOOK_SECRET};

/// A shop with a provider that loses the answer to every second charge.
async fn shop() -> (Shop, Till) {
    let till = Till::open(&["--lose-answer", "2"]).await;
    till.courier.hold();
    let url = format!("http://{}", till.at);
    let secret = |text: &str| SecretBox::new(Box::new(text.to_owned()));
    let gateway = Gateway { url, key: secret(KEY), webhook_secret: secret(WEBHOOK_SECRET) };
    (Shop::with(&[product("cup", 300, 100)], |config| config.gateway = Some(gateway)).await, till)
}

fn cup(card: &str) -> Value {
    json!({"lines": [{"sku": "cup", "quantity": 1}], "payment": "card", "payment_method": card})
}

impl Client {
    async fn wish(&self, order: &str, what: &str, key: &str, body: &str) -> Seen {
        let headers = [("idempotency-key", key), ("content-type", "application/json")];
        self.send(Method::POST, &format!("/api/orders/{order}/{what}"), &headers, body.to_owned()).await
    }

    async fn call_back(&self, callback: &Callback) -> Seen {
        let headers = [("stripe-signature", callback.signature.as_str())];
        self.send(Method::POST, "/api/payments/callback", &headers, callback.body.clone()).await
    }
}

#[tokio::test]
async fn every_answer_to_a_wish_is_as_it_is_described() {
    let (shop, till) = shop().await;
    let anna = Client::of(&shop, "anna");
    let operator = Client { token: token_of("operator", Some("operator")), ..anna.clone() };
    let declined = anna.order("k-1", &cup("pm_card_chargeDeclined")).await;
    assert_eq!(declined.problem(), (402, "payment-declined".into()));
    let order = declined.json()["order"].as_str().unwrap().to_owned();

    for (what, key, body, status) in [
        ("pay", "p-1", r#"{"payment_method":"pm_card_chargeDeclined"}"#, 402),
        ("pay", "p-1", r#"{"payment":"balance"}"#, 422),
        ("pay", "p-2", r#"{"payment":"bars of gold"}"#, 422),
        ("pay", "p-2", "{", 400),
        ("pay", "a b", "{}", 400),
        ("cancel", "c-1", r#"{"why":"no"}"#, 422),
        ("ship", "s", "", 403),
        ("pay", "p-2", "{}", 200),
        ("pay", "p-2", "{}", 200),
        ("pay", "p-3", "", 200),
    ] {
        let seen = anna.wish(&order, what, key, body).await;
        assert_eq!(seen.status.as_u16(), status, "{what} {body}: {seen:?}");
    }
    assert!(anna.wish(&order, "pay", "p-2", "{}").await.replayed());
    let path = format!("/api/orders/{order}/ship");
    assert_eq!(operator.send(Method::POST, &path, &[], Body::empty()).await.json()["status"], "shipped");
    assert_eq!(anna.wish(&order, "cancel", "c-1", "").await.problem(), (409, "illegal-transition".into()));

    let unknown = anna.order("k-2", &cup("pm_card_visa")).await;
    assert_eq!(unknown.problem(), (503, "unavailable".into()), "the second charge is lost");
    let order = anna.get("/api/orders").await.json()["orders"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(anna.wish(&order, "pay", "p-4", "{}").await.problem(), (409, "request-in-progress".into()));
    let path = format!("/api/orders/{order}/ship");
    assert_eq!(operator.send(Method::POST, &path, &[], Body::empty()).await.problem().0, 409);
    assert_eq!(anna.order("k-2", &cup("pm_card_visa")).await.json()["status"], "paid");
    assert_eq!(anna.wish(&order, "cancel", "c-2", "").await.json()["payment"]["status"], "refund_due");
    assert_eq!(till.charges().await, 2);
}

#[tokio::test]
async fn every_answer_to_a_callback_is_as_it_is_described() {
    let (shop, _till) = shop().await;
    let nobody = Client { token: "nonsense".into(), ..Client::of(&shop, "anna") };
    let stranger =
        json!({"id": "pi_1", "amount": 1, "currency": "eur", "metadata": {"order_id": uuid::Uuid::now_v7()}});
    for (callback, status) in [
        (Callback::about("customer.created", &json!({})), 200),
        (Callback::about("payment_intent.succeeded", &stranger), 404),
        (Callback::signed("nonsense"), 400),
        (Callback::signed_as_of("{}", -1000), 400),
        (Callback::signed(vec![b' '; 70_000]), 413),
    ] {
        let seen = nobody.call_back(&callback).await;
        assert_eq!(seen.status.as_u16(), status, "{seen:?}");
    }
    let seen = nobody.send(Method::GET, "/api/payments/callback", &[], Body::empty()).await;
    assert_eq!((seen.status.as_u16(), seen.header("allow")), (405, Some("POST")));
}
