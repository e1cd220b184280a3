//! A rate is at least one.
use memtrack::track_memory;

#[track_memory(sample = 0)]
fn zero() {}

#[track_memory(sample = -3)]
fn negative() {}

#[track_memory(sample = "3")]
fn text() {}

#[track_memory(sample)]
fn missing() {}

#[track_memory(sample = rate)]
fn of_another_type(rate: u8) {}

fn main() {}
