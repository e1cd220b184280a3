use memtrack::track_memory;

const EMPTY: &str = "";

#[track_memory(name = EMPTY)]
fn a() {}

#[track_memory(phase = concat!("", ""))]
fn b() {}

#[track_memory(target = EMPTY)]
async fn c() {}

fn main() {}
