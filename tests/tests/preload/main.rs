//! Programs that know nothing of memtrack, run under the preloaded library with the mock driver as `libcuda.so.1`.
#![cfg(target_os = "linux")]

mod cache;
mod child;
mod linked;
mod observe;
mod overhead;
