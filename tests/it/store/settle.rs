//! Settling batches: what is written, what is refused, what is fenced, and races for stock.

use std::time::Duration;

use oncegate::order::decide::{Decision, Refusal};
use oncegate::order::{PaymentStatus, Product, Status};
use oncegate::store::{Placing, RecordState, SettleRules, Settled, StoreError};
use tokio::task::JoinSet;

use crate::harness::TestStore;
use crate::harness::goods::{
    LEASE, account, asked, claim_request, claimed, place, place_one, placed, product, record_id, reference, rules, sku,
};

/// A store with product A, price 100, and so many of it.
async fn with_stock(stock: i64) -> TestStore {
    let t = TestStore::new().await;
    t.store.import_products(&[product("A", 100, stock), product("B", 7, 1_000)]).await.unwrap();
    t
}

/// Sold units and what is left must add up, and no money may be lost.
async fn assert_books_balance(t: &TestStore, put_in: i64) {
    let sold = "SELECT CAST(coalesce(sum(quantity), 0) AS bigint) FROM order_lines WHERE sku = 'A'";
    let left = t.sql.int("SELECT stock FROM products WHERE sku = 'A'").await;
    assert_eq!(t.sql.int(sold).await + left, put_in);
    assert!(left >= 0);
    let off = "SELECT count(*) FROM accounts a WHERE balance < 0 OR balance <>
        (SELECT CAST(coalesce(sum(amount), 0) AS bigint) FROM account_entries e WHERE e.account_id = a.id)";
    assert_eq!(t.sql.int(off).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_is_written_with_stock_balance_entry_payment_outbox_row_and_stored_answer() {
    let t = with_stock(10).await;
    let buyer = account(&t.store, 1_000).await;
    let mut ask = asked(buyer, "k", &[("A", 2), ("B", 3)]);
    ask.request.reference = Some(reference("ref-1"));
    let id = ask.id;
    let (decision, answer) = place_one(&t.store, ask.clone()).await;
    let order = placed(&decision);
    assert_eq!((order.id, order.total, order.status), (id, 221, Status::Paid));

    assert_eq!(t.store.order(buyer, id).await.unwrap().as_ref(), Some(order), "what was decided is what is read");
    assert_eq!(order.payment, PaymentStatus::Captured);
    assert_eq!(t.store.balance(buyer).await.unwrap(), 779);
    assert_eq!(t.sql.int("SELECT stock FROM products WHERE sku = 'A'").await, 8);
    assert_eq!(t.sql.int("SELECT stock FROM products WHERE sku = 'B'").await, 997);
    let own = format!("order_id = '{id}'");
    let charge = format!("SELECT amount FROM account_entries WHERE kind = 'charge' AND {own}");
    assert_eq!(t.sql.int(&charge).await, -221);
    let payment = format!("SELECT method || ' ' || status FROM payments WHERE attempt = 1 AND amount = 221 AND {own}");
    assert_eq!(t.sql.text(&payment).await, "balance captured");
    let payload = t.sql.text("SELECT payload FROM outbox WHERE topic = 'order.paid' AND published_at IS NULL").await;
    let payload: serde_json::Value = serde_json::from_str(&payload).unwrap();
    assert_eq!(payload, serde_json::json!({"order_id": id.to_string(), "account_id": buyer.to_string()}));
    let record = t.store.record(&record_id(buyer, "k")).await.unwrap().unwrap();
    assert_eq!((record.state, record.fingerprint), (RecordState::Done(answer), ask.fingerprint));
    assert_eq!(t.store.buyer(buyer).await.unwrap().under_way, None);
    assert_books_balance(&t, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_stored_and_moves_nothing() {
    let t = with_stock(1).await;
    let (rich, poor) = (account(&t.store, 1_000).await, account(&t.store, 99).await);
    let batch = vec![
        asked(rich, "much", &[("A", 2)]),
        asked(poor, "dear", &[("A", 1)]),
        asked(rich, "unknown", &[("A", 1), ("nothing", 1)]),
    ];
    let settled = place(&t.store, batch).await;
    let expected =
        [Refusal::OutOfStock(vec![sku("A")]), Refusal::InsufficientFunds, Refusal::UnknownSku(vec![sku("nothing")])];
    for ((settled, refusal), (buyer, under)) in
        settled.into_iter().zip(expected).zip([(rich, "much"), (poor, "dear"), (rich, "unknown")])
    {
        let Settled::Decided { decision, answer, leaked: false } = settled else { panic!("{settled:?}") };
        assert_eq!(decision, Decision::Refused(refusal));
        let record = t.store.record(&record_id(buyer, under)).await.unwrap().unwrap();
        assert_eq!(record.state, RecordState::Done(answer));
    }
    assert_eq!(t.sql.int("SELECT count(*) FROM orders").await, 0);
    assert_eq!(t.sql.int("SELECT count(*) FROM outbox").await, 0);
    assert_books_balance(&t, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_the_catalogue_shows_to_be_invalid_leaves_no_record_and_a_neighbour_is_placed() {
    let t = with_stock(10).await;
    t.store.import_products(&[product("dear", 1_000_000_000, 100_000)]).await.unwrap();
    let buyer = account(&t.store, 1_000).await;
    let batch = vec![asked(buyer, "over", &[("dear", 10_000)]), asked(buyer, "fine", &[("A", 1)])];
    let settled = place(&t.store, batch.clone()).await;
    assert!(matches!(&settled[0], Settled::Decided { decision: Decision::Invalid(_), .. }), "{settled:?}");
    assert!(matches!(&settled[1], Settled::Decided { decision: Decision::Placed(_), .. }), "{settled:?}");
    assert_eq!(t.store.record(&record_id(buyer, "over")).await.unwrap(), None);
    assert_eq!(claimed(&t.store, vec![batch[0].clone()]).await[0].epoch, 1, "the key is free again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_was_taken_over_writes_nothing_while_its_neighbours_are_placed() {
    let t = with_stock(10).await;
    let buyer = account(&t.store, 1_000).await;
    let names = ["first", "late", "last"];
    let batch = claimed(&t.store, names.map(|k| asked(buyer, k, &[("A", 1)])).into()).await;
    t.end_leases().await;
    let taken = claimed(&t.store, vec![batch[1].asked.clone()]).await;
    let settled = t.store.settle(&batch, &rules()).await.unwrap();
    assert!(matches!(settled[1], Settled::Fenced), "{settled:?}");
    for n in [0, 2] {
        assert!(matches!(&settled[n], Settled::Decided { decision: Decision::Placed(_), .. }), "{settled:?}");
    }
    assert_eq!(t.sql.int("SELECT count(*) FROM orders").await, 2);
    assert_eq!(t.store.balance(buyer).await.unwrap(), 800);
    let record = t.store.record(&record_id(buyer, "late")).await.unwrap().unwrap();
    assert!(matches!(record.state, RecordState::Processing { .. }));

    let settled = t.store.settle(&taken, &rules()).await.unwrap();
    assert!(matches!(&settled[0], Settled::Decided { decision: Decision::Placed(_), .. }), "{settled:?}");
    assert_books_balance(&t, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_vanished_fences_its_order() {
    let t = with_stock(10).await;
    let buyer = account(&t.store, 1_000).await;
    let batch = claimed(&t.store, ["gone", "here"].map(|k| asked(buyer, k, &[("A", 1)])).into()).await;
    t.sql.run("DELETE FROM idempotency_records WHERE key = 'gone'").await;
    let settled = t.store.settle(&batch, &rules()).await.unwrap();
    assert!(matches!(settled[0], Settled::Fenced), "{settled:?}");
    assert!(matches!(&settled[1], Settled::Decided { decision: Decision::Placed(_), .. }), "{settled:?}");
    assert_eq!(t.sql.int("SELECT count(*) FROM orders").await, 1);
    assert_eq!(t.store.record(&record_id(buyer, "gone")).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settling_a_batch_again_writes_nothing_twice() {
    let t = with_stock(10).await;
    let buyer = account(&t.store, 1_000).await;
    let batch = claimed(&t.store, vec![asked(buyer, "k", &[("A", 1)])]).await;
    t.store.settle(&batch, &rules()).await.unwrap();
    let again = t.store.settle(&batch, &rules()).await.unwrap();
    assert!(matches!(again[0], Settled::Fenced), "the caller finds the answer in the record: {again:?}");
    assert_eq!(t.sql.int("SELECT count(*) FROM orders").await, 1);
    assert_books_balance(&t, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_whose_record_was_lost_stands_and_heals_the_record() {
    let t = with_stock(10).await;
    let buyer = account(&t.store, 1_000).await;
    let first = asked(buyer, "k", &[("A", 1)]);
    place_one(&t.store, first.clone()).await;
    for (ask, same) in [(asked(buyer, "k", &[("A", 1)]), true), (asked(buyer, "k", &[("A", 5)]), false)] {
        t.sql.run("DELETE FROM idempotency_records").await;
        let settled = place(&t.store, vec![ask]).await.remove(0);
        let Settled::Decided { decision, answer, leaked } = settled else { panic!("{settled:?}") };
        assert_eq!(decision, Decision::Stands { order: first.id, same });
        assert!(leaked, "a record of today should have been there");
        assert_eq!(answer.body, format!("stands {} for 100", first.id));
        assert_eq!(answer.status, 201, "what is stored is for the original content");
        let record = t.store.record(&record_id(buyer, "k")).await.unwrap().unwrap();
        assert_eq!((record.fingerprint, record.state), (first.fingerprint.clone(), RecordState::Done(answer)));
    }
    assert_eq!(t.sql.int("SELECT count(*) FROM orders").await, 1);
    assert_books_balance(&t, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_older_than_the_key_or_claimed_again_is_no_leak() {
    let t = with_stock(10).await;
    let buyer = account(&t.store, 1_000).await;
    let ask = asked(buyer, "k", &[("A", 1)]);
    place_one(&t.store, ask.clone()).await;

    t.sql.run("DELETE FROM idempotency_records").await;
    let batch = claimed(&t.store, vec![ask.clone()]).await;
    let settled = t.store.settle(&batch, &SettleRules { key_ttl: Duration::ZERO, ..rules() }).await.unwrap();
    assert!(matches!(settled[0], Settled::Decided { leaked: false, .. }), "{settled:?}");

    t.expire_records().await;
    let batch = claimed(&t.store, vec![ask]).await;
    assert_eq!(batch[0].epoch, 2);
    let settled = t.store.settle(&batch, &rules()).await.unwrap();
    assert!(matches!(settled[0], Settled::Decided { leaked: false, .. }), "{settled:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reference_is_taken_for_ever_whatever_the_key() {
    let t = with_stock(10).await;
    let (buyer, other) = (account(&t.store, 1_000).await, account(&t.store, 1_000).await);
    let ask = |buyer, under: &str| {
        let mut ask = asked(buyer, under, &[("A", 1)]);
        ask.request.reference = Some(reference("mine"));
        ask
    };
    let first = ask(buyer, "k1");
    let settled = place(&t.store, vec![first.clone(), ask(buyer, "k2"), ask(other, "k1")]).await;
    let decisions: Vec<_> = settled
        .into_iter()
        .map(|s| match s {
            Settled::Decided { decision, .. } => decision,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(matches!(decisions[0], Decision::Placed(_)));
    assert_eq!(decisions[1], Decision::Refused(Refusal::ReferenceTaken(first.id)), "within one batch");
    assert!(matches!(decisions[2], Decision::Placed(_)), "another account's references are its own");
    let (later, _) = place_one(&t.store, ask(buyer, "k3")).await;
    assert_eq!(later, Decision::Refused(Refusal::ReferenceTaken(first.id)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_content_under_another_key_is_asked_about_within_the_notice_and_not_after_it() {
    let t = with_stock(10).await;
    let buyer = account(&t.store, 1_000).await;
    let ask = |under: &str| {
        let mut ask = asked(buyer, under, &[("A", 1)]);
        ask.repeat_notice = Some(120);
        ask
    };
    let first = ask("k1");
    place_one(&t.store, first.clone()).await;
    let (decision, _) = place_one(&t.store, ask("k2")).await;
    let Decision::Refused(Refusal::Repeat { order, seconds }) = decision else { panic!("{decision:?}") };
    assert_eq!(order, first.id);
    assert!(seconds < 120);
    let (unasked, _) = place_one(&t.store, asked(buyer, "k3", &[("A", 1)])).await;
    assert!(matches!(unasked, Decision::Placed(_)), "an API client is never asked");
    let mut soon = ask("k4");
    soon.repeat_notice = Some(0);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(matches!(place_one(&t.store, soon).await.0, Decision::Placed(_)), "the notice is over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_that_does_not_exist_is_named_and_nothing_is_written() {
    let t = with_stock(10).await;
    let nobody = oncegate::order::values::AccountId::new();
    let batch = claimed(&t.store, vec![asked(nobody, "k", &[("A", 1)])]).await;
    let error = t.store.settle(&batch, &rules()).await.unwrap_err();
    assert!(matches!(&error, StoreError::Broken(text) if text.contains(&nobody.to_string())), "{error}");
    assert_books_balance(&t, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_row_under_the_same_key_or_reference_is_refused_by_the_database_itself() {
    let t = with_stock(10).await;
    let buyer = account(&t.store, 1_000).await;
    let mut ask = asked(buyer, "k", &[("A", 1)]);
    ask.request.reference = Some(reference("r"));
    place_one(&t.store, ask).await;
    let columns = "account_id, fingerprint, status, total, currency, payment_method";
    for (under, named) in [("k", "other"), ("other", "r")] {
        let copy = format!(
            "INSERT INTO orders (id, idempotency_key, reference, {columns})
            SELECT '{}', '{under}', '{named}', {columns} FROM orders",
            oncegate::order::values::OrderId::new()
        );
        let error = t.sql.try_run(&copy).await.unwrap_err();
        assert!(error.to_lowercase().contains("unique constraint"), "{error}");
    }
    let negative = t.sql.try_run("UPDATE products SET stock = -1 WHERE sku = 'A'").await.unwrap_err();
    assert!(negative.contains("products_stock_not_negative"), "{negative}");
    let negative = t.sql.try_run("UPDATE accounts SET balance = -1").await.unwrap_err();
    assert!(negative.contains("accounts_balance_not_negative"), "{negative}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_of_the_same_products_in_opposite_orders_are_all_placed() {
    let t = with_stock(1_000).await;
    let second = t.second().await;
    let mut work = JoinSet::new();
    for n in 0..40 {
        let (store, forward) = if n % 2 == 0 { (t.store.clone(), true) } else { (second.clone(), false) };
        let buyer = account(&t.store, 1_000).await;
        work.spawn(async move {
            let mut wanted = [("A", 1), ("B", 1)];
            if !forward {
                wanted.reverse();
            }
            place_one(&store, asked(buyer, "k", &wanted)).await.0
        });
    }
    for decision in work.join_all().await {
        assert!(matches!(decision, Decision::Placed(_)), "{decision:?}");
    }
    assert_books_balance(&t, 1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_buyers_of_the_last_ten_pieces_get_exactly_ten() {
    let t = with_stock(10).await;
    let second = t.second().await;
    let mut work = JoinSet::new();
    for n in 0..100 {
        let store = if n % 2 == 0 { t.store.clone() } else { second.clone() };
        let buyer = account(&t.store, 1_000).await;
        work.spawn(async move { place_one(&store, asked(buyer, "k", &[("A", 1)])).await.0 });
    }
    let decisions = work.join_all().await;
    assert_eq!(decisions.iter().filter(|d| matches!(d, Decision::Placed(_))).count(), 10);
    let sold_out = Decision::Refused(Refusal::OutOfStock(vec![sku("A")]));
    assert_eq!(decisions.iter().filter(|d| **d == sold_out).count(), 90);
    assert_books_balance(&t, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_batch_of_one_account_and_one_product_is_settled_at_once() {
    let t = with_stock(40).await;
    let buyer = account(&t.store, 3_000).await;
    let batch = (0..64).map(|n| asked(buyer, &format!("k{n}"), &[("A", 1)])).collect();
    let settled = place(&t.store, batch).await;
    let count = |wanted: fn(&Decision) -> bool| {
        settled.iter().filter(|s| matches!(s, Settled::Decided { decision, .. } if wanted(decision))).count()
    };
    assert_eq!(count(|d| matches!(d, Decision::Placed(_))), 30, "what the balance covers");
    assert_eq!(count(|d| *d == Decision::Refused(Refusal::InsufficientFunds)), 34);
    assert_eq!(t.store.settle(&[], &rules()).await.unwrap().len(), 0);
    assert_books_balance(&t, 40).await;
}

/// Layers 1 and 2 switched off: twenty workers hold a claim of the same intent one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_records_the_constraint_alone_keeps_one_order_for_one_intent() {
    let t = with_stock(100).await;
    let buyer = account(&t.store, 10_000).await;
    let mut work = JoinSet::new();
    let mut ask = asked(buyer, "k", &[("A", 1)]);
    for epoch in 1..=20 {
        ask.id = oncegate::order::values::OrderId::new();
        let placing = Placing { asked: ask.clone(), epoch };
        t.sql.run("DELETE FROM idempotency_records").await;
        t.store.claim(&[claim_request(&ask)], LEASE).await.unwrap();
        t.sql.run(&format!("UPDATE idempotency_records SET epoch = {epoch}")).await;
        let store = t.store.clone();
        work.spawn(async move { store.settle(&[placing], &rules()).await.unwrap().remove(0) });
    }
    let settled = work.join_all().await;
    let ids = t.sql.int("SELECT count(DISTINCT id) FROM orders").await;
    assert_eq!(ids, 1, "{settled:?}");
    let placed = settled.iter().filter(|s| matches!(s, Settled::Decided { decision: Decision::Placed(_), .. })).count();
    assert_eq!(placed, 1);
    assert_books_balance(&t, 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prices_names_and_fingerprints_are_kept_as_they_were_when_the_catalogue_changes() {
    let t = with_stock(10).await;
    let buyer = account(&t.store, 1_000).await;
    let (decision, _) = place_one(&t.store, asked(buyer, "k", &[("A", 1)])).await;
    t.store.import_products(&[Product { name: "Renamed".into(), ..product("A", 999, 5) }]).await.unwrap();
    let read = t.store.order(buyer, placed(&decision).id).await.unwrap().unwrap();
    assert_eq!(&read, placed(&decision));
    assert_eq!((read.lines[0].name.as_str(), read.lines[0].unit_price), ("The A", 100));
    assert_eq!(read.fingerprint, asked(buyer, "k", &[("A", 1)]).fingerprint);
}
