//! What the layers decided lately, in this process: totals since its start, the last hour by minutes, and the last
//! requests that a layer stopped or stood aside for. For an operator's eyes; alerts belong on the metric that is
//! counted in the same step.
//!
//! Memory is bounded (some 60 KB), and a decision costs one short lock: what goes through untouched, which is nearly
//! everything, leaves only numbers. A token never gets here, only what it was bound to.
//!
//! Deliberately absent: anything that outlives the process, or knows of other ones.

use std::collections::VecDeque;
use std::sync::{LazyLock, Mutex, PoisonError};

use time::OffsetDateTime;

use super::decided::{Decided, Effect};
use super::token::Binding;
use crate::order::values::{AccountId, Key, Subject};
use crate::store::RecordId;

/// How many minutes are kept, with the present one.
pub const MINUTES: usize = 60;
/// How many events are kept.
pub const EVENTS: usize = 100;
/// Kinds of decisions.
const KINDS: usize = Decided::ALL.len();

/// How often each decision was made; by [`Decided::index`].
pub type Counts = [u64; KINDS];

/// Who asked, as far as the layer knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// A visitor or client, before an account is looked up.
    Subject(Subject),
    /// The account.
    Account(AccountId),
    /// Nobody that is known.
    Nobody,
}

/// What a decision was about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Who asked.
    pub who: Who,
    /// For what: a form's name, an operation.
    pub operation: &'static str,
    /// Under which key, if one was sent.
    pub key: Option<Key>,
}

impl From<&Binding> for About {
    fn from(binding: &Binding) -> Self {
        let Binding { subject, form, key } = binding;
        Self { who: Who::Subject(subject.clone()), operation: form, key: Some(key.clone()) }
    }
}

impl From<&RecordId> for About {
    fn from(id: &RecordId) -> Self {
        Self { who: Who::Account(id.account), operation: id.operation, key: Some(id.key.clone()) }
    }
}

/// One request that a layer stopped, or stood aside for.
#[derive(Clone, Debug)]
pub struct Event {
    /// When.
    pub at: OffsetDateTime,
    /// What was decided.
    pub decided: Decided,
    /// About what.
    pub about: About,
}

/// What was decided within one minute.
#[derive(Clone, Copy, Debug)]
pub struct Minute {
    /// When it began.
    pub at: OffsetDateTime,
    /// How often.
    pub counts: Counts,
}

/// All that is known at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Since when is counted.
    pub since: OffsetDateTime,
    /// Since then.
    pub totals: Counts,
    /// The last hour, oldest first: [`MINUTES`] of them.
    pub minutes: Vec<Minute>,
    /// Newest first, at most [`EVENTS`].
    pub events: Vec<Event>,
}

/// Begins to count, unless it has begun.
pub fn start() {
    LazyLock::force(&ACTIVITY);
}

/// Whether it is kept what a decision was about.
pub(super) fn keeps(decided: Decided) -> bool {
    decided.effect() != Effect::Passed
}

/// Adds a decision, and what it was about where that is kept.
pub(super) fn add(decided: Decided, about: Option<About>) {
    let at = OffsetDateTime::now_utc();
    let event = about.filter(|_| keeps(decided)).map(|about| Event { at, decided, about });
    let mut ring = ACTIVITY.ring.lock().unwrap_or_else(PoisonError::into_inner);
    ring.count(decided, minute_of(at));
    let old = event.and_then(|event| ring.keep(event));
    drop(ring);
    drop(old); // its memory is given back outside the lock
}

/// What is known now.
#[must_use]
pub fn snapshot() -> Snapshot {
    let now = minute_of(OffsetDateTime::now_utc());
    let ring = ACTIVITY.ring.lock().unwrap_or_else(PoisonError::into_inner);
    Snapshot {
        since: ACTIVITY.since,
        totals: ring.totals,
        minutes: ring.last_hour(now),
        events: ring.events.iter().rev().cloned().collect(),
    }
}

static ACTIVITY: LazyLock<Activity> =
    LazyLock::new(|| Activity { since: OffsetDateTime::now_utc(), ring: Mutex::new(Ring::new()) });

struct Activity {
    since: OffsetDateTime,
    /// No step under it can panic half way, so what a poisoned lock guards is whole.
    ring: Mutex<Ring>,
}

fn minute_of(at: OffsetDateTime) -> i64 {
    at.unix_timestamp().div_euclid(60)
}

