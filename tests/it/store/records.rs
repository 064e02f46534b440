//! Layer 2 in the database: claim, take-over, complete, release.

use std::time::Duration;

use oncegate::store::{ClaimRequest, ClaimResult, Fence, Record, RecordState};
use tokio::task::JoinSet;

use crate::harness::TestStore;
use crate::harness::goods::{
    KEY_TTL, LEASE, account, answer, asked, claim_request, claimed, fence, place_one, product,
};

fn lost(result: &ClaimResult) -> &Record {
    match result {
        ClaimResult::Lost(record) => record,
        won @ ClaimResult::Won { .. } => panic!("not lost: {won:?}"),
    }
}

const FIRST: ClaimResult = ClaimResult::Won { epoch: 1, taken_over: false };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_key_is_won_under_epoch_one() {
    let t = TestStore::new().await;
    let request = claim_request(&asked(account(&t.store, 0).await, "k", &[("A", 1)]));
    assert_eq!(t.store.claim(std::slice::from_ref(&request), LEASE).await.unwrap(), [FIRST]);
    let record = t.store.record(&request.id).await.unwrap().unwrap();
    assert_eq!(record.fingerprint, request.fingerprint);
    assert!(matches!(record.state, RecordState::Processing { lease_left } if lease_left <= LEASE));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_processing_is_lost_and_tells_what_is_left_of_the_lease() {
    let t = TestStore::new().await;
    let request = [claim_request(&asked(account(&t.store, 0).await, "k", &[("A", 1)]))];
    t.store.claim(&request, LEASE).await.unwrap();
    let again = t.store.claim(&request, LEASE).await.unwrap();
    let RecordState::Processing { lease_left } = lost(&again[0]).state else { panic!("{again:?}") };
    assert!(lease_left <= LEASE && lease_left > LEASE / 2, "{lease_left:?}");
    assert_eq!(t.store.buyer(request[0].id.account).await.unwrap().under_way, Some(request[0].id.key.clone()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_done_is_lost_and_gives_the_stored_answer_byte_for_byte() {
    let t = TestStore::new().await;
    let batch = claimed(&t.store, vec![asked(account(&t.store, 0).await, "k", &[("A", 1)])]).await;
    let mut given = answer(402, None, "\u{0}bytes\r\n\u{fffd}".into());
    given.content_type = "application/problem+json";
    given.location = Some("/somewhere".into());
    assert!(t.store.complete(&fence(&batch[0]), &given, KEY_TTL).await.unwrap());
    let again = t.store.claim(&[claim_request(&batch[0].asked)], LEASE).await.unwrap();
    assert_eq!(lost(&again[0]).state, RecordState::Done(given));
    assert_eq!(t.store.buyer(batch[0].asked.account).await.unwrap().under_way, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_claim_shows_the_content_that_holds_the_key_whether_processing_or_over() {
    let t = TestStore::new().await;
    let buyer = account(&t.store, 0).await;
    let first = claim_request(&asked(buyer, "k", &[("A", 1)]));
    t.store.claim(std::slice::from_ref(&first), LEASE).await.unwrap();
    let other = [claim_request(&asked(buyer, "k", &[("A", 2)]))];
    assert_eq!(lost(&t.store.claim(&other, LEASE).await.unwrap()[0]).fingerprint, first.fingerprint);
    t.end_leases().await;
    let over = t.store.claim(&other, LEASE).await.unwrap();
    assert_eq!(lost(&over[0]).fingerprint, first.fingerprint, "other content never takes over");
    assert_eq!(lost(&over[0]).state, RecordState::Processing { lease_left: Duration::ZERO });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_over_is_taken_over_with_a_raised_epoch() {
    let t = TestStore::new().await;
    let request = [claim_request(&asked(account(&t.store, 0).await, "k", &[("A", 1)]))];
    for epoch in 2..4 {
        t.store.claim(&request, LEASE).await.unwrap();
        t.end_leases().await;
        let again = t.store.claim(&request, LEASE).await.unwrap();
        assert_eq!(again, [ClaimResult::Won { epoch, taken_over: true }]);
    }
    assert!(matches!(t.store.claim(&request, LEASE).await.unwrap()[0], ClaimResult::Lost(_)), "a new lease runs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_has_expired_does_not_stand_and_its_key_is_claimed_anew_for_any_content() {
    let t = TestStore::new().await;
    let buyer = account(&t.store, 0).await;
    let batch = claimed(&t.store, vec![asked(buyer, "k", &[("A", 1)])]).await;
    t.store.complete(&fence(&batch[0]), &answer(201, None, "first".into()), KEY_TTL).await.unwrap();
    t.expire_records().await;
    assert_eq!(t.store.record(&fence(&batch[0]).id).await.unwrap(), None);
    let other = claim_request(&asked(buyer, "k", &[("A", 2)]));
    let again = t.store.claim(std::slice::from_ref(&other), LEASE).await.unwrap();
    assert_eq!(again, [ClaimResult::Won { epoch: 2, taken_over: false }], "the epoch still fences the first worker");
    let record = t.store.record(&other.id).await.unwrap().unwrap();
    assert_eq!(record.fingerprint, other.fingerprint);
    assert!(matches!(record.state, RecordState::Processing { .. }));
    assert_eq!(t.sql.int("SELECT count(*) FROM idempotency_records WHERE response_body IS NOT NULL").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_released_key_is_retried_at_once_under_a_raised_epoch() {
    let t = TestStore::new().await;
    let batch = claimed(&t.store, vec![asked(account(&t.store, 0).await, "k", &[("A", 1)])]).await;
    t.store.release(&[fence(&batch[0])]).await.unwrap();
    assert_eq!(t.store.buyer(batch[0].asked.account).await.unwrap().under_way, None);
    let again = t.store.claim(&[claim_request(&batch[0].asked)], LEASE).await.unwrap();
    assert_eq!(again, [ClaimResult::Won { epoch: 2, taken_over: true }]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_touches_neither_a_record_that_was_taken_over_nor_one_that_is_done() {
    let t = TestStore::new().await;
    let buyer = account(&t.store, 0).await;
    let batch = claimed(&t.store, vec![asked(buyer, "taken", &[("A", 1)]), asked(buyer, "done", &[("A", 1)])]).await;
    t.end_leases().await;
    t.store.claim(&[claim_request(&batch[0].asked)], LEASE).await.unwrap();
    t.store.complete(&fence(&batch[1]), &answer(201, None, "kept".into()), KEY_TTL).await.unwrap();
    let fences: Vec<Fence> = batch.iter().map(fence).collect();
    t.store.release(&fences).await.unwrap();
    let taken = t.store.record(&fences[0].id).await.unwrap().unwrap();
    assert_eq!(taken.epoch, 2);
    assert!(matches!(taken.state, RecordState::Processing { lease_left } if lease_left > LEASE / 2), "{taken:?}");
    let done = t.store.record(&fences[1].id).await.unwrap().unwrap();
    assert!(matches!(done.state, RecordState::Done(_)), "{done:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_holder_of_the_epoch_completes_and_only_once() {
    let t = TestStore::new().await;
    let batch = claimed(&t.store, vec![asked(account(&t.store, 0).await, "k", &[("A", 1)])]).await;
    let old = fence(&batch[0]);
    t.end_leases().await;
    t.store.claim(&[claim_request(&batch[0].asked)], LEASE).await.unwrap();
    assert!(!t.store.complete(&old, &answer(201, None, "late".into()), KEY_TTL).await.unwrap());
    assert!(matches!(t.store.record(&old.id).await.unwrap().unwrap().state, RecordState::Processing { .. }));
    let new = Fence { epoch: 2, ..old };
    let first = answer(201, None, "first".into());
    assert!(t.store.complete(&new, &first, KEY_TTL).await.unwrap());
    assert!(!t.store.complete(&new, &answer(201, None, "second".into()), KEY_TTL).await.unwrap());
    assert_eq!(t.store.record(&new.id).await.unwrap().unwrap().state, RecordState::Done(first));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_claims_of_one_key_at_once_have_one_winner() {
    let t = TestStore::new().await;
    let second = t.second().await;
    let request = claim_request(&asked(account(&t.store, 0).await, "k", &[("A", 1)]));
    let mut claims = JoinSet::new();
    for n in 0..50 {
        let (store, request) = (if n % 2 == 0 { t.store.clone() } else { second.clone() }, request.clone());
        claims.spawn(async move { store.claim(&[request], LEASE).await.unwrap().remove(0) });
    }
    let results = claims.join_all().await;
    assert_eq!(results.iter().filter(|r| **r == FIRST).count(), 1);
    assert!(results.iter().all(|r| *r == FIRST || lost(r).epoch == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_batch_may_win_lose_and_take_over_and_answers_in_the_order_of_the_requests() {
    let t = TestStore::new().await;
    let buyer = account(&t.store, 0).await;
    let ask = |under: &str| asked(buyer, under, &[("A", 1)]);
    let over = claimed(&t.store, vec![ask("over")]).await;
    t.end_leases().await;
    let stored = answer(201, None, "done".into());
    let done = claimed(&t.store, vec![ask("done")]).await;
    t.store.complete(&fence(&done[0]), &stored, KEY_TTL).await.unwrap();
    claimed(&t.store, vec![ask("processing")]).await;

    let mut batch: Vec<ClaimRequest> = ["z", "done", "over", "processing", "a"].map(|k| claim_request(&ask(k))).into();
    batch.extend((0..60).map(|n| claim_request(&ask(&format!("more {n}").replace(' ', "-")))));
    let results = t.store.claim(&batch, LEASE).await.unwrap();
    assert_eq!(results.len(), 65);
    assert_eq!(results[0], FIRST);
    assert_eq!(lost(&results[1]).state, RecordState::Done(stored));
    assert_eq!(results[2], ClaimResult::Won { epoch: over[0].epoch + 1, taken_over: true });
    assert!(matches!(lost(&results[3]).state, RecordState::Processing { .. }));
    assert!(results[4..].iter().all(|r| *r == FIRST));
    assert_eq!(t.store.claim(&[], LEASE).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_batches_in_opposite_orders_do_not_deadlock_and_win_each_key_once() {
    let t = TestStore::new().await;
    let second = t.second().await;
    let buyer = account(&t.store, 0).await;
    let forward: Vec<_> = (0..64).map(|n| claim_request(&asked(buyer, &format!("k{n}"), &[("A", 1)]))).collect();
    let backward: Vec<_> = forward.iter().rev().cloned().collect();
    for _ in 0..10 {
        t.sql.run("DELETE FROM idempotency_records").await;
        let (one, two) = tokio::join!(t.store.claim(&forward, LEASE), second.claim(&backward, LEASE));
        let won = one.unwrap().into_iter().chain(two.unwrap()).filter(|r| *r == FIRST).count();
        assert_eq!(won, forward.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_key_of_another_account_or_operation_is_another_record() {
    let t = TestStore::new().await;
    let mine = claim_request(&asked(account(&t.store, 0).await, "k", &[("A", 1)]));
    let theirs = claim_request(&asked(account(&t.store, 0).await, "k", &[("A", 1)]));
    let mut cancel = mine.clone();
    cancel.id.operation = "cancel_order";
    assert_eq!(t.store.claim(&[mine, theirs, cancel], LEASE).await.unwrap(), [FIRST, FIRST, FIRST]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_under_way_is_the_youngest_one() {
    let t = TestStore::new().await;
    t.store.import_products(&[product("A", 100, 10)]).await.unwrap();
    let buyer = account(&t.store, 1_000).await;
    place_one(&t.store, asked(buyer, "finished", &[("A", 1)])).await;
    claimed(&t.store, vec![asked(buyer, "older", &[("A", 1)])]).await;
    // Two records of one millisecond would have no order: wait for the clock that both databases can tell.
    tokio::time::sleep(Duration::from_millis(5)).await;
    claimed(&t.store, vec![asked(buyer, "younger", &[("A", 1)])]).await;
    assert_eq!(t.store.buyer(buyer).await.unwrap().under_way.unwrap().as_str(), "younger");
    assert_eq!(t.store.buyer(account(&t.store, 0).await).await.unwrap().under_way, None);
}
