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

pub mod activity;
pub mod decided;
pub mod key;
pub mod token;
pub mod unique;

use activity::About;
use decided::Decided;

/// Counts one decision of one layer: in `oncegate_layer_decisions_total{layer,decision}`, and for `/activity`; and tells the
/// log of it where that wants to know each (`oncegate::guard=debug`). Kept nowhere else: a repeat must not cost a write. What
/// it is about is asked for only where it is told or kept.
pub fn count(decided: Decided, about: impl FnOnce() -> About) {
    let (layer, decision) = (decided.layer().as_str(), decided.as_str());
    let told = tracing::enabled!(tracing::Level::DEBUG);
    let about = (told || activity::keeps(decided)).then(about);
    if let Some(About { key, .. }) = about.as_ref().filter(|_| told) {
        tracing::debug!(layer, decision, key = key.as_ref().map(tracing::field::display), "decided");
    }
    metrics::counter!("oncegate_layer_decisions_total", "layer" => layer, "decision" => decision).increment(1);
    activity::add(decided, about);
}
