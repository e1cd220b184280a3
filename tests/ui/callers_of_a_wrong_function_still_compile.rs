use memtrack::track_memory;

struct Model;

impl Model {
    #[track_memory(phse = "forward")]
    fn forward(&self) -> u32 {
        self.inner()
    }

    #[track_memory(level = "loud")]
    pub fn inner(&self) -> u32 {
        1
    }
}

fn main() {
    let _: u32 = Model.forward();
}
