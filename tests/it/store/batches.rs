//! Batches in which every order comes to something else: none changes what becomes of its neighbours.

use oncegate::order::decide::{Asked, Decision, Refusal};
use oncegate::order::values::{AccountId, Note, PaymentToken};
use oncegate::order::{Method, Status};
use oncegate::store::{Placing, RecordState, Settled, StoreError};

use crate::harness::TestStore;
use crate::harness::goods::{
    account, answer, asked, claim_request, claimed, fence, place, placed, product, record_id, reference, rules, sku,
};

async fn with_products() -> TestStore {
    let t = TestStore::new().await;
    t.store
        .import_products(&[product("A", 100, 100), product("B", 7, 1), product("dear", 1_000_000_000, 100_000)])
        .await
        .unwrap();
    t
}

fn card(account: AccountId, under: &str) -> Asked {
    let mut ask = asked(account, under, &[("A", 1)]);
    ask.request.method = Method::Card;
    ask.request.payment_method = PaymentToken::parse("pm_card_visa");
    ask
}

async fn answer_of(t: &TestStore, account: AccountId, under: &str) -> Option<RecordState> {
    t.store.record(&record_id(account, under)).await.unwrap().map(|record| record.state)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_batch_may_hold_placed_refused_standing_invalid_unpaid_fenced_and_taken_over_orders() {
    let t = with_products().await;
    let (rich, poor) = (account(&t.store, 10_000).await, account(&t.store, 1).await);
    // What stands: two orders whose records were lost, and one that waits for its payment.
    let lost = [asked(rich, "lost", &[("A", 1)]), asked(rich, "other", &[("A", 1)])];
    place(&t.store, lost.to_vec()).await;
    let waits = card(rich, "waits");
    place(&t.store, vec![waits.clone()]).await;
    t.sql.run("DELETE FROM idempotency_records").await;
    let taken = claimed(&t.store, ["fenced", "taken"].map(|k| asked(rich, k, &[("A", 1)])).into()).await;
    t.end_leases().await;

    let mut note = asked(rich, "noted", &[("A", 2), ("B", 1)]);
    note.request.note = Note::parse("„Grüße“\n\t\"quoted\" \\ 'and' 🎁");
    note.request.reference = Some(reference("r"));
    let mut again = asked(rich, "reference", &[("A", 1)]);
    again.request.reference = Some(reference("r"));
    let asks = vec![
        note.clone(),
        asked(poor, "poor", &[("A", 1)]),
        asked(rich, "lost", &[("A", 1)]),
        asked(rich, "other", &[("A", 9)]),
        asked(rich, "dear", &[("dear", 10_000)]),
        card(rich, "card"),
        card(rich, "waits"),
        taken[0].asked.clone(),
        taken[1].asked.clone(),
        asked(rich, "sold-out", &[("B", 1)]),
        again,
        asked(rich, "last", &[("A", 3)]),
    ];
    let mut batch = claimed(&t.store, asks).await;
    assert_eq!((batch[7].epoch, batch[8].epoch), (2, 2), "taken over");
    batch[7] = Placing { asked: batch[7].asked.clone(), epoch: 1 }; // the worker that was overtaken
    let settled = t.store.settle(&batch, &rules()).await.unwrap();

    let decision = |n: usize| match &settled[n] {
        Settled::Decided { decision, leaked, .. } => (decision, *leaked),
        other => panic!("{n}: {other:?}"),
    };
    let order = placed(decision(0).0);
    assert_eq!((order.total, order.status, &order.note), (207, Status::Paid, &note.request.note));
    assert_eq!(t.store.order(rich, note.id).await.unwrap().as_ref(), Some(order), "what was decided is what is read");
    assert_eq!(decision(1).0, &Decision::Refused(Refusal::InsufficientFunds));
    assert_eq!(decision(2), (&Decision::Stands { order: lost[0].id, same: true }, true));
    assert_eq!(decision(3), (&Decision::Stands { order: lost[1].id, same: false }, true));
    assert!(matches!(decision(4).0, Decision::Invalid(_)));
    assert!(matches!(settled[5], Settled::Unpaid(id) if id == batch[5].asked.id), "{settled:?}");
    assert!(matches!(settled[6], Settled::Unpaid(id) if id == waits.id), "{settled:?}");
    assert!(matches!(settled[7], Settled::Fenced), "{settled:?}");
    placed(decision(8).0);
    assert_eq!(decision(9).0, &Decision::Refused(Refusal::OutOfStock(vec![sku("B")])));
    assert_eq!(decision(10).0, &Decision::Refused(Refusal::ReferenceTaken(note.id)));
    assert_eq!(placed(decision(11).0).total, 300);

    for (n, placing) in batch.iter().enumerate() {
        let stands = answer_of(&t, placing.asked.account, placing.asked.key.as_str()).await;
        match &settled[n] {
            Settled::Decided { decision: Decision::Invalid(_), .. } => assert_eq!(stands, None),
            Settled::Decided { answer, .. } => assert_eq!(stands, Some(RecordState::Done(answer.clone())), "{n}"),
            _ => assert!(matches!(stands, Some(RecordState::Processing { .. })), "{n}: {stands:?}"),
        }
    }
    assert_eq!(t.sql.int("SELECT count(*) FROM orders").await, 7);
    assert_eq!(t.sql.int("SELECT count(*) FROM payments").await, 7);
    assert_eq!(t.sql.int("SELECT count(*) FROM order_lines").await, 8);
    assert_eq!(t.sql.int("SELECT count(*) FROM outbox").await, 5);
    assert_eq!(t.store.balance(rich).await.unwrap(), 10_000 - 200 - 207 - 100 - 300);
    assert_eq!(t.sql.int("SELECT stock FROM products WHERE sku = 'A'").await, 100 - 3 - 2 - 1 - 1 - 3);
    assert_eq!(t.sql.int("SELECT stock FROM products WHERE sku = 'B'").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_with_an_order_that_cannot_be_written_writes_nothing_and_each_can_be_settled_alone() {
    let t = with_products().await;
    let buyer = account(&t.store, 1_000).await;
    let nobody = AccountId::new();
    let batch = claimed(&t.store, vec![asked(buyer, "k", &[("A", 1)]), asked(nobody, "k", &[("A", 1)])]).await;
    let error = t.store.settle(&batch, &rules()).await.unwrap_err();
    assert!(matches!(&error, StoreError::Broken(text) if text.contains(&nobody.to_string())), "{error}");
    assert_eq!(t.sql.int("SELECT count(*) FROM orders").await, 0);
    let settled = t.store.settle(&batch[..1], &rules()).await.unwrap();
    assert!(matches!(&settled[0], Settled::Decided { decision: Decision::Placed(_), .. }), "{settled:?}");
    t.store.settle(&batch[1..], &rules()).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_byte_of_an_answer_comes_back_and_so_does_none() {
    let t = with_products().await;
    let buyer = account(&t.store, 0).await;
    for (under, body) in [("all", (0..=255).collect::<Vec<u8>>()), ("none", Vec::new())] {
        let mut given = answer(201, None, String::new());
        given.body = body.into();
        let batch = claimed(&t.store, vec![asked(buyer, under, &[("A", 1)])]).await;
        assert!(t.store.complete(&fence(&batch[0]), &given, rules().key_ttl).await.unwrap());
        assert_eq!(answer_of(&t, buyer, under).await, Some(RecordState::Done(given)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_claims_are_given_up_at_once_and_those_that_were_taken_over_are_not() {
    let t = with_products().await;
    let buyer = account(&t.store, 1_000).await;
    let old = claimed(&t.store, vec![asked(buyer, "b", &[("A", 1)])]).await.remove(0);
    t.end_leases().await;
    let batch = claimed(&t.store, ["a", "b", "c"].map(|k| asked(buyer, k, &[("A", 1)])).into()).await;
    t.store.release(&[fence(&batch[0]), fence(&old), fence(&batch[2])]).await.unwrap();
    let requests: Vec<_> = batch.iter().map(|placing| claim_request(&placing.asked)).collect();
    let states = t.store.claim(&requests, rules().key_ttl).await.unwrap();
    let won: Vec<bool> = states
        .iter()
        .map(|state| matches!(state, oncegate::store::ClaimResult::Won { taken_over: true, .. }))
        .collect();
    assert_eq!(won, [true, false, true]);
}
