use uuid::Uuid;

use super::*;
use crate::order::Order;
use crate::order::values::{AccountId, Currency, Fingerprint, Key, OrderId};
use PaymentStatus::{Captured, Declined, Processing, RefundDue, Refunded, Started, Unknown};
use Status::{Cancelled, Paid, Pending, Shipped};

const TOTAL: Cents = 700;
const FUNDS: Cents = 1_000;

fn order(total: Cents, method: Method) -> Order {
    Order {
        id: OrderId(Uuid::from_u128(1)),
        account: AccountId(Uuid::from_u128(2)),
        key: Key::parse("k").expect("fits"),
        fingerprint: Fingerprint::stored("1:00"),
        status: Pending,
        lines: Vec::new(),
        total,
        currency: Currency::parse("EUR").expect("a code"),
        method,
        payment: Started,
        reference: None,
        note: None,
        coupon: None,
        created_at: time::OffsetDateTime::UNIX_EPOCH,
    }
}

/// As a card order is placed: one attempt, not sent yet.
fn by_card() -> Life {
    let first = Attempt {
        number: 1,
        method: Method::Card,
        provider_key: Some("key-1".into()),
        provider_id: None,
        token: None,
        amount: TOTAL,
        status: Started,
        age: Duration::ZERO,
    };
    Life { order: order(TOTAL, Method::Card), attempts: vec![first], balance: FUNDS }
}

/// As an order by balance is placed, which is paid by then.
fn by_balance() -> Life {
    let mut life = by_card();
    life.order = Order { status: Paid, payment: Captured, ..order(TOTAL, Method::Balance) };
    life.attempts[0] =
        Attempt { method: Method::Balance, provider_key: None, status: Captured, ..life.attempts[0].clone() };
    life.balance = FUNDS - TOTAL;
    life
}

fn word(attempt: i32, provider_id: &str, said: PaymentStatus) -> Happening {
    let money = Some((TOTAL, "EUR".into()));
    Happening::Word(Word { attempt: Some(attempt), provider_id: Some(provider_id.into()), said, money })
}

fn pay(method: Method, key: &str) -> Happening {
    Happening::Pay { method, token: None, provider_key: key.into(), resume: false }
}

/// Lets them happen one after the other, and tells what came of each.
fn meet(life: &mut Life, happenings: &[Happening]) -> Vec<Verdict> {
    happenings.iter().map(|happening| life.meet(happening).0).collect()
}

fn payments(life: &Life) -> Vec<PaymentStatus> {
    life.attempts.iter().map(|attempt| attempt.status).collect()
}

#[test]
fn a_late_failure_never_takes_back_what_is_paid() {
    let mut life = by_card();
    let happenings = [word(1, "A", Captured), word(1, "A", Declined), Happening::Ship, word(1, "A", Declined)];
    assert_eq!(meet(&mut life, &happenings), [Verdict::Done, Verdict::Already, Verdict::Done, Verdict::Already]);
    assert_eq!((life.order.status, payments(&life)), (Shipped, vec![Captured]));
}

#[test]
fn the_failure_of_an_earlier_attempt_touches_only_that_attempt() {
    let mut life = by_card();
    meet(&mut life, &[word(1, "A", Declined), pay(Method::Card, "key-2"), word(2, "B", Captured)]);
    assert_eq!(meet(&mut life, &[word(1, "A", Declined)]), [Verdict::Already]);
    assert_eq!((life.order.status, payments(&life)), (Paid, vec![Declined, Captured]));
}

#[test]
fn what_is_paid_after_it_was_called_off_is_to_be_paid_back_once() {
    let mut life = by_card();
    let refunded = Happening::Refunded { provider_id: "A".into() };
    let happenings = [Happening::Cancel, word(1, "A", Captured), word(1, "A", Captured)];
    assert_eq!(meet(&mut life, &happenings), [Verdict::Done, Verdict::Done, Verdict::Already]);
    assert_eq!((life.order.status, payments(&life)), (Cancelled, vec![RefundDue]));
    assert_eq!(meet(&mut life, &[refunded.clone(), refunded]), [Verdict::Done, Verdict::Already]);
    assert_eq!((life.balance, payments(&life)), (FUNDS, vec![Refunded]));
}

#[test]
fn a_second_payment_under_another_id_is_recorded_to_be_paid_back() {
    let mut life = by_card();
    let happenings = [word(1, "A", Captured), word(1, "B", Captured), word(1, "B", Captured), word(1, "B", Declined)];
    assert_eq!(meet(&mut life, &happenings), [Verdict::Done, Verdict::Done, Verdict::Already, Verdict::Already]);
    assert_eq!((life.order.status, payments(&life)), (Paid, vec![Captured, RefundDue]));
    assert_eq!(life.attempts[1].provider_id.as_deref(), Some("B"));
    assert_eq!((life.order.payment, life.shown().map(|a| a.number)), (Captured, Some(1)));
}

#[test]
fn a_payment_under_another_id_pays_an_order_that_is_not_paid_yet() {
    let mut life = by_card();
    meet(&mut life, &[word(1, "A", Processing)]);
    let (verdict, writes) = life.meet(&word(1, "B", Captured));
    assert_eq!((verdict, writes.became_paid, writes.status), (Verdict::Done, true, Some(Paid)));
    assert_eq!(meet(&mut life, &[word(1, "A", Captured)]), [Verdict::Done]);
    assert_eq!((life.order.status, payments(&life)), (Paid, vec![RefundDue, Captured]));
}

