//! `policy:compact` against a plain model: random programs on several streams, with blocks that other streams use, limits, empty caches and
//! a device that fails. The device says what work uses memory that it may not use.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use memtrack::device::{Device, DeviceError, Fault, Operation, PhysicalRange, Simulated, Stream};
use memtrack::{AllocationError, CachingAllocator, Config};

const PAGE: u64 = 2 << 20;
const MIB: u64 = 1 << 20;
const STREAMS: [Stream; 3] = [Stream(0), Stream(7), Stream(8)];

/// SplitMix64: the same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// A block that the program holds.
struct Live {
    address: u64,
    bytes: u64,
    stream: Stream,
    /// Where its bytes are: for as long as it lives they stay there.
    physical: Vec<PhysicalRange>,
}

struct World {
    random: Random,
    device: Arc<Simulated>,
    allocator: CachingAllocator,
    live: Vec<Live>,
    has_faults: bool,
    moved_page_count: u64,
}

impl World {
    fn new(seed: u64, has_faults: bool) -> Self {
        let mut random = Random(seed);
        let pages = 20 + random.below(100);
        let device = Arc::new(Simulated::with_capacity(pages * PAGE));
        let slack = random.pick(&[0.0, 2.0, 10.0, 100.0]);
        let config: Config = format!("policy:compact,compact_slack_percent:{slack}").parse().unwrap();
        let allocator = CachingAllocator::with_config(device.clone(), config).unwrap();
        Self { random, device, allocator, live: Vec::new(), has_faults, moved_page_count: 0 }
    }

    fn a_size(&mut self) -> u64 {
        let most = self.random.pick(&[600, 64 << 10, 1 << 20, 3 << 20, 9 << 20, 30 << 20]);
        1 + self.random.below(most)
    }

