use memtrack::track_memory;
use std::time::Duration;

struct Opaque;

#[track_memory(fields(rows = 1, a = duration))]
fn a(duration: Duration) {}

#[track_memory(fields(rows = 1, %rows))]
fn b(rows: Vec<u8>) {}

#[track_memory(fields(first = ?opaque, ?opaque))]
async fn c(opaque: Opaque) {}

#[track_memory(fields(a = %rows.len(), second = %rows.iter()))]
fn d(rows: Vec<u8>) {}

#[track_memory(fields(%"text", ?{ NAME }))]
fn e() {}

fn main() {}
