use memtrack::track_memory;

const PHASE: u8 = 1;

#[track_memory(phase = PHASE)]
fn a() {}

#[track_memory(phase = "forward".to_owned())]
fn b() {}

fn main() {}