    fn allocate(&mut self) {
        let (bytes, stream) = (self.a_size(), self.random.pick(&STREAMS));
        match self.allocator.allocate_raw(bytes, stream) {
            Ok(address) => {
                let bytes = bytes.next_multiple_of(512);
                let physical = self.device.physical_ranges(address, bytes).unwrap();
                self.device.give_work(stream, address, bytes);
                self.live.push(Live { address, bytes, stream, physical });
            }
            Err(AllocationError::OutOfMemory(_)) if !self.has_faults => {
                let needed = bytes.div_ceil(PAGE);
                let free = self.free_page_count() + self.room_page_count();
                assert!(free < needed, "out of memory for {needed} pages, and {free} are free");
            }
            Err(AllocationError::OutOfMemory(_) | AllocationError::Device(_)) if self.has_faults => {}
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Reserved pages without a byte that the program holds.
    fn free_page_count(&self) -> u64 {
        let used: HashSet<u64> = self.live.iter().flat_map(|live| &live.physical).map(|range| range.0).collect();
        self.allocator.memory_reserved() as u64 / PAGE - used.len() as u64
    }

    /// Pages that can be taken from the device still.
    fn room_page_count(&self) -> u64 {
        let limit_bytes = self.allocator.limit_bytes().unwrap_or(u64::MAX);
        let left_bytes = limit_bytes.saturating_sub(self.allocator.memory_reserved() as u64);
        left_bytes.min(self.device.memory().unwrap().free_bytes) / PAGE
    }

    fn free(&mut self) {
        if self.live.is_empty() {
            return;
        }
        let at = self.random.below(self.live.len() as u64) as usize;
        let live = self.live.swap_remove(at);
        if self.random.below(4) == 0 {
            let other = self.random.pick(&STREAMS);
            // As a program does it that lends a block: the other stream comes after what its own was given.
            if let Ok(event) = self.device.record_event(live.stream) {
                self.device.stream_wait_event(other, &event).unwrap();
                self.device.give_work(other, live.address, live.bytes);
                self.allocator.record_stream_raw(live.address, other).unwrap();
            }
        }
        self.allocator.free_raw(live.address).unwrap();
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..46 => self.allocate(),
            46..84 => self.free(),
            84..88 => self.device.set_busy(self.random.pick(&STREAMS)),
            88..91 => self.device.set_idle(self.random.pick(&STREAMS)),
            91..94 => self.device.complete_oldest_events(self.random.below(20) as usize),
            94..96 => {
                if let Some(live) = self.live.first() {
                    self.device.give_work(live.stream, live.address, live.bytes);
                }
            }
            96 => {
                let fraction = self.random.pick(&[0.3, 0.6, 1.0]);
                self.allocator.set_memory_fraction(fraction).unwrap();
            }
            97 => {
                let outcome = self.allocator.empty_cache();
                assert!(outcome.is_ok() || self.has_faults, "{outcome:?}");
            }
            98 => self.allocator.reset_peak_memory_stats(),
            _ if self.has_faults => self.break_the_device(),
            _ => {}
        }
    }

    fn break_the_device(&mut self) {
        let operation = self.random.pick(&[
            Operation::Reserve,
            Operation::Create,
            Operation::Map,
            Operation::Unmap,
            Operation::ReleasePhysical,
            Operation::RecordEvent,
            Operation::QueryEvent,
            Operation::WaitEvent,
            Operation::SynchronizeStream,
        ]);
        let nth = self.random.below(8);
        self.device.clear_faults();
        self.device.inject(match self.random.below(3) {
            0 => Fault::OutOfMemory { operation, nth },
            _ => Fault::Driver { operation, nth },
        });
    }

    /// What holds at any time.
    fn check(&mut self) {
        assert_eq!(self.device.violations(), Vec::<String>::new());
        let mut by_page: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
        for live in &self.live {
            let now = self.device.physical_ranges(live.address, live.bytes);
            assert_eq!(now.as_ref(), Some(&live.physical), "memory of a live block moved");
            for (handle, from, to) in &live.physical {
                by_page.entry(*handle).or_default().push((*from, *to));
            }
        }
        for ranges in by_page.values_mut() {
            ranges.sort_unstable();
            assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "live blocks share bytes: {ranges:?}");
        }
        let stats = self.allocator.memory_stats();
        assert_eq!(stats.allocated_bytes.all.current as u64, self.live.iter().map(|live| live.bytes).sum::<u64>());
        let reserved_bytes = stats.reserved_bytes.all.current as u64;
        let segments = self.allocator.memory_snapshot();
        assert_eq!(segments.iter().map(|segment| segment.total_size).sum::<u64>(), reserved_bytes);
        let pages = self.allocator.compact_stats();
        assert_eq!((pages.created_page_count - pages.released_page_count) * PAGE, reserved_bytes);
        let pools = [&stats.reserved_bytes.small_pool, &stats.reserved_bytes.large_pool];
        assert_eq!(pools.map(|pool| pool.current as u64).iter().sum::<u64>(), reserved_bytes);
        // What the device refused to take back is kept, to be given back later.
        let used_bytes = self.device.used_bytes();
        assert!(if self.has_faults { used_bytes >= reserved_bytes } else { used_bytes == reserved_bytes });
        self.moved_page_count = pages.moved_page_count;
    }

    /// All of it can be given back.
    fn finish(mut self) -> u64 {
        self.device.clear_faults();
        self.device.synchronize().unwrap();
        for live in std::mem::take(&mut self.live) {
            self.allocator.free_raw(live.address).unwrap();
        }
        self.check();
        self.allocator.empty_cache().unwrap();
        assert_eq!((self.allocator.memory_reserved(), self.device.used_bytes()), (0, 0));
        assert_eq!((self.device.mapping_count(), self.device.violations().len()), (0, 0));
        self.moved_page_count
    }
}

