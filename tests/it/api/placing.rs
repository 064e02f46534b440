//! First answers: the order, or a definite refusal, which is kept.

use axum::http::StatusCode;
use serde_json::json;

use super::{Client, shop, teas};
use crate::harness::goods::{product, sku};
use crate::harness::shop::{OPENING, Shop};

#[tokio::test]
async fn an_order_is_placed_paid_and_shown_with_the_prices_of_the_catalogue() {
    let shop = shop().await;
    let client = Client::of(&shop, "anna");
    let body = json!({
        "lines": [{"sku": "tea", "quantity": 2}, {"sku": "cup", "quantity": 1}, {"sku": "tea", "quantity": 1}],
        "payment": "balance", "reference": "PO-1", "note": "ring\r\ntwice",
    });
    let seen = client.order("k-1", &body).await;
    assert_eq!((seen.status, seen.replayed()), (StatusCode::CREATED, false), "{seen:?}");
    let order = seen.json();
    assert_eq!(seen.header("location"), Some(format!("/api/orders/{}", order["id"].as_str().unwrap()).as_str()));
    assert_eq!(
        order["lines"],
        json!([
            {"sku": "cup", "name": "The cup", "quantity": 1, "unit_price": 300},
            {"sku": "tea", "name": "The tea", "quantity": 3, "unit_price": 1500},
        ])
    );
    assert_eq!((&order["total"], &order["currency"]), (&json!(4800), &json!("EUR")));
    assert_eq!(
        (&order["status"], &order["payment"]),
        (&json!("paid"), &json!({"method": "balance", "status": "captured"}))
    );
    assert_eq!(
        (&order["reference"], &order["note"], &order["coupon"]),
        (&json!("PO-1"), &json!("ring\ntwice"), &json!(null))
    );
    assert_eq!(client.get("/api/account").await.json()["balance"], OPENING - 4800);
    assert_eq!(client.get(seen.header("location").unwrap()).await.json(), order);
}

#[tokio::test]
async fn what_was_not_given_is_null_in_the_order() {
    let shop = shop().await;
    let order = Client::of(&shop, "anna").order("k", &teas(1)).await.json();
    assert_eq!((&order["reference"], &order["note"], &order["coupon"]), (&json!(null), &json!(null), &json!(null)));
}

#[tokio::test]
async fn out_of_stock_names_the_skus_and_stays_the_answer_after_the_stock_came() {
    let shop = shop().await;
    let client = Client::of(&shop, "anna");
    let wanted =
        json!({"lines": [{"sku": "cup", "quantity": 11}, {"sku": "tea", "quantity": 1}], "payment": "balance"});
    let first = client.order("k", &wanted).await;
    assert_eq!(first.problem(), (409, "out-of-stock".into()));
    assert_eq!(first.json()["skus"], json!(["cup"]));
    shop.under.store.set_stock(&sku("cup"), 100).await.unwrap();
    let again = client.order("k", &wanted).await;
    assert!(again.same_as(&first) && again.replayed());
    assert_eq!(client.order("another key", &wanted).await.problem().1, "idempotency-key-malformed");
    assert_eq!(client.order("another-key", &wanted).await.status, 201);
}

#[tokio::test]
async fn each_refusal_is_told_and_kept() {
    let shop = Shop::open(&[product("tea", 1500, 1000), product("house", 90_000_000, 10)]).await;
    let client = Client::of(&shop, "anna");
    for (key, sku, status, name) in
        [("funds", "house", 402, "insufficient-funds"), ("sku", "unicorn", 422, "unknown-sku")]
    {
        let wanted = json!({"lines": [{"sku": sku, "quantity": 1}], "payment": "balance"});
        let first = client.order(key, &wanted).await;
        assert_eq!(first.problem(), (status, name.to_owned()));
        let again = client.order(key, &wanted).await;
        assert!(again.same_as(&first) && again.replayed() && !first.replayed(), "{name}");
        assert_eq!(client.order(key, &teas(1)).await.problem(), (422, "idempotency-key-reused".into()));
    }
    let unknown =
        client.order("sku", &json!({"lines": [{"sku": "unicorn", "quantity": 1}], "payment": "balance"})).await;
    assert_eq!((unknown.json()["skus"].clone(), unknown.fields()), (json!(["unicorn"]), vec!["/lines".to_owned()]));
    assert_eq!(shop.under.sql.int("SELECT count(*) FROM orders").await, 0);
}

#[tokio::test]
async fn a_reference_is_good_for_one_order_and_the_second_learns_which() {
    let shop = shop().await;
    let client = Client::of(&shop, "anna");
    let wanted = json!({"lines": [{"sku": "tea", "quantity": 1}], "payment": "balance", "reference": "PO-1"});
    let first = client.order("k-1", &wanted).await;
    let second = client.order("k-2", &wanted).await;
    assert_eq!(second.problem(), (409, "reference-taken".into()));
    assert_eq!(second.json()["order"], first.json()["id"]);
    assert_eq!(second.header("location"), first.header("location"));
    assert!(client.order("k-2", &wanted).await.same_as(&second));
    assert_eq!(Client::of(&shop, "ben").order("k-1", &wanted).await.status, 201);
}

#[tokio::test]
async fn a_total_over_the_limit_is_invalid_and_leaves_the_key_unused() {
    let shop = Shop::open(&[product("house", 900_000_000, 100_000), product("tea", 1500, 10)]).await;
    let client = Client::of(&shop, "anna");
    let wanted = json!({"lines": [{"sku": "house", "quantity": 10_000}], "payment": "balance"});
    assert_eq!(client.order("k", &wanted).await.problem(), (422, "validation-failed".into()));
    assert_eq!(shop.under.sql.int("SELECT count(*) FROM idempotency_records").await, 0);
    assert_eq!(client.order("k", &teas(1)).await.status, 201);
}
