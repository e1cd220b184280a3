use memtrack::track_memory;

#[track_memory]
#[path = "modules/empty.rs"]
mod empty;

fn main() {}
