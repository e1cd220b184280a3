//! Instructions counted by valgrind: the same on a busy machine as on an idle one, and nearly the same on another.
//!
//! Here lives how a program counts its own parts ([`callgrind`]) and how counts are held against those of a file
//! ([`limits`]). What is counted lives in the programs: `hot_path_instructions` beside, and the package of the attributes.

pub mod callgrind;
pub mod limits;

/// What these programs fail with; they say it and end.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