fn run(programs: u64, steps: usize, has_faults: bool) {
    let mut moved_page_count = 0;
    for seed in 0..programs {
        let mut world = World::new(seed * 2 + u64::from(has_faults), has_faults);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..steps {
                world.step();
                world.check();
            }
        }));
        if let Err(panic) = outcome {
            println!("program {seed}");
            std::panic::resume_unwind(panic);
        }
        moved_page_count += world.finish();
    }
    assert!(moved_page_count > 10 * programs, "these programs are to move pages: {moved_page_count}");
}

#[test]
fn random_programs_never_share_memory_and_run_out_only_when_no_pages_are_free() {
    run(250, 300, false);
}

#[test]
fn random_programs_on_a_device_that_fails_leave_books_that_agree_with_it() {
    run(250, 300, true);
}

#[test]
fn a_request_takes_the_free_pages_between_live_blocks() {
    let device = Arc::new(Simulated::with_capacity(60 * PAGE));
    let config: Config = "policy:compact".parse().unwrap();
    let allocator = CachingAllocator::with_config(device.clone(), config).unwrap();
    let blocks: Vec<u64> = (0..30).map(|_| allocator.allocate_raw(2 * PAGE, STREAMS[0]).unwrap()).collect();
    for block in blocks.iter().step_by(2) {
        allocator.free_raw(*block).unwrap();
    }
    assert!(matches!(allocator.allocate_raw(31 * PAGE, STREAMS[0]), Err(AllocationError::OutOfMemory(_))));
    let large = allocator.allocate_raw(30 * PAGE, STREAMS[0]).unwrap();
    let pages = allocator.compact_stats();
    assert_eq!((pages.moving_allocation_count, pages.created_page_count, pages.released_page_count), (1, 60, 0));
    assert!((28..=30).contains(&pages.moved_page_count), "{pages:?}");
    assert_eq!(allocator.memory_stats().num_alloc_retries, 0);
    // On another stream, whose work then comes after this one's.
    allocator.free_raw(large).unwrap();
    device.set_busy(STREAMS[0]);
    device.give_work(STREAMS[0], large, 30 * PAGE);
    let other = allocator.allocate_raw(30 * PAGE, STREAMS[1]).unwrap();
    device.give_work(STREAMS[1], other, 30 * PAGE);
    assert_eq!((device.violations(), allocator.compact_stats().wait_count), (Vec::new(), 1));
}

#[test]
fn nothing_moves_and_no_mapping_goes_during_a_capture_and_private_pools_neither_give_nor_take() {
    let device = Arc::new(Simulated::with_capacity(200 * PAGE));
    let config: Config = "policy:compact,compact_slack_percent:0".parse().unwrap();
    let allocator = CachingAllocator::with_config(device.clone(), config).unwrap();
    let scatter = |allocator: &CachingAllocator| -> Vec<u64> {
        let blocks: Vec<u64> = (0..20).map(|_| allocator.allocate_raw(2 * PAGE, STREAMS[0]).unwrap()).collect();
        blocks.iter().step_by(2).for_each(|block| allocator.free_raw(*block).unwrap());
        blocks.into_iter().skip(1).step_by(2).collect()
    };
    let kept = scatter(&allocator);
    let pool = allocator.create_pool(Default::default());
    let capture = pool.begin_capture(STREAMS[1]).unwrap();
    let _large = allocator.allocate_raw(15 * PAGE, STREAMS[0]).unwrap();
    let during = allocator.compact_stats();
    assert_eq!((during.moved_page_count, during.unmapped_count, during.created_page_count), (0, 0, 55));
    drop(capture);

    let guard = pool.enter().unwrap();
    let private = scatter(&allocator);
    assert_eq!(allocator.memory_reserved() as u64, (55 + 40) * PAGE, "a private pool takes no spare pages");
    drop(guard);
    let before = allocator.compact_stats();
    let _larger = allocator.allocate_raw(30 * PAGE, STREAMS[0]).unwrap();
    let after = allocator.compact_stats();
    assert!(after.moved_page_count > 0, "{after:?}");
    assert_eq!(pool.memory_snapshot().iter().map(|segment| segment.total_size).sum::<u64>(), 40 * PAGE);
    assert!(after.created_page_count > before.created_page_count, "and gives none");
    for block in kept.into_iter().chain(private) {
        allocator.free_raw(block).unwrap();
    }
}

