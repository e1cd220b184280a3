//! The figures of a summary: who held the peak, the origins, nested phases, interference, fragmentation, the slow path.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use memtrack::device::{Simulated, Stream};
use memtrack::phase::{EpochSummary, OriginSummary, PhaseSummary};
use memtrack::scope::Scope;
use memtrack::{Buffer, CachingAllocator};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn allocator() -> CachingAllocator {
    CachingAllocator::new(Arc::new(Simulated::with_capacity(1 << 30)))
}

fn take(allocator: &CachingAllocator, mebibytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, mebibytes << 20).unwrap()
}

fn row<'a>(summary: &'a EpochSummary, name: &str) -> &'a PhaseSummary {
    summary.phases.iter().find(|phase| phase.name == name).unwrap()
}

fn origin<'a>(summary: &'a EpochSummary, name: &str) -> &'a OriginSummary {
    summary.origins.iter().find(|origin| origin.phase == name).unwrap()
}

#[test]
fn the_peak_is_held_by_the_phases_that_allocated_what_was_live_then_and_not_later() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let weights = take(&allocator, 10);
    let epoch = memtrack::epoch(1);
    let forward = memtrack::phase("forward");
    let layer = memtrack::scope("layer").unwrap();
    let activations = take(&allocator, 30);
    drop((layer, forward));
    let backward = memtrack::phase("backward");
    let gradients = take(&allocator, 20);
    // The peak is here.
    drop(activations);
    let later = take(&allocator, 25);
    drop(backward);
    let summary = epoch.finish().unwrap();
    assert_eq!(summary.peak_bytes, 60 << 20);
    let by_phase: Vec<_> = summary.peak_by_phase().into_iter().map(|(name, held)| (name, held.bytes / MIB)).collect();
    assert_eq!(by_phase, [("forward", 30), ("backward", 20), ("other", 10)]);
    let holders: Vec<_> =
        summary.peak_holders.iter().map(|holder| (holder.phase, holder.scope, holder.held.bytes / MIB)).collect();
    assert_eq!(
        holders,
        [("forward", Some("layer"), 30), ("backward", Some("backward"), 20), ("other", None, 10)],
        "by the scope that allocated"
    );
    drop((weights, gradients, later));
}

#[test]
fn what_was_reserved_at_the_peak_is_told_although_the_cache_is_emptied_later() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let epoch = memtrack::epoch(1);
    let first = take(&allocator, 30);
    drop(take(&allocator, 50));
    let second = take(&allocator, 60);
    allocator.empty_cache().unwrap();
    drop((first, second));
    allocator.empty_cache().unwrap();
    let summary = epoch.finish().unwrap();
    assert_eq!((summary.peak_bytes, summary.peak_reserved_bytes), (90 << 20, 140 << 20));
    assert_eq!((summary.peak_cached_bytes(), summary.reserved_bytes, summary.fragmentation()), (50 << 20, 0, None));
}

/// Nothing is rounded or cached by the allocator there; what the pool has is what the driver says.
#[test]
fn with_the_drivers_own_pool_the_same_figures_add_up() {
    let device = Arc::new(Simulated::with_capacity(1 << 30));
    let allocator = CachingAllocator::with_config(device, "backend:cudaMallocAsync".parse().unwrap()).unwrap();
    let _current = allocator.make_current();
    let before = Buffer::<u8>::uninit(&allocator, 1000).unwrap();
    let epoch = memtrack::epoch(1);
    let forward = memtrack::phase("forward");
    let activations = take(&allocator, 30);
    drop(forward);
    let backward = memtrack::phase("backward");
    let kept = take(&allocator, 10);
    drop(activations);
    drop(backward);
    let summary = epoch.finish().unwrap();
    check_sums(&summary);
    assert_eq!((summary.peak_bytes, summary.after_bytes), ((40 << 20) + 1000, (10 << 20) + 1000));
    assert_eq!(origin(&summary, "forward").freed_in("backward").bytes, 30 * MIB);
    assert_eq!(summary.live.len(), 2);
    drop((before, kept));
}

