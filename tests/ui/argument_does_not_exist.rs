//! Names of arguments that the function does not have.
use memtrack::track_memory;

struct Opaque;

#[track_memory(skip(rows))]
fn misspelled(row: usize, (columns, depth): (usize, usize)) {}

#[track_memory(args(rows))]
fn without_arguments() {}

#[track_memory(args(self))]
fn without_a_receiver(rows: usize) {}

#[track_memory(args(rows, rows))]
fn twice(rows: usize) {}

#[track_memory(args())]
fn empty(rows: usize) {}

#[track_memory(args(rows.len))]
fn expression(rows: usize) {}

#[track_memory(args(rows))]
fn without_debug(rows: Opaque) {}

fn main() {}
