use memtrack::track_memory_block;

trait Layer {
    const PHASE: &'static str;

    fn forward(&self) {
        track_memory_block!(phase = Self::PHASE, {});
        track_memory_block!(name = Self::PHASE, {});
    }
}

fn generic<T: Layer>() {
    track_memory_block!(phase = T::PHASE, {});
    let text = "text";
    track_memory_block!(text, {});
    track_memory_block!(name = text, {});
}

fn main() {}
