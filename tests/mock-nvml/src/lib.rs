//! An NVML library for tests: the C functions nvml-wrapper looks up, with figures from a JSON document.
//!
//! Built as a shared library, to be loaded in place of `libnvidia-ml.so.1`, and as a Rust library, for tests to write
//! the document and load a copy of their own. The README in this folder has both ways.

pub mod abi;
mod configuration;
pub mod enumeration;
mod instance;
mod state;

pub use configuration::{Change, Configuration, Device, Memory, Process};
pub use instance::Instance;
