//! The use cases, each readable from top to bottom. What is begun here outlives its caller.

pub mod callback;
pub mod change;
pub mod charge;
pub mod desk;
pub mod place;
mod settled;
