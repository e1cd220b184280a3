use memtrack::track_memory;

#[track_memory(skip)]
fn f() {}

struct Layer;

impl Layer {
    #[track_memory(skip)]
    fn method(&self) {}
}

#[track_memory(skip)]
mod m {}

#[track_memory(phase = "forward", skip)]
fn g() {}

fn main() {
    f();
    Layer.method();
    g();
}
