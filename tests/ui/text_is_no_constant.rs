use memtrack::track_memory;

#[track_memory(name = format!("{}", 1))]
fn a() {}

#[track_memory(phase = format!("{}", 1), target = 5.to_string())]
fn b() {}

#[track_memory("")]
fn c() {}

#[track_memory(phase = "", target = "")]
fn d() {}

#[track_memory(level = loud(), err = "x")]
fn e() -> Result<(), ()> {
    Ok(())
}

#[track_memory(name = { "f" }, phase = "a" "b")]
fn f() {}

fn main() {}
