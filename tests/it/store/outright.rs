//! Placing without a claim beforehand: what it writes is what claiming and settling write, and what it is not sure of it leaves
//! undone.

use std::sync::Arc;

use oncegate::order::Method;
use oncegate::order::decide::{Asked, Decision, Refusal};
use oncegate::order::values::{AccountId, Note, OrderId, PaymentToken};
use oncegate::store::{Outright, RecordState, Settled, Store};
use tokio::task::JoinSet;

use crate::harness::TestStore;
use crate::harness::goods::{
    LEASE, account, asked, claim_request, claimed, place, place_one, placed, product, record_id, reference, rules, sku,
};

async fn with_stock(stock: i64) -> TestStore {
    let t = TestStore::new().await;
    t.store.import_products(&[product("A", 100, stock), product("B", 7, 1_000)]).await.unwrap();
    t
}

async fn outright(store: &Arc<dyn Store>, batch: &[Asked]) -> Vec<Outright> {
    store.place(&batch.iter().collect::<Vec<_>>(), LEASE, &rules()).await.unwrap()
}

async fn one(store: &Arc<dyn Store>, ask: &Asked) -> Outright {
    outright(store, std::slice::from_ref(ask)).await.remove(0)
}

fn decision(outright: &Outright) -> &Decision {
    match outright {
        Outright::Settled(Settled::Decided { decision, leaked: false, .. }) => decision,
        other => panic!("not settled: {other:?}"),
    }
}

/// What is left of A and of the buyer's balance, and how many orders there are.
async fn left(t: &TestStore, buyer: AccountId) -> (i64, i64, i64) {
    let stock = t.sql.int("SELECT stock FROM products WHERE sku = 'A'").await;
    (stock, t.store.balance(buyer).await.unwrap(), t.sql.int("SELECT count(*) FROM orders").await)
}

/// Every row that was written for the one order of this buyer, without ids and times (but how those are to one another).
async fn written(t: &TestStore, buyer: AccountId, order: OrderId) -> Vec<String> {
    let (his, its) = (format!("account_id = '{buyer}'"), format!("order_id = '{order}'"));
    let queries = [
        format!(
            "account_id, status, total, currency, payment_method, reference, note, fingerprint, idempotency_key,
            updated_at = created_at FROM orders WHERE id = '{order}'"
        ),
        format!("line_no, sku, name, quantity, unit_price FROM order_lines WHERE {its} AND line_no = 1"),
        format!("line_no, sku, name, quantity, unit_price FROM order_lines WHERE {its} AND line_no = 2"),
        format!(
            "attempt, method, provider_key IS NULL, provider_id, token, amount, status, next_check_at > created_at,
            updated_at = created_at, checks FROM payments WHERE {its}"
        ),
        format!("sum(amount), count(order_id), min(kind), max(kind) FROM account_entries WHERE {his}"),
        format!(
            "count(*), min(topic), min(CAST(payload AS text)), count(published_at), count(consumed_at),
            sum(publishings), min(due_at) = min(created_at) FROM outbox WHERE CAST(payload AS text) LIKE '%{order}%'"
        ),
        format!(
            "operation, key, fingerprint, status, epoch, order_id, response_status, response_content_type,
            response_location, lease_expires_at > created_at, completed_at >= created_at, expires_at > lease_expires_at
            FROM idempotency_records WHERE {his}"
        ),
    ];
    let mut rows = Vec::new();
    for query in queries {
        let (columns, from) = query.split_once("FROM").unwrap();
        let mut columns: Vec<_> = columns.split(',').map(|column| format!("({})", column.trim())).collect();
        // Functions with several arguments do not occur, so every comma parts two columns.
        columns.iter_mut().for_each(|column| *column = format!("coalesce(CAST({column} AS text), 'null')"));
        let row = t.sql.text(&format!("SELECT {} FROM {from}", columns.join(" || ' ' || "))).await;
        rows.push(row.replace(&order.to_string(), "<order>").replace(&buyer.to_string(), "<buyer>"));
    }
    rows
}

fn full(buyer: AccountId) -> Asked {
    let mut ask = asked(buyer, "k", &[("A", 2), ("B", 3)]);
    ask.request.reference = Some(reference("ref-1"));
    ask.request.note = Note::parse("quickly");
    ask
}

