//! The forms of an order's page: to pay it and to call it off, each once, and always back to the order, which says what
//! happened.

mod tokens;

use std::net::SocketAddr;

use super::{PATIENT, Shop};
use crate::harness::client::{Buyer, Pair, Seen};
use crate::harness::service::Service;
use crate::races::at_once;

/// Totals that are declined: three cups, and five.
const DECLINING: [&str; 4] = ["--decline-amount", "300", "--decline-amount", "500"];

async fn open(flags: &[&str], settings: &[(&'static str, &str)]) -> (Shop, Service, Buyer) {
    let shop = Shop::open(flags, settings).await;
    let (service, buyer) = (shop.start().await, shop.site.buyer());
    (shop, service, buyer)
}

/// Places an order of so many cups.
async fn order(buyer: &Buyer, at: SocketAddr, cups: &str, payment: &str) -> String {
    let pair = buyer.form(at).await;
    let fields = [
        ("form_token", pair.token.as_str()),
        ("idempotency_key", &pair.key),
        ("quantity[CUP]", cups),
        ("payment", payment),
    ];
    buyer.post(at, "/orders", &fields).await.order().unwrap()
}

async fn page(buyer: &Buyer, at: SocketAddr, path: &str) -> Seen {
    let page = buyer.get(at, path).await;
    assert_eq!((page.status, page.header("cache-control")), (200, "no-store"), "{}", page.text());
    page
}

/// The pair of the form that goes there.
pub(super) fn pair(page: &Seen, what: &str) -> Option<Pair> {
    let text = page.text();
    let (_, form) = text.split_once(&format!("/{what}\" accept-charset"))?;
    let value = |name: &str| {
        let (_, rest) = form.split_once(&format!("name=\"{name}\" value=\"")).unwrap();
        rest.split('"').next().unwrap().to_owned()
    };
    Some(Pair { token: value("form_token"), key: value("idempotency_key") })
}

async fn pair_of(buyer: &Buyer, at: SocketAddr, order: &str, what: &str) -> Pair {
    pair(&page(buyer, at, &format!("/orders/{order}")).await, what).unwrap_or_else(|| panic!("no form to {what}"))
}

/// Sends such a form.
async fn send(buyer: &Buyer, at: SocketAddr, order: &str, what: &str, pair: &Pair, more: &[(&str, &str)]) -> Seen {
    let ours = [("form_token", pair.token.as_str()), ("idempotency_key", &pair.key)];
    buyer.post(at, &format!("/orders/{order}/{what}"), &[&ours[..], more].concat()).await
}

/// It must lead back to the order, and the order's page must say this.
async fn says(buyer: &Buyer, at: SocketAddr, order: &str, answer: &Seen, word: &str, words: &str) {
    assert_eq!(answer.status, 303, "{}", answer.text());
    assert_eq!(answer.header("location"), format!("/orders/{order}?said={word}"));
    let text = page(buyer, at, answer.header("location")).await.text();
    assert!(text.contains(words), "no «{words}» in {text}");
}

const CARD: &[(&str, &str)] = &[("payment", "card")];
const BALANCE: &[(&str, &str)] = &[("payment", "balance")];

#[tokio::test]
async fn each_state_has_the_forms_that_it_allows_each_with_a_pair_of_its_own() {
    let (shop, service, buyer) = open(&DECLINING, PATIENT).await;
    let at = service.main;
    let (declined, settled) = (order(&buyer, at, "3", "card").await, order(&buyer, at, "1", "balance").await);
    let seen = page(&buyer, at, &format!("/orders/{declined}")).await;
    let (pay, cancel) = (pair(&seen, "pay").unwrap(), pair(&seen, "cancel").unwrap());
    assert!(pay.key != cancel.key && pay.token != cancel.token && !pay.token.is_empty());
    let again = pair_of(&buyer, at, &declined, "pay").await;
    assert!(again != pay, "each rendering has its own");
    assert!(seen.text().contains("(999.00"), "the balance is shown beside it: {}", seen.text());
    let seen = page(&buyer, at, &format!("/orders/{settled}")).await;
    assert!(pair(&seen, "pay").is_none() && pair(&seen, "cancel").is_some());
    assert_eq!(shop.site.operator().await.ship(at, &settled).await.status, 200);
    let seen = page(&buyer, at, &format!("/orders/{settled}")).await;
    assert!(pair(&seen, "pay").is_none() && pair(&seen, "cancel").is_none());
    assert!(seen.text().contains("Shipped"));
    let cancel = pair_of(&buyer, at, &declined, "cancel").await;
    send(&buyer, at, &declined, "cancel", &cancel, &[]).await;
    let seen = page(&buyer, at, &format!("/orders/{declined}")).await;
    assert!(pair(&seen, "pay").is_none() && pair(&seen, "cancel").is_none());
    shop.holds().await;
}

#[tokio::test]
async fn a_declined_order_is_paid_from_the_balance_and_however_often_the_form_is_sent_once() {
    let (shop, service, buyer) = open(&DECLINING, PATIENT).await;
    let at = service.main;
    let order = order(&buyer, at, "3", "card").await;
    let pay = pair_of(&buyer, at, &order, "pay").await;
    let answers = at_once(10, |_| {
        let (buyer, order, pay) = (buyer.clone(), order.clone(), pay.clone());
        async move { send(&buyer, at, &order, "pay", &pay, BALANCE).await }
    })
    .await;
    for answer in &answers {
        says(&buyer, at, &order, answer, "paid", "Your order is paid").await;
    }
    let again = send(&buyer, at, &order, "pay", &pay, BALANCE).await;
    says(&buyer, at, &order, &again, "paid", "Your order is paid").await;
    assert_eq!(shop.attempts(&order).await, ["declined", "captured"]);
    assert_eq!(shop.count("FROM account_entries WHERE kind = 'charge'").await, 1);
    assert_eq!(shop.till.charges().await, 0);
    shop.holds().await;
}

#[tokio::test]
async fn each_way_to_fail_to_pay_is_said_and_changes_nothing() {
    let (shop, service, buyer) = open(&DECLINING, &[PATIENT[0], ("ONCEGATE_OPENING_BALANCE", "100")]).await;
    let at = service.main;
    let order = order(&buyer, at, "3", "card").await;
    let mut sent = 0;
    for (more, word, words) in [
        (CARD, "declined", "The card was declined"),
        (BALANCE, "funds", "Your balance is too low"),
        (&[("payment", "gold")][..], "wrong", "Please choose how to pay"),
        (&[("payment", "card"), ("payment", "card")][..], "wrong", "Please choose how to pay"),
    ] {
        let pay = pair_of(&buyer, at, &order, "pay").await;
        for _ in 0..2 {
            let answer = send(&buyer, at, &order, "pay", &pay, more).await;
            says(&buyer, at, &order, &answer, word, words).await;
            sent += 1;
        }
    }
    assert_eq!(sent, 8);
    assert_eq!(shop.attempts(&order).await, ["declined", "declined"], "one by the order, one by the form");
    // A wrong form has spent nothing.
    let pay = pair_of(&buyer, at, &order, "pay").await;
    send(&buyer, at, &order, "pay", &pay, &[("payment", "gold")]).await;
    let answer = send(&buyer, at, &order, "pay", &pay, CARD).await;
    says(&buyer, at, &order, &answer, "declined", "The card was declined").await;
    assert_eq!(shop.attempts(&order).await.len(), 3);
    shop.holds().await;
}

#[tokio::test]
async fn an_order_is_cancelled_once_and_says_where_the_money_is() {
    let (shop, service, buyer) = open(&DECLINING, PATIENT).await;
    let at = service.main;
    for (cups, payment, words) in [
        ("1", "card", "What you paid is being paid back"),
        ("2", "balance", "What you paid was paid back"),
        ("3", "card", "Nothing was charged"),
    ] {
        let order = order(&buyer, at, cups, payment).await;
        let cancel = pair_of(&buyer, at, &order, "cancel").await;
        // What is due is paid back at once, but not as long as the provider is silent.
        shop.till.freeze();
        let answers = at_once(5, |_| {
            let (buyer, order, cancel) = (buyer.clone(), order.clone(), cancel.clone());
            async move { send(&buyer, at, &order, "cancel", &cancel, &[]).await }
        })
        .await;
        for answer in &answers {
            says(&buyer, at, &order, answer, "cancelled", words).await;
        }
        shop.till.thaw();
    }
    assert_eq!(shop.stock("CUP").await, 10);
    shop.holds().await;
}

#[tokio::test]
async fn what_the_state_does_not_allow_any_more_is_said_and_changes_nothing() {
    let (shop, service, buyer) = open(&DECLINING, PATIENT).await;
    let at = service.main;
    let first = order(&buyer, at, "1", "balance").await;
    let cancel = pair_of(&buyer, at, &first, "cancel").await;
    assert_eq!(shop.site.operator().await.ship(at, &first).await.status, 200);
    for _ in 0..2 {
        let late = send(&buyer, at, &first, "cancel", &cancel, &[]).await;
        says(&buyer, at, &first, &late, "illegal", "That is not possible any more").await;
    }
    let second = order(&buyer, at, "3", "card").await;
    let (pay, cancel) = (pair_of(&buyer, at, &second, "pay").await, pair_of(&buyer, at, &second, "cancel").await);
    send(&buyer, at, &second, "cancel", &cancel, &[]).await;
    let late = send(&buyer, at, &second, "pay", &pay, BALANCE).await;
    says(&buyer, at, &second, &late, "illegal", "That is not possible any more").await;
    shop.holds().await;
}

#[tokio::test]
async fn a_provider_without_an_outcome_is_said_and_so_is_a_second_try_meanwhile() {
    let (shop, service, buyer) =
        open(&["--decline-amount", "300", "--lose-answer", "1", "--callbacks", "none"], PATIENT).await;
    let at = service.main;
    // Its answer is lost: nobody knows.
    let order = order(&buyer, at, "1", "card").await;
    let seen = page(&buyer, at, &format!("/orders/{order}")).await;
    assert!(pair(&seen, "pay").is_none() && pair(&seen, "cancel").is_some());
    // A form of another rendering, kept from before.
    let kept = Pair { token: "gone".into(), key: "kept-from-before".into() };
    let answer = send(&buyer, at, &order, "pay", &kept, CARD).await;
    says(&buyer, at, &order, &answer, "expired", "This form had expired").await;
    let cancel = pair(&seen, "cancel").unwrap();
    let answer = send(&buyer, at, &order, "cancel", &cancel, &[]).await;
    says(&buyer, at, &order, &answer, "cancelled", "Should a payment still come through, it is paid back").await;
    assert_eq!(shop.attempts(&order).await, ["unknown"]);
    assert_eq!(shop.till.charges().await, 1, "which nobody has heard of yet");
}

#[tokio::test]
async fn paying_anew_without_an_outcome_is_said_and_asked_again_by_the_same_form() {
    let flags = ["--decline-amount", "300", "--lose-answer", "1", "--callbacks", "none"];
    let (shop, service, buyer) = open(&flags, PATIENT).await;
    let at = service.main;
    let order = order(&buyer, at, "3", "card").await;
    // The provider has thought better of it.
    shop.site.under.sql.run("UPDATE order_lines SET unit_price = 101").await;
    shop.site.under.sql.run("UPDATE orders SET total = 303").await;
    let (pay, other) = (pair_of(&buyer, at, &order, "pay").await, pair_of(&buyer, at, &order, "pay").await);
    let answer = send(&buyer, at, &order, "pay", &pay, CARD).await;
    says(&buyer, at, &order, &answer, "asking", "We are asking the payment provider").await;
    let answer = send(&buyer, at, &order, "pay", &other, BALANCE).await;
    says(&buyer, at, &order, &answer, "under-way", "Still being worked on").await;
    assert_eq!(shop.till.charges().await, 1);
    let answer = send(&buyer, at, &order, "pay", &pay, CARD).await;
    says(&buyer, at, &order, &answer, "paid", "Your order is paid").await;
    let answer = send(&buyer, at, &order, "pay", &other, BALANCE).await;
    says(&buyer, at, &order, &answer, "paid", "Your order is paid").await;
    assert_eq!(
        (shop.till.charges().await, shop.attempts(&order).await),
        (1, vec!["declined".into(), "captured".into()])
    );
}
