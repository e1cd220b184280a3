use memtrack::track_memory;

const NAME: u8 = 1;

#[track_memory(name = NAME)]
fn a() {}

#[track_memory(target = NAME)]
fn b() {}

#[track_memory(level = NAME)]
fn c() {}

fn main() {}
