//! What the tokens of an order's forms permit, and what they do not.

use super::super::PATIENT;
use super::{BALANCE, CARD, DECLINING, open, order, page, pair, pair_of, says, send};
use crate::harness::client::Pair;
use crate::harness::site::eventually;
use crate::races::at_once;

#[tokio::test]
async fn a_token_that_is_spent_forged_or_of_another_form_has_no_effect_of_its_own() {
    let (shop, service, buyer) = open(&DECLINING, PATIENT).await;
    let at = service.main;
    let order_ = order(&buyer, at, "3", "card").await;
    let seen = page(&buyer, at, &format!("/orders/{order_}")).await;
    let (pay, cancel) = (pair(&seen, "pay").unwrap(), pair(&seen, "cancel").unwrap());
    let forged = Pair { token: "forged".into(), key: pay.key.clone() };
    let crossed = Pair { token: pay.token.clone(), key: cancel.key.clone() };
    let placing = buyer.form(at).await;
    for (what, pair) in [("pay", &forged), ("pay", &cancel), ("pay", &placing), ("cancel", &pay), ("cancel", &crossed)]
    {
        let answer = send(&buyer, at, &order_, what, pair, if what == "pay" { BALANCE } else { &[] }).await;
        says(&buyer, at, &order_, &answer, "expired", "Nothing was changed").await;
    }
    for fields in [
        vec![],
        vec![("form_token", pay.token.as_str())],
        vec![("idempotency_key", pay.key.as_str())],
        vec![("idempotency_key", "a b")],
    ] {
        let answer = buyer.post(at, &format!("/orders/{order_}/pay"), &fields).await;
        says(&buyer, at, &order_, &answer, "expired", "Nothing was changed").await;
    }
    assert_eq!(shop.attempts(&order_).await, ["declined"]);
    // The real pair is as good as before; then it is used up for anything else.
    let answer = send(&buyer, at, &order_, "pay", &pay, CARD).await;
    says(&buyer, at, &order_, &answer, "declined", "The card was declined").await;
    let answer = send(&buyer, at, &order_, "pay", &pay, BALANCE).await;
    says(&buyer, at, &order_, &answer, "used", "This form was already used").await;
    let other = order(&buyer, at, "5", "card").await;
    let answer = send(&buyer, at, &other, "pay", &pay, CARD).await;
    says(&buyer, at, &other, &answer, "used", "This form was already used").await;
    assert_eq!(shop.attempts(&other).await, ["declined"]);
    shop.holds().await;
}

#[tokio::test]
async fn nobody_acts_on_an_order_that_is_not_theirs_or_from_another_site() {
    let (shop, service, buyer) = open(&DECLINING, PATIENT).await;
    let (at, stranger) = (service.main, shop.site.buyer());
    let order = order(&buyer, at, "3", "card").await;
    let pay = pair_of(&buyer, at, &order, "pay").await;
    for other in [&stranger, &shop.site.buyer()] {
        let answer = send(other, at, &order, "pay", &pay, BALANCE).await;
        assert_eq!(answer.status, 404);
        assert!(!answer.text().contains(&order), "{}", answer.text());
        other.form(at).await;
        assert_eq!(send(other, at, &order, "pay", &pay, BALANCE).await.status, 404);
    }
    assert_eq!(send(&buyer, at, "not-an-id", "pay", &pay, BALANCE).await.status, 404);
    assert_eq!(send(&buyer, at, &uuid::Uuid::now_v7().to_string(), "cancel", &pay, &[]).await.status, 404);
    let foreign = crate::harness::http().build().unwrap().post(format!("http://{at}/orders/{order}/pay"));
    let foreign = foreign.header("sec-fetch-site", "cross-site").form(BALANCE).send().await.unwrap();
    assert_eq!(foreign.status(), 403);
    assert_eq!(buyer.get(at, &format!("/orders/{order}/pay")).await.status, 405);
    assert_eq!(shop.attempts(&order).await, ["declined"]);
    shop.holds().await;
}

#[tokio::test]
async fn a_word_in_the_address_says_nothing_that_is_not_so() {
    let (shop, service, buyer) = open(&DECLINING, PATIENT).await;
    let at = service.main;
    let pending = order(&buyer, at, "3", "card").await;
    for word in ["paid", "cancelled", "asking", "nonsense", "%3Cscript%3E", "paid&said=paid"] {
        let text = page(&buyer, at, &format!("/orders/{pending}?said={word}")).await.text();
        for lie in ["is paid. Thank you", "is cancelled", "We are asking", "nonsense", "<script>"] {
            assert!(!text.contains(lie), "{word}: {lie}");
        }
        assert!(text.contains("The card was declined"), "the state speaks for itself");
    }
    let settled = order(&buyer, at, "1", "balance").await;
    let text = page(&buyer, at, &format!("/orders/{settled}?said=declined")).await.text();
    assert!(!text.contains("declined"));
    shop.holds().await;
}

/// Layers 2 and 3 decide alone.
#[tokio::test]
async fn without_its_token_store_the_forms_of_an_order_still_do_everything_once() {
    let (shop, service, buyer) =
        open(&DECLINING, &[PATIENT[0], ("REDIS_URL", "redis://127.0.0.1:1"), ("ONCEGATE_FORM_WAIT", "5s")]).await;
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
    assert_eq!(shop.attempts(&order).await, ["declined", "captured"]);
    assert!(service.counted("token", "bypassed").await >= 10);
    shop.holds().await;
}

/// A process that died with the claim in its hands: the form, sent again, finishes the work.
#[tokio::test]
async fn a_form_whose_work_was_cut_off_is_finished_by_sending_it_again() {
    let (shop, service, buyer) =
        open(&["--latency", "700ms", "--callbacks", "none", "--decline-amount", "300"], &[("ONCEGATE_LEASE", "4s")])
            .await;
    let at = service.main;
    let order = order(&buyer, at, "3", "card").await;
    shop.site.under.sql.run("UPDATE order_lines SET unit_price = 101").await;
    shop.site.under.sql.run("UPDATE orders SET total = 303").await;
    let pay = pair_of(&buyer, at, &order, "pay").await;
    let second = shop.site.start().await;
    let lost = tokio::spawn({
        let (buyer, order, pay) = (buyer.clone(), order.clone(), pay.clone());
        async move { send(&buyer, at, &order, "pay", &pay, CARD).await }
    });
    eventually("the provider has charged", async || shop.till.charges().await == 1).await;
    service.signal(nix::sys::signal::Signal::SIGKILL);
    assert_eq!(service.end().await.0, None);
    assert!(lost.await.is_err(), "no answer");
    let at = second.main;
    let early = send(&buyer, at, &order, "pay", &pay, CARD).await;
    let early = early.header("location").to_owned();
    assert!(early.ends_with("said=under-way") || early.ends_with("said=paid"), "{early}");
    eventually("it is paid", async || {
        send(&buyer, at, &order, "pay", &pay, CARD).await.header("location").ends_with("said=paid")
    })
    .await;
    assert_eq!(
        (shop.till.charges().await, shop.attempts(&order).await),
        (1, vec!["declined".into(), "captured".into()])
    );
}
