//! Layer 3: the unique constraints on orders, and what the service says when one fires.
//!
//! `orders_account_key_once` and `orders_account_reference_once` hold for ever, whatever became of tokens and
//! records. The storage adapters read what stands, so a decision knows of it before a row is written; the constraints hold
//! whoever writes. What was decided is counted here.

use super::decided::Decided;
use crate::order::decide::{Decision, Refusal};
use crate::order::values::OrderId;
use crate::store::RecordId;

/// Counts what the constraints had to say about one decision, made under this claim. `leaked`: the key's record had not expired, so an
/// outer layer should have answered and did not; that is worth a look by an operator, hence the warning.
pub fn count(decision: &Decision, leaked: bool, claim: &RecordId) {
    let decided = match decision {
        Decision::Placed(_) => Decided::Inserted,
        Decision::Stands { order, .. } => {
            warn_if(leaked, *order);
            Decided::KeyExists
        }
        Decision::Refused(Refusal::ReferenceTaken(_)) => Decided::ReferenceExists,
        Decision::Refused(_) | Decision::Invalid(_) => return,
    };
    super::count(decided, || claim.into());
}

/// Counts what they had to say about an order whose payment is still under way: `new` or standing.
pub fn count_unpaid(new: bool, claim: &RecordId) {
    super::count(if new { Decided::Inserted } else { Decided::KeyExists }, || claim.into());
}

fn warn_if(leaked: bool, order: OrderId) {
    if leaked {
        tracing::warn!(%order, "the constraint stopped a repeat whose idempotency record should still have been there");
    }
}
