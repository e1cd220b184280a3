//! The pinned allocator against a plain one written from the rules, on random programs: every statistic, every choice of a
//! block, and the contents of every buffer.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use memtrack::device::{Simulated, Stream};
use memtrack::pinned::PinnedConfig;
use memtrack::{PinnedAllocator, PinnedBuffer};
use proptest::collection::vec;
use proptest::prelude::*;

const STREAMS: u64 = 3;
const RESERVE_BYTES: u64 = 64 << 10;

#[derive(Debug, Clone)]
enum Step {
    Allocate(usize),
    /// Which of the buffers held, modulo their number; likewise below.
    Free(usize),
    Use(usize, u64),
    Busy(u64),
    Idle(u64),
    EmptyCache,
    ResetPeak,
    ResetAccumulated,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![Just(0_usize), 1..40_usize, 500..5000_usize, 60_000..70_000_usize];
    let step = prop_oneof![
        8 => size.prop_map(Step::Allocate),
        6 => any::<usize>().prop_map(Step::Free),
        4 => (any::<usize>(), 0..STREAMS).prop_map(|(index, stream)| Step::Use(index, stream)),
        2 => (0..STREAMS).prop_map(Step::Busy),
        2 => (0..STREAMS).prop_map(Step::Idle),
        1 => Just(Step::EmptyCache),
        1 => Just(Step::ResetPeak),
        1 => Just(Step::ResetAccumulated),
    ];
    vec(step, 1..120)
}

#[derive(Default, Clone, Copy)]
struct Count {
    current: i64,
    peak: i64,
    allocated: i64,
    freed: i64,
}

impl Count {
    fn change(&mut self, amount: i64) {
        self.current += amount;
        self.peak = self.peak.max(self.current);
        if amount > 0 { self.allocated += amount } else { self.freed -= amount }
    }
}

/// A stream, and whether its work up to the free is done.
type End = (u64, bool);

/// The rules, as plainly as they can be written.
#[derive(Default)]
struct Model {
    /// By size, the last freed last.
    cached: BTreeMap<u64, Vec<u64>>,
    /// Address and size of a freed block, and the ends of its uses; the oldest first.
    waiting: VecDeque<(u64, u64, Vec<End>)>,
    busy: [bool; STREAMS as usize],
    /// Allocations, allocated bytes, active requests, active bytes.
    counts: [Count; 4],
    taken: i64,
    given_back: i64,
}

impl Model {
    fn lock(&mut self, pieces: i64, bytes: u64) {
        self.counts[0].change(pieces);
        self.counts[1].change(pieces * bytes as i64);
        if pieces > 0 { self.taken += 1 } else { self.given_back += 1 }
    }

    fn activate(&mut self, blocks: i64, size: u64) {
        self.counts[2].change(blocks);
        self.counts[3].change(blocks * size as i64);
    }

    fn poll(&mut self) {
        while self.waiting.front().is_some_and(|(_, _, ends)| ends.iter().all(|(_, is_done)| *is_done)) {
            let (address, size, _) = self.waiting.pop_front().unwrap();
            self.activate(-1, size);
            self.cached.entry(size).or_default().push(address);
        }
    }

    /// The cached block that must be reused, if there is one.
    fn allocate(&mut self, size: u64) -> Option<u64> {
        self.poll();
        let reused = self.cached.get_mut(&size).and_then(Vec::pop);
        self.activate(1, size);
        reused
    }

    fn free(&mut self, address: u64, size: u64, streams: &[u64]) {
        if streams.is_empty() {
            self.activate(-1, size);
            self.cached.entry(size).or_default().push(address);
        } else {
            let ends = streams.iter().map(|stream| (*stream, !self.busy[*stream as usize])).collect();
            self.waiting.push_back((address, size, ends));
        }
    }

    fn set_idle(&mut self, stream: u64) {
        self.busy[stream as usize] = false;
        for (of, is_done) in self.waiting.iter_mut().flat_map(|(_, _, ends)| ends) {
            *is_done |= *of == stream;
        }
    }
}

struct Held {
    buffer: PinnedBuffer<u8>,
    streams: Vec<u64>,
    seed: u8,
}

fn fill(held: &mut Held) {
    // The bytes are written where no stream is said to use them; which stream is busy makes a borrow wait.
    let seed = held.seed;
    for (index, byte) in held.buffer.as_mut_slice().unwrap().iter_mut().enumerate() {
        *byte = seed.wrapping_add(index as u8);
    }
}

fn check(address: u64, len: usize, seed: u8) {
    // Read behind the buffer's back: a borrow would wait for the streams that the program keeps busy.
    let bytes = std::ptr::with_exposed_provenance::<u8>(address as usize);
    for index in 0..len {
        // SAFETY: within a live buffer's memory, which no stream of a simulated device writes.
        assert_eq!(unsafe { bytes.add(index).read() }, seed.wrapping_add(index as u8), "byte {index} of {len}");
    }
}

