//! One list of store tests that both databases pass.

mod accounts;
mod catalogue;
mod orders;
mod postgres;
mod records;
mod sessions;
mod settle;
mod upkeep;
