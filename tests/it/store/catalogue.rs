//! Products.

use crate::harness::TestStore;
use crate::harness::goods::{product, sku};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn products_are_imported_all_or_none_and_listed_in_the_order_of_bytes() {
    let t = TestStore::new().await;
    let first = [product("b", 1, 1), product("A", 2, 2), product("a-1", 3, 3), product("B.2", 4, 4)];
    t.store.import_products(&first).await.unwrap();
    let listed = t.store.products().await.unwrap();
    assert_eq!(listed.iter().map(|p| p.sku.as_str()).collect::<Vec<_>>(), ["A", "B.2", "a-1", "b"]);
    assert!(first.iter().all(|p| listed.contains(p)));

    let mut bad = [product("A", 20, 20), product("new", 5, 5), product("b", 1, 1)];
    bad[2].stock = -1;
    assert!(t.store.import_products(&bad).await.is_err());
    assert_eq!(t.store.products().await.unwrap(), listed, "nothing was changed");

    t.store.import_products(&[product("A", 20, 20), product("new", 5, 5)]).await.unwrap();
    let updated = t.store.products().await.unwrap();
    assert_eq!(updated.len(), 5);
    assert_eq!(updated[0], product("A", 20, 20));
    t.store.import_products(&[]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_the_same_product_twice_in_one_import_the_last_counts() {
    let t = TestStore::new().await;
    t.store.import_products(&[product("A", 1, 1), product("B", 5, 5), product("A", 2, 2)]).await.unwrap();
    assert_eq!(t.store.products().await.unwrap(), [product("A", 2, 2), product("B", 5, 5)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_products_are_added_and_the_others_left_alone() {
    let t = TestStore::new().await;
    t.store.import_products(&[product("A", 1, 1)]).await.unwrap();
    t.store.add_missing_products(&[product("A", 9, 9), product("B", 2, 2)]).await.unwrap();
    assert_eq!(t.store.products().await.unwrap(), [product("A", 1, 1), product("B", 2, 2)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stock_is_set_for_a_known_sku_only() {
    let t = TestStore::new().await;
    t.store.import_products(&[product("A", 1, 1)]).await.unwrap();
    assert!(t.store.set_stock(&sku("A"), 7).await.unwrap());
    assert!(!t.store.set_stock(&sku("B"), 7).await.unwrap());
    assert_eq!(t.store.products().await.unwrap(), [product("A", 1, 7)]);
    assert!(t.store.set_stock(&sku("A"), -1).await.is_err());
}
