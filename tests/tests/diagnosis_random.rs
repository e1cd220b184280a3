//! Whatever a program did before: an out of memory has a cause that is found, and the figures fit together.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::atomic::{AtomicUsize, Ordering};

use memtrack::device::{Device, Stream};
use memtrack::diagnosis::{Finding, FindingCode, Severity};
use memtrack::{AllocationError, Capture, MemoryPool, OutOfMemory, PoolGuard, PoolOptions};
use memtrack_tests::scenarios::{MIB, Scenario};

/// Xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn entry(finding: &Finding, name: &str) -> u64 {
    let entries = finding.numbers.entries();
    let found = entries.iter().find(|(entry, _)| *entry == name).unwrap_or_else(|| panic!("no {name} in {finding:#?}"));
    u64::try_from(found.1.unwrap()).unwrap()
}

fn check(error: &OutOfMemory, seed: u64) {
    let findings = error.findings();
    let said = || format!("seed {seed}: {error:#}\n{error:#?}");
    assert!(findings.iter().any(|finding| finding.severity == Severity::Cause), "no cause, {}", said());
    let has = |code| findings.iter().find(|finding| finding.code() == code);
    for finding in findings {
        assert!(!finding.advice.is_empty(), "{}", said());
        let advice = finding.advice.join(" ");
        assert!(!(error_is_expandable(finding) && advice.contains("expandable_segments:True")), "{}", said());
    }
    if let Some(capacity) = has(FindingCode::LiveMemoryTooLarge) {
        let [cached, room, short] = ["cached_bytes", "room_bytes", "short_bytes"].map(|name| entry(capacity, name));
        assert_eq!(cached + room + short, error.rounded_bytes, "{}", said());
        assert!(has(FindingCode::Fragmentation).is_none(), "{}", said());
    }
    if let Some(fragmentation) = has(FindingCode::Fragmentation) {
        let names = ["unused_inside_bytes", "room_bytes", "largest_hole_bytes", "short_bytes"];
        let [inside, room, hole, short] = names.map(|name| entry(fragmentation, name));
        assert!(inside + room >= error.rounded_bytes, "{}", said());
        assert_eq!(hole.max(room) + short, error.rounded_bytes, "{}", said());
        assert_eq!(hole, error.largest_usable_block_bytes, "{}", said());
    }
}

fn error_is_expandable(finding: &Finding) -> bool {
    finding.numbers.entries().contains(&("expandable_segments", Some(1)))
}

/// A program of a few hundred steps on a small device; how often memory ran out.
fn run(seed: u64, emptied_count: &AtomicUsize) -> usize {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let settings = ["", "", "expandable_segments:True", "max_split_size_mb:40", "garbage_collection_threshold:0.7"];
    let settings = settings[random.below(settings.len() as u64) as usize];
    let scenario = Scenario::with_outside(200 + random.below(800), random.below(150), settings);
    if random.below(3) == 0 {
        scenario.allocator.set_memory_fraction(0.3 + 0.1 * random.below(7) as f64).unwrap();
    }
    let stream_count = 1 + random.below(3);
    let (mut held, mut failures) = (Vec::new(), 0);
    let pools: Vec<MemoryPool> =
        (0..random.below(3)).map(|_| scenario.allocator.create_pool(PoolOptions::default())).collect();
    let (mut guard, mut capture): (Option<PoolGuard>, Option<Capture>) = (None, None);
    for _ in 0..300 {
        if !pools.is_empty() && random.below(20) == 0 {
            drop((guard.take(), capture.take()));
            scenario.device.set_capture(Stream::DEFAULT, None);
            let pool = &pools[random.below(pools.len() as u64) as usize];
            match random.below(4) {
                0 => guard = Some(pool.enter().unwrap()),
                1 => {
                    capture = Some(pool.begin_capture(Stream::DEFAULT).unwrap());
                    scenario.device.set_capture(Stream::DEFAULT, Some(1));
                }
                _ => {}
            }
        }
        let stream = Stream(random.below(stream_count));
        if held.is_empty() || random.below(100) < 55 {
            let bytes = match random.below(4) {
                0 => 1 + random.below(MIB),
                1 => MIB + random.below(9 * MIB),
                2 => 10 * MIB + random.below(100 * MIB),
                _ => 1 + random.below(400) * MIB,
            };
            match scenario.allocator.allocate_raw(bytes, stream) {
                Ok(address) => held.push(address),
                Err(AllocationError::OutOfMemory(error)) => {
                    failures += 1;
                    check(&error, seed);
                    if random.below(2) == 0 {
                        let at = random.below(held.len().max(1) as u64) as usize;
                        let end = held.len().min(at + 3);
                        scenario.free(held.drain(at.min(end)..end));
                    }
                }
                Err(error) => panic!("{error}"),
            }
        } else {
            let at = random.below(held.len() as u64) as usize;
            let address = held.swap_remove(at);
            if random.below(4) == 0 {
                scenario.allocator.record_stream_raw(address, Stream(random.below(3))).unwrap();
            }
            scenario.free([address]);
        }
    }
    let view = scenario.allocator.memory_view();
    let blocks = || view.segments.iter().flat_map(|segment| &segment.blocks);
    let live: u64 = blocks().filter(|block| block.group.is_some()).map(|block| block.size_bytes).sum();
    assert_eq!(live, view.allocated_bytes, "seed {seed}");
    assert_eq!(view.live.iter().map(|group| group.size_bytes).sum::<u64>(), live, "seed {seed}");
    assert_eq!(blocks().map(|block| block.size_bytes).sum::<u64>(), view.reserved_bytes, "seed {seed}");
    assert_eq!(view.device_free_bytes, scenario.device.memory().ok().map(|memory| memory.free_bytes), "seed {seed}");
    for finding in scenario.allocator.diagnose() {
        assert_ne!(finding.severity, Severity::Cause, "seed {seed}: {finding}");
    }
    // Nothing waits for another stream any more, so that what emptying the cache gives back is known before.
    scenario.device.synchronize().unwrap();
    let _ = scenario.allocator.allocate_raw(1, Stream::DEFAULT);
    let view = scenario.allocator.memory_view();
    if view.pending_bytes() == 0 {
        scenario.allocator.empty_cache().unwrap();
        let left_bytes = scenario.allocator.memory_view().reserved_bytes;
        assert_eq!(view.reserved_bytes - left_bytes, view.returnable_bytes(), "seed {seed}");
        emptied_count.fetch_add(1, Ordering::Relaxed);
    }
    failures
}

#[test]
fn every_out_of_memory_of_random_programs_has_a_cause_whose_figures_add_up() {
    let emptied_count = AtomicUsize::new(0);
    let failures: usize = (1..=1500).map(|seed| run(seed, &emptied_count)).sum();
    assert!(failures > 15_000, "{failures} are too few to say much");
    assert!(emptied_count.into_inner() > 750);
}
