//! The pages, against the real router: the token table row by row, bad input, sessions, addresses.

mod attempts;
mod forms;
mod language;
mod pages;
mod sessions;
mod shop;
mod table;
