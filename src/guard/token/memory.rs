//! The in-process twin: same semantics as Redis, for one process, forgotten with it.
//!
//! An own map and not a cache: a cache at its limit drops what it likes and may hand out what has expired; here expiry is exact and
//! at the limit a newcomer is refused while every live token stays. The clock is tokio's, which tests can stop.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Backend, Digest, LIVE_PER_SUBJECT, Life, Place, Slip, Spend};

/// Live tokens of all subjects together: about 70 MB when full.
const MAX_LIVE: usize = 200_000;
/// Marks: about 40 MB when full. Beyond it the oldest go: its token then is *unknown* instead of *spent*, and the
/// record still knows the outcome.
const MAX_MARKS: usize = 200_000;
/// Expired entries taken out by one call: more than one call can add, few enough not to be felt.
const PURGED_AT_ONCE: usize = 256;

/// Tokens and marks in process memory.
pub(super) struct Memory {
    life: Life,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Token to its subject.
    live: Expiring<Digest>,
    /// A subject's tokens, oldest first; none is empty.
    by_subject: HashMap<Digest, VecDeque<Digest>>,
    marks: Expiring<Mark>,
    full: bool,
}

struct Mark {
    request: Uuid,
    at: Instant,
}

impl Memory {
    pub(super) fn new(life: Life) -> Self {
        Self { life, state: Mutex::default() }
    }

    /// No step below can panic half way, so what a poisoned lock guards is whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Backend for Memory {
    async fn issue(&self, slip: &Slip) {
        self.state().issue(slip, Instant::now(), self.life);
    }

    async fn spend(&self, slip: &Slip, request: Uuid) -> Spend {
        self.state().spend(slip, request, Instant::now(), self.life)
    }

    async fn spent_ago(&self, place: &Place) -> Option<Duration> {
        let now = Instant::now();
        self.state().marks.get(&place.intent, now).map(|mark| now - mark.at)
    }

    async fn healthy(&self) -> bool {
        let mut state = self.state();
        state.purge(Instant::now());
        state.live.len() < MAX_LIVE
    }
}

impl State {
    fn issue(&mut self, slip: &Slip, now: Instant, life: Life) {
        self.purge(now);
        let own = self.by_subject.get(&slip.place.subject);
        if let Some(oldest) = own.filter(|own| own.len() >= LIVE_PER_SUBJECT).and_then(|own| own.front().copied()) {
            self.forget(&oldest, now);
        }
        let full = self.live.len() >= MAX_LIVE;
        if full != self.full {
            self.full = full;
            if full {
                tracing::warn!(tokens = MAX_LIVE, "token store is full: new forms get tokens that will be unknown");
            } else {
                tracing::info!("token store takes new tokens again");
            }
        }
        if full {
            return;
        }
        self.live.put(slip.token, slip.place.subject, now + life.token);
        self.by_subject.entry(slip.place.subject).or_default().push_back(slip.token);
    }

    fn spend(&mut self, slip: &Slip, request: Uuid, now: Instant, life: Life) -> Spend {
        self.purge(now);
        if self.forget(&slip.token, now) {
            while self.marks.len() >= MAX_MARKS {
                self.marks.take_oldest();
            }
            self.marks.put(slip.place.intent, Mark { request, at: now }, now + life.mark);
            return Spend::Accepted;
        }
        match self.marks.get(&slip.place.intent, now) {
            Some(mark) if mark.request == request => Spend::Accepted,
            Some(mark) => Spend::Spent { ago: now - mark.at },
            None => Spend::Unknown,
        }
    }

    /// Takes a token out; says whether it was live.
    fn forget(&mut self, token: &Digest, now: Instant) -> bool {
        let Some((subject, until)) = self.live.take(token) else { return false };
        self.unlist(&subject, token);
        until > now
    }

    fn unlist(&mut self, subject: &Digest, token: &Digest) {
        if let Some(own) = self.by_subject.get_mut(subject) {
            own.retain(|each| each != token);
            if own.is_empty() {
                self.by_subject.remove(subject);
            }
        }
    }

    fn purge(&mut self, now: Instant) {
        for _ in 0..PURGED_AT_ONCE {
            let Some((token, subject)) = self.live.take_expired(now) else { break };
            self.unlist(&subject, &token);
        }
        for _ in 0..PURGED_AT_ONCE {
            if self.marks.take_expired(now).is_none() {
                break;
            }
        }
    }
}

/// A map whose entries all live equally long: the order of putting is the order of expiry.
struct Expiring<V> {
    entries: HashMap<Digest, Entry<V>>,
    order: BTreeMap<u64, Digest>,
    next: u64,
}

struct Entry<V> {
    value: V,
    until: Instant,
    place: u64,
}

impl<V> Default for Expiring<V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), order: BTreeMap::new(), next: 0 }
    }
}

impl<V> Expiring<V> {
    fn len(&self) -> usize {
        self.entries.len()
    }

    fn put(&mut self, name: Digest, value: V, until: Instant) {
        let place = self.next;
        self.next += 1;
        if let Some(old) = self.entries.insert(name, Entry { value, until, place }) {
            self.order.remove(&old.place);
        }
        self.order.insert(place, name);
    }

    fn get(&self, name: &Digest, now: Instant) -> Option<&V> {
        self.entries.get(name).filter(|entry| entry.until > now).map(|entry| &entry.value)
    }

    fn take(&mut self, name: &Digest) -> Option<(V, Instant)> {
        let entry = self.entries.remove(name)?;
        self.order.remove(&entry.place);
        Some((entry.value, entry.until))
    }

    fn take_oldest(&mut self) -> Option<(Digest, V)> {
        let (_, name) = self.order.pop_first()?;
        Some((name, self.entries.remove(&name)?.value))
    }

    fn take_expired(&mut self, now: Instant) -> Option<(Digest, V)> {
        let (_, name) = self.order.first_key_value()?;
        if self.entries.get(name).is_some_and(|entry| entry.until > now) {
            return None;
        }
        self.take_oldest()
    }
}
