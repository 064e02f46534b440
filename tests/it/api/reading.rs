//! Orders, products and the account, looked at.

use axum::body::Body;
use axum::http::Method;
use serde_json::{Value, json};

use super::{Client, shop, teas};
use crate::harness::shop::OPENING;

#[tokio::test]
async fn the_catalogue_says_what_is_in_stock() {
    let shop = shop().await;
    assert_eq!(
        Client::of(&shop, "anna").get("/api/products").await.json(),
        json!([
            {"sku": "cup", "name": "The cup", "unit_price": 300, "currency": "EUR", "in_stock": 10},
            {"sku": "tea", "name": "The tea", "unit_price": 1500, "currency": "EUR", "in_stock": 1000},
        ])
    );
}

#[tokio::test]
async fn looking_at_the_account_opens_it_once() {
    let shop = shop().await;
    let client = Client::of(&shop, "anna");
    for _ in 0..2 {
        let account = client.get("/api/account").await.json();
        assert_eq!(account, json!({"balance": OPENING, "currency": "EUR", "coupons": []}));
    }
    assert_eq!(shop.under.sql.int("SELECT count(*) FROM account_entries WHERE kind = 'opening'").await, 1);
}

#[tokio::test]
async fn looking_for_orders_opens_no_account() {
    let shop = shop().await;
    let client = Client::of(&shop, "anna");
    assert_eq!(client.get("/api/orders").await.json(), json!({"orders": [], "next_cursor": null}));
    client.get("/api/orders/0198c0de-0000-7000-8000-000000000001").await;
    assert_eq!(shop.under.sql.int("SELECT count(*) FROM accounts").await, 0);
}

#[tokio::test]
async fn an_order_of_nobody_of_another_account_or_by_no_uuid_is_not_found() {
    let shop = shop().await;
    let id = Client::of(&shop, "anna").order("k", &teas(1)).await.json()["id"].as_str().unwrap().to_owned();
    let ben = Client::of(&shop, "ben");
    ben.get("/api/account").await;
    let simple = id.replace('-', "");
    for id in [id.as_str(), "0198c0de-0000-7000-8000-000000000001", &simple, "1", "%20", "%ff", "x'y"] {
        for method in [Method::GET, Method::DELETE, Method::POST] {
            let seen = ben.send(method, &format!("/api/orders/{id}"), &[], Body::empty()).await;
            assert_eq!(seen.problem(), (404, "not-found".into()), "{id}");
        }
    }
}

#[tokio::test]
async fn a_wrong_method_names_the_right_ones() {
    let shop = shop().await;
    let client = Client::of(&shop, "anna");
    let order = client.order("k", &teas(1)).await.header("location").unwrap().to_owned();
    for (path, allow) in [
        ("/api/orders", "GET,HEAD,POST"),
        (order.as_str(), "GET,HEAD"),
        ("/api/products", "GET,HEAD"),
        ("/api/account", "GET,HEAD"),
    ] {
        let seen = client.send(Method::PATCH, path, &[], Body::empty()).await;
        assert_eq!((seen.problem(), seen.header("allow")), ((405, "method-not-allowed".into()), Some(allow)), "{path}");
    }
}

#[tokio::test]
async fn the_list_is_paged_newest_first_and_each_order_is_there_once() {
    let shop = shop().await;
    let client = Client::of(&shop, "anna");
    let mut placed = Vec::new();
    for n in 0..5 {
        placed.push(client.order(&format!("k-{n}"), &teas(1)).await.json());
    }
    Client::of(&shop, "ben").order("k", &teas(1)).await;
    placed.reverse();
    assert_eq!(client.get("/api/orders").await.json(), json!({"orders": placed, "next_cursor": null}));
    let (mut listed, mut path, mut pages) = (Vec::new(), "/api/orders?limit=2&unknown=x".to_owned(), 0);
    loop {
        let page = client.get(&path).await.json();
        listed.extend(page["orders"].as_array().unwrap().clone());
        pages += 1;
        match &page["next_cursor"] {
            Value::String(cursor) => path = format!("/api/orders?cursor={cursor}&limit=2"),
            _ => break,
        }
    }
    assert_eq!((listed, pages), (placed.clone(), 3));
    let exactly_all = client.get("/api/orders?limit=5").await.json();
    assert_eq!((exactly_all["orders"].as_array().unwrap().len(), &exactly_all["next_cursor"]), (5, &json!(null)));
}

#[tokio::test]
async fn a_bad_query_parameter_is_named() {
    let shop = shop().await;
    let client = Client::of(&shop, "anna");
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=", "limit"),
        ("limit=1.0", "limit"),
        ("limit=-1", "limit"),
        ("limit=+1", "limit"),
        ("limit=1&limit=1", "limit"),
        ("cursor=", "cursor"),
        ("cursor=abc", "cursor"),
        ("cursor=0198c0de-0000-7000-8000-000000000001", "cursor"),
        ("cursor=%ff%fe", "cursor"),
        ("cursor=a&cursor=a", "cursor"),
    ] {
        let seen = client.get(&format!("/api/orders?{query}")).await;
        assert_eq!(
            (seen.problem(), seen.fields()),
            ((422, "validation-failed".into()), vec![field.to_owned()]),
            "{query}"
        );
    }
}

#[tokio::test]
async fn a_closed_database_is_503_and_nothing_of_it_is_told() {
    let shop = shop().await;
    let client = Client::of(&shop, "anna");
    client.get("/api/account").await;
    shop.app.store.close().await;
    for seen in [client.get("/api/orders").await, client.get("/api/account").await, client.order("k", &teas(1)).await] {
        assert_eq!(seen.problem(), (503, "unavailable".into()));
        let told = String::from_utf8_lossy(&seen.body).to_lowercase();
        assert!(!told.contains("pool") && !told.contains("sql") && !told.contains("database"), "{told}");
    }
}
