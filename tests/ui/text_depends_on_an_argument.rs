use memtrack::track_memory;

#[track_memory(phase = arg)]
fn a(arg: &str) {}

#[track_memory(phase = arg)]
async fn b(arg: &'static str) {}

#[track_memory(name = arg)]
fn c(arg: &'static str) {}

#[track_memory(target = arg)]
fn d(arg: &'static str) {}

fn main() {}
