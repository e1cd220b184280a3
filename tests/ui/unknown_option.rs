use memtrack::track_memory;

#[track_memory(phse = "forward")]
fn a() {}

#[track_memory(colour = "red")]
fn b() {}

#[track_memory(err, Name = "x")]
fn c() -> Result<(), ()> {
    Ok(())
}

#[track_memory(skip(self), phase = "forward")]
fn d() {}

fn main() {
    a();
    b();
    let _ = c();
    d();
}
