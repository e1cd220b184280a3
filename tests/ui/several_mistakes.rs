use memtrack::track_memory;

#[track_memory(phse = "forward", level = "loud", name = "f", name = "g", fields(mem.peak = 1))]
const fn f() {}

fn main() {
    f();
}
