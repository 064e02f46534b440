//! What is sent and cannot be placed: bad input of every kind, refusals, repeats, other sites' forms.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;

use super::shop::{CUP, Pair, Shop, TEA};

const FORM: &str = "application/x-www-form-urlencoded";

#[tokio::test]
async fn a_mistake_comes_back_at_its_field_with_the_pair_unspent_and_the_corrected_form_is_placed() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    let wrong = &[
        ("quantity[TEA]", "two"),
        ("quantity[CUP]", "1"),
        ("payment", "card"),
        ("note", "a < b & \"c\"\r\n\u{1f375}"),
    ];
    let page = buyer.order(&pair, wrong).await;
    page.says(422, "needs to be corrected").says(422, "href=\"#quantity[TEA]\"");
    assert_eq!(page.faults(), ["quantity[TEA]", "payment"]);
    assert_eq!(page.value("quantity[TEA]"), "two");
    assert_eq!(page.value("quantity[CUP]"), "1");
    assert!(page.text.contains("a &#60; b &#38; &#34;c&#34;\r\n\u{1f375}</textarea>"), "{}", page.text);
    assert_eq!(page.pair(), pair);
    assert_eq!((shop.orders().await, shop.records().await), (0, 0));
    buyer.order(&pair, TEA).await.order();
}

#[tokio::test]
async fn a_quantity_is_ascii_digits_within_the_limits_and_nothing_else() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    for typed in
        ["-1", " 1", "+1", "1.5", "1e3", "0x10", "\u{ff11}", "\u{663}", "NaN", "10001", "1\0", "99999999999999999999"]
    {
        let page = buyer.order(&pair, &[("quantity[TEA]", typed), ("payment", "balance")]).await;
        assert_eq!(page.status, 422, "{typed:?}");
        assert_eq!(page.faults(), ["quantity[TEA]"], "{typed:?}");
        assert_eq!(page.pair(), pair);
    }
    for nothing in ["", "0"] {
        buyer
            .order(&pair, &[("quantity[TEA]", nothing), ("payment", "balance")])
            .await
            .says(422, "at least one product");
    }
    assert_eq!((shop.orders().await, shop.records().await), (0, 0));
}

#[tokio::test]
async fn other_fields_have_their_limits_and_unknown_ones_are_ignored_unless_they_are_quantities() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    let long = "x".repeat(501);
    for (name, value) in [
        ("payment", "cash"),
        ("note", long.as_str()),
        ("note", "a\0b"),
        ("quantity[no sku]", "1"),
        ("quantity[TEA", "1"),
        ("quantity[TEA]", "1"),
        ("form_token", "twice"),
        ("idempotency_key", "twice"),
        ("again", "yes"),
    ] {
        let mut fields = vec![("quantity[TEA]", "2"), ("again", "yes"), (name, value)];
        fields.extend((name != "payment").then_some(("payment", "balance")));
        let page = buyer.order(&pair, &fields).await;
        page.says(422, "needs to be corrected");
        assert_eq!(page.pair(), pair, "{name}={value}");
    }
    assert_eq!(shop.records().await, 0);
    let fields = &[("quantity[TEA]", "2"), ("payment", "balance"), ("total", "1"), ("status", "paid"), ("price", "0")];
    let order = buyer.order(&pair, fields).await.order();
    buyer.get(&format!("/orders/{order}")).await.says(200, "25.00");
}

#[tokio::test]
async fn a_total_over_the_limit_is_invalid_before_the_token_is_spent() {
    let shop = Shop::open().await;
    shop.kept.sql.run("UPDATE products SET unit_price = 1000000000").await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    let page = buyer.order(&pair, &[("quantity[TEA]", "10000"), ("payment", "balance")]).await;
    page.says(422, "needs to be corrected");
    assert_eq!(page.pair(), pair);
    assert_eq!(shop.app.tokens.spent_ago(&buyer.binding(&pair).await).await, None);
}

#[tokio::test]
async fn a_body_that_is_no_form_is_told_so_on_a_page() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    let large = format!("note={}", "x".repeat(64 * 1024));
    for (kind, body, status) in [
        ("application/json", "{}".to_owned(), 415),
        ("", pair.body(TEA), 415),
        (FORM, large, 413),
        (FORM, "note=%FF".to_owned(), 400),
        (FORM, "note=%C3".to_owned(), 400),
    ] {
        let request = buyer.request("POST", "/orders").header(CONTENT_TYPE, kind).body(Body::from(body)).unwrap();
        let page = buyer.send(request).await;
        page.says(status, "nothing was done").says(status, "<!doctype html>");
    }
    let note = "x".repeat(500);
    buyer.order(&pair, &[("quantity[TEA]", "2"), ("payment", "balance"), ("note", &note)]).await.order();
}

