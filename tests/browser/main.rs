//! The pages in a real browser, against the real program. Each test ends with what the person sees and with the number of
//! orders in the database.
//!
//! As `tests/it`, the same list runs on both store pairs. It needs `chromium` and `chromedriver` on the PATH, and axe-core
//! (`AXE_CORE`, or where `scripts/test` has put it).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::disallowed_methods, reason = "tests hold locks from outside, and drop nothing half-way")]

mod browser;
mod chromedriver;
mod eyes;
mod failing;
#[path = "../it/harness/mod.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the integration tests, which use other parts")]
mod harness;
mod language;
mod looking;
mod paying;
mod pressing;
mod returning;
mod scene;
mod tabs;
mod tools;
mod typing;
