//! Callbacks and claims: the event row and the record go with the change, or not at all.

use std::time::Duration;

use oncegate::order::life::{Happening, Verdict};
use oncegate::order::values::OrderId;
use oncegate::order::{Method, PaymentStatus, Status};
use oncegate::store::{Change, Changed, Conclusion, ProviderEvent, RecordState, StoreError};

use crate::harness::TestStore;
use crate::harness::goods::{account, answer};
use crate::harness::life::{
    Captured, Declined, TOTAL, by_balance, by_card, change_rules, claim_cancel, happens, met, of_anybody, pay, shop,
    told_by, word, word_of,
};

async fn changed(t: &TestStore, change: &Change) -> Changed {
    t.store.change(change, &change_rules()).await.unwrap()
}

async fn outcome(t: &TestStore, event: &str) -> String {
    let outcome = format!(
        "SELECT coalesce(max(provider || ' ' || kind || ' ' || outcome), 'none') FROM payment_events WHERE event_id = '{event}'"
    );
    t.sql.text(&outcome).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_is_applied_once_and_kept_with_its_outcome_and_its_order() {
    let t = shop().await;
    let buyer = account(&t.store, 0).await;
    let order = by_card(&t.store, buyer, "k").await;
    let paid = told_by("evt_1", order, word("pi_1", Captured));
    assert_eq!(met(changed(&t, &paid).await).0, Verdict::Done);
    assert_eq!(outcome(&t, "evt_1").await, "standin some.kind applied");
    let of = format!("SELECT count(*) FROM payment_events WHERE order_id = '{order}'");
    assert_eq!(t.sql.int(&of).await, 1);
    assert!(matches!(changed(&t, &paid).await, Changed::Known));
    // The same id of another provider is another event; and an event may tell what is known by other ways.
    for (id, happening, verdict, kept) in [
        ("evt_2", word("pi_1", Captured), Verdict::Already, "standin some.kind already"),
        ("evt_3", word("pi_1", Declined), Verdict::Already, "standin some.kind already"),
        ("evt_4", other_money(), Verdict::Mismatch, "standin some.kind mismatch"),
    ] {
        let change = told_by(id, order, happening);
        assert_eq!(met(changed(&t, &change).await).0, verdict);
        assert_eq!(outcome(&t, id).await, kept);
        assert!(matches!(changed(&t, &change).await, Changed::Known));
    }
    assert_eq!(t.store.life(order).await.unwrap().unwrap().order.status, Status::Paid);
    t.assert_sound(10).await;
}

fn other_money() -> Happening {
    let Happening::Word(mut other) = word("pi_1", Captured) else { unreachable!() };
    other.money = Some((TOTAL + 1, "EUR".into()));
    Happening::Word(other)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_of_an_unknown_order_or_attempt_is_not_kept_so_that_it_comes_again() {
    let t = shop().await;
    let buyer = account(&t.store, 0).await;
    let order = by_card(&t.store, buyer, "k").await;
    let early = told_by("evt_1", OrderId::new(), word("pi_1", Captured));
    assert!(matches!(changed(&t, &early).await, Changed::NotFound));
    let second = told_by("evt_2", order, word_of(2, "pi_2", Captured));
    assert_eq!(met(changed(&t, &second).await).0, Verdict::NoAttempt);
    assert_eq!((outcome(&t, "evt_1").await, outcome(&t, "evt_2").await), ("none".into(), "none".into()));
    happens(&t.store, order, word("pi_1", Declined)).await;
    happens(&t.store, order, pay(Method::Card)).await;
    assert_eq!(met(changed(&t, &second).await).0, Verdict::Done, "it came again");
    assert_eq!(outcome(&t, "evt_2").await, "standin some.kind applied");
}

/// The change fails after the event was written (the queue's table is away): nothing of the two may stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_whose_change_failed_is_applied_when_it_is_delivered_again() {
    let t = shop().await;
    let buyer = account(&t.store, 0).await;
    let order = by_card(&t.store, buyer, "k").await;
    let paid = told_by("evt_1", order, word("pi_1", Captured));
    t.sql.run("ALTER TABLE outbox RENAME TO away").await;
    let error = t.store.change(&paid, &change_rules()).await.unwrap_err();
    assert!(matches!(error, StoreError::Broken(_)), "{error}");
    assert_eq!(outcome(&t, "evt_1").await, "none");
    assert_eq!(t.store.life(order).await.unwrap().unwrap().attempts[0].status, PaymentStatus::Started);
    t.sql.run("ALTER TABLE away RENAME TO outbox").await;
    assert_eq!(met(changed(&t, &paid).await).0, Verdict::Done);
    assert_eq!(outcome(&t, "evt_1").await, "standin some.kind applied");
    t.assert_sound(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_concerns_no_order_is_kept_once() {
    let t = shop().await;
    let event = |provider| ProviderEvent { provider, id: "evt_1".into(), kind: "customer.created".into() };
    assert!(t.store.keep_event(&event("standin"), "ignored").await.unwrap());
    assert!(!t.store.keep_event(&event("standin"), "ignored").await.unwrap());
    assert!(t.store.keep_event(&event("other"), "ignored").await.unwrap(), "another provider's");
    assert_eq!(
        t.sql.int("SELECT count(*) FROM payment_events WHERE order_id IS NULL AND outcome = 'ignored'").await,
        2
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_concluded_with_the_change_it_was_made_for() {
    let t = shop().await;
    let buyer = account(&t.store, TOTAL).await;
    let order = by_balance(&t.store, buyer, "k").await;
    let fence = claim_cancel(&t.store, buyer, "c").await;
    let cancel = Change { claim: Some(fence.clone()), ..of_anybody(order, Happening::Cancel) };
    let Changed::Met { verdict: Verdict::Done, conclusion, .. } = changed(&t, &cancel).await else { panic!() };
    let told = answer(200, Some(order), "applied cancelled".into());
    assert_eq!(conclusion, Conclusion::Answer(told.clone()));
    assert_eq!(t.store.record(&fence.id).await.unwrap().unwrap().state, RecordState::Done(told));
    assert!(matches!(changed(&t, &cancel).await, Changed::Fenced), "the caller finds the answer in the record");

    let again = claim_cancel(&t.store, buyer, "c2").await;
    let Changed::Met { verdict: Verdict::Already, .. } =
        changed(&t, &Change { claim: Some(again.clone()), ..cancel }).await
    else {
        panic!()
    };
    let told = answer(200, Some(order), "already cancelled".into());
    assert_eq!(
        t.store.record(&again.id).await.unwrap().unwrap().state,
        RecordState::Done(told),
        "nothing but the answer"
    );
    t.assert_sound(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_claim_nothing_is_concluded() {
    let t = shop().await;
    let buyer = account(&t.store, TOTAL).await;
    let order = by_balance(&t.store, buyer, "k").await;
    let changed = changed(&t, &of_anybody(order, Happening::Cancel)).await;
    assert!(
        matches!(changed, Changed::Met { verdict: Verdict::Done, conclusion: Conclusion::Keep, .. }),
        "{changed:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_released_or_kept_where_the_work_is_not_over() {
    let t = shop().await;
    let buyer = account(&t.store, 0).await;
    let order = by_card(&t.store, buyer, "k").await;
    let fence = claim_cancel(&t.store, buyer, "p").await;
    let lease_left = async || match t.store.record(&fence.id).await.unwrap().unwrap().state {
        RecordState::Processing { lease_left } => lease_left,
        done => panic!("{done:?}"),
    };
    happens(&t.store, order, word("pi_1", Declined)).await;
    let charge = Change { claim: Some(fence.clone()), ..of_anybody(order, pay(Method::Card)) };
    let met = changed(&t, &charge).await;
    assert!(matches!(met, Changed::Met { verdict: Verdict::Charge, conclusion: Conclusion::Keep, .. }), "{met:?}");
    assert!(lease_left().await > Duration::ZERO);
    let other = Change { claim: Some(fence.clone()), ..of_anybody(order, pay(Method::Card)) };
    let met = changed(&t, &other).await;
    assert!(matches!(met, Changed::Met { verdict: Verdict::InFlight, conclusion: Conclusion::Release, .. }), "{met:?}");
    assert_eq!(lease_left().await, Duration::ZERO, "a retry runs at once");
    let met = changed(&t, &other).await;
    assert!(matches!(met, Changed::Met { conclusion: Conclusion::Release, .. }), "over, but not taken over: {met:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_under_a_claim_that_was_taken_over_writes_nothing() {
    let t = shop().await;
    let buyer = account(&t.store, TOTAL).await;
    let paid = by_balance(&t.store, buyer, "k").await;
    let declined = by_card(&t.store, buyer, "k2").await;
    happens(&t.store, declined, word("pi_1", Declined)).await;
    let pending = by_card(&t.store, buyer, "k3").await;
    let fence = claim_cancel(&t.store, buyer, "c").await;
    t.end_leases().await;
    let newer = claim_cancel(&t.store, buyer, "c").await;
    let counts = "SELECT CAST(sum(n) AS bigint) FROM (SELECT count(*) AS n FROM payments UNION ALL
        SELECT count(*) FROM account_entries UNION ALL SELECT count(*) FROM outbox) c";
    let before = t.sql.int(counts).await;
    // What would conclude with an answer, keep the claim, and release it.
    for (order, happening) in
        [(paid, Happening::Cancel), (declined, pay(Method::Card)), (pending, pay(Method::Balance))]
    {
        let late = Change { claim: Some(fence.clone()), ..of_anybody(order, happening) };
        assert!(matches!(changed(&t, &late).await, Changed::Fenced), "{late:?}");
    }
    assert_eq!(t.sql.int(counts).await, before);
    assert_eq!(t.store.life(paid).await.unwrap().unwrap().order.status, Status::Paid);
    let current = Change { claim: Some(newer), ..of_anybody(paid, Happening::Cancel) };
    assert_eq!(met(changed(&t, &current).await).0, Verdict::Done);
    t.assert_sound(10).await;
}
