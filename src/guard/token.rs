//! Layer 1: one-time form tokens, spent by one atomic step that leaves a mark.
//!
//! A token is at least 128 random bits, bound to a subject (who the form was rendered for), a form name and an
//! idempotency key. Spending deletes it and, in the same step, leaves a mark under (subject, form, key) that
//! says when and by which request, so that *spent* differs from *unknown*, and a spend whose reply was lost can
//! be asked again by the same request. When the store gives no answer in time the result is
//! [`Spend::Bypassed`]: layers 2 and 3 decide alone.

use std::time::Duration;

use uuid::Uuid;

use crate::config::Redis;
use crate::order::values::{Key, Subject};

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
    /// It was spent before, by another request, this long ago (by the token store's clock).
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
pub struct Tokens {}

impl Tokens {
    /// Connects, lazily: an unreachable Redis is a warning, never an error.
    pub async fn connect(_redis: &Redis, _ttl: Duration) -> Self {
        todo!("token room")
    }

    /// A fresh token for the form. Where the store gives no answer the token is random all the same, and unknown later
    /// (if the store is still away then, it is bypassed).
    pub async fn issue(&self, _binding: &Binding) -> String {
        todo!("token room")
    }

    /// Spends a token in one atomic step. `request` names this request, so that asking again after a lost reply answers
    /// [`Spend::Accepted`] again. Counts the decision.
    pub async fn spend(&self, _token: &str, _binding: &Binding, _request: Uuid) -> Spend {
        todo!("token room")
    }

    /// How long ago a token was spent for this (subject, form, key), if one was and the mark still lives.
    pub async fn spent_ago(&self, _binding: &Binding) -> Option<Duration> {
        todo!("token room")
    }

    /// Whether the store answers (`tokens` in `/readyz`).
    pub async fn healthy(&self) -> bool {
        todo!("token room")
    }
}
