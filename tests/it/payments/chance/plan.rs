//! What may happen in a shop, as proptest draws it and takes it apart again.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::super::{BAD, SLOW};

/// One history of a shop.
#[derive(Clone, Debug)]
pub struct Plan {
    pub provider: Provider,
    /// Whether there are two processes, else one.
    pub two: bool,
    pub steps: Vec<Step>,
}

/// How the stand-in behaves.
#[derive(Clone, Copy, Debug)]
pub struct Provider {
    pub callbacks: &'static str,
    /// Every so many answers to a charge are lost; 0: none.
    pub lose_answer: u8,
    /// Milliseconds; callbacks take as long.
    pub latency: u16,
}

/// What happens; intents and callbacks are named by any number, and it is counted around.
#[derive(Clone, Debug)]
pub enum Step {
    Place(Ask),
    /// The same key again, with the same content or another.
    Repeat {
        intent: u8,
        other: bool,
    },
    /// `again`: under the key of the last time.
    Pay {
        intent: u8,
        pay: Pay,
        again: bool,
    },
    Cancel {
        intent: u8,
        again: bool,
    },
    Ship {
        intent: u8,
    },
    /// From now on callbacks are lost on their way, or no more.
    Lose(bool),
    /// A callback of long ago comes (again), so often at once.
    Tell {
        callback: u8,
        copies: u8,
    },
    Forge {
        callback: u8,
        how: Forgery,
    },
    /// Every answer that was kept expires.
    Forget,
    /// Every order is older than the payment window.
    WindowOver,
    /// `oncegate sweep`, beside the sweepers of the processes.
    Sweep,
    /// The client goes away after so many milliseconds.
    Leave(u16, Box<Step>),
    AtOnce(Vec<Step>),
    /// `kill -9` of one process so many milliseconds after these have begun, and a new one afterwards.
    Killed(u16, Vec<Step>),
}

/// A callback that the provider never sent.
#[derive(Clone, Copy, Debug)]
pub enum Forgery {
    /// "Failed", of a payment that succeeded.
    LateFailure,
    Amount,
    Currency,
}

/// One wish to order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// In a browser, else by the API.
    pub form: bool,
    pub sku: &'static str,
    pub quantity: u32,
    pub pay: Pay,
    /// API clients may have one.
    pub reference: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pay {
    Balance,
    Card,
    BadCard,
    SlowCard,
}

impl Pay {
    /// `payment` and `payment_method`.
    pub fn words(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Balance => ("balance", None),
            Self::Card => ("card", None),
            Self::BadCard => ("card", Some(BAD)),
            Self::SlowCard => ("card", Some(SLOW)),
        }
    }
}

impl Ask {
    /// The same wish with one piece more.
    pub fn other(self) -> Self {
        Self { quantity: self.quantity + 1, ..self }
    }

    /// What an API client sends.
    pub fn json(&self) -> Value {
        let (payment, method) = self.pay.words();
        let reference = self.reference.map(|n| format!("r{n}"));
        json!({
            "lines": [{"sku": self.sku, "quantity": self.quantity}],
            "payment": payment, "payment_method": method, "reference": reference,
        })
    }
}

impl Provider {
    pub fn flags(&self) -> Vec<String> {
        let latency = format!("{}ms", self.latency);
        let mut flags = vec!["--callbacks", self.callbacks, "--latency", &latency, "--callback-delay", &latency];
        let every = self.lose_answer.to_string();
        if self.lose_answer > 0 {
            flags.extend(["--lose-answer", &every]);
        }
        // Of forms, which name no card.
        flags.extend(["--decline-amount", "300"]);
        flags.into_iter().map(str::to_owned).collect()
    }
}

fn a_way_to_pay() -> impl Strategy<Value = Pay> {
    prop_oneof![3 => Just(Pay::Balance), 5 => Just(Pay::Card), 1 => Just(Pay::BadCard), 1 => Just(Pay::SlowCard)]
}

fn an_ask() -> impl Strategy<Value = Ask> {
    // Ten cups there are, and nobody can afford 600 pots twice.
    let goods =
        prop_oneof![6 => (Just("CUP"), 1..=4_u32), 3 => (Just("POT"), 1..=3_u32), 1 => (Just("POT"), 600..=600_u32)];
    let reference = proptest::option::weighted(0.2, 0..3_u8);
    (any::<bool>(), goods, a_way_to_pay(), reference).prop_map(|(form, (sku, quantity), pay, reference)| Ask {
        form,
        sku,
        quantity,
        // A form names no card.
        pay: if form && pay != Pay::Balance { Pay::Card } else { pay },
        reference: reference.filter(|_| !form),
    })
}

/// What one client, or the provider, does.
fn a_deed() -> impl Strategy<Value = Step> {
    let deed = prop_oneof![
        6 => an_ask().prop_map(Step::Place),
        4 => (any::<u8>(), proptest::bool::weighted(0.2)).prop_map(|(intent, other)| Step::Repeat { intent, other }),
        3 => (any::<u8>(), a_way_to_pay(), any::<bool>())
            .prop_map(|(intent, pay, again)| Step::Pay { intent, pay, again }),
        3 => (any::<u8>(), any::<bool>()).prop_map(|(intent, again)| Step::Cancel { intent, again }),
        2 => any::<u8>().prop_map(|intent| Step::Ship { intent }),
        2 => (any::<u8>(), 1..4_u8).prop_map(|(callback, copies)| Step::Tell { callback, copies }),
        1 => (any::<u8>(), select(vec![Forgery::LateFailure, Forgery::Amount, Forgery::Currency]))
            .prop_map(|(callback, how)| Step::Forge { callback, how }),
    ];
    (deed, proptest::option::weighted(0.1, 0..300_u16)).prop_map(|(deed, left)| match left {
        Some(millis) => Step::Leave(millis, Box::new(deed)),
        None => deed,
    })
}

fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => a_deed(),
        4 => vec(a_deed(), 2..6).prop_map(Step::AtOnce),
        3 => (0..600_u16, vec(a_deed(), 1..5)).prop_map(|(millis, deeds)| Step::Killed(millis, deeds)),
        1 => any::<bool>().prop_map(Step::Lose),
        1 => Just(Step::Forget),
        1 => Just(Step::WindowOver),
        1 => Just(Step::Sweep),
    ]
}

/// A history of so many steps at most.
pub fn a_plan(steps: usize) -> impl Strategy<Value = Plan> {
    let provider = (
        select(vec!["normal", "twice", "late", "shuffled", "early", "none"]),
        prop_oneof![2 => Just(0_u8), 1 => 1..4_u8],
        select(vec![0_u16, 20, 60, 250]),
    )
        .prop_map(|(callbacks, lose_answer, latency)| Provider { callbacks, lose_answer, latency });
    let steps = (an_ask().prop_map(Step::Place), vec(a_step(), steps / 2..steps));
    (provider, any::<bool>(), steps).prop_map(|(provider, two, (first, mut steps))| {
        steps.insert(0, first);
        Plan { provider, two, steps }
    })
}
