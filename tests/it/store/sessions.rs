//! Visitors' sessions.

use std::time::Duration;

use time::OffsetDateTime;

use crate::harness::TestStore;

fn in_an_hour() -> OffsetDateTime {
    OffsetDateTime::now_utc() + Duration::from_secs(3600)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_created_once_loaded_saved_and_deleted() {
    let t = TestStore::new().await;
    assert!(t.store.create_session("id", b"\x00one\xff", in_an_hour()).await.unwrap());
    assert!(!t.store.create_session("id", b"two", in_an_hour()).await.unwrap(), "the id is taken");
    assert_eq!(t.store.load_session("id").await.unwrap().as_deref(), Some(&b"\x00one\xff"[..]));
    t.store.save_session("id", b"three", in_an_hour()).await.unwrap();
    assert_eq!(t.store.load_session("id").await.unwrap().as_deref(), Some(&b"three"[..]));
    t.store.delete_session("id").await.unwrap();
    assert_eq!(t.store.load_session("id").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_session_is_not_brought_back_by_a_late_save() {
    let t = TestStore::new().await;
    t.store.create_session("id", b"one", in_an_hour()).await.unwrap();
    t.store.delete_session("id").await.unwrap();
    t.store.save_session("id", b"late", in_an_hour()).await.unwrap();
    assert_eq!(t.store.load_session("id").await.unwrap(), None);
    t.store.delete_session("id").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_session_is_not_loaded() {
    let t = TestStore::new().await;
    let past = OffsetDateTime::now_utc() - Duration::from_secs(2);
    t.store.create_session("old", b"x", past).await.unwrap();
    assert_eq!(t.store.load_session("old").await.unwrap(), None);
    t.store.create_session("ends", b"x", in_an_hour()).await.unwrap();
    t.store.save_session("ends", b"x", past).await.unwrap();
    assert_eq!(t.store.load_session("ends").await.unwrap(), None);
}
