//! What happens to an order is written whole, once, or not at all.

use oncegate::order::life::{Happening, Verdict, Word};
use oncegate::order::values::OrderId;
use oncegate::order::{Method, PaymentStatus, Status};
use oncegate::store::Changed;

use crate::harness::TestStore;
use crate::harness::goods::account;
use crate::harness::life::{
    Captured, Declined, Processing, TOTAL, Unknown, by_balance, by_card, change_rules, happens, of_anybody, pay, shop,
    word, word_of,
};

/// Every table that a change writes, as one text.
async fn all_rows(t: &TestStore) -> String {
    let mut rows = String::new();
    for (table, columns, by) in [
        ("orders", "CAST(id AS text) || status || payment_method || CAST(updated_at AS text)", "id"),
        (
            "payments",
            "status || coalesce(provider_id, '-') || attempt || CAST(updated_at AS text) || CAST(next_check_at AS text)",
            "order_id, attempt",
        ),
        ("products", "sku || stock", "sku"),
        ("accounts", "CAST(id AS text) || balance", "id"),
        ("account_entries", "kind || amount", "id"),
        ("outbox", "payload", "id"),
        ("payment_events", "event_id || outcome", "event_id"),
    ] {
        for n in 0..t.sql.int(&format!("SELECT count(*) FROM {table}")).await {
            let row = format!("SELECT {columns} FROM {table} ORDER BY {by} LIMIT 1 OFFSET {n}");
            rows.push_str(&t.sql.text(&row).await);
            rows.push('\n');
        }
    }
    rows
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_captured_card_payment_makes_the_order_paid_and_tells_the_queue_once() {
    let t = shop().await;
    let buyer = account(&t.store, 500).await;
    let order = by_card(&t.store, buyer, "k").await;
    let (verdict, life) = happens(&t.store, order, word("pi_1", Captured)).await;
    assert_eq!((verdict, life.order.status, life.order.payment), (Verdict::Done, Status::Paid, Captured));
    let read = t.store.life(order).await.unwrap().unwrap();
    let without_age = |mut life: oncegate::order::life::Life| {
        life.attempts.iter_mut().for_each(|attempt| attempt.age = std::time::Duration::ZERO);
        (life.order, life.attempts, life.balance)
    };
    assert_eq!(without_age(read), without_age(life), "what was judged is what is read");
    let payload = t.sql.text("SELECT payload FROM outbox WHERE topic = 'order.paid'").await;
    let payload: serde_json::Value = serde_json::from_str(&payload).unwrap();
    assert_eq!(payload, serde_json::json!({"order_id": order.to_string(), "account_id": buyer.to_string()}));
    assert_eq!(t.store.balance(buyer).await.unwrap(), 500, "a card moves no balance");

    let before = all_rows(&t).await;
    for said in [Captured, Declined, Processing, Unknown] {
        assert_eq!(happens(&t.store, order, word("pi_1", said)).await.0, Verdict::Already);
    }
    assert_eq!(all_rows(&t).await, before, "repeated and late words change nothing");
    t.assert_sound(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn words_without_an_outcome_are_kept_with_the_id_they_bring() {
    let t = shop().await;
    let buyer = account(&t.store, 0).await;
    let order = by_card(&t.store, buyer, "k").await;
    let nameless = Happening::Word(Word { attempt: Some(1), provider_id: None, said: Unknown, money: None });
    assert_eq!(happens(&t.store, order, nameless).await.1.attempts[0].status, Unknown);
    let (_, life) = happens(&t.store, order, word("pi_1", Processing)).await;
    assert_eq!((life.attempts[0].status, life.attempts[0].provider_id.as_deref()), (Processing, Some("pi_1")));
    assert_eq!(t.store.order_of_payment("pi_1").await.unwrap(), Some(order));
    assert_eq!(t.store.order_of_payment("pi_2").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declined_order_is_paid_by_balance_with_charge_entry_and_message() {
    let t = shop().await;
    let buyer = account(&t.store, TOTAL).await;
    let order = by_card(&t.store, buyer, "k").await;
    assert_eq!(happens(&t.store, order, pay(Method::Balance)).await.0, Verdict::InFlight);
    happens(&t.store, order, word("pi_1", Declined)).await;
    let (verdict, life) = happens(&t.store, order, pay(Method::Balance)).await;
    assert_eq!((verdict, life.order.status, life.balance), (Verdict::Done, Status::Paid, 0));
    let order = t.store.order(buyer, order).await.unwrap().unwrap();
    assert_eq!((order.method, order.payment), (Method::Balance, Captured), "the order shows what paid it");
    assert_eq!(t.sql.int("SELECT amount FROM account_entries WHERE kind = 'charge'").await, -TOTAL);
    assert_eq!(happens(&t.store, order.id, pay(Method::Balance)).await.0, Verdict::Already);
    t.assert_sound(10).await;

    let other = by_card(&t.store, buyer, "k2").await;
    happens(&t.store, other, word("pi_2", Declined)).await;
    assert_eq!(happens(&t.store, other, pay(Method::Balance)).await.0, Verdict::InsufficientFunds);
    t.assert_sound(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_attempt_after_a_decline_has_its_own_key_and_card() {
    let t = shop().await;
    let buyer = account(&t.store, 0).await;
    let order = by_card(&t.store, buyer, "k").await;
    happens(&t.store, order, word("pi_1", Declined)).await;
    let again = pay(Method::Card);
    let (verdict, life) = happens(&t.store, order, again.clone()).await;
    assert_eq!((verdict, life.attempts.len(), life.order.status), (Verdict::Charge, 2, Status::Pending));
    let [first, second] = &life.attempts[..] else { panic!("{life:?}") };
    assert_ne!(first.provider_key, second.provider_key);
    assert_eq!((second.status, second.token.as_ref().unwrap().as_str()), (PaymentStatus::Started, "pm_other"));
    assert_eq!(happens(&t.store, order, again).await.0, Verdict::Charge, "asked again after an unknown commit");
    assert_eq!(happens(&t.store, order, pay(Method::Card)).await.0, Verdict::InFlight, "somebody else");
    happens(&t.store, order, word_of(2, "pi_2", Captured)).await;
    let late = happens(&t.store, order, word_of(1, "pi_1", Captured)).await.1;
    assert_eq!((late.attempts[0].status, late.order.payment), (PaymentStatus::RefundDue, Captured));
    assert_eq!(t.store.order(buyer, order).await.unwrap().unwrap().payment, Captured, "not that of the late one");
    t.assert_sound(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calling_off_gives_stock_and_balance_back_once() {
    let t = shop().await;
    let buyer = account(&t.store, TOTAL).await;
    let order = by_balance(&t.store, buyer, "k").await;
    assert_eq!(
        (t.sql.int("SELECT stock FROM products WHERE sku = 'A'").await, t.store.balance(buyer).await.unwrap()),
        (8, 0)
    );
    let (verdict, life) = happens(&t.store, order, Happening::Cancel).await;
    assert_eq!((verdict, life.order.status, life.balance), (Verdict::Done, Status::Cancelled, TOTAL));
    assert_eq!(t.sql.int("SELECT amount FROM account_entries WHERE kind = 'refund'").await, TOTAL);
    assert_eq!(t.sql.text("SELECT status FROM payments").await, "refunded");
    let before = all_rows(&t).await;
    assert_eq!(happens(&t.store, order, Happening::Cancel).await.0, Verdict::Already);
    assert_eq!(happens(&t.store, order, Happening::Ship).await.0, Verdict::Illegal);
    assert_eq!(happens(&t.store, order, pay(Method::Balance)).await.0, Verdict::Illegal);
    assert_eq!(all_rows(&t).await, before);
    t.assert_sound(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_called_off_card_payment_is_to_be_paid_back_and_then_is() {
    let t = shop().await;
    let buyer = account(&t.store, 0).await;
    let order = by_card(&t.store, buyer, "k").await;
    happens(&t.store, order, word("pi_1", Captured)).await;
    let (_, life) = happens(&t.store, order, Happening::Cancel).await;
    assert_eq!((life.order.status, life.attempts[0].status), (Status::Cancelled, PaymentStatus::RefundDue));
    let refunded = || Happening::Refunded { provider_id: "pi_1".into() };
    assert_eq!(happens(&t.store, order, refunded()).await.1.attempts[0].status, PaymentStatus::Refunded);
    assert_eq!(happens(&t.store, order, refunded()).await.0, Verdict::Already);
    assert_eq!(t.sql.int("SELECT count(*) FROM account_entries").await, 0);
    t.assert_sound(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_paid_after_it_was_called_off_and_twice_is_to_be_paid_back() {
    let t = shop().await;
    let buyer = account(&t.store, 0).await;
    let late = by_card(&t.store, buyer, "late").await;
    happens(&t.store, late, Happening::Cancel).await;
    let (verdict, life) = happens(&t.store, late, word("pi_late", Captured)).await;
    assert_eq!(
        (verdict, life.order.status, life.order.payment),
        (Verdict::Done, Status::Cancelled, PaymentStatus::RefundDue)
    );
    let twice = by_card(&t.store, buyer, "twice").await;
    happens(&t.store, twice, word("pi_1", Captured)).await;
    happens(&t.store, twice, word("pi_2", Captured)).await;
    let second = "SELECT count(*) FROM payments WHERE provider_id = 'pi_2' AND status = 'refund_due' AND attempt = 2
        AND provider_key IS NULL AND token = 'pm_card_visa'";
    assert_eq!(t.sql.int(second).await, 1);
    assert_eq!(t.store.order_of_payment("pi_2").await.unwrap(), Some(twice));
    t.assert_sound(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_window_closes_over_what_nobody_is_paying_and_a_paid_order_is_sent_off_for_good() {
    let t = shop().await;
    let buyer = account(&t.store, TOTAL).await;
    let order = by_card(&t.store, buyer, "k").await;
    assert_eq!(happens(&t.store, order, Happening::WindowOver).await.0, Verdict::InFlight);
    assert_eq!(happens(&t.store, order, Happening::Ship).await.0, Verdict::Illegal);
    happens(&t.store, order, word("pi_1", Declined)).await;
    assert_eq!(happens(&t.store, order, Happening::WindowOver).await.1.order.status, Status::Cancelled);

    let order = by_balance(&t.store, buyer, "k2").await;
    assert_eq!(happens(&t.store, order, Happening::Ship).await.1.order.status, Status::Shipped);
    assert_eq!(happens(&t.store, order, Happening::Ship).await.0, Verdict::Already);
    assert_eq!(happens(&t.store, order, Happening::Cancel).await.0, Verdict::Illegal);
    t.assert_sound(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_account_that_has_it_may_change_an_order() {
    let t = shop().await;
    let (buyer, other) = (account(&t.store, TOTAL).await, account(&t.store, 0).await);
    let order = by_balance(&t.store, buyer, "k").await;
    let before = all_rows(&t).await;
    let theirs = |account| oncegate::store::Change { account: Some(account), ..of_anybody(order, Happening::Cancel) };
    for change in [theirs(other), of_anybody(OrderId::new(), Happening::Cancel)] {
        let changed = t.store.change(&change, &change_rules()).await.unwrap();
        assert!(matches!(changed, Changed::NotFound), "{changed:?}");
    }
    assert_eq!(all_rows(&t).await, before);
    let changed = t.store.change(&theirs(buyer), &change_rules()).await.unwrap();
    assert!(matches!(changed, Changed::Met { verdict: Verdict::Done, .. }), "{changed:?}");
    assert!(t.store.life(OrderId::new()).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_product_that_left_the_catalogue_does_not_hold_up_a_cancel() {
    let t = shop().await;
    let buyer = account(&t.store, TOTAL).await;
    let order = by_balance(&t.store, buyer, "k").await;
    t.sql.run("DELETE FROM products WHERE sku = 'A'").await;
    assert_eq!(happens(&t.store, order, Happening::Cancel).await.0, Verdict::Done);
    assert_eq!(t.store.balance(buyer).await.unwrap(), TOTAL);
}

/// Somebody set a cancelled order back to paid by hand: what moves money has its own guard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn money_that_has_moved_once_does_not_move_again_whatever_the_order_says() {
    let t = shop().await;
    let buyer = account(&t.store, TOTAL).await;
    let order = by_balance(&t.store, buyer, "k").await;
    happens(&t.store, order, Happening::Cancel).await;
    t.sql.run("UPDATE orders SET status = 'paid'").await;
    t.sql.run("UPDATE payments SET status = 'captured'").await;
    let before = all_rows(&t).await;
    let error = t.store.change(&of_anybody(order, Happening::Cancel), &change_rules()).await.unwrap_err();
    assert!(matches!(error, oncegate::store::StoreError::Broken(_)), "{error}");
    assert_eq!(all_rows(&t).await, before);
}
