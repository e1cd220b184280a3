//! Graph captures on the simulated device: who is led into the pool, what waits for the end, and what nobody may touch before.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod common;
mod lifetimes;
mod reuse;
mod routing;
