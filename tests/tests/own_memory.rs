//! What memtrack itself takes from the host for each block that a program holds.
//!
//! Counted are the bytes that are held from the program's allocator on behalf of an allocator of memtrack's, whether touched or not: its
//! books, the records of blocks, live and free, the table of blocks held by address, and what the simulated device notes of its
//! segments. A `Buffer` is a value in the program's own hands; its size is added where the test says so.

#![expect(clippy::unwrap_used, reason = "what cannot be set up fails the test")]

use std::sync::Arc;

use memtrack::device::{Simulated, Stream};
use memtrack::{Buffer, CachingAllocator, Config, Policy};
use memtrack_tests::counting::{Counting, held_bytes};

#[global_allocator]
static COUNTING: Counting = Counting;

const LIVE_COUNT: usize = 1_000_000;

/// The heap that blocks hold, for each live one.
#[derive(Debug, Clone, Copy)]
struct PerBlock {
    /// At [`LIVE_COUNT`] blocks.
    at_end_bytes: f64,
    /// The most at any number of blocks from a tenth of that on: where a table has just doubled.
    most_bytes: f64,
}

fn allocators() -> [(&'static str, CachingAllocator); 3] {
    let (mut expandable, mut compact) = (Config::default(), Config::default());
    expandable.expandable_segments = true;
    compact.policy = Policy::Compact;
    [("torch", Config::default()), ("expandable", expandable), ("compact", compact)].map(|(name, config)| {
        let device = Arc::new(Simulated::with_capacity(1 << 40));
        (name, CachingAllocator::with_config(device, config).unwrap())
    })
}

/// Measures while `hold` allocates so many bytes, again and again; from 512 B to 32 KiB.
fn measure(mut hold: impl FnMut(usize)) -> PerBlock {
    let before = held_bytes();
    let mut per_block = PerBlock { at_end_bytes: 0.0, most_bytes: 0.0 };
    for at in 0..LIVE_COUNT {
        hold(512 * (1 + at.wrapping_mul(0x9e37_79b9) % 64));
        if at >= LIVE_COUNT / 10 {
            per_block.at_end_bytes = (held_bytes() - before) as f64 / (at + 1) as f64;
            per_block.most_bytes = per_block.most_bytes.max(per_block.at_end_bytes);
        }
    }
    per_block
}

#[test]
fn a_live_buffer_costs_the_host_less_than_128_bytes_at_any_number_up_to_a_million() {
    for (name, allocator) in allocators() {
        let mut buffers: Vec<Buffer<u8>> = Vec::with_capacity(LIVE_COUNT);
        let per_block = measure(|bytes| buffers.push(Buffer::uninit(&allocator, bytes).unwrap()));
        let handle_bytes = size_of::<Buffer<u8>>();
        println!("{name}: {per_block:?}, and {handle_bytes} for the buffer");
        assert!(per_block.most_bytes + (handle_bytes as f64) < 128.0, "{name}: {per_block:?}");
    }
}

/// The program's hold is in a hash table, which is between 73 and 80 % full.
#[test]
fn a_live_block_held_by_its_address_costs_the_host_less_than_128_bytes_at_any_number_up_to_a_million() {
    for (name, allocator) in allocators() {
        let per_block = measure(|bytes| {
            allocator.allocate_raw(bytes as u64, Stream::DEFAULT).unwrap();
        });
        println!("{name}: {per_block:?}");
        assert!(per_block.most_bytes < 128.0, "{name}: {per_block:?}");
    }
}
