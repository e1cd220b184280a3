use memtrack::track_memory;

struct Layer;

#[track_memory(phase = "forward", device = &self.allocator)]
impl Layer {
    fn a(&self) -> u32 {
        "a"
    }

    fn new() -> Self {
        Self
    }
}

#[track_memory(err)]
mod layers {
    pub struct StepResult;

    pub fn step() -> StepResult {
        StepResult
    }
}

#[track_memory]
impl Clone for Layer {}

fn main() {
    Layer.a();
    layers::step();
}
