//! One list of store tests that both databases pass.

mod accounts;
mod callbacks;
mod cards;
mod catalogue;
mod due;
mod life;
mod orders;
mod postgres;
mod races;
mod records;
mod sessions;
mod settle;
mod upkeep;
