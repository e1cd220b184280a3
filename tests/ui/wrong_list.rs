//! Lists of words.
use memtrack::track_memory;

#[track_memory(oom(evnt))]
fn misspelled() {}

#[track_memory(oom)]
fn missing() {}

#[track_memory(only(host), oom(event, event))]
fn unknown_and_twice() {}

#[track_memory(only = "self")]
fn as_text() {}

#[track_memory(only(self device))]
fn without_a_comma() {}

#[track_memory(skip)]
fn without_a_list() {}

#[track_memory(skip_all(a))]
fn with_a_list(a: u8) {}

fn main() {}
