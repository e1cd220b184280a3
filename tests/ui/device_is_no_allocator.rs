use memtrack::track_memory;

#[track_memory(device = 0)]
fn a() {}

#[track_memory(device = name)]
async fn b(name: &str) {}

fn main() {}
