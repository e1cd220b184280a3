//! The allocator against a second, slow one that was written from the rules alone: after every step of a random program
//! all 122 statistics, the address, the refusal with its figures, and the segments on the device must be the same.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod program;

use std::sync::Arc;

use memtrack::device::{Device, Simulated, Stream};
use memtrack::{AllocationError, CachingAllocator, Config, MemoryStats, OutOfMemory, Refusal};
use memtrack_tests::reference_allocator::{COUNTER_COUNT, ReferenceAllocator, Refused, counter_names, flatten};
use program::{STREAMS, Step, program, waiting_program};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

const MIB: u64 = 1 << 20;

/// Small enough that programs fill it.
const TOTAL_BYTES: u64 = 384 * MIB;

/// Segment addresses that neither rise nor fall, so that a tie is decided by address and not by age.
fn addresses() -> impl Iterator<Item = u64> {
    (0..4096_u64).map(|n| (1 << 46) + ((n * 1_367) % 4096) * (1 << 33))
}

/// Both allocators, and what is live in either.
struct Pair {
    device: Arc<Simulated>,
    allocator: CachingAllocator,
    reference: ReferenceAllocator,
    live: Vec<u64>,
}

impl Pair {
    fn new(config: &str, fraction: f64) -> Self {
        let config = Config::from_torch(config).unwrap();
        let device = Arc::new(Simulated::with_capacity(TOTAL_BYTES));
        device.script_addresses(addresses());
        let allocator = CachingAllocator::with_config(device.clone(), config.clone()).unwrap();
        let mut reference = ReferenceAllocator::new(config, TOTAL_BYTES, addresses());
        allocator.set_memory_fraction(fraction).unwrap();
        reference.set_memory_fraction(fraction);
        Self { device, allocator, reference, live: Vec::new() }
    }

    fn picked(&self, pick: usize) -> Option<usize> {
        (!self.live.is_empty()).then(|| pick % self.live.len())
    }

    fn run(&mut self, step: &Step) {
        let Self { device, allocator, reference, .. } = self;
        match *step {
            Step::Allocate { bytes, stream } => self.allocate(bytes, STREAMS[stream]),
            Step::Free { pick } => {
                if let Some(at) = self.picked(pick) {
                    let address = self.live.swap_remove(at);
                    self.allocator.free_raw(address).unwrap();
                    self.reference.free(address);
                }
            }
            Step::RecordStream { pick, stream } => {
                if let Some(at) = self.picked(pick) {
                    self.allocator.record_stream_raw(self.live[at], Stream(STREAMS[stream])).unwrap();
                    self.reference.record_stream(self.live[at], STREAMS[stream]);
                }
            }
            Step::Busy { stream } => {
                device.set_busy(Stream(STREAMS[stream]));
                reference.set_busy(STREAMS[stream]);
            }
            Step::Idle { stream } => {
                device.set_idle(Stream(STREAMS[stream]));
                reference.set_idle(STREAMS[stream]);
            }
            Step::Synchronize => {
                device.synchronize().unwrap();
                reference.synchronize();
            }
            Step::EmptyCache => {
                allocator.empty_cache().unwrap();
                reference.empty_cache();
            }
            Step::ResetPeak => {
                allocator.reset_peak_memory_stats();
                reference.reset_peak();
            }
            Step::ResetAccumulated => {
                allocator.reset_accumulated_memory_stats();
                reference.reset_accumulated();
            }
            Step::Fraction { thousandths } => {
                let fraction = f64::from(thousandths) / 1000.0;
                allocator.set_memory_fraction(fraction).unwrap();
                reference.set_memory_fraction(fraction);
            }
            Step::OtherUse { mebibytes } => {
                device.set_other_use(mebibytes * MIB);
                reference.set_other_use(mebibytes * MIB);
            }
        }
    }

    fn allocate(&mut self, bytes: u64, stream: u64) {
        let ours = self.allocator.allocate_raw(bytes, Stream(stream));
        match (ours, self.reference.allocate(bytes, stream)) {
            (Ok(ours), Ok(theirs)) => {
                assert_eq!(ours, theirs, "addresses");
                self.live.push(ours);
            }
            (Err(AllocationError::OutOfMemory(error)), Err(refused)) => self.compare_refusal(&error, refused, bytes),
            (ours, theirs) => panic!("outcomes: {ours:x?}, reference {theirs:x?}"),
        }
    }

    fn compare_refusal(&self, error: &OutOfMemory, refused: Refused, bytes: u64) {
        let refused_by = if refused == Refused::ByLimit { Refusal::Limit } else { Refusal::Device };
        assert_eq!((error.refused_by, error.requested_bytes), (refused_by, bytes));
        assert_eq!(error.reserved_bytes, self.reference.reserved_bytes());
        assert_eq!(error.largest_free_block_bytes, self.reference.largest_free_block_bytes());
        assert_eq!(error.limit_bytes, self.reference.limit_bytes());
    }

    fn compare(&self) {
        let ours = flatten(&self.allocator.memory_stats());
        let theirs = self.reference.counters();
        if ours != *theirs {
            let names = counter_names();
            let differing = (0..COUNTER_COUNT).filter(|at| ours.0[*at] != theirs.0[*at]);
            let lines: Vec<String> =
                differing.map(|at| format!("{} {}, reference {}", names[at], ours.0[at], theirs.0[at])).collect();
            panic!("statistics: {}", lines.join("; "));
        }
        assert_eq!(self.device.segments(), self.reference.segments());
        assert_eq!(self.device.used_bytes(), self.reference.reserved_bytes());
    }

