//! Helpers that several of memtrack's integration tests use.