#[test]
fn fragmentation_is_what_is_outside_the_largest_hole() {
    let allocator = allocator();
    let epoch = allocator.epoch(1);
    let blocks: Vec<_> = (0..4).map(|index| take(&allocator, [30, 20, 30, 20][index])).collect();
    let mut blocks = blocks.into_iter();
    drop((blocks.next(), blocks.next()));
    let summary = epoch.finish().unwrap();
    assert_eq!((summary.free_bytes(), summary.largest_free_block_bytes), (50 << 20, 30 << 20));
    assert!((summary.fragmentation().unwrap() - 0.4).abs() < 1e-9);
    assert!(summary.to_string().contains("(largest free block 30.00 MiB, fragmentation 40.0 %)"), "{summary}");
}

#[test]
fn eval_inside_train_is_a_row_and_train_shows_itself_with_and_without_it() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let epoch = memtrack::epoch(1);
    let train = memtrack::phase("train");
    let kept = take(&allocator, 4);
    let eval = memtrack::phase("eval");
    let result = take(&allocator, 50);
    // A phase inside itself is counted once.
    let again = memtrack::phase("eval");
    drop(take(&allocator, 7));
    drop((again, eval));
    drop(train);
    let summary = epoch.finish().unwrap();
    let (train, eval) = (row(&summary, "train"), row(&summary, "eval"));
    assert_eq!((train.net_bytes, train.inclusive_net_bytes), (4 << 20, 54 << 20));
    assert_eq!((train.allocation_count, train.inclusive_allocation_count), (1, 3));
    assert_eq!((train.allocated_bytes, train.inclusive_allocated_bytes), (4 * MIB, 61 * MIB));
    assert_eq!((eval.net_bytes, eval.inclusive_net_bytes, eval.entered_count), (50 << 20, 50 << 20, 2));
    assert!(train.has_inner() && !eval.has_inner() && summary.adds_up());
    let line = "  nested    train: +4.00 MiB in 1 allocation by itself, +54.00 MiB in 3 allocations with the phases inside it\n";
    assert!(summary.to_string().contains(line), "{summary}");
    drop((kept, result));
}

#[test]
fn the_origins_show_where_each_phases_blocks_were_freed() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let before = take(&allocator, 3);
    let epoch = memtrack::epoch(1);
    let mut state = Vec::new();
    for _ in 0..2 {
        let forward = memtrack::phase("forward");
        let (first, second) = (take(&allocator, 30), take(&allocator, 5));
        drop(forward);
        let backward = memtrack::phase("backward");
        let gradient = take(&allocator, 20);
        drop(first);
        drop(backward);
        let _optimizer = memtrack::phase("optimizer");
        state.push(take(&allocator, 1));
        drop(gradient);
        state.push(second);
    }
    drop(before);
    let summary = epoch.finish().unwrap();
    let forward = origin(&summary, "forward");
    assert_eq!((forward.allocated.bytes, forward.allocated.block_count), (70 * MIB, 4));
    assert_eq!((forward.freed_in("backward").bytes, forward.freed_in("forward").bytes), (60 * MIB, 0));
    assert_eq!((forward.live.bytes, forward.live.block_count), (10 * MIB, 2));
    assert_eq!(origin(&summary, "backward").freed_in("optimizer").bytes, 40 * MIB);
    assert_eq!(origin(&summary, "optimizer").live.bytes, 2 * MIB);
    let other = origin(&summary, "other");
    assert_eq!((other.before.bytes, other.freed_in("other").bytes, other.live.bytes), (3 * MIB, 3 * MIB, 0));
    let order: Vec<_> = summary.origins.iter().map(|origin| origin.phase).collect();
    assert_eq!(order, ["forward", "backward", "optimizer", "other"]);
}

/// With more phases than the matrix is wide, the rest shares a row and nothing is lost.
#[test]
fn the_origins_of_very_many_phases_still_add_up() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let names: Vec<&'static str> = (0..100).map(|number| &*format!("phase {number}").leak()).collect();
    let epoch = memtrack::epoch(1);
    let mut kept = Vec::new();
    for name in &names {
        let _phase = memtrack::phase(name);
        kept.push(Buffer::<u8>::uninit(&allocator, 512).unwrap());
        drop(Buffer::<u8>::uninit(&allocator, 512).unwrap());
    }
    let summary = epoch.finish().unwrap();
    assert_eq!(summary.phases.len(), 101);
    assert!(row(&summary, "phase 99").net_bytes == 512 && summary.adds_up());
    let further = origin(&summary, "(further phases)");
    assert_eq!((further.allocated.block_count, further.live.block_count), (2 * 38, 38));
    check_sums(&summary);
}

