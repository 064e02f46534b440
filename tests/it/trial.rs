//! `/try`, against the real binary: each class of retry ends with one order, and the page names the layer that stopped it.

use std::path::Path;

use uuid::Uuid;

use crate::harness::client::{Buyer, Ledger, Seen};
use crate::harness::service::Service;
use crate::harness::site::{Site, eventually};
use crate::harness::till::{KEY, Till, WEBHOOK_SECRET};

/// The class, and who stops its repeat.
const CLASSES: [(&str, &str); 10] = [
    ("double-click", "Layer 1, the form token"),
    ("reload", "Layer 1, the form token"),
    ("ten-at-once", "Layer 2, the idempotency key"),
    ("lost-answer", "Layer 2, the idempotency key"),
    ("new-token", "Layer 2, the idempotency key"),
    ("other-body", "Layer 2, the idempotency key"),
    ("record-swept", "Layer 3, the constraint"),
    ("same-reference", "Layer 3, the constraint"),
    ("message-twice", "The consumer&#39;s mark of the message"),
    ("callback-twice", "The row of the provider&#39;s event"),
];

const ON: (&str, &str) = ("ONCEGATE_TRY_PAGE", "true");

/// A browser. It keeps no ledger of orders: where a press leads to is the page of a play.
fn visitor() -> Buyer {
    Buyer::new(Ledger::default())
}

/// Presses a button, as a form does.
async fn press(buyer: &Buyer, at: &Service, class: &str, play: &str) -> Seen {
    buyer.post(at.main, &format!("/try/{class}"), &[("play", play)]).await
}

/// Presses a button and goes where that leads.
async fn play(buyer: &Buyer, at: &Service, class: &str) -> String {
    let pressed = press(buyer, at, class, &Uuid::new_v4().to_string()).await;
    assert_eq!(pressed.status, 303, "{class}: {}", pressed.text());
    let result = buyer.get(at.main, pressed.header("location")).await;
    assert_eq!(result.status, 200, "{class}: {}", result.text());
    result.text()
}

