//! Pages in the visitor's language, and all that has none.

use axum::body::Body;
use axum::http::header::{ACCEPT_LANGUAGE, REFERER};

use super::shop::{Buyer, CUP, Page, Shop, TEA};

const CHINESE: &str = "zh-CN,zh;q=0.9,en;q=0.8";

/// Asks for a page as a browser that is set to these languages.
async fn get(buyer: &mut Buyer, path: &str, languages: &str) -> Page {
    let request = buyer.request("GET", path).header(ACCEPT_LANGUAGE, languages);
    buyer.send(request.body(Body::empty()).unwrap()).await
}

#[track_caller]
fn is_in(page: &Page, tag: &str) {
    assert!(page.text.contains(&format!("<html lang=\"{tag}\">")), "{}", page.text);
    assert_eq!(page.header("content-language"), tag);
    assert_eq!(page.header("vary"), "Accept-Language, Cookie");
}

#[tokio::test]
async fn a_page_is_in_the_language_that_the_browser_asks_for_and_in_english_without() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let page = get(&mut buyer, "/orders/new", CHINESE).await;
    is_in(page.says(200, "提交订单"), "zh-Hans");
    is_in(get(&mut buyer, "/nowhere", CHINESE).await.says(404, "找不到页面"), "zh-Hans");
    is_in(buyer.get("/orders/new").await.says(200, "Place order"), "en");
    is_in(get(&mut buyer, "/orders/new", "fr,zh;q=0.1,en;q=0.2").await.says(200, "Place order"), "en");
    is_in(get(&mut buyer, "/orders/new", "fr, *").await.says(200, "Place order"), "en");
}

/// Follows the switch to the other language, as a browser does; answers where it leads.
async fn switch(buyer: &mut Buyer, page: &Page, path: &str) -> String {
    let mut links = page.text.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    let link = links.find(|link| link.contains("lang=")).expect("there is a switch");
    let there = if link.starts_with('?') { path.split('?').next().unwrap().to_owned() + link } else { link.to_owned() };
    let session = buyer.cookie().split(';').next().unwrap().to_owned();
    let request = buyer.request("GET", &there).header(REFERER, format!("http://shop.example{path}"));
    let turned = buyer.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(turned.status, 303, "{there}");
    let cookie = turned.header("set-cookie");
    for part in ["oncegate_language=", "Path=/", "SameSite=Lax", "HttpOnly", "Max-Age=31536000"] {
        assert!(cookie.contains(part), "{part} in {cookie}");
    }
    buyer.set_cookie(&format!("{session}; {}", cookie.split(';').next().unwrap()));
    turned.location().to_owned()
}

#[tokio::test]
async fn the_switch_comes_back_to_the_same_page_and_is_remembered_whatever_the_browser_asks_for() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    let order = buyer.order(&pair, TEA).await.order();
    for path in [format!("/orders/{order}?said=expired"), "/orders".into(), "/orders/new".into(), "/nowhere".into()] {
        let mut buyer = buyer.clone();
        let page = buyer.get(&path).await;
        assert_eq!(switch(&mut buyer, &page, &path).await, path);
        let page = get(&mut buyer, &path, "en").await;
        is_in(&page, "zh-Hans");
        assert_eq!(switch(&mut buyer, &page, &path).await, path);
        is_in(&get(&mut buyer, &path, CHINESE).await, "en");
    }
}

#[tokio::test]
async fn the_switch_of_an_answer_to_a_form_leads_to_the_form() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    let page = buyer.order(&pair, &[("quantity[TEA]", "x"), ("payment", "balance")]).await;
    assert_eq!(switch(&mut buyer, &page, "/orders").await, "/orders/new");
    let page = buyer.order(&pair, &[("quantity[TEA]", "x"), ("payment", "")]).await;
    is_in(page.says(422, "请只用数字填写一个整数").says(422, "没有填写"), "zh-Hans");
    assert_eq!(shop.orders().await, 0);
}

#[tokio::test]
async fn a_refusal_is_stored_without_a_language_and_told_in_that_of_whoever_asks() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let too_many = &[("quantity[CUP]", "9"), ("payment", "balance")];
    let mut told = Vec::new();
    for languages in ["en", CHINESE] {
        let pair = buyer.form().await;
        let request = buyer.request("POST", "/orders").header(ACCEPT_LANGUAGE, languages);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        buyer.send(request.body(pair.body(too_many).into()).unwrap()).await.says(409, "id=\"notice-title\"");
        let again = format!("/orders/attempts/{}", pair.key);
        get(&mut buyer, &again, "en").await.says(409, "Not everything is in stock");
        get(&mut buyer, &again, CHINESE).await.says(409, "部分商品库存不足");
        told.push(buyer.order(&pair, too_many).await.says(409, "Not everything is in stock").text.len());
    }
    assert_eq!(told[0], told[1]);
    let kept = "SELECT CAST(count(DISTINCT response_body) AS bigint) FROM idempotency_records";
    assert_eq!((shop.kept.sql.int(kept).await, shop.records().await), (1, 2));
}

#[tokio::test]
async fn the_words_of_a_program_are_english_for_everybody() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let request = buyer.request("POST", "/form-tokens").header(ACCEPT_LANGUAGE, CHINESE);
    let answer = buyer.send(request.body(Body::empty()).unwrap()).await;
    answer.says(401, "Open the order form first");
    for header in ["content-language", "vary"] {
        assert_eq!(answer.header(header), "");
    }
}

#[tokio::test]
async fn a_switch_in_a_form_or_of_no_language_of_ours_does_nothing() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    buyer.post("/orders?lang=zh", pair.body(CUP)).await.order();
    for path in ["/orders?lang=", "/orders?lang=fr", "/orders?lang=%00"] {
        let page = buyer.get(path).await;
        assert_eq!(page.header("set-cookie"), "");
        is_in(page.says(200, "Your orders"), "en");
    }
    assert_eq!(shop.orders().await, 1);
}
