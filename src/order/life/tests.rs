use proptest::prelude::*;
use proptest::sample::select;
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

fn a_word() -> impl Strategy<Value = Word> {
    let money = prop_oneof![
        2 => Just(None),
        4 => Just(Some((TOTAL, "EUR".to_owned()))),
        1 => Just(Some((TOTAL + 1, "EUR".to_owned()))),
        1 => Just(Some((TOTAL, "USD".to_owned()))),
    ];
    let attempt = proptest::option::weighted(0.8, 1..=4_i32);
    let id = proptest::option::weighted(0.7, select(vec!["A", "B", "C"])).prop_map(|id| id.map(str::to_owned));
    (attempt, id, select(vec![Captured, Processing, Declined, Unknown]), money)
        .prop_map(|(attempt, provider_id, said, money)| Word { attempt, provider_id, said, money })
}

fn a_happening() -> impl Strategy<Value = Happening> {
    let method = select(vec![Method::Balance, Method::Card]);
    prop_oneof![
        3 => (method, 2..6_u8, any::<bool>()).prop_map(|(method, key, resume)| {
            Happening::Pay { method, token: None, provider_key: format!("key-{key}"), resume }
        }),
        1 => Just(Happening::Cancel),
        1 => Just(Happening::WindowOver),
        1 => Just(Happening::Ship),
        6 => a_word().prop_map(Happening::Word),
        1 => select(vec!["A", "B", "C"]).prop_map(|id| Happening::Refunded { provider_id: id.into() }),
    ]
}

/// What the tables and the world outside hold, kept by the writes alone.
struct Books {
    status: Status,
    attempts: Vec<Attempt>,
    entries: Vec<Cents>,
    times_stock_came_back: usize,
    times_told_paid: usize,
}

impl Books {
    fn of(life: &Life) -> Self {
        let paid = life.order.status == Paid;
        Self {
            status: life.order.status,
            attempts: life.attempts.clone(),
            entries: if paid { vec![-life.order.total] } else { Vec::new() },
            times_stock_came_back: 0,
            times_told_paid: usize::from(paid),
        }
    }

    fn take(&mut self, writes: Writes) {
        self.status = writes.status.unwrap_or(self.status);
        for (number, status, provider_id) in writes.attempts {
            let row = self.attempts.iter_mut().find(|attempt| attempt.number == number).expect("the attempt is there");
            row.status = status;
            row.provider_id = row.provider_id.take().or(provider_id);
        }
        self.attempts.extend(writes.new_attempt);
        self.entries.extend((writes.entry != 0).then_some(writes.entry));
        self.times_stock_came_back += usize::from(writes.stock_back);
        self.times_told_paid += usize::from(writes.became_paid);
    }
}

fn count(attempts: &[Attempt], wanted: impl Fn(&Attempt) -> bool) -> usize {
    attempts.iter().filter(|attempt| wanted(attempt)).count()
}

/// What must hold whatever happened.
fn assert_sound(life: &Life, books: &Books, start: Cents) -> Result<(), TestCaseError> {
    prop_assert_eq!((life.order.status, &life.attempts), (books.status, &books.attempts), "the writes say it all");
    let captured = count(&life.attempts, |attempt| attempt.status == Captured);
    prop_assert_eq!(captured, usize::from(matches!(life.order.status, Paid | Shipped)));
    prop_assert_eq!(books.times_stock_came_back, usize::from(life.order.status == Cancelled));
    prop_assert!(books.times_told_paid <= 1);
    let held = |attempt: &&Attempt| attempt.method == Method::Balance && attempt.status == Captured;
    let held: Cents = life.attempts.iter().filter(held).map(|attempt| attempt.amount).sum();
    prop_assert_eq!(books.entries.iter().sum::<Cents>(), -held, "the account paid for what is captured, and no more");
    prop_assert_eq!(life.balance, start + books.entries.iter().sum::<Cents>());
    prop_assert!(life.balance >= 0);
    for sign in [-1, 1] {
        prop_assert!(books.entries.iter().filter(|amount| amount.signum() == sign).count() <= 1, "once per kind");
    }
    for attempt in &life.attempts {
        prop_assert_eq!(attempt.amount, life.order.total);
        prop_assert_eq!(count(&life.attempts, |other| other.number == attempt.number), 1);
        let same = |key: &Option<String>, other: &Option<String>| key.is_some() && key == other;
        prop_assert!(count(&life.attempts, |other| same(&other.provider_key, &attempt.provider_key)) <= 1);
        prop_assert!(count(&life.attempts, |other| same(&other.provider_id, &attempt.provider_id)) <= 1);
        prop_assert!(attempt.method == Method::Card || matches!(attempt.status, Captured | Refunded));
    }
    Ok(())
}

