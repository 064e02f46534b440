//! oncegate
pub mod api;
pub mod app;
pub mod catalogue;
pub mod checkout;
pub mod cli;
pub mod config;
pub mod error;
pub mod guard;
pub mod order;
pub mod payment;
pub mod serve;
pub mod store;
pub mod web;
pub mod worker;
