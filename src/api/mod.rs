//! The JSON face.

pub mod health;
