//! The three layers, each atomic, each for its own class of retry:
//!
//! | layer | room | kept in | stops |
//! | --- | --- | --- | --- |
//! | 1 | [`token`] | Redis, or process memory | double click, F5 on a POST, Back and submit again, restored tabs |
//! | 2 | [`key`] | `idempotency_records` | client and gateway retries, lost answers, crash and retry |
//! | 3 | [`unique`] | constraints on `orders` | whatever slips by, for ever |
//!
//! Usable for any form or endpoint: nothing here says "order" except [`unique`]. `examples/support_ticket.rs` puts the
//! outer two around another form.

pub mod key;
pub mod token;
pub mod unique;

use crate::order::values::Key;

/// Counts a decision of a layer about a key, and tells of it where the log wants to know each (`oncegate::guard=debug`). Kept
/// nowhere else: a repeat must not cost a write.
pub fn decided(layer: &'static str, decision: &'static str, key: &Key) {
    tracing::debug!(target: "oncegate::guard", layer, decision, %key, "decided");
    count(layer, decision);
}

/// Counts one decision of one layer: `oncegate_layer_decisions_total{layer,decision}`.
pub fn count(layer: &'static str, decision: &'static str) {
    metrics::counter!("oncegate_layer_decisions_total", "layer" => layer, "decision" => decision).increment(1);
}
