//! What an operation costs among 100, 10,000 and 1,000,000 live or cached blocks, beside what memory of that size costs.
//!
//! A million blocks are in no processor's cache, so that any structure is slower with them than with a hundred: the group
//! `reference` says by how much an ordered map and an array are in the same run. The instructions of the same steps, which no
//! cache changes, are counted by the package `memtrack-instructions`.

#[path = "instructions/src/workload.rs"]
mod workload;

use std::collections::BTreeMap;
use std::hint::black_box;

use divan::Bencher;

use self::workload::{Blocks, Random, Rules};

fn main() {
    divan::main();
}

const COUNTS: [usize; 3] = [100, 10_000, 1_000_000];

/// Rules as a type, whose name the table shows.
trait Follows {
    const RULES: Rules;
}

struct Torch;
struct Expandable;
struct Compact;

impl Follows for Torch {
    const RULES: Rules = Rules::Torch;
}

impl Follows for Expandable {
    const RULES: Rules = Rules::Expandable;
}

impl Follows for Compact {
    const RULES: Rules = Rules::Compact;
}

/// One of so many live blocks is freed, and another allocated in its place.
#[divan::bench(types = [Torch, Expandable, Compact], args = COUNTS, sample_size = 1000)]
fn churn_among_live<R: Follows>(bencher: Bencher<'_, '_>, count: usize) {
    let mut blocks = Blocks::live(R::RULES, count);
    bencher.bench_local(|| blocks.replace_one());
}

/// One of 64 live blocks is freed and another allocated in its place, while so many blocks are cached.
#[divan::bench(types = [Torch, Expandable, Compact], args = COUNTS, sample_size = 1000)]
fn churn_among_cached<R: Follows>(bencher: Bencher<'_, '_>, count: usize) {
    let mut blocks = Blocks::cached(R::RULES, count);
    bencher.bench_local(|| blocks.replace_one());
}

/// A block is allocated and freed, while so many blocks are cached.
#[divan::bench(types = [Torch, Expandable, Compact], args = COUNTS, sample_size = 1000)]
fn pair_among_cached<R: Follows>(bencher: Bencher<'_, '_>, count: usize) {
    let mut blocks = Blocks::cached(R::RULES, count);
    bencher.bench_local(|| blocks.pair());
}

/// A block that no free one serves, while every other of so many is free and memory may be created.
#[divan::bench(types = [Torch, Expandable, Compact], args = [100, 10_000, 100_000], sample_size = 100, sample_count = 20)]
fn grow_among_cached<R: Follows>(bencher: Bencher<'_, '_>, count: usize) {
    let mut blocks = Blocks::scattered(R::RULES, count);
    bencher.bench_local(|| blocks.grow());
}

/// Two such blocks whose pages move between two streams, one of which has a hole for every other of so many blocks.
#[divan::bench(args = [100, 2000, 20_000, 100_000], sample_size = 10, sample_count = 20)]
fn move_among_holes(bencher: Bencher<'_, '_>, count: usize) {
    let mut blocks = Blocks::holes(Rules::Compact, count);
    bencher.bench_local(|| blocks.go_to_and_fro());
}

/// What the figures above can be told against.
mod reference {
    use super::*;

    /// An entry taken out of an ordered map of so many and another put in.
    #[divan::bench(args = COUNTS, sample_size = 1000)]
    fn ordered_map(bencher: Bencher<'_, '_>, count: usize) {
        let mut random = Random::new();
        let mut keys: Vec<u64> = (0..count).map(|_| random.next()).collect();
        let mut map: BTreeMap<u64, u32> = keys.iter().map(|key| (*key, 0)).collect();
        bencher.bench_local(|| {
            let at = random.below(count);
            map.remove(&keys[at]);
            keys[at] = random.next();
            map.insert(keys[at], 0);
        });
    }

    /// Four records of 96 bytes in an array of so many, one after the other, each found by what the one before holds: as many
    /// as a block and its neighbours.
    #[divan::bench(args = COUNTS, sample_size = 1000)]
    fn four_records(bencher: Bencher<'_, '_>, count: usize) {
        let mut random = Random::new();
        let mut records = vec![[1_u64; 12]; count];
        bencher.bench_local(|| {
            let mut found = 0;
            for _ in 0..4 {
                let at = (random.below(count) + found as usize) % count;
                records[at][0] ^= found ^ 1;
                found = black_box(records[at][0]);
            }
        });
    }
}
