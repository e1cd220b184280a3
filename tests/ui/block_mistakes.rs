use memtrack::track_memory_block;

fn main() {
    track_memory_block!();
    track_memory_block!("a", phase = "forward");
    track_memory_block!("b" { 1 });
    let _: u32 = track_memory_block!("c", loop { break 1 });
    let _: u32 = track_memory_block!("d", 1 + 1);
    track_memory_block!(level = "debug", {});
    let one: u32 = track_memory_block!("e", phse = "forward", level = "loud", { 1 });
    track_memory_block!("f", args(one), skip(one), skip_all, future, { one });
    track_memory_block!("", phase = "", {});
    track_memory_block!("g", name = "h", fields(mem.peak = 1), {});
    track_memory_block!(phase = 1, {});
}