#[test]
fn a_word_of_other_money_or_of_no_attempt_changes_nothing() {
    let mut life = by_card();
    let other = |money| {
        Happening::Word(Word { attempt: Some(1), provider_id: Some("A".into()), said: Captured, money: Some(money) })
    };
    for happening in [other((TOTAL - 1, "EUR".into())), other((TOTAL, "USD".into()))] {
        assert_eq!(life.meet(&happening), (Verdict::Mismatch, Writes::default()));
    }
    let stray = Happening::Refunded { provider_id: "A".into() };
    for happening in [word(2, "A", Captured), stray] {
        assert_eq!(life.meet(&happening), (Verdict::NoAttempt, Writes::default()));
    }
    assert_eq!(by_balance().meet(&word(1, "A", Captured)), (Verdict::NoAttempt, Writes::default()));
    assert_eq!(payments(&life), [Started]);
}

#[test]
fn an_id_that_comes_late_is_kept_because_nothing_can_be_paid_back_without_it() {
    let mut life = by_card();
    let nameless = Word { attempt: Some(1), provider_id: None, said: Captured, money: None };
    assert_eq!(meet(&mut life, &[Happening::Word(nameless)]), [Verdict::Done]);
    assert_eq!(meet(&mut life, &[word(1, "A", Captured), word(1, "A", Captured)]), [Verdict::Done, Verdict::Already]);
    assert_eq!((payments(&life), life.attempts[0].provider_id.as_deref()), (vec![Captured], Some("A")));
}

#[test]
fn a_new_attempt_is_made_only_after_a_definite_decline() {
    for said in [Unknown, Processing] {
        let mut life = by_card();
        meet(&mut life, &[word(1, "A", said)]);
        assert_eq!(meet(&mut life, &[pay(Method::Card, "key-2"), pay(Method::Balance, "")]), [Verdict::InFlight; 2]);
    }
    let mut life = by_card();
    meet(&mut life, &[word(1, "A", Declined)]);
    let (verdict, writes) = life.meet(&pay(Method::Card, "key-2"));
    let new = writes.new_attempt.expect("a new attempt");
    assert_eq!((verdict, new.number, new.provider_key.as_deref()), (Verdict::Charge, 2, Some("key-2")));
    assert_eq!((new.status, new.provider_id), (Started, None));
}

#[test]
fn a_request_goes_on_with_its_own_attempt_and_makes_no_second_one() {
    let mut life = by_card();
    let resumed = Happening::Pay { method: Method::Card, token: None, provider_key: "new".into(), resume: true };
    for own in [pay(Method::Card, "key-1"), resumed] {
        assert_eq!(life.meet(&own), (Verdict::Charge, Writes::default()), "not sent, or sent without an outcome");
    }
    for said in [Processing, Declined] {
        meet(&mut life, &[word(1, "A", said)]);
        assert_eq!(life.meet(&pay(Method::Card, "key-1")), (Verdict::Already, Writes::default()), "{said:?}");
    }
    assert_eq!(payments(&life), [Declined]);
}

#[test]
fn paying_by_balance_charges_once_and_calling_off_gives_it_back() {
    let mut life = by_card();
    meet(&mut life, &[word(1, "A", Declined)]);
    let (verdict, writes) = life.meet(&pay(Method::Balance, ""));
    assert_eq!((verdict, writes.entry, writes.became_paid), (Verdict::Done, -TOTAL, true));
    assert_eq!((life.order.method, life.order.payment), (Method::Balance, Captured));
    assert_eq!(life.meet(&pay(Method::Balance, "")), (Verdict::Already, Writes::default()));
    let (verdict, writes) = life.meet(&Happening::Cancel);
    assert_eq!((verdict, writes.entry, writes.stock_back), (Verdict::Done, TOTAL, true));
    assert_eq!((life.balance, payments(&life)), (FUNDS, vec![Declined, Refunded]));

    let mut poor = Life { balance: TOTAL - 1, ..by_card() };
    meet(&mut poor, &[word(1, "A", Declined)]);
    assert_eq!(poor.meet(&pay(Method::Balance, "")), (Verdict::InsufficientFunds, Writes::default()));
}

#[test]
fn where_there_is_nothing_to_charge_no_provider_is_asked_to_charge_or_to_pay_back() {
    let mut life = by_card();
    life.order.total = 0;
    life.attempts[0] = Attempt { amount: 0, status: Declined, ..life.attempts[0].clone() };
    let (verdict, writes) = life.meet(&pay(Method::Card, "key-2"));
    let paid = writes.new_attempt.as_ref().map(|a| (a.method, a.status, a.provider_key.clone()));
    assert_eq!((verdict, writes.entry, paid), (Verdict::Done, 0, Some((Method::Card, Captured, None))));
    let (verdict, writes) = life.meet(&Happening::Cancel);
    assert_eq!((verdict, writes.entry, writes.attempts), (Verdict::Done, 0, vec![(2, Refunded, None)]));
}

#[test]
fn the_payment_window_spares_an_attempt_in_flight_and_calling_off_does_not() {
    let mut life = by_card();
    assert_eq!(meet(&mut life, &[Happening::WindowOver]), [Verdict::InFlight]);
    assert_eq!(meet(&mut life, &[word(1, "A", Declined), Happening::WindowOver]), [Verdict::Done; 2]);
    assert_eq!(life.order.status, Cancelled);
    let (verdict, writes) = by_card().meet(&Happening::Cancel);
    assert_eq!((verdict, writes.stock_back, writes.attempts), (Verdict::Done, true, Vec::new()));
}

#[test]
fn a_damaged_order_that_is_paid_by_nothing_is_called_off_without_a_refund() {
    let mut life = by_card();
    life.order.status = Paid;
    let (verdict, writes) = life.meet(&Happening::Cancel);
    assert_eq!((verdict, writes.attempts, writes.entry), (Verdict::Done, Vec::new(), 0));
}

mod properties;
