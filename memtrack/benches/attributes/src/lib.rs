//! `#[track_memory]` beside `#[tracing::instrument]`, fastrace's `#[trace]` and hotpath's `#[measure]`.
//!
//! Here live the functions that are measured ([`subjects`]), what a program can be in while they are called
//! ([`state`]), and how one of them is measured ([`sample`]); the programs beside are what is done with it. Only what
//! every user of these crates can call is used.

pub mod counting;
pub mod sample;
pub mod state;
pub mod subjects;
pub mod table;

/// What the programs of this package fail with; they say it and end.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
