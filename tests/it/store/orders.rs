//! Reading orders.

use oncegate::order::values::{Note, OrderId};
use oncegate::store::OrderRef;

use crate::harness::TestStore;
use crate::harness::goods::{account, asked, key, place, place_one, placed, product, reference};

async fn shop() -> TestStore {
    let t = TestStore::new().await;
    t.store.import_products(&[product("A", 100, 1_000), product("B", 7, 1_000)]).await.unwrap();
    t
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_is_read_whole_by_its_account_and_by_no_other() {
    let t = shop().await;
    let (buyer, other) = (account(&t.store, 1_000).await, account(&t.store, 1_000).await);
    let mut ask = asked(buyer, "k", &[("A", 2), ("B", 3)]);
    ask.request.reference = Some(reference("r-1"));
    ask.request.note = Note::parse("two lines\nand \u{1f381}");
    let (decision, _) = place_one(&t.store, ask.clone()).await;
    let order = placed(&decision);
    assert_eq!(t.store.order(buyer, ask.id).await.unwrap().as_ref(), Some(order));
    assert_eq!(order.lines.len(), 2);
    assert_eq!(order.note, ask.request.note);
    assert_eq!(order.created_at.nanosecond() % 1_000_000, 0, "whole milliseconds");
    assert_eq!(t.store.order(other, ask.id).await.unwrap(), None);
    assert_eq!(t.store.order(buyer, OrderId::new()).await.unwrap(), None);

    let short = OrderRef { id: ask.id, fingerprint: ask.fingerprint };
    assert_eq!(t.store.order_by_key(buyer, &key("k")).await.unwrap(), Some(short));
    assert_eq!(t.store.order_by_key(other, &key("k")).await.unwrap(), None);
    assert_eq!(t.store.order_by_key(buyer, &key("K")).await.unwrap(), None, "keys are compared byte by byte");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_are_paged_newest_first_each_once() {
    let t = shop().await;
    let (buyer, other) = (account(&t.store, 100_000).await, account(&t.store, 1_000).await);
    let mut ids = Vec::new();
    for batch in [1, 5, 1, 4] {
        let asks: Vec<_> = (0..batch).map(|n| asked(buyer, &format!("k{}-{n}", ids.len()), &[("A", 1)])).collect();
        ids.extend(asks.iter().map(|a| a.id));
        place(&t.store, asks).await;
    }
    place_one(&t.store, asked(other, "k", &[("A", 1)])).await;
    ids.reverse();

    let all = t.store.orders(buyer, None, 100).await.unwrap();
    assert!(all.is_sorted_by(|a, b| a.created_at >= b.created_at));
    let mut paged = Vec::new();
    loop {
        let page = t.store.orders(buyer, paged.last().copied(), 3).await.unwrap();
        assert!(page.len() <= 3);
        if page.is_empty() {
            break;
        }
        paged.extend(page.iter().map(|o| o.id));
    }
    assert_eq!(paged, ids);
    assert_eq!(all.iter().map(|o| o.id).collect::<Vec<_>>(), ids);
    assert_eq!(t.store.orders(other, None, 100).await.unwrap().len(), 1);
    assert!(t.store.orders(other, Some(ids[0]), 100).await.unwrap().is_empty(), "a foreign cursor opens nothing");
}
