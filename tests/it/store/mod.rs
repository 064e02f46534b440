//! One list of store tests that both databases pass.

mod accounts;
mod batches;
mod callbacks;
mod cards;
mod catalogue;
mod due;
mod life;
mod orders;
mod outbox;
mod outright;
mod postgres;
mod races;
mod records;
mod sessions;
mod settle;
mod stories;
mod sweep;
mod upkeep;
