//! A CUDA driver library for tests: it exports, under the driver's own names, the calls that cudarc makes for devices,
//! contexts, memory, virtual memory, memory pools, streams, events and graphs, and carries them out on host memory.
//!
//! What it keeps to: error numbers as in `cuda.h`; addresses with real bytes behind them; physical memory that shows the
//! same bytes wherever it is mapped; free bytes counted against a capacity; stream order, with streams that can be held;
//! handles of destroyed streams and events given out again. What it leaves out: kernels, modules, graphs within graphs, managed and
//! external memory, peers. What it does differently on purpose: memory outlives its context, so that a leak shows; and a
//! wait that takes thirty seconds ends with an error, so that a test that deadlocks says so.
//!
//! Here live the driver and the `mock_*` functions that steer it (`controls`). Nothing in here may depend on memtrack
//! or cudarc: it stands in for a library that knows neither.
//!
//! Linux only: it is loaded by its SONAME, and physical memory is a `memfd`.
#![cfg(target_os = "linux")]
// The exported functions are named by cuda.h.
#![allow(non_snake_case)]

mod captures;
mod controls;
mod devices;
mod errors;
mod events;
mod graphs;
mod mapping;
mod memory;
mod pools;
mod state;
mod streams;
mod transfers;
mod virtual_memory;
