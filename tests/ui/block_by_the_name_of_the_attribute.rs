use memtrack::track_memory;

fn main() {
    track_memory!("a", { 1 });
    memtrack::track_memory!("b", { 1 });
}
