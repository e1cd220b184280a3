//! Programs for allocators: what a step is, who can run them, how they run, and the files of what PyTorch answered.
//!
//! `step` and `features` say what programs are made of, `subject` what runs them; `world` runs one step and `replay` a
//! recording. `programs`, `golden`, `traces` and `special` read the four kinds of files in `fixtures/torch-2.11`, each
//! described by the README beside it; `memtrack` and `reference` are the two subjects. No test lives here.

#![allow(clippy::unwrap_used, reason = "a fixture that does not read is a failed test")]

pub mod features;
pub mod files;
pub mod golden;
pub mod memtrack;
pub mod programs;
pub mod recording;
mod reference;
pub mod replay;
pub mod reservations;
pub mod special;
pub mod step;
pub mod subject;
pub mod threads;
pub mod traces;
pub mod world;
