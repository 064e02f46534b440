//! The records as operators see and free them.

use std::time::Duration;

use oncegate::store::{ClaimResult, RecordFilter, RecordStatus};

use crate::harness::goods::{KEY_TTL, LEASE, account, answer, asked, claim_request, claimed, fence, key};
use crate::harness::life::{by_balance, claim_cancel, shop};

const ALL: RecordFilter = RecordFilter { status: None, older_than: Duration::ZERO, limit: 100 };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_are_listed_by_state_and_age_with_every_column() {
    let t = shop().await;
    let buyer = account(&t.store, 1_000).await;
    let order = by_balance(&t.store, buyer, "done").await;
    claimed(&t.store, vec![asked(buyer, "stuck", &[("A", 1)])]).await;
    let keys = async |filter| {
        let listed = t.store.list_records(filter).await.unwrap();
        listed.into_iter().map(|record| record.key).collect::<Vec<_>>()
    };
    assert_eq!(keys(RecordFilter { limit: 1, ..ALL }).await.len(), 1);
    assert_eq!(keys(ALL).await.len(), 2);
    assert_eq!(keys(RecordFilter { status: Some(RecordStatus::Processing), ..ALL }).await, ["stuck"]);
    assert_eq!(keys(RecordFilter { older_than: Duration::from_secs(60), ..ALL }).await, Vec::<String>::new());
    let older = t.sql.moment(-61);
    t.sql.run(&format!("UPDATE idempotency_records SET created_at = {older} WHERE key = 'done'")).await;
    assert_eq!(keys(RecordFilter { older_than: Duration::from_secs(60), ..ALL }).await, ["done"]);

    let found = t.store.find_records(&key("done"), None).await.unwrap();
    let record = &found[0];
    let subject = t.sql.text(&format!("SELECT subject FROM accounts WHERE id = '{buyer}'")).await;
    assert_eq!((found.len(), record.account, record.subject.as_deref()), (1, buyer, Some(subject.as_str())));
    assert_eq!((record.operation.as_str(), record.status, record.epoch), ("place_order", RecordStatus::Done, 1));
    assert_eq!((record.order, record.response_status), (Some(order), Some(201)));
    assert_eq!(record.response_location.as_deref(), Some(format!("/api/orders/{order}").as_str()));
    assert!(record.response_body.as_ref().is_some_and(|body| body.starts_with(b"placed")));
    assert!(record.completed_at.is_some() && record.expires_at > record.seen_at);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_found_in_every_account_and_operation_or_in_one_account() {
    let t = shop().await;
    let (one, other) = (account(&t.store, 0).await, account(&t.store, 0).await);
    claimed(&t.store, vec![asked(one, "k", &[("A", 1)]), asked(other, "k", &[("A", 1)])]).await;
    claim_cancel(&t.store, one, "k").await;
    assert_eq!(t.store.find_records(&key("k"), None).await.unwrap().len(), 3);
    let mine = t.store.find_records(&key("k"), Some(one)).await.unwrap();
    let mut operations: Vec<&str> = mine.iter().map(|record| record.operation.as_str()).collect();
    operations.sort_unstable();
    assert_eq!(operations, ["cancel_order", "place_order"]);
    assert_eq!(t.store.find_records(&key("other"), None).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_stuck_is_freed_for_the_next_retry_and_what_is_done_or_anothers_is_left_alone() {
    let t = shop().await;
    let (buyer, other) = (account(&t.store, 0).await, account(&t.store, 0).await);
    let batch = claimed(&t.store, vec![asked(buyer, "stuck", &[("A", 1)]), asked(buyer, "done", &[("A", 1)])]).await;
    let theirs = claimed(&t.store, vec![asked(other, "stuck", &[("A", 1)])]).await;
    t.store.complete(&fence(&batch[1]), &answer(201, None, "x".into()), KEY_TTL).await.unwrap();
    assert_eq!(t.store.free_records(buyer, &key("done")).await.unwrap(), []);
    assert_eq!(t.store.free_records(buyer, &key("unknown")).await.unwrap(), []);
    let freed = t.store.free_records(buyer, &key("stuck")).await.unwrap();
    assert_eq!((freed.len(), freed[0].epoch, freed[0].status), (1, 1, RecordStatus::Processing));
    assert!(freed[0].lease_expires_at <= freed[0].seen_at);
    let retry = t.store.claim(&[claim_request(&batch[0].asked)], LEASE).await.unwrap();
    assert_eq!(retry, [ClaimResult::Won { epoch: 2, taken_over: true }]);
    assert!(!t.store.complete(&fence(&batch[0]), &answer(201, None, "late".into()), KEY_TTL).await.unwrap());
    let again = t.store.claim(&[claim_request(&theirs[0].asked)], LEASE).await.unwrap();
    assert!(matches!(again[0], ClaimResult::Lost(_)), "the same key of another account is not touched");
}
