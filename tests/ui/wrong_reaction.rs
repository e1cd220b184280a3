//! What a breached budget does.
use memtrack::track_memory;

fn takes_nothing() {}

#[track_memory(max_peak = 1, on_exceed = "pancic")]
fn misspelled() {}

#[track_memory(max_peak = 1, on_exceed = "abort")]
fn unknown() {}

#[track_memory(max_peak = 1, on_exceed = 3)]
fn number() {}

#[track_memory(max_peak = 1, on_exceed = takes_nothing)]
fn of_another_type() {}

#[track_memory(on_exceed = "panic")]
fn without_a_budget() {}

#[track_memory(max_peak = 1, on_exceed)]
fn missing() {}

#[track_memory(max_peak = 1, on_exceed = panic)]
fn without_quotes() {}

fn main() {}
