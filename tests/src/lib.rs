//! Helpers that several of memtrack's integration tests use.

pub mod futures;
pub mod memory;
pub mod spans;