/// What must hold of every summary.
fn check_sums(summary: &EpochSummary) {
    assert!(summary.adds_up(), "{summary}");
    let (mut before, mut live, mut allocated) = (0, 0, 0);
    for origin in &summary.origins {
        let freed: u64 = origin.freed.iter().map(|(_, total)| total.bytes).sum();
        assert_eq!(origin.before.bytes + origin.allocated.bytes, freed + origin.live.bytes, "{summary}");
        let freed: u64 = origin.freed.iter().map(|(_, total)| total.block_count).sum();
        assert_eq!(origin.before.block_count + origin.allocated.block_count, freed + origin.live.block_count);
        before += origin.before.bytes;
        live += origin.live.bytes;
        allocated += origin.allocated.bytes;
    }
    assert_eq!((before as i64, live as i64), (summary.before_bytes, summary.after_bytes), "{summary}");
    assert_eq!(allocated, summary.phases.iter().map(|phase| phase.allocated_bytes).sum::<u64>());
    for origin in summary.origins.iter().filter(|origin| origin.phase != "(further phases)") {
        // A phase that did nothing in the epoch has no row.
        let allocated =
            summary.phases.iter().find(|phase| phase.name == origin.phase).map(|phase| phase.allocated_bytes);
        assert_eq!(origin.allocated.bytes, allocated.unwrap_or(0), "{summary}");
    }
    let held: u64 = summary.peak_holders.iter().map(|holder| holder.held.bytes).sum();
    let by_phase: u64 = summary.peak_by_phase().iter().map(|(_, held)| held.bytes).sum();
    assert_eq!((held as i64, by_phase as i64), (summary.peak_bytes, summary.peak_bytes), "{summary}");
    assert!(summary.peak_reserved_bytes >= summary.peak_active_bytes);
    assert!(summary.peak_active_bytes >= summary.peak_bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn all_sums_add_up_whatever_a_program_does(
        moves in prop::collection::vec((0..8_usize, 0..1000_usize), 1..120)
    ) {
        let allocator = allocator();
        let _current = allocator.make_current();
        let (mut scopes, mut buffers) = (Vec::new(), Vec::new());
        let mut epoch = allocator.epoch(0);
        for (number, (kind, pick)) in moves.into_iter().chain([(6, 0)]).enumerate() {
            match kind {
                0 | 1 => {
                    let name = ["data", "forward", "backward"][pick % 3];
                    scopes.push(Scope::open(&allocator, ["a", "b"][pick % 2], (pick % 5 > 0).then_some(name)));
                }
                2 if !scopes.is_empty() => drop(scopes.swap_remove(pick % scopes.len())),
                3 if !buffers.is_empty() => drop(buffers.swap_remove(pick % buffers.len())),
                6 if pick % 3 == 0 => {
                    let summary = epoch.finish().unwrap();
                    check_sums(&summary);
                    let sites: u64 = summary.live.iter().map(|site| site.size_bytes).sum();
                    assert_eq!(sites as i64, summary.after_bytes, "{summary}");
                    epoch = allocator.epoch(number as u64);
                }
                7 if pick % 10 == 0 => allocator.empty_cache().unwrap(),
                _ => buffers.push(Buffer::<u8>::uninit(&allocator, 1 + pick * 3001).unwrap()),
            }
        }
        drop(epoch);
    }
}

/// Events of threads that meet are logged and entered later; the sums are of one moment all the same.
#[test]
fn sums_add_up_while_other_threads_go_on() {
    let allocator = allocator();
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for thread in 1..4_u64 {
            let (allocator, stop) = (&allocator, &stop);
            threads.spawn(move || {
                let _current = allocator.make_current();
                let mut kept = VecDeque::new();
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    let _phase = memtrack::phase(["data", "forward", "backward"][round % 3]);
                    kept.push_back(Buffer::<u8>::uninit_on(allocator, Stream(thread), 1 + round % 70_000).unwrap());
                    if kept.len() > 20 + round % 50 {
                        kept.pop_front();
                        kept.pop_front();
                    }
                }
            });
        }
        for number in 0..300 {
            let epoch = allocator.epoch(number);
            std::thread::sleep(Duration::from_micros(200));
            check_sums(&epoch.finish().unwrap());
        }
        stop.store(true, Ordering::Relaxed);
    });
    let summary = allocator.epoch(0).finish().unwrap();
    assert_eq!((summary.live.len(), summary.after_bytes), (0, 0));
}

