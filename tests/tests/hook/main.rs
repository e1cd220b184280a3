//! Programs with `memtrack-hook` compiled in, with the mock driver as `libcuda.so.1` and without `LD_PRELOAD` unless a test says so.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

#[path = "../preload/child.rs"]
mod child;
mod linked;
mod opens;
