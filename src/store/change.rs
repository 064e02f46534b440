//! Changing one order: what is asked of the store, and what came of it. The rules of an order's life are
//! `order::life`; the store loads the rows under lock, lets it judge, and writes what it says in one transaction.

use std::time::Duration;

use super::{Answer, Fence};
use crate::order::life::{Happening, Life, Verdict};
use crate::order::values::{AccountId, OrderId};

/// One thing that happens to one order.
#[derive(Clone, Debug)]
pub struct Change {
    /// Which order.
    pub order: OrderId,
    /// Whose it has to be; `None`: anybody's (operators, the provider, the sweeper).
    pub account: Option<AccountId>,
    /// What happens.
    pub happening: Happening,
    /// The callback that told of it: kept in the same transaction, once.
    pub event: Option<ProviderEvent>,
    /// The claim under which it happens: its record is concluded in the same transaction.
    pub claim: Option<Fence>,
}

/// A callback, named so that each of its copies is known again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderEvent {
    /// Of which provider.
    pub provider: &'static str,
    /// The provider's id of the event.
    pub id: String,
    /// Its type.
    pub kind: String,
}

/// What a change needs to know besides.
#[derive(Clone, Copy)]
pub struct ChangeRules {
    /// How long a stored answer is replayed.
    pub key_ttl: Duration,
    /// How long to wait for row locks before [`StoreError::Busy`](super::StoreError::Busy).
    pub lock_wait: Duration,
    /// When the reconciler first looks at a new attempt: nobody else works on it any more then. A refund is due at once.
    pub first_check: Duration,
    /// Says what becomes of the claim's record, given what came of it and how the order stands now.
    pub conclude: fn(Verdict, &Happening, &Life) -> Conclusion,
}

/// What becomes of a claim's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// Done: this is stored, and replayed.
    Answer(Answer),
    /// Nothing is stored: lease over now, row kept, so that a retry runs at once.
    Release,
    /// The work goes on under the same claim.
    Keep,
}

/// What came of a change.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "short-lived, and the large variant is the usual one")]
pub enum Changed {
    /// No such order (of this account); nothing was written, the event neither.
    NotFound,
    /// The claim was taken over meanwhile; nothing was written.
    Fenced,
    /// The event was applied before; nothing was written.
    Known,
    /// It was judged, and written where there was something to write. After [`Verdict::NoAttempt`] the event is not kept, so
    /// that it comes again; such a change concludes no claim.
    Met {
        /// What came of it.
        verdict: Verdict,
        /// The order as it stands now.
        life: Life,
        /// What became of the claim's record; [`Conclusion::Keep`] where there was none.
        conclusion: Conclusion,
    },
}

/// A payment that the reconciler has to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Of which order.
    pub order: OrderId,
    /// Which attempt.
    pub attempt: i32,
}
