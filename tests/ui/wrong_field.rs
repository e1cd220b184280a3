use memtrack::track_memory;

#[track_memory(fields(mem.peak = 1, x = 2))]
fn a() {}

#[track_memory(fields(x = ))]
fn b() {}

#[track_memory(fields(5))]
fn c() {}

#[track_memory(fields(x = 1 y = 2, mem.z))]
fn d() {}

struct NoValue;

#[track_memory(fields(x = value))]
fn e(value: NoValue) {}

struct Layer;

impl Layer {
    #[track_memory(fields(self))]
    fn f(&self) {}
}

fn main() {}
