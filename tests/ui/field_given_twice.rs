use memtrack::track_memory;

const NAME: &str = "x";

#[track_memory(fields(a = 1, a = 2, b, %b))]
fn a(b: u8) {}

#[track_memory(fields(a.b = 1, "a.b" = 2, { NAME } = 1, { NAME } = 2))]
fn b() {}

#[track_memory(fields(mem.peak = 1, "mem.device" = 2, ?mem))]
fn c() {}

fn main() {}
