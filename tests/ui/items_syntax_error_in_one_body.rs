use memtrack::track_memory;

struct Layer;

#[track_memory(phase = "forward")]
impl Layer {
    fn a(&self) -> u32 {
        let x:
    }

    fn b(&self) -> u32 {
        1
    }
}

#[track_memory]
mod layers {
    pub fn c() {
        1 +
    }

    pub fn d() {}
}

fn main() {
    Layer.a();
    Layer.b();
    layers::c();
    layers::d();
}
