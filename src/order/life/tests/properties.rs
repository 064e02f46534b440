//! Any sequence of happenings, against the invariants of the contract.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

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
