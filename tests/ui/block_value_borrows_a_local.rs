use memtrack::track_memory_block;

fn main() {
    let text = track_memory_block!("a", {
        let text = String::new();
        &text
    });
    println!("{text}");
}
