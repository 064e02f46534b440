//! What a sweep takes away, and when.

use std::time::Duration;

/// One kind of row that is swept. An order, its lines, payments, entries and coupons are never among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// Idempotency records that have expired: done, or unfinished with their lease over. A live lease is never touched.
    Records,
    /// Sessions that have expired.
    Sessions,
    /// Outbox rows whose effect is there for longer than this. One without effect is never swept.
    Outbox(Duration),
    /// The marks of consumed messages that are older than this.
    ConsumedMessages(Duration),
    /// The provider's events that were received longer ago than this.
    PaymentEvents(Duration),
}
