//! Settling orders that are paid by card: the attempt is there before the provider is asked, the record stays open.

use oncegate::order::decide::{Asked, Decision, Refusal};
use oncegate::order::values::{AccountId, OrderId, PaymentToken};
use oncegate::order::{Method, PaymentStatus, Status};
use oncegate::store::{Answer, RecordState, Settled};

use crate::harness::TestStore;
use crate::harness::goods::{account, asked, claimed, fence, place, place_one, placed, product, record_id, rules};
use crate::harness::life::{Captured, Declined, TOTAL, happens, shop, word};

fn card(account: AccountId, under: &str, quantity: u32) -> Asked {
    let mut ask = asked(account, under, &[("A", quantity)]);
    ask.request.method = Method::Card;
    ask.request.payment_method = PaymentToken::parse("pm_card_visa");
    ask
}

async fn unpaid(t: &TestStore, ask: Asked) -> OrderId {
    match place(&t.store, vec![ask]).await.remove(0) {
        Settled::Unpaid(order) => order,
        other => panic!("{other:?}"),
    }
}

async fn open_record(t: &TestStore, account: AccountId, order: OrderId) {
    let record = t.store.record(&record_id(account, "k")).await.unwrap().unwrap();
    assert!(matches!(record.state, RecordState::Processing { lease_left } if !lease_left.is_zero()), "{record:?}");
    let named = format!("SELECT count(*) FROM idempotency_records WHERE order_id = '{order}' AND key = 'k'");
    assert_eq!(t.sql.int(&named).await, 1, "the open record names the order");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_order_is_written_pending_with_an_attempt_and_its_record_stays_open() {
    let t = shop().await;
    let buyer = account(&t.store, 50).await;
    let ask = card(buyer, "k", 2);
    assert_eq!(unpaid(&t, ask.clone()).await, ask.id);
    open_record(&t, buyer, ask.id).await;

    let life = t.store.life(ask.id).await.unwrap().unwrap();
    assert_eq!((life.order.status, life.order.payment, life.balance), (Status::Pending, PaymentStatus::Started, 50));
    let [attempt] = &life.attempts[..] else { panic!("{life:?}") };
    assert_eq!(
        (attempt.number, attempt.method, attempt.amount, attempt.status),
        (1, Method::Card, TOTAL, PaymentStatus::Started)
    );
    let key = attempt.provider_key.as_deref().unwrap();
    assert!(uuid::Uuid::try_parse(key).is_ok(), "{key}");
    assert_eq!((&attempt.provider_id, attempt.token.as_ref().unwrap().as_str()), (&None, "pm_card_visa"));
    assert!(attempt.age < std::time::Duration::from_secs(60), "{:?}", attempt.age);
    assert_eq!(t.store.order(buyer, ask.id).await.unwrap(), Some(life.order));
    assert_eq!(t.sql.int("SELECT count(*) FROM outbox").await, 0);
    assert_eq!(t.sql.int("SELECT count(*) FROM account_entries WHERE order_id IS NOT NULL").await, 0);
    t.assert_sound(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_takes_over_an_unpaid_order_goes_on_with_it() {
    let t = shop().await;
    let buyer = account(&t.store, 0).await;
    let ask = card(buyer, "k", 2);
    unpaid(&t, ask.clone()).await;
    let late = claimed_again(&t, &ask).await;
    let again = claimed_again(&t, &ask).await;
    let settled = t.store.settle(std::slice::from_ref(&late), &rules()).await.unwrap();
    assert!(matches!(settled[0], Settled::Fenced), "the older claim is over: {settled:?}");
    let settled = t.store.settle(&[again], &rules()).await.unwrap();
    assert!(matches!(settled[0], Settled::Unpaid(order) if order == ask.id), "{settled:?}");
    open_record(&t, buyer, ask.id).await;

    t.sql.run("DELETE FROM idempotency_records").await;
    assert_eq!(unpaid(&t, ask.clone()).await, ask.id, "also when the record was lost");
    open_record(&t, buyer, ask.id).await;
    assert_eq!(t.sql.int("SELECT count(*) FROM orders").await, 1);
    assert_eq!(t.sql.int("SELECT count(*) FROM payments").await, 1);
}

async fn claimed_again(t: &TestStore, ask: &Asked) -> oncegate::store::Placing {
    t.end_leases().await;
    let again = Asked { id: OrderId::new(), ..ask.clone() };
    claimed(&t.store, vec![again]).await.remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_content_under_the_key_of_an_unpaid_order_leaves_no_record_behind() {
    let t = shop().await;
    let buyer = account(&t.store, 0).await;
    let first = card(buyer, "k", 2);
    unpaid(&t, first.clone()).await;
    t.sql.run("DELETE FROM idempotency_records").await;
    let settled = place(&t.store, vec![card(buyer, "k", 3)]).await.remove(0);
    let Settled::Decided { decision, .. } = settled else { panic!("{settled:?}") };
    assert_eq!(decision, Decision::Stands { order: first.id, same: false });
    assert_eq!(t.store.record(&record_id(buyer, "k")).await.unwrap(), None, "the first may still be taken up");
    assert_eq!(unpaid(&t, first.clone()).await, first.id);
    t.assert_sound(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_it_is_paid_or_called_off_the_order_is_answered_as_it_is() {
    let t = shop().await;
    let buyer = account(&t.store, 0).await;
    let ask = card(buyer, "k", 2);
    let order = unpaid(&t, ask.clone()).await;
    happens(&t.store, order, word("pi_1", Captured)).await;
    let again = claimed_again(&t, &ask).await;
    let settled = t.store.settle(std::slice::from_ref(&again), &rules()).await.unwrap().remove(0);
    let Settled::Decided { decision, answer, .. } = settled else { panic!("{settled:?}") };
    assert_eq!(decision, Decision::Stands { order, same: true });
    let record = t.store.record(&fence(&again).id).await.unwrap().unwrap();
    assert_eq!(record.state, RecordState::Done(answer));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn free_goods_are_paid_at_once_also_by_card() {
    let t = shop().await;
    t.store.import_products(&[product("A", 0, 10)]).await.unwrap();
    let buyer = account(&t.store, 0).await;
    let (decision, Answer { status, .. }) = place_one(&t.store, card(buyer, "k", 2)).await;
    let order = placed(&decision);
    assert_eq!((status, order.status, order.payment), (201, Status::Paid, PaymentStatus::Captured));
    let payment = "SELECT method || ' ' || status || ' ' || amount || coalesce(provider_key, '') FROM payments";
    assert_eq!(t.sql.text(payment).await, "card captured 0");
    assert_eq!(t.sql.int("SELECT count(*) FROM account_entries").await, 0);
    t.assert_sound(10).await;
    happens(&t.store, order.id, oncegate::order::life::Happening::Cancel).await;
    assert_eq!(t.sql.text("SELECT status FROM payments").await, "refunded");
    t.assert_sound(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_balance_and_card_orders_is_settled_together_and_fenced_apart() {
    let t = shop().await;
    let buyer = account(&t.store, TOTAL).await;
    let asks = vec![asked(buyer, "balance", &[("A", 2)]), card(buyer, "card", 2), card(buyer, "lost", 2)];
    let batch = claimed(&t.store, asks).await;
    t.sql.run("DELETE FROM idempotency_records WHERE key = 'lost'").await;
    let settled = t.store.settle(&batch, &rules()).await.unwrap();
    assert!(matches!(&settled[0], Settled::Decided { decision: Decision::Placed(_), .. }), "{settled:?}");
    assert!(matches!(settled[1], Settled::Unpaid(order) if order == batch[1].asked.id), "{settled:?}");
    assert!(matches!(settled[2], Settled::Fenced), "{settled:?}");
    assert_eq!(t.sql.int("SELECT stock FROM products WHERE sku = 'A'").await, 6);
    t.assert_sound(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_order_is_nothing_to_be_asked_about_again_but_its_key_and_reference_stand() {
    let t = shop().await;
    let buyer = account(&t.store, 0).await;
    let ask = |under| {
        let mut ask = card(buyer, under, 2);
        ask.repeat_notice = Some(120);
        ask
    };
    let first = ask("k");
    unpaid(&t, first.clone()).await;
    let (decision, _) = place_one(&t.store, ask("k2")).await;
    assert!(matches!(decision, Decision::Refused(Refusal::Repeat { order, .. }) if order == first.id), "{decision:?}");
    happens(&t.store, first.id, word("pi_1", Declined)).await;
    happens(&t.store, first.id, oncegate::order::life::Happening::Cancel).await;
    unpaid(&t, ask("k3")).await;
    t.sql.run("DELETE FROM idempotency_records WHERE key = 'k'").await;
    let (decision, _) = place_one(&t.store, ask("k")).await;
    assert_eq!(decision, Decision::Stands { order: first.id, same: true });
}
