//! The gathering desk.