#[tokio::test]
async fn a_refusal_has_the_apis_status_and_names_what_it_is_about() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    for (field, number, status, words) in [
        ("quantity[CUP]", "4", 409, "not in stock"),
        ("quantity[GOLD]", "1", 402, "balance is too low"),
        ("quantity[NOTHING]", "3", 422, "not sold here"),
    ] {
        let pair = buyer.form().await;
        let page = buyer.order(&pair, &[(field, number), ("payment", "balance"), ("note", "mine")]).await;
        page.says(status, words).says(status, "mine</textarea>");
        assert_eq!(page.value(field), number, "typed values stay, also of what is not sold");
        assert_ne!(page.pair().key, pair.key);
        buyer.order(&page.pair(), &[("quantity[TEA]", number), ("payment", "balance")]).await.order();
    }
}

#[tokio::test]
async fn the_same_content_again_is_asked_about_and_placed_when_confirmed() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let (one, two) = (buyer.form().await, buyer.form().await);
    let order = buyer.order(&one, TEA).await.order();
    let page = buyer.order(&two, TEA).await;
    page.says(409, "seconds ago").says(409, &format!("href=\"/orders/{order}\"")).says(409, "again?");
    assert_eq!(page.value("again"), "yes");
    assert_ne!(page.pair().key, two.key);
    assert_eq!(shop.orders().await, 1);
    let mut fields = TEA.to_vec();
    fields.push(("again", "yes"));
    let again = page.pair();
    let mistaken = buyer.order(&again, &[("quantity[TEA]", "x"), ("payment", "balance"), ("again", "yes")]).await;
    assert_eq!(mistaken.value("again"), "yes", "the yes is not lost over a mistake");
    assert_ne!(buyer.order(&again, &fields).await.order(), order);
    assert_eq!(shop.orders().await, 2);
}

#[tokio::test]
async fn five_tabs_of_one_visitor_place_five_orders() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let mut pairs: Vec<Pair> = Vec::new();
    for _ in 0..5 {
        pairs.push(buyer.form().await);
    }
    for (nth, pair) in pairs.iter().enumerate() {
        let number = (nth + 1).to_string();
        buyer.order(pair, &[("quantity[TEA]", &number), ("payment", "balance")]).await.order();
    }
    assert_eq!(shop.orders().await, 5);
}

#[tokio::test]
async fn a_form_rendered_while_a_submission_is_under_way_carries_its_key() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    buyer.under_way(&pair, TEA).await;
    let reloaded = buyer.form().await;
    assert_eq!(reloaded.key, pair.key);
    assert_ne!(reloaded.token, pair.token);
    let page = buyer.post("/form-tokens", String::new()).await;
    page.says(201, &pair.key);
    shop.kept.end_leases().await;
    assert_ne!(buyer.form().await.key, pair.key, "nobody works on it any more");
}

#[tokio::test]
async fn the_pages_script_gets_a_pair_that_can_be_sent() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let page = buyer.post("/form-tokens", String::new()).await;
    page.says(401, "/problems/unauthenticated");
    assert_eq!(page.header("content-type"), "application/problem+json");
    buyer.form().await;
    let page = buyer.post("/form-tokens", String::new()).await;
    page.says(201, "expires_at");
    assert_eq!(page.header("cache-control"), "no-store");
    let made: serde_json::Value = serde_json::from_str(&page.text).unwrap();
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    let pair = Pair { token: text("form_token"), key: text("idempotency_key") };
    time::OffsetDateTime::parse(&text("expires_at"), &time::format_description::well_known::Rfc3339).unwrap();
    buyer.order(&pair, CUP).await.order();
}

#[tokio::test]
async fn a_form_of_another_site_is_refused() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    let post = |headers: &[(&str, &str)], path: &str| {
        let request = buyer.request("POST", path).header(CONTENT_TYPE, FORM);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.body(Body::from(pair.body(TEA))).unwrap()
    };
    let foreign: &[&[(&str, &str)]] = &[
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("origin", "null")],
        &[("origin", "https://evil.example")],
    ];
    for headers in foreign {
        for path in ["/orders", "/form-tokens"] {
            let request = post(headers, path);
            buyer.clone().send(request).await.says(403, "another site");
        }
    }
    assert_eq!(shop.records().await, 0);
    let own = post(&[("origin", "http://shop.example")], "/orders");
    buyer.clone().send(own).await.order();
    let own = post(&[("sec-fetch-site", "same-origin"), ("origin", "http://shop.example")], "/orders");
    buyer.clone().send(own).await.order();
}
