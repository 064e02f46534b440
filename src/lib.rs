//! oncegate
pub mod app;
pub mod checkout;
pub mod config;
pub mod error;
pub mod guard;
pub mod order;
pub mod store;
pub mod web;
