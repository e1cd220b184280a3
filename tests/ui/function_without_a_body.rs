use memtrack::track_memory;

trait Shape {
    #[track_memory]
    fn required(&self) -> u32;
    #[track_memory(phase = "forward")]
    async fn required_later(&self) -> u32;
}

fn main() {}
