//! Layer 3: the unique constraints on orders, and what the service says when one fires.
//!
//! `orders_account_key_once` and `orders_account_reference_once` hold for ever, whatever became of tokens and
//! records. The storage adapters read what stands under the account's lock, so a decision knows of it before a row
//! is written; the constraints hold whoever writes. What was decided is counted here.

use crate::order::decide::{Decision, Refusal};
use crate::order::values::{Key, OrderId};

/// Counts what the constraints had to say about one decision under a key. `leaked`: the key's record had not expired, so an
/// outer layer should have answered and did not; that is worth a look by an operator, hence the warning.
pub fn count(decision: &Decision, key: &Key, leaked: bool) {
    match decision {
        Decision::Placed(_) => super::decided("constraint", "inserted", key),
        Decision::Stands { order, .. } => key_exists(*order, key, leaked),
        Decision::Refused(Refusal::ReferenceTaken(_)) => super::decided("constraint", "reference_exists", key),
        Decision::Refused(_) | Decision::Invalid(_) => {}
    }
}

fn key_exists(order: OrderId, key: &Key, leaked: bool) {
    super::decided("constraint", "key_exists", key);
    if leaked {
        tracing::warn!(%order, "the constraint stopped a repeat whose idempotency record should still have been there");
    }
}
