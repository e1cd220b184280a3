use memtrack::track_memory_block;

fn main() {
    let _: u32 = track_memory_block!("a", err, { 1 });
    let _ = track_memory_block!("b", err, async { 1_u32 });
}
