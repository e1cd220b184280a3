use memtrack::track_memory;

#[track_memory]
fn f() {
    let x:
}

fn main() {
    f();
}
