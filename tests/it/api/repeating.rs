//! The same key again: row by row what the contract promises.

use std::time::Duration;

use axum::http::Method;
use oncegate::order::request::from_json;
use oncegate::order::values::Subject;
use oncegate::store::{ClaimRequest, ClaimResult};
use serde_json::{Value, json};

use super::{Client, shop, teas};
use crate::harness::goods::{record_id, until_all_cost};
use crate::harness::shop::Shop;

/// Claims the key for this content as a worker would that does not finish.
async fn claim(shop: &Shop, sub: &str, key: &str, body: &Value) {
    let subject = Subject::parse(&format!("client:{sub}")).unwrap();
    let account = shop.app.account(&subject).await.unwrap();
    let fingerprint = from_json(body.to_string().as_bytes(), false).unwrap().fingerprint;
    let request = ClaimRequest { id: record_id(account, key), fingerprint };
    let claimed = shop.app.store.claim(&[request], shop.app.config.lease).await.unwrap();
    assert!(matches!(claimed[0], ClaimResult::Won { .. }));
}

#[tokio::test]
async fn a_repeat_gets_the_first_answer_byte_for_byte() {
    let shop = shop().await;
    let client = Client::of(&shop, "anna");
    let first = client.order("k", &teas(2)).await;
    assert!(!first.replayed());
    for _ in 0..3 {
        let again = client.order("k", &teas(2)).await;
        assert!(again.same_as(&first) && again.replayed(), "{again:?}");
    }
    assert_eq!(shop.under.sql.int("SELECT count(*) FROM orders").await, 1);
}

#[tokio::test]
async fn a_repeat_gets_the_first_answer_although_the_catalogue_would_not_take_it_any_more() {
    let shop = shop().await;
    let client = Client::of(&shop, "anna");
    let first = client.order("k", &teas(2)).await;
    assert_eq!(first.status, 201);
    shop.under.sql.run("UPDATE products SET unit_price = 1000000000000").await;
    until_all_cost(&shop.app, 1_000_000_000_000).await;
    let again = client.order("k", &teas(2)).await;
    assert!(again.same_as(&first) && again.replayed(), "{again:?}");
    let other = client.order("other", &teas(2)).await;
    assert_eq!(other.json()["type"], "/problems/validation-failed");
    shop.under.sql.run("DELETE FROM idempotency_records").await;
    assert_eq!(client.order("k", &teas(2)).await.json()["id"], first.json()["id"]);
}

#[tokio::test]
async fn the_spelling_of_the_same_content_and_key_does_not_matter() {
    let shop = shop().await;
    let client = Client::of(&shop, "anna");
    let first = client.order("k", &teas(20)).await;
    assert_eq!(first.status, 201);
    for body in [
        r#"{"payment":"balance","lines":[{"quantity":20,"sku":"tea"}]}"#,
        r#" { "lines" : [ { "sku" : "t\u0065a" , "quantity" : 2e1 } ] , "payment" : "balance" } "#,
        r#"{"lines":[{"sku":"tea","quantity":20.0}],"payment":"balance","note":null,"reference":""}"#,
        r#"{"lines":[{"sku":"tea","quantity":19},{"sku":"tea","quantity":1}],"payment":"balance"}"#,
    ] {
        let again = client.order_text(r#""k""#, body).await;
        assert!(again.same_as(&first) && again.replayed(), "{body}: {again:?}");
    }
}

#[tokio::test]
async fn another_content_under_the_key_is_refused_and_the_first_still_replays() {
    let shop = shop().await;
    let client = Client::of(&shop, "anna");
    let first = client.order("k", &teas(1)).await;
    let id = first.json()["id"].as_str().unwrap().to_owned();
    for body in [
        teas(2),
        json!({"lines": [{"sku": "tea", "quantity": 1}], "payment": "balance", "note": "x"}),
        json!({"lines": [{"sku": "tea", "quantity": 1}], "payment": "balance", "reference": "x"}),
        json!({"lines": [{"sku": "tea", "quantity": 1}], "payment": "balance", "payment_method": "pm_x"}),
        json!({"lines": [{"sku": "tea", "quantity": 1}, {"sku": "cup", "quantity": 1}], "payment": "balance"}),
    ] {
        let other = client.order("k", &body).await;
        assert_eq!(other.problem(), (422, "idempotency-key-reused".into()), "{body}");
        assert!(other.json()["detail"].as_str().unwrap().contains(&id));
    }
    assert!(client.order("k", &teas(1)).await.same_as(&first));
    assert_eq!(shop.under.sql.int("SELECT count(*) FROM orders").await, 1);
}

#[tokio::test]
async fn while_the_first_is_under_way_a_repeat_waits_and_other_content_is_refused_at_once() {
    let shop = shop().await;
    let client = Client::of(&shop, "anna");
    claim(&shop, "anna", "k", &teas(1)).await;
    let early = client.order("k", &teas(1)).await;
    assert_eq!(early.problem(), (409, "request-in-progress".into()));
    let wait: u64 = early.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&wait), "{wait}");
    assert_eq!(client.order("k", &teas(2)).await.problem(), (422, "idempotency-key-reused".into()));
    shop.under.end_leases().await;
    let taken_over = client.order("k", &teas(1)).await;
    assert_eq!((taken_over.status.as_u16(), taken_over.replayed()), (201, false), "{taken_over:?}");
    assert!(client.order("k", &teas(1)).await.same_as(&taken_over));
}