/// A minute has its slot by its number, and takes it from whichever was there before: a clock that is set back finds
/// its minutes empty or as they were, and nothing has to be moved.
struct Ring {
    totals: Counts,
    slots: [(i64, Counts); MINUTES],
    events: VecDeque<Event>,
}

impl Ring {
    fn new() -> Self {
        Self { totals: [0; KINDS], slots: [(i64::MIN, [0; KINDS]); MINUTES], events: VecDeque::with_capacity(EVENTS) }
    }

    fn count(&mut self, decided: Decided, minute: i64) {
        self.totals[decided.index()] += 1;
        let slot = &mut self.slots[slot_of(minute)];
        if slot.0 != minute {
            *slot = (minute, [0; KINDS]);
        }
        slot.1[decided.index()] += 1;
    }

    /// Keeps an event; answers the one that had to go for it.
    fn keep(&mut self, event: Event) -> Option<Event> {
        let old = if self.events.len() < EVENTS { None } else { self.events.pop_front() };
        self.events.push_back(event);
        old
    }

    fn last_hour(&self, now: i64) -> Vec<Minute> {
        let minutes = (now - LAST..=now).map(|minute| {
            let (kept, counts) = self.slots[slot_of(minute)];
            let at = OffsetDateTime::from_unix_timestamp(minute * 60).unwrap_or(OffsetDateTime::UNIX_EPOCH);
            Minute { at, counts: if kept == minute { counts } else { [0; KINDS] } }
        });
        minutes.collect()
    }
}

/// [`MINUTES`] as the clock counts.
const SLOTS: i64 = 60;
/// How far the oldest minute is from the present one.
const LAST: i64 = SLOTS - 1;

fn slot_of(minute: i64) -> usize {
    usize::try_from(minute.rem_euclid(SLOTS)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(minute: &Minute) -> u64 {
        minute.counts[Decided::Spent.index()]
    }

    fn event(n: i64) -> Event {
        let at = OffsetDateTime::from_unix_timestamp(n).unwrap();
        Event { at, decided: Decided::Spent, about: About { who: Who::Nobody, operation: "x", key: None } }
    }

    #[test]
    fn a_decision_is_counted_in_its_minute_and_falls_out_after_an_hour_but_not_of_the_total() {
        let mut ring = Ring::new();
        let now = 29_000_000;
        for minute in [now - 60, now - 59, now - 1, now, now] {
            ring.count(Decided::Spent, minute);
        }
        let hour = ring.last_hour(now);
        assert_eq!(hour.len(), MINUTES);
        assert_eq!(hour[59].at.unix_timestamp(), now * 60);
        assert_eq!((of(&hour[0]), of(&hour[57]), of(&hour[58]), of(&hour[59])), (1, 0, 1, 2));
        assert_eq!(ring.totals[Decided::Spent.index()], 5);
        assert!(ring.last_hour(now + 60).iter().all(|minute| of(minute) == 0), "an hour later");
    }

    #[test]
    fn a_clock_that_is_set_back_loses_nothing_of_the_total_and_shows_no_future() {
        let mut ring = Ring::new();
        ring.count(Decided::Spent, 1_000);
        ring.count(Decided::Spent, 990);
        assert_eq!(ring.last_hour(990).iter().map(of).sum::<u64>(), 1);
        assert_eq!(ring.last_hour(1_000).iter().map(of).sum::<u64>(), 2);
        assert_eq!(ring.totals[Decided::Spent.index()], 2);
    }

    #[test]
    fn a_hundred_events_are_kept_and_the_oldest_goes() {
        let mut ring = Ring::new();
        for n in 0..250 {
            assert_eq!(ring.keep(event(n)).map(|old| old.at), (n >= 100).then(|| event(n - 100).at));
        }
        assert_eq!(ring.events.len(), EVENTS);
        assert_eq!(ring.events.capacity(), EVENTS, "no memory beyond");
        assert_eq!(ring.events.back().map(|e| e.at), Some(event(249).at));
    }

    #[test]
    fn what_goes_through_untouched_leaves_only_numbers() {
        super::super::count(Decided::Accepted, || panic!("nobody asks what it was about"));
        let before = snapshot();
        let about = || About { who: Who::Nobody, operation: "a_form_of_this_test", key: None };
        super::super::count(Decided::Bypassed, about);
        let after = snapshot();
        assert!(after.totals[Decided::Accepted.index()] >= 1);
        assert!(after.totals[Decided::Bypassed.index()] > before.totals[Decided::Bypassed.index()]);
        assert!(after.events.iter().any(|event| event.about == about()));
    }
}
