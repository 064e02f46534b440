//! One intent, one order: a shop's order form and its JSON API, behind which a double click, a reload, a retry or a
//! crash never makes a second order.
//!
//! # The map
//!
//! A room knows only rooms of the rows below its own, and not its neighbours (`tests/it/rooms.rs` holds that).
//!
//! | row | rooms | |
//! | --- | --- | --- |
//! | 9 | `main` | the program: one line |
//! | 8 | [`cli`] | commands, the log, exit codes; chooses the database |
//! | 7 | [`serve`] | listeners, what every request passes, `/metrics` and `/activity`, the stop that finishes what was begun |
//! | 6 | [`trial`] | `/try`: plays retries against the running service, through its faces, which know nothing of it |
//! | 5 | [`web`] · [`api`] · [`worker`] | the two faces: pages and forms · JSON for clients with a bearer token · what nobody waits for |
//! | 4 | [`checkout`] | the use cases: [`checkout::place`] with the [`checkout::desk`] where both faces meet, [`checkout::change`], [`checkout::callback`] |
//! | 3 | [`app`] | what a request needs, built once |
//! | 2 | [`guard`] · [`error`] | the three layers against repeats · what can go wrong, in words of the shop |
//! | 1 | [`store`] · [`payment`] · [`config`] · [`catalogue`] | the databases behind one seam · the provider, and its stand-in · every setting · products as a file |
//! | 0 | [`order`] | the domain: pure, no I/O |
//!
//! HTTP and HTML (`axum`, `askama`, `tower_sessions`) stay in rows 5 and above, SQL (`sqlx`) in [`store`], Redis in
//! [`guard::token`] and [`worker::queue`]. What a visitor can do is in `templates/`, what the databases promise in `migrations/`.
//!
//! # Two walks
//!
//! **A form**, `POST /orders`: [`web::form`] takes the body as a [`web::draft`] → [`order::request`] parses it (errors end
//! here, the token unspent) → [`web::submit`], from here on in a task of its own, spends the [`guard::token`] and does
//! what the table of token and record says → [`checkout::place`] → the [`checkout::desk`] → 303 to the order.
//!
//! **An API request**, `POST /api/orders`: [`api::auth`] knows the caller, [`api::extract`] reads key and body → the same
//! [`order::request`] → the same [`checkout::place`] → the desk → 201, or the first answer again.
//!
//! **At the desk** whatever waits becomes one batch. What nothing stands for goes outright: one transaction of
//! [`store::Store::place`] reads stock, balances and what stands, lets [`order::decide`] judge, and writes orders under the constraints of
//! [`guard::unique`] together with each record and its answer ([`api::answer`]); repeats are answered from what stands. The rest (a row
//! that is held, a lease that is over) takes the way of the claims: [`guard::key`] claims all keys in one statement, then one
//! transaction of [`store::Store::settle`] does the same under locks, and stores each answer under the fence of its claim.

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
pub mod trial;
pub mod web;
pub mod worker;
