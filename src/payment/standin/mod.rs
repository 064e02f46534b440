//! The stand-in provider (`oncegate gateway`): Stripe's PaymentIntents API in one process, honest about
//! idempotency, and difficult on request. For tests and trials; nothing is kept when it ends.

mod callbacks;
mod intents;
mod server;

use std::time::Duration;

pub use callbacks::Callbacks;
pub use server::Standin;

/// How the stand-in behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// The bearer key that callers must have.
    pub key: String,
    /// Signs the callbacks.
    pub webhook_secret: String,
    /// Where callbacks go; none are sent without.
    pub callback_url: Option<String>,
    /// Pause before each answer.
    pub latency: Duration,
    /// Totals (minor units) that are declined.
    pub decline_amounts: Vec<i64>,
    /// Every so many-th charge is made, but its connection is closed without an answer.
    pub lose_answer: Option<u64>,
    /// Which callbacks are sent, and when.
    pub callbacks: Callbacks,
    /// How long after the answer (or, for `early`, before it) a callback is sent.
    pub callback_delay: Duration,
}