#[tokio::test]
async fn when_the_record_has_expired_or_is_lost_the_order_answers_as_it_is_now() {
    let shop = shop().await;
    let client = Client::of(&shop, "anna");
    let first = client.order("k", &teas(1)).await;
    shop.under.sql.run("UPDATE orders SET status = 'shipped'").await;
    for lose in ["UPDATE idempotency_records SET expires_at = created_at", "DELETE FROM idempotency_records"] {
        shop.under.sql.run(lose).await;
        assert_eq!(client.order("k", &teas(2)).await.problem(), (422, "idempotency-key-reused".into()), "{lose}");
        shop.under.sql.run(lose).await;
        let again = client.order("k", &teas(1)).await;
        assert_eq!((again.status.as_u16(), again.replayed()), (201, true), "{lose}: {again:?}");
        assert_eq!((&again.json()["id"], &again.json()["status"]), (&first.json()["id"], &json!("shipped")));
        assert_eq!(again.header("location"), first.header("location"));
    }
    assert_eq!(shop.under.sql.int("SELECT count(*) FROM orders").await, 1);
}

#[tokio::test]
async fn the_same_key_of_two_accounts_is_two_intents() {
    let shop = shop().await;
    let (anna, ben) = (Client::of(&shop, "anna"), Client::of(&shop, "ben"));
    let annas = anna.order("k", &teas(1)).await;
    let bens = ben.order("k", &teas(2)).await;
    assert_eq!((annas.status.as_u16(), bens.status.as_u16(), bens.replayed()), (201, 201, false));
    assert_ne!(annas.json()["id"], bens.json()["id"]);
    assert!(anna.order("k", &teas(1)).await.same_as(&annas));
}

#[tokio::test]
async fn fifty_at_once_are_one_order_and_everyone_is_told_of_it_or_to_wait() {
    let shop = shop().await;
    let client = Client::of(&shop, "anna");
    let sent: Vec<_> = (0..50)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.order("k", &teas(1)).await })
        })
        .collect();
    let mut placed = Vec::new();
    for answer in sent {
        let seen = answer.await.unwrap();
        match seen.status.as_u16() {
            201 => placed.push(seen),
            _ => assert_eq!(seen.problem(), (409, "request-in-progress".into())),
        }
    }
    assert_eq!(placed.iter().filter(|seen| !seen.replayed()).count(), 1);
    assert!(placed.iter().all(|seen| seen.same_as(&placed[0])));
    assert_eq!(shop.under.sql.int("SELECT count(*) FROM orders").await, 1);
    assert!(client.order("k", &teas(1)).await.same_as(&placed[0]));
}

#[tokio::test]
async fn with_a_wait_a_repeat_gets_the_first_answer_instead_of_a_409() {
    let shop = Shop::with(&[crate::harness::goods::product("tea", 1500, 10)], |config| {
        config.api_wait = Duration::from_secs(20);
    })
    .await;
    let client = Client::of(&shop, "anna");
    claim(&shop, "anna", "k", &teas(1)).await;
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.order("k", &teas(1)).await }
    });
    shop.under.end_leases().await;
    assert_eq!(waiting.await.unwrap().status, 201);
}

#[tokio::test]
async fn a_client_that_leaves_cuts_nothing() {
    let shop = shop().await;
    let client = Client::of(&shop, "anna");
    let headers = [("idempotency-key", "k"), ("content-type", "application/json")];
    {
        let mut left = Box::pin(client.send(Method::POST, "/api/orders", &headers, teas(1).to_string()));
        // One step: the work is begun, and its caller goes.
        let first_step = std::future::poll_fn(|context| std::task::Poll::Ready(left.as_mut().poll(context))).await;
        assert!(first_step.is_pending());
    }
    shop.app.tasks.close();
    shop.app.tasks.wait().await;
    assert_eq!(shop.under.sql.int("SELECT count(*) FROM orders").await, 1);
    let seen = client.order("k", &teas(1)).await;
    assert_eq!((seen.status.as_u16(), seen.replayed()), (201, true));
}
