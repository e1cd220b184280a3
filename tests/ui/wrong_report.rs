//! The options `err` and `ret` with something they do not take.
use memtrack::track_memory;

struct Opaque;

#[track_memory(err(Dispaly))]
fn misspelled() -> Result<(), Opaque> {
    Ok(())
}

#[track_memory(err(Display, Debug, level = "loud"), ret = "x")]
fn several() -> Result<(), Opaque> {
    Ok(())
}

#[track_memory(err(Debug, level = info), level = info)]
fn level_without_quotes() -> Result<(), Opaque> {
    Ok(())
}

#[track_memory(err(Display))]
fn error_without_display() -> Result<(), Opaque> {
    Ok(())
}

#[track_memory(ret)]
fn value_without_debug() -> Opaque {
    Opaque
}

#[track_memory(ret)]
fn never() -> ! {
    loop {}
}

#[track_memory(err(level = "warn" Debug))]
fn without_a_comma() -> Result<(), Opaque> {
    Ok(())
}

fn main() {}