/// What one happening may do to what was there.
fn assert_step(before: &Life, happening: &Happening, after: &Life) -> Result<(), TestCaseError> {
    let allowed =
        matches!((before.order.status, after.order.status), (Pending, Paid | Cancelled) | (Paid, Shipped | Cancelled));
    prop_assert!(allowed || before.order.status == after.order.status, "{:?}", (before, after));
    for was in &before.attempts {
        let is = after.attempts.iter().find(|attempt| attempt.number == was.number).expect("no attempt is dropped");
        prop_assert!(!was.status.paid() || is.status.paid(), "money was taken back by a word: {:?}", happening);
        prop_assert!(was.provider_id.is_none() || is.provider_id == was.provider_id);
        let back = is.status == Refunded && was.status != Refunded && was.method == Method::Card;
        prop_assert!(!back || matches!(happening, Happening::Refunded { .. }), "nobody said it was paid back");
    }
    Ok(())
}

proptest! {
    #[test]
    fn whatever_happens_money_and_stock_move_once(
        card in any::<bool>(), funds in select(vec![0, TOTAL, FUNDS]),
        happenings in proptest::collection::vec(a_happening(), 0..25),
    ) {
        let mut life = if card { by_card() } else { by_balance() };
        life.balance = funds;
        let start = funds + if card { 0 } else { TOTAL };
        let mut books = Books::of(&life);
        for happening in &happenings {
            let before = life.clone();
            let (verdict, writes) = life.meet(happening);
            let nothing = writes == Writes::default();
            match verdict {
                Verdict::Done => prop_assert!(!nothing, "{:?}", happening),
                Verdict::Charge => prop_assert!(life.in_flight().is_some()),
                _ => prop_assert!(nothing, "{:?} {:?}", verdict, happening),
            }
            books.take(writes);
            assert_step(&before, happening, &life)?;
            assert_sound(&life, &books, start)?;
            let (again, writes) = life.clone().meet(happening);
            prop_assert_eq!(writes, Writes::default(), "a repeat changes nothing: {:?}", happening);
            prop_assert!(!matches!(again, Verdict::Done), "{:?}", happening);
        }
    }

    #[test]
    fn no_payment_that_fits_is_ever_dropped(
        happenings in proptest::collection::vec(a_happening(), 0..12), attempt in 1..=2_i32,
    ) {
        let mut life = by_card();
        meet(&mut life, &happenings);
        let (verdict, _) = life.meet(&word(attempt, "new", Captured));
        let kept = count(&life.attempts, |a| a.provider_id.as_deref() == Some("new") && a.status.paid());
        prop_assert_eq!(kept, usize::from(verdict != Verdict::NoAttempt));
        prop_assert!(attempt > 1 || kept == 1, "{:?}", life);
    }

    #[test]
    fn the_order_and_number_of_words_does_not_matter(
        words in proptest::collection::vec((select(vec!["A", "B"]), select(vec![Captured, Processing, Declined])), 1..5)
            .prop_flat_map(|words| (Just(words.clone()), Just([words.clone(), words].concat()).prop_shuffle())),
        cancelled in any::<bool>(),
    ) {
        let end = |words: &[(&str, PaymentStatus)]| {
            let mut life = by_card();
            if cancelled {
                let _ = life.meet(&Happening::Cancel);
            }
            for (id, said) in words {
                let _ = life.meet(&word(1, id, *said));
            }
            let of = |status| count(&life.attempts, |attempt| attempt.status == status);
            (life.order.status, of(Captured), of(RefundDue))
        };
        let (once, twice) = words;
        prop_assert_eq!(end(&once), end(&twice));
    }
}
