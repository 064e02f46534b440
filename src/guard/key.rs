//! Layer 2: the idempotency key. Claim, look, complete, release; lease and fence.
