use memtrack::track_memory;

trait Named {
    const NAME: &'static str;
}

struct Model;

impl Named for Model {
    const NAME: &'static str = "model";
}

impl Model {
    #[track_memory(name = Self::NAME)]
    fn a(&self) {}

    #[track_memory(target = <Self as Named>::NAME)]
    fn b(&self) {}

    #[track_memory(name = T::NAME, level = T::LEVEL)]
    fn c<T: Named>(&self) {}
}

fn main() {}