#[test]
fn a_device_whose_pages_do_not_fit_is_used_as_pytorch_does() {
    for granularity_bytes in [None, Some(3 * MIB)] {
        let device = Arc::new(Simulated::builder().granularity_bytes(granularity_bytes).build());
        let config: Config = "policy:compact".parse().unwrap();
        let allocator = CachingAllocator::with_config(device.clone(), config).unwrap();
        let block = allocator.allocate_raw(5 * MIB, STREAMS[0]).unwrap();
        assert_eq!((device.segments().len(), allocator.memory_reserved() as u64), (1, 20 * MIB));
        allocator.free_raw(block).unwrap();
    }
}

#[test]
fn a_failure_of_the_device_comes_out_and_the_next_request_is_served() {
    for operation in [Operation::Reserve, Operation::Create, Operation::Map] {
        let device = Arc::new(Simulated::with_capacity(60 * PAGE));
        let config: Config = "policy:compact".parse().unwrap();
        let allocator = CachingAllocator::with_config(device.clone(), config).unwrap();
        // The second for addresses, which are asked for twice: many, then fewer.
        device.inject(Fault::Driver { operation, nth: 0 });
        device.inject(Fault::Driver { operation, nth: 1 });
        let outcome = allocator.allocate_raw(5 * PAGE, STREAMS[0]);
        assert!(matches!(outcome, Err(AllocationError::Device(DeviceError::Driver { .. }))), "{outcome:?}");
        device.clear_faults();
        let block = allocator.allocate_raw(5 * PAGE, STREAMS[0]).unwrap();
        assert_eq!(device.used_bytes(), 5 * PAGE);
        allocator.free_raw(block).unwrap();
        allocator.empty_cache().unwrap();
        assert_eq!((device.used_bytes(), device.mapping_count()), (0, 0));
    }
}

#[test]
fn threads_on_streams_of_their_own_give_pages_to_each_other() {
    let device = Arc::new(Simulated::with_capacity(120 * PAGE));
    let config: Config = "policy:compact,compact_slack_percent:0".parse().unwrap();
    let allocator = CachingAllocator::with_config(device.clone(), config).unwrap();
    std::thread::scope(|scope| {
        for number in 0..4_u64 {
            let (allocator, device) = (&allocator, &device);
            scope.spawn(move || {
                let mut random = Random(number);
                let stream = Stream(number % 3);
                let mut held: Vec<u64> = Vec::new();
                for turn in 0..400_u64 {
                    match allocator.allocate_raw(1 + random.below(5 * PAGE), stream) {
                        Ok(address) => {
                            device.give_work(stream, address, 512);
                            held.push(address);
                        }
                        Err(AllocationError::OutOfMemory(_)) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                    if held.len() > 5 || random.below(2) == 0 {
                        let at = random.below(held.len().max(1) as u64) as usize;
                        if at < held.len() {
                            let address = held.swap_remove(at);
                            if random.below(5) == 0 {
                                allocator.record_stream_raw(address, Stream(50)).unwrap();
                            }
                            allocator.free_raw(address).unwrap();
                        }
                    }
                    if turn % 100 == number {
                        allocator.empty_cache().unwrap();
                    }
                }
                held.into_iter().for_each(|address| allocator.free_raw(address).unwrap());
            });
        }
    });
    assert!(allocator.compact_stats().moved_page_count > 0);
    assert_eq!(device.violations(), Vec::<String>::new());
    allocator.empty_cache().unwrap();
    assert_eq!((allocator.memory_reserved(), device.used_bytes(), device.mapping_count()), (0, 0, 0));
}
