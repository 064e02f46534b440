//! Accounts, balances and coupons.

use oncegate::order::values::{OrderId, Subject};
use oncegate::store::StoreError;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::harness::TestStore;
use crate::harness::goods::{account, asked, place_one, placed, product};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_is_opened_once_under_a_race_with_one_opening_entry() {
    let t = TestStore::new().await;
    let second = t.second().await;
    let subject = Subject::parse("client:shop").unwrap();
    assert_eq!(t.store.find_account(&subject).await.unwrap(), None);
    let mut work = JoinSet::new();
    for n in 0..20 {
        let (store, subject) = (if n % 2 == 0 { t.store.clone() } else { second.clone() }, subject.clone());
        work.spawn(async move { store.open_account(&subject, 1_000).await.unwrap() });
    }
    let ids = work.join_all().await;
    assert!(ids.iter().all(|id| *id == ids[0]));
    assert_eq!(t.store.find_account(&subject).await.unwrap(), Some(ids[0]));
    assert_eq!(t.store.balance(ids[0]).await.unwrap(), 1_000);
    let entries = "SELECT count(*) FROM account_entries WHERE kind = 'opening' AND amount = 1000 AND order_id IS NULL";
    assert_eq!(t.sql.int(entries).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_opened_with_nothing_has_no_entry() {
    let t = TestStore::new().await;
    let id = t.store.open_account(&Subject::visitor(Uuid::new_v4()), 0).await.unwrap();
    assert_eq!(t.store.balance(id).await.unwrap(), 0);
    assert_eq!(t.sql.int("SELECT count(*) FROM account_entries").await, 0);
    let nobody = t.store.balance(oncegate::order::values::AccountId::new()).await;
    assert!(matches!(nobody, Err(StoreError::Broken(_))), "{nobody:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coupon_shows_at_its_account_and_its_order() {
    let t = TestStore::new().await;
    t.store.import_products(&[product("A", 100, 10)]).await.unwrap();
    let buyer = account(&t.store, 1_000).await;
    let (decision, _) = place_one(&t.store, asked(buyer, "k", &[("A", 1)])).await;
    let order: OrderId = placed(&decision).id;
    assert!(t.store.coupons(buyer).await.unwrap().is_empty());
    let grant = format!(
        "INSERT INTO coupons (code, account_id, order_id, campaign, granted_at)
        SELECT 'CODE-1', account_id, id, 'welcome-back', created_at FROM orders WHERE id = '{order}'"
    );
    t.sql.run(&grant).await;
    let coupons = t.store.coupons(buyer).await.unwrap();
    assert_eq!(coupons.len(), 1);
    assert_eq!((coupons[0].code.as_str(), coupons[0].campaign.as_str()), ("CODE-1", "welcome-back"));
    assert_eq!((coupons[0].order, coupons[0].granted_at), (order, placed(&decision).created_at));
    assert_eq!(t.store.order(buyer, order).await.unwrap().unwrap().coupon.as_deref(), Some("CODE-1"));
}
