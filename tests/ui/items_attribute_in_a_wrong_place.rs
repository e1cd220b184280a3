use memtrack::track_memory;

fn main() {
    #[track_memory]
    let x = 1;
    #[track_memory]
    let closure = || x;
    #[track_memory]
    {
        closure();
    }
    let y = #[track_memory]
    (x + 1);
}
