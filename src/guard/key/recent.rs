//! Answers that were replayed a moment ago, kept in the process.
//!
//! Retries come in storms, when everything is slow already: whoever asks the same again and again within a moment need not
//! go to the table each time. A finished record never changes, but it may be gone: expired, swept, or taken away by hand. So
//! the table stays the truth: what is given from here was read there a moment ago, and only what is asked for all the time is
//! given from here at all.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::order::values::Fingerprint;
use crate::store::{Answer, Record, RecordId, RecordState};

/// How old an answer may be that is given without asking the table: a refusal, which another try may not get any more once its
/// record is gone.
const FRESH: Duration = Duration::from_millis(200);
/// The same of an answer that speaks of an order, which stands for ever.
const FRESH_ORDER: Duration = Duration::from_secs(1);
/// How often the table must have been asked before, with no pause longer than [`COUNTED`]: a client that tries once more is
/// answered by the table.
const HOT: u32 = 3;
/// After a pause of this length counting begins anew.
const COUNTED: Duration = Duration::from_secs(2);
/// The most memory that the answers take, in bytes.
const CAPACITY: u64 = 8 * 1024 * 1024;
/// What an entry takes besides its texts, in bytes; about.
const ENTRY: usize = 400;
/// An entry of a usual size, in bytes: what the room for entries is first laid out by.
const USUAL: u64 = 1024;

#[derive(Clone)]
struct Seen {
    fingerprint: Fingerprint,
    answer: Answer,
    times: u32,
    at: Instant,
}

/// In bytes.
#[derive(Clone)]
struct Size;

impl Weighter<RecordId, Seen> for Size {
    fn weight(&self, id: &RecordId, seen: &Seen) -> u64 {
        let size = ENTRY + id.key.as_str().len() + seen.answer.body.len();
        u64::try_from(size).unwrap_or(u64::MAX)
    }
}

/// What was replayed lately.
#[derive(Clone)]
pub(super) struct Recent(Arc<Cache<RecordId, Seen, Size>>);

impl Recent {
    pub(super) fn new() -> Self {
        let entries = usize::try_from(CAPACITY / USUAL).unwrap_or(usize::MAX);
        Self(Arc::new(Cache::with_weighter(entries, CAPACITY, Size)))
    }

    /// The answer, where it is as good as the table's.
    pub(super) fn answer(&self, id: &RecordId, content: &Fingerprint) -> Option<Answer> {
        let seen = self.0.get(id)?;
        let fresh = if seen.answer.order.is_some() { FRESH_ORDER } else { FRESH };
        let good = seen.times >= HOT && seen.at.elapsed() < fresh && seen.fingerprint == *content;
        good.then_some(seen.answer)
    }

    /// Remembers what the table said.
    pub(super) fn saw(&self, id: &RecordId, record: &Record) {
        let RecordState::Done(answer) = &record.state else { return };
        let before = self.0.get(id).filter(|seen| seen.at.elapsed() < COUNTED);
        let times = before.map_or(0, |seen| seen.times).saturating_add(1);
        let (fingerprint, answer) = (record.fingerprint.clone(), answer.clone());
        self.0.insert(id.clone(), Seen { fingerprint, answer, times, at: Instant::now() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::values::{AccountId, Key, OrderId};

    fn record(body: &'static str) -> Record {
        let answer = Answer {
            status: 201,
            content_type: "application/json",
            location: None,
            body: bytes::Bytes::from_static(body.as_bytes()),
            order: None,
        };
        Record { fingerprint: content("a"), epoch: 1, state: RecordState::Done(answer) }
    }

    fn content(text: &str) -> Fingerprint {
        Fingerprint::stored(text)
    }

    fn id() -> RecordId {
        RecordId { account: AccountId::new(), operation: "place_order", key: Key::parse("k").unwrap() }
    }

    #[test]
    fn only_what_the_table_was_asked_for_again_and_again_is_given_from_memory() {
        let (recent, id) = (Recent::new(), id());
        for _ in 0..HOT {
            assert_eq!(recent.answer(&id, &content("a")), None);
            recent.saw(&id, &record("first"));
        }
        assert_eq!(recent.answer(&id, &content("a")).unwrap().body, "first");
        assert_eq!(recent.answer(&id, &content("b")), None, "other content is the table's to judge");
    }

    #[test]
    fn what_is_under_way_is_never_remembered() {
        let (recent, id) = (Recent::new(), id());
        let state = RecordState::Processing { lease_left: Duration::from_secs(1) };
        for _ in 0..=HOT {
            recent.saw(&id, &Record { state: state.clone(), ..record("") });
        }
        assert_eq!(recent.answer(&id, &content("a")), None);
    }

    #[test]
    fn an_answer_is_good_for_a_moment_only() {
        let (recent, id) = (Recent::new(), id());
        let seen = |age| {
            let Record { fingerprint, state: RecordState::Done(answer), .. } = record("first") else { unreachable!() };
            Seen { fingerprint, answer, times: HOT, at: Instant::now().checked_sub(age).unwrap() }
        };
        recent.0.insert(id.clone(), seen(FRESH / 4));
        assert!(recent.answer(&id, &content("a")).is_some());
        recent.0.insert(id.clone(), seen(FRESH));
        assert!(recent.answer(&id, &content("a")).is_none());
        let of_order = |age| {
            let mut seen = seen(age);
            seen.answer.order = Some(OrderId::new());
            seen
        };
        recent.0.insert(id.clone(), of_order(FRESH));
        assert!(recent.answer(&id, &content("a")).is_some());
        recent.0.insert(id.clone(), of_order(FRESH_ORDER));
        assert!(recent.answer(&id, &content("a")).is_none());
    }
}
