//! Layer 3: the unique constraints on orders, and what the service says when one fires.
