use memtrack::track_memory_block;

const A: u32 = track_memory_block!("a", { 1 });

static B: u32 = track_memory_block!("b", { 2 });

const fn c() -> u32 {
    track_memory_block!("c", { 3 })
}

fn main() {}