async fn count(site: &Site, of: &str) -> i64 {
    site.under.sql.int(&format!("SELECT CAST(count(*) AS bigint) FROM {of}")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_class_ends_with_one_order_and_names_who_stopped_the_repeat() {
    let till = Till::open(&[]).await;
    let url = format!("http://{}", till.at);
    let gateway = [
        ("ONCEGATE_GATEWAY_URL", url.as_str()),
        ("ONCEGATE_GATEWAY_KEY", KEY),
        ("ONCEGATE_GATEWAY_WEBHOOK_SECRET", WEBHOOK_SECRET),
    ];
    let site = Site::open(&[&[ON], &gateway[..]].concat()).await;
    let (service, buyer) = (site.start().await, visitor());
    let offered = buyer.get(service.main, "/try").await.text();
    for (n, (class, stopper)) in (1..).zip(CLASSES) {
        assert!(offered.contains(&format!("action=\"/try/{class}\"")), "{class} is offered: {offered}");
        let page = play(&buyer, &service, class).await;
        assert!(page.contains("1 order, 1 charge, 1 coupon"), "{class}: {page}");
        assert!(page.contains(&format!("Stopped by: <strong>{stopper}</strong>.")), "{class}: {page}");
        assert_eq!(count(&site, "orders").await, n, "{class}");
        assert_eq!(count(&site, "payments WHERE status = 'captured'").await, n, "{class}");
        assert_eq!(count(&site, "coupons").await, n, "{class}");
        assert_eq!(count(&site, "accounts").await, n, "each play has an account of its own");
    }
    assert_eq!(count(&site, "payment_events").await, 1);
    assert_eq!(till.charges().await, 1);
    site.holds_with_cards().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_is_there_by_default_on_the_embedded_pair_only() {
    let site = Site::open(&[]).await;
    let (service, buyer) = (site.start().await, visitor());
    let status = if site.shares_a_server() { 404 } else { 200 };
    assert_eq!(buyer.get(service.main, "/try").await.status, status);
    let off = site.start_with(&[("ONCEGATE_TRY_PAGE", "false")]).await;
    assert_eq!(buyer.get(off.main, "/try").await.status, 404);
    let pressed = press(&buyer, &off, "reload", "").await;
    assert!(pressed.status == 404 && count(&site, "orders").await == 0, "{pressed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_press_is_one_play_and_another_has_to_wait_for_its_turn() {
    let site = Site::open(&[ON]).await;
    let (service, buyer) = (site.start().await, visitor());
    let held = site.under.sql.hold("TEA").await;
    let id = Uuid::new_v4().to_string();
    let first = tokio::spawn({
        let (buyer, at, id) = (buyer.clone(), service.main, id.clone());
        async move { buyer.post(at, "/try/other-body", &[("play", &id)]).await }
    });
    let path = format!("/try/plays/{id}");
    let mut under_way = buyer.get(service.main, &path).await;
    eventually("the first play is under way", async || {
        under_way = buyer.get(service.main, &path).await;
        under_way.status != 404
    })
    .await;
    assert!(under_way.text().contains("is being played") && under_way.header("refresh") == "1", "{under_way:?}");
    let told = press(&buyer, &service, "reload", &Uuid::new_v4().to_string()).await;
    assert_eq!(told.status, 503);
    assert!(told.text().contains("Somebody else is playing") && told.header("retry-after") == "2", "{told:?}");
    let again = press(&buyer, &service, "other-body", &id).await;
    held.release().await;
    let first = first.await.unwrap();
    assert_eq!((first.status, first.header("location")), (303, again.header("location")), "pressed twice, played once");
    let page = buyer.get(service.main, again.header("location")).await.text();
    assert!(page.contains("1 order, 1 charge, 1 coupon"), "{page}");
    let reloaded = buyer.get(service.main, again.header("location")).await.text();
    assert_eq!(page.split("<form").next(), reloaded.split("<form").next(), "the page of a play stays as it is");
    site.holds().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_another_site_cannot_press_a_button_and_nobody_can_name_anything_but_a_class() {
    let site = Site::open(&[ON]).await;
    let service = site.start().await;
    let http = crate::harness::http().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    for (header, value) in [("origin", "http://elsewhere.example"), ("sec-fetch-site", "cross-site")] {
        let request = http.post(format!("http://{}/try/reload", service.main)).header(header, value);
        assert_eq!(request.body("play=x").send().await.unwrap().status(), 403, "{header}");
    }
    let buyer = visitor();
    for path in ["/try/plays", "/try/nothing", "/try/double-click%2F.."] {
        assert_eq!(buyer.post(service.main, path, &[]).await.status, 404, "{path}");
    }
    assert_eq!(buyer.get(service.main, "/try/reload").await.status, 405, "looking plays nothing");
    for play in ["x".to_owned(), Uuid::new_v4().to_string()] {
        assert_eq!(buyer.get(service.main, &format!("/try/plays/{play}")).await.status, 404);
    }
    let long = "x".repeat(2000);
    assert_eq!(buyer.post(service.main, "/try/reload", &[("play", &long)]).await.status, 413);
    assert_eq!(count(&site, "orders").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_played_here_says_so_and_its_button_does_nothing() {
    let public = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/keys/p256.pub");
    let public = public.to_str().unwrap();
    let site = Site::open(&[ON]).await;
    let buyer = visitor();
    let without_provider: &[&str] = &["callback-twice"];
    let clients: &[&str] =
        &["ten-at-once", "lost-answer", "other-body", "record-swept", "same-reference", "message-twice"];
    let verifies_only = [("ONCEGATE_JWT_SECRET", ""), ("ONCEGATE_JWT_PUBLIC_KEY", public)];
    for (settings, not_possible, why) in [
        (&[][..], without_provider, "No payment provider is set"),
        (&verifies_only[..], clients, "can only verify"),
        (&[("ONCEGATE_OPENING_BALANCE", "99")][..], clients, "nothing in stock that a fresh account could pay"),
    ] {
        let service = site.start_with(settings).await;
        let page = buyer.get(service.main, "/try").await;
        assert!(page.status == 200 && page.text().contains(why), "{why}: {}", page.text());
        for class in not_possible {
            assert!(!page.text().contains(&format!("action=\"/try/{class}\"")), "{class}");
            let pressed = press(&buyer, &service, class, "").await;
            assert_eq!((pressed.status, pressed.header("location")), (303, "/try"), "{class}");
        }
        assert_eq!(count(&site, "orders").await, 0);
    }
    let service = site.start_with(&verifies_only).await;
    assert!(play(&buyer, &service, "reload").await.contains("1 order, 1 charge, 1 coupon"), "a browser needs no token");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_pages_run_no_script_load_nothing_and_label_what_they_show() {
    let site = Site::open(&[ON]).await;
    let (service, buyer) = (site.start().await, visitor());
    let pressed = press(&buyer, &service, "double-click", "").await;
    let pages = [buyer.get(service.main, "/try").await, buyer.get(service.main, pressed.header("location")).await];
    for page in pages {
        let policy = page.header("content-security-policy").to_owned();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(page.header("cache-control"), "no-store");
        let text = page.text();
        for forbidden in ["<script", " style=", "<style", "javascript:", "://"] {
            assert!(!text.contains(forbidden), "{forbidden}: {text}");
        }
        assert_eq!(text.matches("<h1").count(), 1);
        assert!(!text.contains("<th>") && text.contains("<html lang=\"en\">"));
    }
}
