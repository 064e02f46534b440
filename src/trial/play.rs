//! A play: its requests one after the other, and what there is afterwards. What the layers decided is read from the
//! counts that they keep of themselves, by the keys of the play, and not assumed.

use std::collections::BTreeSet;

use time::OffsetDateTime;
use uuid::Uuid;

use super::Trial;
use super::class::{Class, Stopper};
use super::scenes;
use super::sender::{Broken, Seen};
use super::stored::Stored;
use crate::guard::activity;
use crate::guard::decided::{Decided, Effect};
use crate::order::values::{Key, OrderId};

/// What came of a play.
#[derive(Debug)]
pub(super) struct Played {
    pub(super) class: Class,
    pub(super) steps: Vec<Step>,
    /// What the layers decided beyond letting the first through, and how often; in the order of the layers.
    pub(super) decided: Vec<(Decided, usize)>,
    /// What there is afterwards; none where the play was cut short before there was an order.
    pub(super) stored: Option<Stored>,
    /// What stopped the repeat.
    pub(super) stopper: Option<Stopper>,
    /// Why it was cut short, if it was.
    pub(super) broken: Option<String>,
}

/// One thing that was done, and what was answered.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) what: String,
    pub(super) answer: String,
}

/// What is noted down while a class is played.
pub(super) struct Notes {
    pub(super) begun: OffsetDateTime,
    pub(super) steps: Vec<Step>,
    pub(super) keys: Vec<Key>,
    pub(super) orders: BTreeSet<OrderId>,
    /// What stopped the repeat, where that is none of the three layers.
    pub(super) beside: Option<Stopper>,
}

impl Notes {
    /// A fresh key.
    pub(super) fn key(&mut self) -> Key {
        let key = Key::fresh();
        self.keys.push(key.clone());
        key
    }

    pub(super) fn step(&mut self, what: impl Into<String>, answer: impl Into<String>) {
        self.steps.push(Step { what: what.into(), answer: answer.into() });
    }

    /// Notes an answer down, and the order that it tells of.
    pub(super) fn seen(&mut self, what: impl Into<String>, seen: &Seen) {
        self.orders.extend(seen.order);
        self.step(what, seen.told());
    }

    /// The order of the play, once there is one.
    pub(super) fn order(&self) -> Result<OrderId, Broken> {
        let none = || Broken::Otherwise("there is no order: see the answers".to_owned());
        self.orders.first().copied().ok_or_else(none)
    }
}

impl Played {
    /// A play that came to nothing.
    pub(super) fn cut_short(class: Class, why: String) -> Self {
        Self { class, steps: Vec::new(), decided: Vec::new(), stored: None, stopper: None, broken: Some(why) }
    }

    /// Whether it ended as it is meant to.
    pub(super) fn as_meant(&self) -> bool {
        self.broken.is_none() && self.stored.as_ref().is_some_and(Stored::is_one)
    }
}

/// Plays a class to its end, or to where it broke.
pub(super) async fn play(trial: &Trial, class: Class) -> Played {
    let mut notes = Notes {
        begun: OffsetDateTime::now_utc(),
        steps: Vec::new(),
        keys: Vec::new(),
        orders: BTreeSet::new(),
        beside: None,
    };
    let mut broken = scenes::run(trial, class, &mut notes).await.err();
    let stored = match notes.orders.is_empty() {
        true => None,
        false => Stored::read(&trial.app, &notes).await.map_err(|error| broken.get_or_insert(error)).ok(),
    };
    let decided = decided(&notes);
    let stopped = decided.iter().find(|(decided, _)| decided.effect() == Effect::Stopped);
    let stopper = notes.beside.or(stopped.map(|(decided, _)| Stopper::Layer(decided.layer())));
    let broken = broken.map(|error| error.to_string());
    if let Some(reason) = &broken {
        tracing::warn!(class = class.word(), reason, "a play was cut short");
    }
    Played { class, steps: notes.steps, decided, stored, stopper, broken }
}

fn decided(notes: &Notes) -> Vec<(Decided, usize)> {
    let events = activity::snapshot().events;
    let ours: Vec<Decided> = events
        .iter()
        .filter(|event| event.at >= notes.begun && event.about.key.as_ref().is_some_and(|key| notes.keys.contains(key)))
        .map(|event| event.decided)
        .collect();
    let times = |decided: Decided| (decided, ours.iter().filter(|each| **each == decided).count());
    Decided::ALL.into_iter().map(times).filter(|(_, times)| *times > 0).collect()
}

/// A name that nobody else has, for the client of a play.
pub(super) fn fresh_name() -> String {
    format!("try-{}", Uuid::new_v4())
}