    /// Frees the rest; after emptying the cache nothing may be left, here or on the device.
    fn finish(mut self) {
        for address in std::mem::take(&mut self.live) {
            self.allocator.free_raw(address).unwrap();
            self.reference.free(address);
            self.compare();
        }
        let named = self.allocator.memory_stats().to_map();
        assert_eq!(named, counter_names().into_iter().zip(self.reference.counters().0).collect());
        let (device, allocator) = (self.device, self.allocator);
        drop(allocator);
        assert_eq!((device.used_bytes(), device.segments()), (0, Vec::new()));
    }
}

fn run_both(config: &str, fraction: f64, program: &[Step]) {
    run_and_watch(config, fraction, program, |_, _| {});
}

/// Runs a program, comparing after every step; `watch` sees the statistics before and after it.
fn run_and_watch(config: &str, fraction: f64, program: &[Step], mut watch: impl FnMut(&MemoryStats, &MemoryStats)) {
    let mut pair = Pair::new(config, fraction);
    let mut before = pair.allocator.memory_stats();
    for step in program {
        pair.run(step);
        pair.reference.check();
        pair.compare();
        let after = pair.allocator.memory_stats();
        watch(&before, &after);
        before = after;
    }
    pair.finish();
}

/// Random programs prove nothing about paths that they do not take.
#[test]
fn the_random_programs_take_every_path() {
    let mut runner = TestRunner::deterministic();
    let mut draw = || program(3).new_tree(&mut runner).unwrap().current();
    let mut waiting_runner = TestRunner::deterministic();
    let mut draw_waiting = || waiting_program().new_tree(&mut waiting_runner).unwrap().current();
    let (mut completed, mut grown, mut served_after_waiting, mut refused) = (0, 0, 0, 0);
    let (mut collected, mut oversize_returned) = (0, 0);
    for _ in 0..60 {
        run_and_watch("", 0.06, &draw_waiting(), |before, after| {
            let retried = after.num_alloc_retries > before.num_alloc_retries;
            let new_segment = after.num_device_alloc > before.num_device_alloc;
            let out_of_memory = after.num_ooms > before.num_ooms;
            let freed = after.allocation.all.freed > before.allocation.all.freed;
            completed += usize::from(after.active.all.freed > before.active.all.freed && !freed && !retried);
            grown += usize::from(retried && new_segment);
            served_after_waiting += usize::from(retried && !new_segment && !out_of_memory);
            refused += usize::from(out_of_memory);
        });
        // Segments that go although nothing was waited for: by garbage collection, and from the split limit.
        let without_waiting = |before: &MemoryStats, after: &MemoryStats| {
            let waited = after.num_sync_all_streams > before.num_sync_all_streams;
            usize::from(after.num_device_free > before.num_device_free && !waited)
        };
        run_and_watch("garbage_collection_threshold:0.3", 0.9, &draw(), |before, after| {
            collected += without_waiting(before, after);
        });
        run_and_watch("max_split_size_mb:20", 0.4, &draw(), |before, after| {
            oversize_returned += without_waiting(before, after);
        });
    }
    for (path, times) in [
        ("a block free after another stream is done", completed),
        ("a retry that grew", grown),
        ("a retry served by a block that was waited for", served_after_waiting),
        ("an out of memory", refused),
        ("a collected segment", collected),
        ("an oversize segment returned", oversize_returned),
    ] {
        println!("{path}: {times} times");
        assert!(times > 0, "no program took the path: {path}");
    }
}

/// As many programs per family as make more than 2,000 in all.
fn cases() -> ProptestConfig {
    ProptestConfig { cases: 450, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn default_rules(program in program(3), fraction in prop_oneof![Just(1.0), Just(0.3)]) {
        run_both("", fraction, &program);
    }

    #[test]
    fn split_limits(
        program in program(2),
        config in prop::sample::select(&[
            "max_split_size_mb:20",
            "max_split_size_mb:21",
            "max_split_size_mb:32,max_non_split_rounding_mb:64",
            "large_segment_size_mb:12,max_split_size_mb:12",
            "large_segment_size_mb:50,max_split_size_mb:64",
        ][..]),
        fraction in prop_oneof![Just(1.0), Just(0.4)],
    ) {
        run_both(config, fraction, &program);
    }

    #[test]
    fn rounding_to_fractions_of_powers_of_two(
        program in program(2),
        config in prop::sample::select(&[
            "roundup_power2_divisions:2",
            "roundup_power2_divisions:8",
            "roundup_power2_divisions:[1:2,4:4,16:8,>:1]",
            "roundup_power2_divisions:[>:4]",
            "roundup_power2_divisions:4,max_split_size_mb:24",
        ][..]),
    ) {
        run_both(config, 0.5, &program);
    }

    #[test]
    fn garbage_collection(
        program in program(3),
        config in prop::sample::select(&[
            "garbage_collection_threshold:0.1",
            "garbage_collection_threshold:0.5",
            "garbage_collection_threshold:0.8",
            "garbage_collection_threshold:0.3,max_split_size_mb:25,roundup_power2_divisions:4",
        ][..]),
        fraction in prop_oneof![Just(1.0), Just(0.999), Just(0.4)],
    ) {
        run_both(config, fraction, &program);
    }

    #[test]
    fn streams_that_wait_for_each_other(program in waiting_program(), fraction in prop_oneof![Just(0.06), Just(0.15)]) {
        run_both("", fraction, &program);
    }
}
