//! The PostgreSQL adapter.
