//! Who a browser is: the cookie, and its record in the database.

use axum::body::Body;
use axum::http::header::SET_COOKIE;
use sha2::{Digest, Sha256};

use super::shop::{Shop, TEA};

#[tokio::test]
async fn the_first_form_sets_a_cookie_and_later_requests_leave_it_alone() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let first = buyer.get("/orders/new").await;
    let cookie = first.header(SET_COOKIE.as_str());
    assert!(cookie.starts_with("oncegate_session="), "{cookie}");
    for attribute in ["HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=2592000"] {
        assert!(cookie.split("; ").any(|a| a == attribute), "{attribute} in {cookie}");
    }
    assert!(!cookie.contains("Secure") && !cookie.contains("Domain"), "{cookie}");
    buyer.order(&first.pair(), TEA).await.order();
    for path in ["/orders/new", "/orders", "/orders/attempts/x"] {
        assert_eq!(buyer.get(path).await.header(SET_COOKIE.as_str()), "", "{path}");
    }
}

#[tokio::test]
async fn behind_tls_the_cookie_is_secure() {
    let shop = Shop::open_with(|config| config.public_origin = Some("https://shop.example".into())).await;
    assert!(shop.buyer().get("/orders/new").await.header(SET_COOKIE.as_str()).contains("; Secure"));
}

#[tokio::test]
async fn a_head_request_makes_neither_session_nor_token() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let request = buyer.request("HEAD", "/orders/new").body(Body::empty()).unwrap();
    let page = buyer.send(request).await;
    assert_eq!((page.status.as_u16(), page.header(SET_COOKIE.as_str())), (200, ""));
    assert_eq!(shop.kept.sql.int("SELECT CAST(count(*) AS bigint) FROM sessions").await, 0);
}

#[tokio::test]
async fn a_visitor_is_known_again_after_a_restart() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    let order = buyer.order(&pair, TEA).await.order();
    let again = Shop::on(shop.kept, |_| ()).await;
    let mut back = buyer.at(&again);
    back.get(&format!("/orders/{order}")).await.says(200, &order);
}

#[tokio::test]
async fn a_forged_or_forgotten_cookie_is_a_new_visitor() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    let order = buyer.order(&pair, TEA).await.order();
    let honest = buyer.cookie().to_owned();
    for forged in [format!("{honest}x"), format!("oncegate_session={}", &honest[honest.len() - 22..])] {
        buyer.set_cookie(&forged);
        buyer.get(&format!("/orders/{order}")).await.says(404, "Not found");
    }
    buyer.set_cookie(&honest);
    shop.kept.sql.run("DELETE FROM sessions").await;
    buyer.get(&format!("/orders/{order}")).await.says(404, "Not found");
    let before = buyer.cookie().to_owned();
    buyer.form().await;
    assert_ne!(buyer.cookie(), before);
}

#[tokio::test]
async fn the_database_holds_no_session_id_that_could_be_used() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    buyer.form().await;
    let id = buyer.session_id().to_owned();
    let kept = shop.kept.sql.text("SELECT id FROM sessions").await;
    assert_eq!(kept, hex::encode(Sha256::digest(&id)));
    let data = shop.app.store.load_session(&kept).await.unwrap().unwrap();
    assert!(!String::from_utf8(data).unwrap().contains(&id));
}

#[tokio::test]
async fn a_session_is_renewed_once_a_day() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    buyer.form().await;
    let row = hex::encode(Sha256::digest(buyer.session_id()));
    let data = shop.app.store.load_session(&row).await.unwrap().unwrap();
    let mut data: serde_json::Value = serde_json::from_slice(&data).unwrap();
    data["seen"] = (data["seen"].as_i64().unwrap() - 1).into();
    let soon = time::OffsetDateTime::now_utc() + time::Duration::hours(1);
    shop.app.store.save_session(&row, data.to_string().as_bytes(), soon).await.unwrap();
    assert!(buyer.get("/orders").await.header(SET_COOKIE.as_str()).contains("Max-Age=2592000"));
    assert_eq!(buyer.get("/orders").await.header(SET_COOKIE.as_str()), "");
}

#[tokio::test]
async fn a_session_that_cannot_be_kept_is_a_page_that_says_so_and_never_an_empty_500() {
    let shop = Shop::open().await;
    shop.kept.sql.run("DROP TABLE sessions").await;
    let mut buyer = shop.buyer();
    let page = buyer.get("/orders/new").await;
    page.says(503, "not answering");
    assert_eq!((page.header("retry-after"), page.header(SET_COOKIE.as_str())), ("2", ""));
    assert_eq!(page.header("cache-control"), "no-store");
}
