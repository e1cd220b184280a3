use memtrack::track_memory;

#[track_memory]
struct A;

#[track_memory]
pub(crate) enum B {}

#[track_memory]
union C {
    a: u8,
}

#[track_memory]
const D: u8 = 1;

#[track_memory]
static E: u8 = 1;

#[track_memory]
type F = u8;

#[track_memory]
macro_rules! i {
    () => {};
}

#[track_memory]
use std::fmt;

#[track_memory]
unsafe extern "C" {}

#[track_memory]
extern crate std as j;

fn main() {}
