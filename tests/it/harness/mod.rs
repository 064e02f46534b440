//! What tests of several rooms share.

pub mod log;
pub mod proxy;
pub mod redis;
