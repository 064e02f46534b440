//! What placing a batch is asked for and what came of it.

use std::time::Duration;

use super::{Answer, Record};
use crate::order::Order;
use crate::order::decide::{Asked, Decision};
use crate::order::values::OrderId;

/// How long [`Store::place`](super::Store::place) waits for a row that somebody holds, before its batch takes the way of the
/// claims, where whoever repeats a request is told that it is under way: a good deal longer than a commit takes.
pub const PATIENCE: Duration = Duration::from_millis(100);

/// One order to be settled under a claim.
#[derive(Clone, Debug)]
pub struct Placing {
    /// The request; its `account` and `key` are those of the record `place_order`.
    pub asked: Asked,
    /// The epoch of the claim.
    pub epoch: i64,
}

/// What a settling needs to know besides the batch.
#[derive(Clone, Copy)]
pub struct SettleRules {
    /// How long the stored answer is replayed.
    pub key_ttl: Duration,
    /// How long to wait for row locks before [`StoreError::Busy`](super::StoreError::Busy).
    pub lock_wait: Duration,
    /// When the reconciler first looks at a new card attempt.
    pub first_check: Duration,
    /// Makes the answer that is stored and given: of a decision, with the standing order where the decision is
    /// [`Decision::Stands`].
    pub render: fn(&Decision, Option<&Order>) -> Answer,
}

/// What became of one order of a batch.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "short-lived, and the large variant is the usual one")]
pub enum Settled {
    /// Decided, written and stored (an [`Decision::Invalid`] is not stored: its record is gone).
    Decided {
        /// What was decided.
        decision: Decision,
        /// The answer that is stored under the key.
        answer: Answer,
        /// Whether the key's earlier record should still have been there (an outer layer leaked): only with
        /// [`Decision::Stands`], when the order is younger than `key_ttl` and the claim was a new record.
        leaked: bool,
    },
    /// It stands pending, by card, placed now or before with the same content: its record stays `processing` under the
    /// claim, until a [`Store::change`](super::Store::change) concludes it. Placed now, its attempt is still to be sent; placed before, its
    /// [`Store::life`](super::Store::life) tells how far the latest one is. (Where other content was asked for under the key of such an
    /// order, the claimed record is gone, and the outcome is [`Settled::Decided`].)
    Unpaid(OrderId),
    /// The claim was taken over meanwhile: nothing was written for this one.
    Fenced,
}

/// What became of one order of a batch that was placed without claims.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "short-lived, and the large variant is the usual one")]
pub enum Outright {
    /// As [`Store::settle`](super::Store::settle) tells it, under epoch 1.
    Settled(Settled),
    /// This record stands under its key.
    Stands(Record),
    /// Nothing was done for it.
    Undone,
}
