//! The `#[track_memory]` attribute of memtrack; use it through the `memtrack` crate, which re-exports it.
#![forbid(unsafe_code)]
