//! What can go wrong, in words of the shop. No HTTP here: `api/failure` and `web` (`form`, `pages`) each say it their
//! way, and all match exhaustively.

use std::time::Duration;

use thiserror::Error;

use crate::order::request::FieldError;
use crate::order::values::OrderId;
use crate::store::StoreError;

/// Why a use case gave no answer of its own.
#[derive(Debug, Error)]
pub enum Error {
    /// The request breaks limits; nothing was claimed or written.
    #[error("the request is not valid")]
    Invalid(Vec<FieldError>),
    /// The same request is under way.
    #[error("the same request is being worked on")]
    InProgress {
        /// What is left of its lease.
        lease_left: Duration,
    },
    /// The key was used for other content.
    #[error("the key was used for another request")]
    KeyReused(Earlier),
    /// The order's state does not allow it; nothing changed.
    #[error("the order's state does not allow it")]
    Illegal,
    /// The provider gave no outcome: the order stands pending, the claim is released, and a retry or the reconciler finishes it.
    #[error("the payment provider gave no outcome")]
    NoOutcome {
        /// The order.
        order: OrderId,
    },
    /// There is no such thing for this account.
    #[error("not found")]
    NotFound,
    /// A full desk or a silent dependency. Nothing was burnt: the same request with the same key may come again.
    #[error("unavailable: {reason}")]
    Unavailable {
        /// When to come again.
        retry_after: Duration,
        /// For the log.
        reason: String,
    },
    /// A bug of ours, or damaged data.
    #[error("internal: {0}")]
    Internal(String),
}

/// What the earlier request under a key became, told to whoever reused the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// It is still under way.
    Processing,
    /// It became this order.
    Order(OrderId),
    /// It was refused: nothing was ordered.
    Refused,
}

/// What a caller is told to wait before it tries a silent database again.
pub const RETRY_AFTER: Duration = Duration::from_secs(2);

impl Error {
    /// A dependency that gave no answer; `reason` goes to the log.
    #[must_use]
    pub fn unavailable(reason: &str) -> Self {
        Self::Unavailable { retry_after: RETRY_AFTER, reason: reason.into() }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unreachable(_) | StoreError::Busy(_) => {
                Self::Unavailable { retry_after: RETRY_AFTER, reason: error.to_string() }
            }
            StoreError::Broken(_) => Self::Internal(error.to_string()),
        }
    }
}

/// Shorthand of the use cases.
pub type Result<T> = std::result::Result<T, Error>;
