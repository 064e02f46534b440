//! Where a buyer finds an order whose payment is not through: after the form, and by the page of its submission.

use super::{HASTY, PATIENT, Shop};
use crate::harness::client::{Buyer, Pair, Seen};
use crate::harness::site::eventually;
use std::net::SocketAddr;

/// Sends an order of cups by card.
async fn submit(buyer: &Buyer, at: SocketAddr, pair: &Pair, cups: &str) -> Seen {
    let fields = [
        ("form_token", pair.token.as_str()),
        ("idempotency_key", &pair.key),
        ("quantity[CUP]", cups),
        ("payment", "card"),
        ("note", ""),
    ];
    buyer.post(at, "/orders", &fields).await
}

async fn page(buyer: &Buyer, at: SocketAddr, order: &str) -> String {
    let page = buyer.get(at, &format!("/orders/{order}")).await;
    assert_eq!(page.status, 200);
    page.text()
}

#[tokio::test]
async fn a_form_paid_by_card_ends_at_its_paid_order_and_its_repeats_too() {
    let shop = Shop::open(&[], PATIENT).await;
    let (service, buyer) = (shop.start().await, shop.site.buyer());
    let form = buyer.get(service.main, "/orders/new").await;
    assert!(form.text().contains("value=\"card\""), "card is offered");
    let pair = Pair::of(&form);
    let first = submit(&buyer, service.main, &pair, "2").await;
    assert_eq!(first.status, 303, "{}", first.text());
    let order = first.order().unwrap();
    assert!(page(&buyer, service.main, &order).await.contains("by card: paid"));
    assert_eq!(submit(&buyer, service.main, &pair, "2").await.order(), Some(order.clone()));
    assert_eq!(buyer.get(service.main, &format!("/orders/attempts/{}", pair.key)).await.order(), Some(order));
    assert_eq!(shop.till.charges().await, 1);
    shop.holds().await;
}

#[tokio::test]
async fn a_declined_card_leads_to_the_pending_order_which_says_so_and_stays_the_answer() {
    let shop = Shop::open(&["--decline-amount", "300"], PATIENT).await;
    let (service, buyer) = (shop.start().await, shop.site.buyer());
    let pair = buyer.form(service.main).await;
    let first = submit(&buyer, service.main, &pair, "3").await;
    let order = first.order().unwrap();
    assert_eq!((first.status, first.header("location")), (303, format!("/orders/{order}").as_str()));
    let text = page(&buyer, service.main, &order).await;
    for words in [
        "The card was declined",
        "Waiting for payment",
        "declined, nothing was charged",
        "Pay this order",
        "Cancel this order",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!(submit(&buyer, service.main, &pair, "3").await.order(), Some(order.clone()), "F5");
    assert_eq!(buyer.get(service.main, &format!("/orders/attempts/{}", pair.key)).await.order(), Some(order));
    let other = submit(&buyer, service.main, &pair, "4").await;
    assert_eq!(other.status, 409, "other content: {}", other.text());
    assert_eq!((shop.site.orders().await, shop.till.charges().await), (1, 0));
    shop.holds().await;
}

#[tokio::test]
async fn a_provider_without_an_outcome_leads_to_the_pending_order_which_finishes_by_itself() {
    let shop = Shop::open(&["--lose-answer", "1", "--callbacks", "none"], HASTY).await;
    let (service, buyer) = (shop.start().await, shop.site.buyer());
    let pair = buyer.form(service.main).await;
    let first = submit(&buyer, service.main, &pair, "1").await;
    let order = first.order().unwrap();
    assert_eq!(first.status, 303);
    let text = page(&buyer, service.main, &order).await;
    for words in ["We are asking the payment provider", "You need not do anything"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("Pay this order"), "not while a payment is in flight");
    assert_eq!(buyer.get(service.main, &format!("/orders/attempts/{}", pair.key)).await.order(), Some(order.clone()));
    eventually("it is paid", async || page(&buyer, service.main, &order).await.contains("by card: paid")).await;
    assert!(!page(&buyer, service.main, &order).await.contains("We are asking"));
    assert_eq!(submit(&buyer, service.main, &pair, "1").await.order(), Some(order));
    assert_eq!(shop.till.charges().await, 1);
    shop.holds().await;
}

/// A second click while the provider thinks: the order stands, so that is where it leads, not to a page that waits.
#[tokio::test]
async fn a_double_click_while_the_provider_thinks_leads_both_to_the_one_order() {
    let shop = Shop::open(&["--latency", "3s"], &[PATIENT[0], ("ONCEGATE_FORM_WAIT", "300ms")]).await;
    let (service, buyer) = (shop.start().await, shop.site.buyer());
    let pair = buyer.form(service.main).await;
    let first = tokio::spawn({
        let (buyer, pair, at) = (buyer.clone(), pair.clone(), service.main);
        async move { submit(&buyer, at, &pair, "1").await }
    });
    eventually("the provider has it", async || shop.till.charges().await == 1).await;
    let second = submit(&buyer, service.main, &pair, "1").await;
    assert_eq!(second.status, 303, "{}", second.text());
    let order = second.order().expect("the order, which says that it waits");
    assert!(page(&buyer, service.main, &order).await.contains("We are asking the payment provider"));
    assert_eq!(buyer.get(service.main, &format!("/orders/attempts/{}", pair.key)).await.order(), Some(order.clone()));
    assert_eq!(buyer.form(service.main).await.key, pair.key, "a form rendered meanwhile carries the key under way");
    assert_eq!(first.await.unwrap().order(), Some(order));
    assert_eq!((shop.site.orders().await, shop.till.charges().await), (1, 1));
    shop.holds().await;
}
