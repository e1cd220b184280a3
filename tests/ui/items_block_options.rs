use memtrack::track_memory;

struct Layer;

#[track_memory("layer", phase = "forward")]
impl Layer {
    fn a(&self) {}

    #[track_memory(skip)]
    fn b(&self) {}
}

#[track_memory(name = "layers", phse = "forward", args(x), skip(y), level = "loud")]
mod layers {
    pub fn c(x: u8) -> u8 {
        x
    }

    #[track_memory(skip)]
    pub mod d {
        #[memtrack::track_memory(phse = "e")]
        pub fn e() {}
    }

    #[track_memory(name = "F")]
    pub trait F {
        #[track_memory(skip)]
        fn f(&self) {}
    }

    use super::track_memory;
}

fn main() {
    Layer.a();
    Layer.b();
    layers::c(1);
    layers::d::e();
}
