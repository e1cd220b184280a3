use memtrack::track_memory_block;

fn main() {
    let _: u32 = track_memory_block!("a", { "a" });
    let _: u32 = track_memory_block!("b", {
        let x:
    });
    track_memory_block!("c", { 1 })
}
