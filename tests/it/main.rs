//! The integration tests, one binary. The same list runs on both store pairs: with nothing set on the embedded one,
//! with `TEST_DATABASE_URL` on PostgreSQL. nextest runs every test in a process of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod harness;
mod store;
