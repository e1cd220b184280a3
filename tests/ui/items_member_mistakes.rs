use memtrack::track_memory;

struct Layer;

#[track_memory(phase = "forward", err)]
impl Layer {
    #[track_memory(phse = "a")]
    fn a(&self) {}

    fn sound(&self) -> Result<u32, u32> {
        Ok(1)
    }

    #[track_memory(name = "b", name = "c")]
    fn b(&self) {}

    #[track_memory(level = 9)]
    #[inline]
    async fn c(&self) {}

    #[track_memory]
    const fn d(&self) {}

    #[track_memory(err)]
    fn e(&self) {}
}

#[track_memory]
trait Shape {
    #[track_memory]
    fn area(&self) -> u32;

    fn sound(&self) {}

    #[track_memory(phase = "x")]
    const SIDES: u32;
}

fn main() {
    Layer.a();
    let _ = Layer.sound();
    Layer.b();
    drop(Layer.c());
    Layer.d();
    Layer.e();
}
