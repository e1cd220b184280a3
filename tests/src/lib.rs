//! What several of memtrack's integration tests use; each module says what it is for.

pub mod bench;
pub mod captured_stream;
pub mod conformance;
pub mod counting;
pub mod device_list;
pub mod futures;
pub mod held_stream;
pub mod listening;
pub mod memory;
#[cfg(target_os = "linux")]
pub mod mock;
pub mod panics;
pub mod reference_allocator;
pub mod scenarios;
pub mod sources;
pub mod spans;
pub mod unused;
pub mod watchdog;
