use memtrack::track_memory;

#[track_memory(phase = "forward", name = "f", phase = "backward")]
fn a() {}

#[track_memory("a", name = "b")]
fn b() {}

#[track_memory(err, err, fields(x), fields(y))]
fn c() -> Result<(), ()> {
    Ok(())
}

fn main() {}
