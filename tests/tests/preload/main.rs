//! Programs that know nothing of memtrack, run under the preloaded library with the mock driver as `libcuda.so.1`.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod cache;
mod child;
mod linked;
mod observe;
mod overhead;
mod scenes;
mod subject;
