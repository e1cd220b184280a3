//! Parents and causes that are no spans.
use memtrack::track_memory;

#[track_memory(parent)]
fn missing() {}

#[track_memory(parent = 3)]
fn number() {}

#[track_memory(follows_from = span)]
fn not_a_list(span: tracing::Span) {}

fn main() {}
