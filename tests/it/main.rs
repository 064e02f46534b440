//! All integration tests in one binary: with nothing set on SQLite and memory, with `TEST_DATABASE_URL`, `TEST_REDIS_URL` and
//! `TEST_REDIS_CLUSTER_URL` also on PostgreSQL and Redis.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod harness;
mod token;
