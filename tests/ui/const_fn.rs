use memtrack::track_memory;

#[track_memory]
const fn f() -> u32 {
    1
}

const CALLED: u32 = f();

fn main() {}