/// The others are done before the phase ends, so the words are exact.
#[test]
fn two_other_threads_that_moved_memory_during_a_phase_are_told_in_words() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let epoch = memtrack::epoch(1);
    let quiet = memtrack::phase("data");
    drop(take(&allocator, 2));
    drop(quiet);
    let forward = memtrack::phase("forward");
    let own = take(&allocator, 8);
    std::thread::scope(|threads| {
        for (stream, mebibytes) in [(1, 22), (2, 9)] {
            let allocator = &allocator;
            threads.spawn(move || {
                std::mem::forget(Buffer::<u8>::uninit_on(allocator, Stream(stream), mebibytes << 20).unwrap());
            });
        }
        // In a scope of the phase, on another thread: that is no interference.
        let handle = memtrack::scope::ScopeHandle::current();
        let allocator = &allocator;
        threads.spawn(move || handle.in_scope(|| drop(take(allocator, 5))));
    });
    drop(forward);
    let summary = epoch.finish().unwrap();
    let forward = row(&summary, "forward");
    assert_eq!((forward.other_thread_count, forward.foreign_bytes), (2, 31 << 20));
    assert_eq!((row(&summary, "data").other_thread_count, row(&summary, "data").foreign_bytes), (0, 0));
    let text = summary.to_string();
    assert!(text.contains("  others    2 other threads moved 31.00 MiB during forward\n"), "{text}");
    assert!(!text.contains("during data"), "{text}");
    drop(own);
}

#[test]
fn a_thread_that_was_busy_before_a_phase_is_not_told_for_it() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let (ask, asked) = mpsc::channel::<usize>();
    let (done, finished) = mpsc::channel();
    let worker = std::thread::spawn({
        let allocator = allocator.clone();
        move || {
            for mebibytes in asked {
                drop(take(&allocator, mebibytes));
                done.send(()).unwrap();
            }
        }
    });
    let work = |mebibytes| {
        ask.send(mebibytes).unwrap();
        finished.recv_timeout(Duration::from_secs(20)).unwrap();
    };
    let epoch = memtrack::epoch(1);
    work(9);
    let forward = memtrack::phase("forward");
    drop(take(&allocator, 1));
    drop(forward);
    work(9);
    let backward = memtrack::phase("backward");
    work(3);
    drop(backward);
    let summary = epoch.finish().unwrap();
    let foreign = |name| (row(&summary, name).other_thread_count, row(&summary, name).foreign_bytes);
    assert_eq!((foreign("forward"), foreign("backward")), ((0, 0), (1, 6 << 20)));
    drop(ask);
    worker.join().unwrap();
}

#[test]
fn time_in_the_slow_path_is_booked_under_the_phase_that_took_it() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let epoch = memtrack::epoch(1);
    {
        let _phase = memtrack::phase("cold");
        drop(take(&allocator, 20));
    }
    {
        let _phase = memtrack::phase("warm");
        (0..100).for_each(|_| drop(take(&allocator, 20)));
    }
    let mut summary = epoch.finish().unwrap();
    assert!(!row(&summary, "cold").slow_path.is_zero());
    assert!(row(&summary, "warm").slow_path.is_zero(), "all were cached");
    summary.phases[0].slow_path = Duration::from_micros(1234);
    let line = "  slow path 1.23 ms in allocations that found no cached block: cold 1.23 ms\n";
    assert!(summary.to_string().contains(line), "{summary}");
}

#[test]
fn percentiles_are_of_the_activations() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let epoch = memtrack::epoch(1);
    for mebibytes in 1..=100 {
        let _phase = memtrack::phase("forward");
        drop(take(&allocator, mebibytes));
    }
    let forward = row(&epoch.finish().unwrap(), "forward").clone();
    let near = |found: i64, mebibytes: i64| {
        let exact = mebibytes << 20;
        assert!(found >= exact && (found - exact) * 64 <= exact, "{found} for {exact}");
    };
    near(forward.rise_median_bytes, 50);
    near(forward.rise_p95_bytes, 95);
    assert_eq!(forward.rise_max_bytes, 100 << 20);
}
