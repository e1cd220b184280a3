//! What memtrack itself takes from the host for each block that a program holds.
//!
//! Counted are the bytes that are held from the program's allocator on behalf of an allocator of memtrack's, whether touched or not: its
//! books, the records of blocks, live and free, the table of blocks held by address, and what the simulated device notes of its
//! segments. A `Buffer` is a value in the program's own hands; its size is added where the test says so.

#![expect(clippy::unwrap_used, reason = "what cannot be set up fails the test")]

use std::sync::Arc;

use memtrack::device::{Simulated, Stream};
use memtrack::scope::{Outcome, Scope};
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

/// Blocks of the programs that cost more.
const OTHER_COUNT: usize = 100_000;

fn allocators() -> [(&'static str, CachingAllocator); 3] {
    let (mut expandable, mut compact) = (Config::default(), Config::default());
    expandable.expandable_segments = true;
    compact.policy = Policy::Compact;
    [("torch", Config::default()), ("expandable", expandable), ("compact", compact)].map(|(name, config)| {
        let device = Arc::new(Simulated::with_capacity(1 << 43));
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

/// What a program does with its blocks.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Program {
    /// Frees every other one, so that as many holes are left as blocks.
    FreesEveryOther,
    /// Uses each on a second stream.
    UsesASecondStream,
    /// Makes each in so many scopes of its own, which are closed at once.
    MakesEachInScopes(usize),
    /// Makes each of so many MiB.
    MakesThemOfMib(usize),
    /// Makes each on a stream of its own.
    MakesEachOnAStream,
}

impl Program {
    fn block_count(self) -> usize {
        if self == Self::MakesEachOnAStream { OTHER_COUNT / 50 } else { OTHER_COUNT }
    }

    fn bytes(self, at: usize) -> usize {
        if let Self::MakesThemOfMib(mib) = self { mib << 20 } else { 512 * (1 + at.wrapping_mul(0x9e37_79b9) % 64) }
    }

    fn stream(self, at: usize) -> Stream {
        if self == Self::MakesEachOnAStream { Stream(1 + at as u64) } else { Stream::DEFAULT }
    }

    /// Runs it. Returns the heap that a block held by its address then takes.
    fn heap_bytes(self, allocator: &CachingAllocator) -> f64 {
        let count = self.block_count();
        let mut addresses: Vec<u64> = Vec::with_capacity(count);
        let before = held_bytes();
        for at in 0..count {
            let depth = if let Self::MakesEachInScopes(depth) = self { depth } else { 0 };
            let scopes: Vec<Scope> = (0..depth).map(|_| Scope::open(allocator, "own", None)).collect();
            let address = allocator.allocate_raw(self.bytes(at) as u64, self.stream(at)).unwrap();
            for scope in scopes.into_iter().rev() {
                drop(scope.close(Outcome::Ok));
            }
            if self == Self::UsesASecondStream {
                allocator.record_stream_raw(address, Stream(7)).unwrap();
            }
            addresses.push(address);
        }
        let mut live_count = count;
        if self == Self::FreesEveryOther {
            live_count /= 2;
            addresses.iter().step_by(2).for_each(|address| allocator.free_raw(*address).unwrap());
        }
        (held_bytes() - before) as f64 / live_count as f64
    }
}

#[test]
fn programs_of_other_kinds_cost_the_host_more_a_block_and_no_more_than_is_written() {
    // The most bytes of the policies torch, expandable and compact.
    let programs = [
        (Program::FreesEveryOther, [300, 300, 300]),
        (Program::UsesASecondStream, [230, 230, 230]),
        (Program::MakesEachInScopes(1), [650, 650, 650]),
        (Program::MakesEachInScopes(3), [1900, 1900, 1900]),
        (Program::MakesThemOfMib(2), [200, 200, 380]),
        (Program::MakesThemOfMib(11), [320, 320, 1900]),
        (Program::MakesEachOnAStream, [12_000; 3]),
    ];
    for (program, most) in programs {
        for ((name, allocator), most_bytes) in allocators().into_iter().zip(most) {
            let bytes = program.heap_bytes(&allocator);
            println!("{name}: {program:?}: {bytes:.0}");
            assert!(bytes < f64::from(most_bytes), "{name}: {program:?}: {bytes}");
        }
    }
}