fn run(steps: &[Step], with_reserve: bool, use_host_register: bool) {
    let device = Arc::new(Simulated::new());
    let mut config = PinnedConfig::default();
    config.reserve_segment_bytes = with_reserve.then_some(RESERVE_BYTES);
    config.use_host_register = use_host_register;
    let allocator = PinnedAllocator::with_config(device.clone(), config).unwrap();
    let mut model = Model::default();
    let mut held: Vec<Held> = Vec::new();
    let mut reserve = None;
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Allocate(len) => {
                let locked_before = device.pinned();
                let buffer = PinnedBuffer::<u8>::uninit(&allocator, *len).unwrap();
                let mut new = Held { buffer, streams: Vec::new(), seed: number as u8 };
                fill(&mut new);
                if *len > 0 {
                    let size = (*len as u64).next_power_of_two();
                    let (address, reused) = (new.buffer.address(), model.allocate(size));
                    assert_eq!(new.buffer.allocated_bytes(), size);
                    match reused {
                        Some(expected) => assert_eq!(address, expected, "the block of {size} freed last"),
                        None => {
                            let locked = device.pinned();
                            if with_reserve && reserve.is_none() {
                                reserve = locked.iter().find(|(_, bytes)| *bytes == RESERVE_BYTES).copied();
                                assert!(reserve.is_some(), "taken at the first need");
                                model.lock(1, RESERVE_BYTES);
                            }
                            let is_cut =
                                reserve.is_some_and(|(start, bytes)| (start..start + bytes).contains(&address));
                            if !is_cut {
                                model.lock(1, size);
                                assert!(locked.iter().any(|(start, _)| *start == address));
                                assert!(!locked_before.iter().any(|(start, _)| *start == address));
                            }
                        }
                    }
                }
                held.push(new);
            }
            Step::Free(index) if !held.is_empty() => {
                let Held { buffer, streams, seed } = held.swap_remove(index % held.len());
                check(buffer.address(), buffer.len(), seed);
                if !buffer.is_empty() {
                    model.free(buffer.address(), buffer.allocated_bytes(), &streams);
                }
            }
            Step::Use(index, stream) if !held.is_empty() => {
                let index = index % held.len();
                let held = &mut held[index];
                held.buffer.record_stream(Stream(*stream)).unwrap();
                if !held.streams.contains(stream) {
                    held.streams.push(*stream);
                }
            }
            Step::Busy(stream) => {
                device.set_busy(Stream(*stream));
                model.busy[*stream as usize] = true;
            }
            Step::Idle(stream) => {
                device.set_idle(Stream(*stream));
                model.set_idle(*stream);
            }
            Step::EmptyCache => {
                allocator.empty_cache().unwrap();
                model.poll();
                for (size, addresses) in std::mem::take(&mut model.cached) {
                    for address in addresses {
                        let is_cut = reserve.is_some_and(|(start, bytes)| (start..start + bytes).contains(&address));
                        if !is_cut {
                            model.lock(-1, size);
                        }
                    }
                }
            }
            Step::ResetPeak => {
                allocator.reset_peak_host_memory_stats();
                model.counts.iter_mut().for_each(|count| count.peak = count.current);
            }
            Step::ResetAccumulated => {
                allocator.reset_accumulated_host_memory_stats();
                model.counts.iter_mut().for_each(|count| (count.allocated, count.freed) = (0, 0));
            }
            Step::Free(_) | Step::Use(..) => {}
        }
        let stats = allocator.host_memory_stats();
        let counts = [stats.allocations, stats.allocated_bytes, stats.active_requests, stats.active_bytes];
        for (which, (found, expected)) in counts.iter().zip(&model.counts).enumerate() {
            let Count { current, peak, allocated, freed } = *expected;
            let found = (found.current, found.peak, found.allocated, found.freed);
            assert_eq!(found, (current, peak, allocated, freed), "count {which} after step {number}, {step:?}");
        }
        assert_eq!((stats.num_host_alloc, stats.num_host_free), (model.taken, model.given_back), "step {number}");
        assert_eq!(device.pinned().len() as i64, model.counts[0].current, "what the device has");
        let mut ranges: Vec<_> = held
            .iter()
            .filter(|held| !held.buffer.is_empty())
            .map(|held| (held.buffer.address(), held.buffer.allocated_bytes()))
            .collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "two buffers overlap: {ranges:?}");
    }
    for Held { buffer, seed, .. } in &held {
        check(buffer.address(), buffer.len(), *seed);
    }
    drop(allocator);
    drop(held);
    assert_eq!(device.pinned(), [], "with the last handle and the last buffer everything is given back");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_allocator_does_what_the_rules_say(
        steps in steps(), with_reserve in any::<bool>(), use_host_register in any::<bool>(),
    ) {
        run(&steps, with_reserve, use_host_register);
    }
}
