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

use super::{Backend, Digest, LIVE_PER_SUBJECT, Life, Place, Rarely, Slip, Spend};

/// Live tokens of all subjects together: about 70 MB when full.
const MAX_LIVE: usize = if cfg!(test) { 2_000 } else { 200_000 };
/// Marks: about 40 MB when full. Beyond it the oldest go: its token then is *unknown* instead of *spent*, and the
/// record still knows the outcome.
const MAX_MARKS: usize = if cfg!(test) { 2_000 } else { 200_000 };
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
    full: Rarely,
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

    async fn give_back(&self, slip: &Slip, request: Uuid) {
        self.state().give_back(slip, request, Instant::now(), self.life);
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
        if self.live.len() >= MAX_LIVE {
            if self.full.now() {
                tracing::warn!(tokens = MAX_LIVE, "token store is full: new forms get tokens that will be unknown");
            }
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

    fn give_back(&mut self, slip: &Slip, request: Uuid, now: Instant, life: Life) {
        if self.marks.get(&slip.place.intent, now).is_some_and(|mark| mark.request == request) {
            self.marks.take(&slip.place.intent);
            self.issue(slip, now, life);
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

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Life = Life { token: Duration::from_secs(60), mark: Duration::from_secs(600) };

    fn numbered(n: usize) -> Digest {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&n.to_be_bytes());
        digest
    }

    /// Token `n` of a subject, for a key of its own.
    fn slip(subject: usize, n: usize) -> Slip {
        Slip { place: Place { subject: numbered(subject), intent: numbered(n) }, token: numbered(n) }
    }

    fn spend(state: &mut State, n: usize, now: Instant) -> Spend {
        state.spend(&slip(n, n), Uuid::new_v4(), now, LIFE)
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_store_refuses_newcomers_and_keeps_who_is_in() {
        let (mut state, now) = (State::default(), Instant::now());
        for n in 0..=MAX_LIVE {
            state.issue(&slip(n, n), now, LIFE);
        }
        assert_eq!(state.live.len(), MAX_LIVE);
        assert_eq!(spend(&mut state, MAX_LIVE, now), Spend::Unknown);
        assert_eq!(spend(&mut state, 0, now), Spend::Accepted);
        state.issue(&slip(MAX_LIVE, MAX_LIVE), now, LIFE);
        assert_eq!(spend(&mut state, MAX_LIVE, now), Spend::Accepted, "a spent one made room");
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_expired_makes_room() {
        let (mut state, now) = (State::default(), Instant::now());
        for n in 0..MAX_LIVE {
            state.issue(&slip(n, n), now, LIFE);
        }
        let later = now + LIFE.token;
        state.issue(&slip(MAX_LIVE, MAX_LIVE), later, LIFE);
        assert_eq!(spend(&mut state, MAX_LIVE, later), Spend::Accepted);
        assert!(state.live.len() > MAX_LIVE / 2, "purging is spread over many calls");
        assert_eq!(spend(&mut state, MAX_LIVE - 1, later), Spend::Unknown, "expired, purged or not");
        while state.live.len() > 0 {
            state.purge(later);
        }
        assert!(state.by_subject.is_empty() && state.live.order.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn marks_are_bounded_and_the_oldest_go() {
        let (mut state, now) = (State::default(), Instant::now());
        for n in 0..=MAX_MARKS {
            state.issue(&slip(n, n), now, LIFE);
            assert_eq!(spend(&mut state, n, now), Spend::Accepted);
        }
        assert_eq!(state.marks.len(), MAX_MARKS);
        assert_eq!(spend(&mut state, 0, now), Spend::Unknown);
        assert_eq!(spend(&mut state, 1, now), Spend::Spent { ago: Duration::ZERO });
    }

    #[tokio::test(start_paused = true)]
    async fn a_mark_outlives_the_token_and_goes_in_the_end() {
        let (mut state, now) = (State::default(), Instant::now());
        state.issue(&slip(1, 1), now, LIFE);
        spend(&mut state, 1, now);
        let almost = LIFE.mark.checked_sub(Duration::from_millis(1)).unwrap();
        assert_eq!(spend(&mut state, 1, now + almost), Spend::Spent { ago: almost });
        assert_eq!(spend(&mut state, 1, now + LIFE.mark), Spend::Unknown);
        assert!(state.marks.len() == 0 && state.marks.order.is_empty());
    }
}
