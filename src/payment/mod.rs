//! The payment provider: what is asked of it and what it may say. It speaks Stripe's PaymentIntents API
//! (docs.stripe.com/api/payment_intents, docs.stripe.com/webhooks); [`standin`] speaks it too, for everybody who
//! has no provider at hand.
//!
//! A time-out is *unknown*, never *failed*: the money may have moved. Deliberately absent: orders, attempts' states and
//! any decision about them (`order/life` and `checkout`).

pub mod client;
pub mod event;
pub mod signature;
pub mod standin;

use crate::order::values::{Cents, OrderId};

/// The longest id that a provider gives, in characters: Stripe's are at most 255 (docs.stripe.com/upgrades).
const LONGEST_ID: usize = 255;

/// Whether this can be a provider's name for something. What cannot is told to its sender, not to a database.
fn is_id(text: &str) -> bool {
    (1..=LONGEST_ID).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// One attempt to charge a card, under a key that stays the same however often it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The provider's `Idempotency-Key` (`payments.provider_key`), fixed before the first call.
    pub provider_key: String,
    /// Minor units.
    pub amount: Cents,
    /// ISO 4217, as the shop writes it (the wire has it in small letters).
    pub currency: String,
    /// The provider's name for the card, if the buyer gave one.
    pub payment_method: Option<String>,
    /// Goes along as metadata, and comes back with callbacks.
    pub order: OrderId,
    /// Likewise.
    pub attempt: i32,
}

/// What the provider says of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Paid.
    Captured,
    /// Accepted, the result comes later.
    Processing,
    /// Definitely not paid.
    Declined,
    /// No answer, or none that says what became of it.
    Unknown,
}

/// The provider's word on an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// What became of it.
    pub outcome: Outcome,
    /// The provider's id of the intent, when it told one.
    pub provider_id: Option<String>,
}

impl Word {
    /// No word at all.
    pub const NONE: Self = Self { outcome: Outcome::Unknown, provider_id: None };
}
