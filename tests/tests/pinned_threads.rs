//! The pinned allocator under several threads: no block is handed out twice, no contents are lost, and at the end nothing is
//! left, whatever the streams do meanwhile.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use memtrack::device::{Simulated, Stream};
use memtrack::pinned::PinnedConfig;
use memtrack::{PinnedAllocator, PinnedBuffer};
use proptest::prelude::*;

const STREAMS: u64 = 3;

/// Which memory is whose, kept beside the allocator: a block that two hold at once shows here.
#[derive(Default)]
struct Owned(Mutex<BTreeMap<u64, u64>>);

impl Owned {
    fn add(&self, buffer: &PinnedBuffer<u32>) {
        let (address, bytes) = (buffer.address(), buffer.allocated_bytes());
        let mut owned = self.0.lock().unwrap();
        let before = owned.range(..address + bytes).next_back();
        assert!(before.is_none_or(|(start, length)| start + length <= address), "{address:#x} is somebody's already");
        owned.insert(address, bytes);
    }

    fn remove(&self, buffer: &PinnedBuffer<u32>) {
        assert_eq!(self.0.lock().unwrap().remove(&buffer.address()), Some(buffer.allocated_bytes()));
    }
}

/// A small generator, so that a failing seed is all that is needed to see it again.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn work(allocator: &PinnedAllocator, device: &Simulated, owned: &Owned, mut random: Random, steps: usize) {
    let mut held: Vec<(PinnedBuffer<u32>, u32)> = Vec::new();
    for _ in 0..steps {
        match random.below(10) {
            0..=3 => {
                let len = 1 << random.below(12);
                let mut buffer = PinnedBuffer::<u32>::uninit(allocator, len).unwrap();
                owned.add(&buffer);
                let mark = random.below(u64::from(u32::MAX)) as u32;
                buffer.as_mut_slice().unwrap().fill(mark);
                held.push((buffer, mark));
            }
            4..=6 if !held.is_empty() => {
                let (buffer, mark) = held.swap_remove(random.below(held.len() as u64) as usize);
                assert!(buffer.as_slice().unwrap().iter().all(|element| *element == mark), "contents are kept");
                if random.below(2) == 0 {
                    buffer.record_stream(Stream(random.below(STREAMS))).unwrap();
                }
                owned.remove(&buffer);
            }
            7 => device.set_busy(Stream(random.below(STREAMS))),
            8 => device.set_idle(Stream(random.below(STREAMS))),
            9 if random.below(10) == 0 => allocator.empty_cache().unwrap(),
            _ => {}
        }
    }
    for (buffer, mark) in held {
        assert!(buffer.as_slice().unwrap().iter().all(|element| *element == mark), "contents are kept");
        owned.remove(&buffer);
    }
}

fn run(seed: u64, threads: u64, configure: impl FnOnce(&mut PinnedConfig)) {
    let device = Arc::new(Simulated::new());
    let mut config = PinnedConfig::default();
    configure(&mut config);
    let allocator = PinnedAllocator::with_config(device.clone(), config).unwrap();
    let owned = Owned::default();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (allocator, device, owned) = (&allocator, &device, &owned);
            scope.spawn(move || work(allocator, device, owned, Random(seed ^ thread << 48), 400));
        }
    });
    for stream in 0..STREAMS {
        device.set_idle(Stream(stream));
    }
    // Where a thread looks after streams, it may be just about to.
    let started = Instant::now();
    while allocator.host_memory_stats().active_requests.current > 0 && started.elapsed() < Duration::from_secs(10) {
        allocator.empty_cache().unwrap();
    }
    let stats = allocator.host_memory_stats();
    assert_eq!((stats.active_requests.current, stats.active_bytes.current), (0, 0));
    assert_eq!(stats.active_requests.allocated, stats.active_requests.freed);
    allocator.empty_cache().unwrap();
    let locked: u64 = device.pinned().iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(allocator.host_memory_stats().allocated_bytes.current, locked as i64);
    drop(allocator);
    assert_eq!(device.pinned(), []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_block_has_two_owners_and_contents_are_kept(seed in any::<u64>(), threads in 1..=4_u64) {
        run(seed, threads, |_| {});
        run(seed, threads, |config| config.use_background_thread = true);
        run(seed, threads, |config| config.reserve_segment_bytes = Some(1 << 20));
    }
}

#[test]
fn the_last_buffer_may_go_on_another_thread_than_the_last_handle() {
    let device = Arc::new(Simulated::new());
    for round in 0..50 {
        let mut config = PinnedConfig::default();
        config.use_background_thread = round % 2 == 0;
        config.reserve_segment_bytes = (round % 3 == 0).then_some(1 << 20);
        let allocator = PinnedAllocator::with_config(device.clone(), config).unwrap();
        let buffers: Vec<_> = (0..8).map(|_| PinnedBuffer::<u8>::zeros(&allocator, 5000).unwrap()).collect();
        let go = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for buffer in buffers {
                let go = &go;
                scope.spawn(move || {
                    buffer.record_stream(Stream(1)).unwrap();
                    while !go.load(Ordering::Acquire) {
                        std::hint::spin_loop();
                    }
                    drop(buffer);
                });
            }
            scope.spawn(|| {
                go.store(true, Ordering::Release);
                drop(allocator);
            });
        });
        assert_eq!(device.pinned(), [], "round {round}");
    }
}
