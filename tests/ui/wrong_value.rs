use memtrack::track_memory;

#[track_memory(phase)]
fn a() {}

#[track_memory(phase =)]
fn b() {}

#[track_memory(name = 5)]
fn c() {}

#[track_memory(name = "")]
fn d() {}

#[track_memory(level = "debgu")]
fn e() {}

#[track_memory(level = "loud")]
fn f() {}

#[track_memory(level = 6)]
fn g() {}

#[track_memory(err = true)]
fn h() -> Result<(), ()> {
    Ok(())
}

#[track_memory(fields = "x")]
fn i() {}

#[track_memory(device)]
fn j() {}

#[track_memory(device = )]
fn k() {}

#[track_memory(crate = "memtrack")]
fn l() {}

#[track_memory(phase = "forward" name = "m")]
fn m() {}

#[track_memory(= "n")]
fn n() {}

fn main() {}
