//! Schema and lifetime.

use tokio::task::JoinSet;

use crate::harness::goods::product;
use crate::harness::{Database, TestStore, open};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_processes_migrate_an_empty_database_at_once_and_again_later() {
    let database = Database::create().await;
    let mut work = JoinSet::new();
    for _ in 0..6 {
        let store = open(database.url()).await;
        work.spawn(async move { store.migrate().await });
    }
    for result in work.join_all().await {
        result.unwrap();
    }
    let store = open(database.url()).await;
    store.import_products(&[product("A", 1, 1)]).await.unwrap();
    store.migrate().await.unwrap();
    assert_eq!(store.products().await.unwrap().len(), 1, "a schema that is there is left alone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_answers_until_it_is_closed_and_the_data_stays() {
    let t = TestStore::new().await;
    t.store.import_products(&[product("A", 1, 1)]).await.unwrap();
    t.store.ping().await.unwrap();
    t.store.close().await;
    assert!(t.store.ping().await.is_err());
    assert_eq!(t.second().await.products().await.unwrap().len(), 1);
}
