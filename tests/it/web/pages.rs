//! Orders, lists, files, headers, and what is not there.

use axum::body::Body;
use axum::http::header::{ETAG, IF_NONE_MATCH};

use super::shop::{CUP, Shop, TEA};

#[tokio::test]
async fn the_front_door_leads_to_the_form() {
    let shop = Shop::open().await;
    let page = shop.buyer().get("/").await;
    assert_eq!((page.status.as_u16(), page.location()), (303, "/orders/new"));
}

#[tokio::test]
async fn the_form_shows_goods_prices_stock_and_balance() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let page = buyer.get("/orders/new").await;
    for words in ["The TEA", "12.50\u{a0}EUR", "3 in stock", "1000.00\u{a0}EUR"] {
        page.says(200, words);
    }
    for field in ["quantity[TEA]", "payment", "note"] {
        assert!(page.has_field(field), "{field}");
    }
    assert!(!page.text.contains("value=\"card\""), "no provider, no card");
    buyer.order(&page.pair(), TEA).await.order();
    buyer.get("/orders/new").await.says(200, "975.00\u{a0}EUR");
}

#[tokio::test]
async fn two_forms_never_share_token_or_key() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let (one, two, other) = (buyer.form().await, buyer.form().await, shop.buyer().form().await);
    for (a, b) in [(&one, &two), (&one, &other), (&two, &other)] {
        assert!(a.token != b.token && a.key != b.key);
    }
}

#[tokio::test]
async fn an_order_is_shown_to_its_buyer_and_is_not_there_for_anybody_else() {
    let shop = Shop::open().await;
    let (mut one, mut two) = (shop.buyer(), shop.buyer());
    let pair = one.form().await;
    let fields = &[("quantity[TEA]", "2"), ("quantity[CUP]", "1"), ("payment", "balance"), ("note", "<b>ring</b>")];
    let order = one.order(&pair, fields).await.order();
    let page = one.get(&format!("/orders/{order}")).await;
    for words in ["The TEA", "The CUP", "25.00", "33.00", "Paid", "&#60;b&#62;ring", &order] {
        page.says(200, words);
    }
    two.form().await;
    let nobodys = two.get("/orders/0190f6f2-0000-7000-8000-000000000000").await;
    for mut other in [two, shop.buyer()] {
        let page = other.get(&format!("/orders/{order}")).await;
        assert_eq!(page.says(404, "Not found").text, nobodys.text);
    }
    one.get("/orders/not-an-id").await.says(404, "Not found");
}

#[tokio::test]
async fn the_list_shows_ones_own_orders_newest_first_in_pages() {
    let shop = Shop::open().await;
    let (mut buyer, mut other) = (shop.buyer(), shop.buyer());
    let pair = other.form().await;
    other.order(&pair, CUP).await.order();
    buyer.get("/orders").await.says(200, "not ordered anything yet");
    let mut placed = Vec::new();
    for number in 1..=21 {
        let pair = buyer.form().await;
        let fields = [("quantity[TEA]", "1"), ("payment", "balance"), ("note", &number.to_string())];
        placed.insert(0, buyer.order(&pair, &fields).await.order());
    }
    let first = buyer.get("/orders").await;
    assert_eq!(listed(&first.text), placed[..20]);
    let at = first.text.find("/orders?cursor=").unwrap();
    let second = buyer.get(first.text[at..].split('"').next().unwrap()).await;
    assert_eq!(listed(&second.text), placed[20..]);
    assert!(!second.text.contains("cursor="), "there is no third page");
    buyer.get("/orders?cursor=nonsense").await.says(422, "cursor");
}

/// The orders that a page links to.
fn listed(text: &str) -> Vec<String> {
    let links = text.split("href=\"/orders/").skip(1).filter_map(|rest| rest.split('"').next());
    links.filter(|id| uuid::Uuid::parse_str(id).is_ok()).map(str::to_owned).collect()
}

#[tokio::test]
async fn every_page_is_uncacheable_and_takes_nothing_from_elsewhere() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    let placed = buyer.order(&pair, TEA).await;
    let refused = buyer.order(&pair, CUP).await;
    let mut pages = vec![placed, refused];
    for path in ["/", "/orders/new", "/orders", "/orders/x", "/orders/attempts/x", "/nowhere", "/static/nothing"] {
        pages.push(buyer.get(path).await);
    }
    for page in pages {
        assert_eq!(page.header("cache-control"), "no-store", "{}", page.text);
        assert!(page.header("content-security-policy").contains("frame-ancestors 'none'"));
        assert!(!page.header("content-security-policy").contains("unsafe"));
        assert_eq!(page.header("x-content-type-options"), "nosniff");
        assert_eq!(page.header("referrer-policy"), "same-origin");
        let text = page.text.replace("<script type=\"module\" src=\"/static/order.js?v=", "");
        for foreign in ["http://", "https://", "<script", "<style", " style="] {
            assert!(!text.contains(foreign), "{foreign} in {text}");
        }
    }
}

#[tokio::test]
async fn the_script_is_small_and_the_form_has_the_numbers_it_adds_up() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let form = buyer.get("/orders/new").await;
    form.says(200, "data-price=\"1250\" data-unit=\"EUR\" data-digits=\"2\"").says(200, "0.00\u{a0}EUR</output>");
    let at = form.text.find("/static/order.js").unwrap();
    let script = buyer.get(form.text[at..].split('"').next().unwrap()).await;
    assert_eq!(script.header("content-type"), "text/javascript");
    assert!(script.text.len() < 6000, "{} bytes", script.text.len());
}

#[tokio::test]
async fn what_is_not_there_and_what_cannot_be_done_are_pages() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    buyer.get("/nowhere").await.says(404, "Not found");
    let request = buyer.request("DELETE", "/orders").body(Body::empty()).unwrap();
    let page = buyer.send(request).await;
    page.says(405, "cannot be done");
    assert_eq!(page.header("allow"), "GET,HEAD,POST");
}

#[tokio::test]
async fn files_are_kept_for_good_under_their_version_and_asked_for_again_under_any_other() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let form = buyer.get("/orders/new").await;
    let at = form.text.find("/static/shop.css").unwrap();
    let path = form.text[at..].split('"').next().unwrap();
    let file = buyer.get(path).await;
    assert_eq!((file.status.as_u16(), file.header("content-type")), (200, "text/css"));
    assert_eq!(file.header("cache-control"), "public, max-age=31536000, immutable");
    let old = buyer.get("/static/shop.css?v=old").await;
    assert_eq!((old.header("cache-control"), old.header("etag")), ("no-cache", file.header("etag")));
    let request = buyer.request("GET", path).header(IF_NONE_MATCH, file.header(ETAG.as_str()));
    let request = request.body(Body::empty()).unwrap();
    let known = buyer.send(request).await;
    assert_eq!((known.status.as_u16(), known.text.as_str()), (304, ""));
}
