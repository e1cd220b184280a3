use memtrack::track_memory;

#[track_memory(fields(x = missing))]
fn a() {}

#[track_memory(device = missing)]
fn b() {}

#[track_memory(phase = missing::PHASE)]
fn c() {}

#[track_memory(name = "d", fields(x = inner))]
fn d() {
    let inner = 1;
    drop(inner);
}

fn main() {}