fn by_card(ask: Asked) -> Asked {
    let mut ask = ask;
    ask.request.method = Method::Card;
    ask.request.payment_method = PaymentToken::parse("pm_card_visa");
    ask
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_placed_outright_writes_exactly_what_claiming_and_settling_write() {
    let t = with_stock(10).await;
    let (claiming, asking) = (account(&t.store, 1_000).await, account(&t.store, 1_000).await);
    let (first, second) = (full(claiming), full(asking));
    place_one(&t.store, first.clone()).await;
    let settled = one(&t.store, &second).await;
    assert_eq!(written(&t, asking, second.id).await, written(&t, claiming, first.id).await);

    assert_eq!(left(&t, asking).await, (6, 779, 2));
    let Outright::Settled(Settled::Decided { decision, answer, leaked: false }) = settled else {
        panic!("{settled:?}")
    };
    assert_eq!(t.store.order(asking, second.id).await.unwrap().as_ref(), Some(placed(&decision)));
    let record = t.store.record(&record_id(asking, "k")).await.unwrap().unwrap();
    assert_eq!((record.epoch, record.state), (1, RecordState::Done(answer)));
    t.assert_sound(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_order_placed_outright_writes_the_same_too_and_its_record_stays_under_a_live_lease() {
    let t = with_stock(10).await;
    let (claiming, asking) = (account(&t.store, 1_000).await, account(&t.store, 1_000).await);
    let (first, second) = (by_card(full(claiming)), by_card(full(asking)));
    place(&t.store, vec![first.clone()]).await;
    let settled = one(&t.store, &second).await;
    assert!(matches!(settled, Outright::Settled(Settled::Unpaid(order)) if order == second.id), "{settled:?}");
    assert_eq!(written(&t, asking, second.id).await, written(&t, claiming, first.id).await);

    let record = t.store.record(&record_id(asking, "k")).await.unwrap().unwrap();
    assert_eq!(record.epoch, 1);
    assert!(matches!(record.state, RecordState::Processing { lease_left } if lease_left > LEASE / 2), "{record:?}");
    assert!(matches!(one(&t.store, &second).await, Outright::Stands(stands) if stands.epoch == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_stands_under_the_key_is_told_whatever_the_content_and_changes_nothing() {
    let t = with_stock(10).await;
    let buyer = account(&t.store, 1_000).await;
    let ask = asked(buyer, "k", &[("A", 1)]);
    let settled = one(&t.store, &ask).await;
    let Outright::Settled(Settled::Decided { answer, .. }) = settled else { panic!("{settled:?}") };
    let under_way = asked(buyer, "under-way", &[("A", 1)]);
    claimed(&t.store, vec![under_way.clone()]).await;
    let other = |under: &str| asked(buyer, under, &[("A", 2)]);

    let batch = [other("new"), ask.clone(), under_way.clone()];
    let came = outright(&t.store, &batch).await;
    assert!(matches!(decision(&came[0]), Decision::Placed(_)), "a neighbour is placed");
    let Outright::Stands(record) = &came[1] else { panic!("{came:?}") };
    assert_eq!((&record.fingerprint, &record.state), (&ask.fingerprint, &RecordState::Done(answer)));
    let Outright::Stands(record) = &came[2] else { panic!("{came:?}") };
    assert!(matches!(record.state, RecordState::Processing { lease_left } if !lease_left.is_zero()), "{record:?}");

    for (under, content) in [("k", &ask.fingerprint), ("under-way", &under_way.fingerprint)] {
        let stands = one(&t.store, &other(under)).await;
        assert!(matches!(&stands, Outright::Stands(record) if record.fingerprint == *content), "{stands:?}");
    }
    assert_eq!(left(&t, buyer).await, (7, 700, 2));
    t.assert_sound(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_record_and_a_lapsed_lease_of_the_same_content_are_left_undone() {
    let t = with_stock(10).await;
    let buyer = account(&t.store, 1_000).await;
    let (done, lapsed) = (asked(buyer, "done", &[("A", 1)]), asked(buyer, "lapsed", &[("A", 1)]));
    one(&t.store, &done).await;
    claimed(&t.store, vec![lapsed.clone()]).await;
    t.expire_records().await;
    t.end_leases().await;
    let batch = [done.clone(), lapsed.clone(), asked(buyer, "done", &[("A", 2)])];
    for ask in &batch {
        let came = one(&t.store, ask).await;
        assert!(matches!(came, Outright::Undone), "{came:?}");
    }
    let other = one(&t.store, &asked(buyer, "lapsed", &[("A", 2)])).await;
    assert!(matches!(&other, Outright::Stands(record) if record.fingerprint == lapsed.fingerprint), "{other:?}");
    assert_eq!(left(&t, buyer).await, (9, 900, 1));
    let again = claimed(&t.store, vec![done, lapsed]).await;
    assert_eq!(again.iter().map(|placing| placing.epoch).collect::<Vec<_>>(), [2, 2], "the claims take them over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_whose_record_was_lost_is_left_undone_whatever_would_be_decided_now() {
    let t = with_stock(10).await;
    let buyer = account(&t.store, 1_000).await;
    let ask = asked(buyer, "k", &[("A", 2)]);
    one(&t.store, &ask).await;
    t.sql.run("DELETE FROM idempotency_records").await;
    let (ask, other) = (Asked { id: OrderId::new(), ..ask }, asked(buyer, "k", &[("A", 1)]));
    for now in ["stock = 8", "stock = 0", "stock = 8, unit_price = 1000000000000"] {
        t.sql.run(&format!("UPDATE products SET {now} WHERE sku = 'A'")).await;
        let before = left(&t, buyer).await;
        for ask in [&ask, &other] {
            let came = one(&t.store, ask).await;
            assert!(matches!(came, Outright::Undone), "{now}: {came:?}");
        }
        assert_eq!(left(&t, buyer).await, before);
        assert_eq!(t.store.record(&record_id(buyer, "k")).await.unwrap(), None, "{now}");
    }
    let came = outright(&t.store, &[asked(buyer, "neighbour", &[("B", 1)]), ask]).await;
    assert!(matches!(decision(&came[0]), Decision::Placed(_)) && matches!(came[1], Outright::Undone), "{came:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_are_stored_and_move_nothing() {
    let t = with_stock(1).await;
    let (rich, poor) = (account(&t.store, 1_000).await, account(&t.store, 99).await);
    let named = |ask: Asked| {
        let mut ask = ask;
        ask.request.reference = Some(reference("mine"));
        ask
    };
    let first = named(asked(rich, "first", &[("B", 1)]));
    let batch = [
        first.clone(),
        asked(rich, "much", &[("A", 2)]),
        asked(poor, "dear", &[("A", 1)]),
        asked(rich, "unknown", &[("A", 1), ("nothing", 1)]),
        named(asked(rich, "twice", &[("A", 1)])),
    ];
    let came = outright(&t.store, &batch).await;
    let expected = [
        Refusal::OutOfStock(vec![sku("A")]),
        Refusal::InsufficientFunds,
        Refusal::UnknownSku(vec![sku("nothing")]),
        Refusal::ReferenceTaken(first.id),
    ];
    for ((came, ask), refusal) in came.iter().zip(&batch).skip(1).zip(expected) {
        let Outright::Settled(Settled::Decided { decision, answer, leaked: false }) = came else { panic!("{came:?}") };
        assert_eq!(decision, &Decision::Refused(refusal));
        let record = t.store.record(&claim_request(ask).id).await.unwrap().unwrap();
        assert_eq!((record.epoch, &record.state), (1, &RecordState::Done(answer.clone())));
        assert!(matches!(one(&t.store, ask).await, Outright::Stands(stands) if stands == record), "it is replayed");
    }
    assert_eq!(left(&t, rich).await, (1, 993, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_the_catalogue_shows_to_be_invalid_stores_nothing_alone_or_beside_others() {
    let t = with_stock(10).await;
    t.store.import_products(&[product("dear", 1_000_000_000, 100_000)]).await.unwrap();
    let buyer = account(&t.store, 1_000).await;
    let over = asked(buyer, "over", &[("dear", 10_000)]);
    assert!(matches!(decision(&one(&t.store, &over).await), Decision::Invalid(_)));
    let came = outright(&t.store, &[over.clone(), asked(buyer, "fine", &[("A", 1)])]).await;
    assert!(matches!((decision(&came[0]), decision(&came[1])), (Decision::Invalid(_), Decision::Placed(_))));
    assert_eq!(t.store.record(&claim_request(&over).id).await.unwrap(), None);
    assert_eq!(left(&t, buyer).await, (9, 900, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_that_does_not_exist_is_left_undone_and_its_neighbour_is_placed() {
    let t = with_stock(10).await;
    let (nobody, buyer) = (AccountId::new(), account(&t.store, 1_000).await);
    let came = outright(&t.store, &[asked(nobody, "k", &[("A", 1)]), asked(buyer, "k", &[("A", 1)])]).await;
    assert!(matches!(came[0], Outright::Undone), "{came:?}");
    assert!(matches!(decision(&came[1]), Decision::Placed(_)));
    assert_eq!(t.store.place(&[], LEASE, &rules()).await.unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_decided_in_its_order() {
    let t = with_stock(3).await;
    let (buyer, other) = (account(&t.store, 1_000).await, account(&t.store, 1_000).await);
    let ask = |account, under: &str| asked(account, under, &[("A", 2)]);
    let mut again = asked(buyer, "again", &[("A", 1)]);
    again.repeat_notice = Some(120);
    let mut twice = again.clone();
    (twice.id, twice.key) = (OrderId::new(), oncegate::order::values::Key::parse("twice").unwrap());
    let came = outright(&t.store, &[ask(buyer, "k"), ask(other, "k"), again.clone(), twice]).await;
    assert!(matches!(decision(&came[0]), Decision::Placed(_)));
    assert_eq!(decision(&came[1]), &Decision::Refused(Refusal::OutOfStock(vec![sku("A")])));
    assert!(matches!(decision(&came[2]), Decision::Placed(_)));
    let repeat = decision(&came[3]);
    assert!(matches!(repeat, Decision::Refused(Refusal::Repeat { order, .. }) if *order == again.id), "{repeat:?}");
    t.assert_sound(3).await;
}

/// As the desk does: what is left undone, or was not got into the database in time, goes the way of the claims.
async fn place_by_all_means(store: &Arc<dyn Store>, ask: Asked) -> Decision {
    match store.place(&[&ask], LEASE, &rules()).await {
        Ok(came) if !matches!(came[0], Outright::Undone) => decision(&came[0]).clone(),
        _ => place_one(store, ask).await.0,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_twenty_that_race_for_the_last_piece_one_gets_it() {
    let t = with_stock(1).await;
    let second = t.second().await;
    let mut work = JoinSet::new();
    for n in 0..20 {
        let store = if n % 2 == 0 { t.store.clone() } else { second.clone() };
        let buyer = account(&t.store, 1_000).await;
        work.spawn(async move { place_by_all_means(&store, asked(buyer, "k", &[("A", 1)])).await });
    }
    let decisions = work.join_all().await;
    assert_eq!(decisions.iter().filter(|decision| matches!(decision, Decision::Placed(_))).count(), 1);
    let sold_out = Decision::Refused(Refusal::OutOfStock(vec![sku("A")]));
    assert_eq!(decisions.iter().filter(|decision| **decision == sold_out).count(), 19, "{decisions:?}");
    t.assert_sound(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_twenty_that_race_under_one_key_one_is_placed_and_the_others_are_told_of_it() {
    let t = with_stock(100).await;
    let second = t.second().await;
    let buyer = account(&t.store, 1_000).await;
    let mut work = JoinSet::new();
    for n in 0..20 {
        let store = if n % 2 == 0 { t.store.clone() } else { second.clone() };
        let ask = asked(buyer, "k", &[("A", 1)]);
        work.spawn(async move { store.place(&[&ask], LEASE, &rules()).await.map(|mut came| came.remove(0)) });
    }
    let came = work.join_all().await;
    let placed = came.iter().filter(|came| matches!(came, Ok(Outright::Settled(_)))).count();
    let settled = came.iter().filter_map(|came| came.as_ref().ok()).filter(|came| matches!(came, Outright::Settled(_)));
    assert!(settled.into_iter().all(|came| matches!(decision(came), Decision::Placed(_))), "{came:?}");
    assert_eq!((placed, left(&t, buyer).await), (1, (99, 900, 1)), "{came:?}");
}
