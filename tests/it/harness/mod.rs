//! What tests of several rooms share.

pub mod proxy;
pub mod redis;
