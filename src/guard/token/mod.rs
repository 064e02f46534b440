//! Layer 1: one-time form tokens, spent by one atomic step that leaves a mark.
//!
//! A token is 256 random bits, bound to a subject (who the form was rendered for), a form name and an
//! idempotency key. Spending deletes it and, in the same step, leaves a mark under (subject, form, key) that
//! says when and by which request, so that *spent* differs from *unknown*, and a spend whose reply was lost can
//! be asked again by the same request. When the store gives no answer in time the result is
//! [`Spend::Bypassed`]: layers 2 and 3 decide alone.
//!
//! The store never sees a token: it keeps one digest of text, subject, form and key together. A dump holds nothing
//! that could be handed in, and a token handed in with another's subject, another form or another key is simply
//! another digest: unknown, and the real one stays unspent.
//!
//! Absent on purpose: a lock (nothing is held between two commands), and any judgement of content or lease.

mod link;
mod memory;
mod redis;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use uuid::Uuid;

use super::decided::Decided;
use crate::config::Redis;
use crate::order::values::{Key, Subject};

/// Live tokens per subject; one more and the oldest goes. More tabs than anybody works with, few enough that a
/// program which fetches forms in a loop costs a bounded amount.
pub const LIVE_PER_SUBJECT: usize = 100;
/// The longest text that is looked up, in bytes. Tokens have 43; the rest is room for a longer kind to come.
const MAX_TEXT: usize = 128;
/// Random bytes in a token.
const RANDOM_BYTES: usize = 32;
/// The shortest life of a mark: many leases (30 s by default). A mark lives as long as a token, because a spent
/// token is told from an expired one only while it could still be live; not longer, because it costs memory with every
/// submission while records and constraints remember the outcome anyway. When a mark has gone, its token
/// is *unknown*, and whoever hands it in is told what stands, or gets a fresh token for the same key.
const SHORTEST_MARK: Duration = Duration::from_secs(10 * 60);

/// Which rendered form a token permits to submit once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Who it was rendered for.
    pub subject: Subject,
    /// The form's name (`place_order`).
    pub form: &'static str,
    /// The idempotency key rendered with it.
    pub key: Key,
}

/// What came of handing a token in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spend {
    /// It was live and is now spent by this request.
    Accepted,
    /// A token for this form and key was spent before, by another request, this long ago (by the token store's clock).
    Spent {
        /// Time since it was spent.
        ago: Duration,
    },
    /// Expired, forged, another's, or another key's (then it stays unspent).
    Unknown,
    /// The token store gave no answer in time.
    Bypassed,
}

/// The token layer: Redis or its in-process twin.
#[derive(Clone)]
pub struct Tokens {
    store: Arc<dyn Backend>,
}

impl Tokens {
    /// Connects, lazily: an unreachable Redis is a warning, never an error. `ttl` is the life of a token. Waits less
    /// than a second for a silent Redis.
    pub async fn connect(redis: &Redis, ttl: Duration) -> Self {
        let life = Life { token: ttl, mark: ttl.max(SHORTEST_MARK) };
        let store: Arc<dyn Backend> = match redis {
            Redis::Memory => Arc::new(memory::Memory::new(life)),
            Redis::Single(_) | Redis::Cluster(_) => Arc::new(redis::RedisStore::connect(redis.clone(), life).await),
        };
        Self { store }
    }

    /// A fresh token for the form. Where the store gives no answer the token is random all the same, and unknown later
    /// (if the store is still away then, it is bypassed).
    pub async fn issue(&self, binding: &Binding) -> String {
        let mut random = [0; RANDOM_BYTES];
        getrandom::fill(&mut random).expect("a running system has random bytes");
        let text = URL_SAFE_NO_PAD.encode(random);
        self.store.issue(&Slip::new(binding, &text)).await;
        text
    }

    /// Spends a token in one atomic step. `request` names this request, so that asking again after a lost reply answers
    /// [`Spend::Accepted`] again. Counts the decision. `token` may be any text.
    pub async fn spend(&self, token: &str, binding: &Binding, request: Uuid) -> Spend {
        let outcome = if token.len() > MAX_TEXT {
            Spend::Unknown
        } else {
            self.store.spend(&Slip::new(binding, token), request).await
        };
        let decided = match outcome {
            Spend::Accepted => Decided::Accepted,
            Spend::Spent { .. } => Decided::Spent,
            Spend::Unknown => Decided::Unknown,
            Spend::Bypassed => Decided::Bypassed,
        };
        super::count(decided, || binding.into());
        outcome
    }

    /// Gives a token back that this very request has spent, when nothing came of the request: the same form may be sent
    /// again as it is, with a whole life. Does nothing where the last spend was another request's.
    pub async fn give_back(&self, token: &str, binding: &Binding, request: Uuid) {
        self.store.give_back(&Slip::new(binding, token), request).await;
    }

    /// How long ago a token was spent for this (subject, form, key), if one was and the mark still lives. `None` also
    /// when the store gives no answer.
    pub async fn spent_ago(&self, binding: &Binding) -> Option<Duration> {
        self.store.spent_ago(&Place::new(binding)).await
    }

    /// Whether the store answers and takes new tokens (`tokens` in `/readyz`).
    pub async fn healthy(&self) -> bool {
        self.store.healthy().await
    }
}

/// What a token store does; [`Tokens`] is what callers see. No method fails: "no answer" is one of the outcomes.
#[async_trait]
trait Backend: Send + Sync {
    async fn issue(&self, slip: &Slip);
    async fn spend(&self, slip: &Slip, request: Uuid) -> Spend;
    async fn give_back(&self, slip: &Slip, request: Uuid);
    async fn spent_ago(&self, place: &Place) -> Option<Duration>;
    async fn healthy(&self) -> bool;
}

/// How long things are kept.
#[derive(Clone, Copy, Debug)]
struct Life {
    token: Duration,
    mark: Duration,
}

/// Says when it is time to log again what may be true for a thousand requests in a row.
#[derive(Default)]
struct Rarely(Mutex<Option<Instant>>);

impl Rarely {
    const PAUSE: Duration = Duration::from_secs(60);

    fn now(&self) -> bool {
        let now = Instant::now();
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = next.is_none_or(|next| next <= now);
        if due {
            *next = Some(now + Self::PAUSE);
        }
        due
    }
}

type Digest = [u8; 32];

/// Where a binding's marks and tokens are found: names of fixed length, whatever a stranger chose as key.
#[derive(Clone, Copy)]
struct Place {
    subject: Digest,
    intent: Digest,
}

impl Place {
    fn new(binding: &Binding) -> Self {
        let Binding { subject, form, key } = binding;
        Self {
            subject: digest(&["subject", subject.as_str()]),
            intent: digest(&["intent", subject.as_str(), form, key.as_str()]),
        }
    }
}

/// One token as the store knows it.
#[derive(Clone, Copy)]
struct Slip {
    place: Place,
    token: Digest,
}

impl Slip {
    fn new(binding: &Binding, text: &str) -> Self {
        let Binding { subject, form, key } = binding;
        Self { place: Place::new(binding), token: digest(&["token", subject.as_str(), form, key.as_str(), text]) }
    }
}

/// Each part behind its length: no two lists of parts can run together to the same bytes.
fn digest(parts: &[&str]) -> Digest {
    let mut sha = Sha256::new();
    for part in parts {
        sha.update((part.len() as u64).to_be_bytes());
        sha.update(part);
    }
    sha.finalize().into()
}
