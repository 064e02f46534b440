//! The integration tests, one binary. The same list runs on both store pairs: with nothing set on the embedded one,
//! with `TEST_DATABASE_URL`, `TEST_REDIS_URL` and `TEST_REDIS_CLUSTER_URL` on PostgreSQL and Redis. nextest runs every
//! test in a process of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::disallowed_methods, reason = "tests hold locks from outside, and drop nothing half-way")]

mod activity;
mod api;
mod cli;
#[allow(dead_code, reason = "shared with the browser tests, which use other parts")]
mod harness;
mod payments;
mod queue;
mod races;
mod rooms;
mod sabotage;
mod store;
mod token;
mod trial;
mod web;
