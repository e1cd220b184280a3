//! Phases, steps and epochs: what is booked where, and that the rows add up.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;

use memtrack::device::{Simulated, Stream};
use memtrack::phase::{EpochSummary, Phase, PhaseSummary, Step};
use memtrack::{Buffer, CachingAllocator};
use proptest::prelude::*;

const MIB: i64 = 1 << 20;

/// A gigabyte.
fn allocator() -> CachingAllocator {
    CachingAllocator::new(Arc::new(Simulated::with_capacity(1 << 30)))
}

/// So many MiB.
fn take(allocator: &CachingAllocator, mebibytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, mebibytes << 20).unwrap()
}

fn row<'a>(summary: &'a EpochSummary, name: &str) -> &'a PhaseSummary {
    summary.phases.iter().find(|phase| phase.name == name).unwrap()
}

fn names(summary: &EpochSummary) -> Vec<&'static str> {
    summary.phases.iter().map(|phase| phase.name).collect()
}

#[test]
fn bytes_belong_to_the_phase_of_the_thread_that_moves_them() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let weights = take(&allocator, 10);
    let epoch = memtrack::epoch(1);
    let forward = memtrack::phase("forward");
    let activations = take(&allocator, 30);
    drop(forward);
    let backward = memtrack::phase("backward");
    let gradients = take(&allocator, 20);
    drop(activations);
    drop(backward);
    let unmarked = take(&allocator, 2);
    let summary = epoch.finish().unwrap();
    assert_eq!(names(&summary), ["forward", "backward", "other"]);
    let nets: Vec<i64> = summary.phases.iter().map(|phase| phase.net_bytes / MIB).collect();
    assert_eq!(nets, [30, 20 - 30, 2]);
    assert_eq!((summary.before_bytes, summary.after_bytes, summary.net_bytes()), (10 * MIB, 32 * MIB, 22 * MIB));
    assert!(summary.adds_up());
    assert_eq!((summary.peak_bytes, summary.peak_phase, summary.peak_step), (60 * MIB, "backward", None));
    let backward = row(&summary, "backward");
    assert_eq!((backward.peak_bytes, backward.rise_max_bytes), (60 * MIB, 20 * MIB));
    assert_eq!((backward.allocation_count, backward.free_count, backward.allocated_bytes), (1, 1, 20 << 20));
    let other = row(&summary, "other");
    assert_eq!((other.entered_count, other.peak_bytes), (0, 40 * MIB), "between the phases");
    drop((weights, gradients, unmarked));
}

#[test]
fn of_nested_phases_the_innermost_counts_and_the_outer_sees_the_peak() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let epoch = memtrack::epoch(1);
    let train = memtrack::phase("train");
    let kept = take(&allocator, 4);
    let eval = memtrack::phase("eval");
    let inner = memtrack::scope("plain function").unwrap();
    drop(take(&allocator, 50));
    drop(inner);
    let record = eval.finish().unwrap();
    assert_eq!((record.phase, record.peak_delta_bytes()), (Some("eval"), 50 * MIB));
    let record = train.finish().unwrap();
    assert_eq!((record.phase, record.peak_bytes), (Some("train"), 54 * MIB));
    let summary = epoch.finish().unwrap();
    let (train, eval) = (row(&summary, "train"), row(&summary, "eval"));
    assert_eq!((train.allocation_count, train.net_bytes, train.peak_bytes), (1, 4 * MIB, 54 * MIB));
    assert_eq!((eval.allocation_count, eval.net_bytes, eval.peak_bytes), (1, 0, 54 * MIB));
    assert_eq!(summary.peak_phase, "eval");
    assert!(summary.adds_up());
    drop(kept);
}

#[test]
fn a_phase_entered_again_and_again_has_its_median_and_highest_rise() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let epoch = memtrack::epoch(1);
    for mebibytes in [20, 40, 10, 30, 50] {
        let _phase = memtrack::phase("forward");
        drop(take(&allocator, mebibytes));
    }
    let summary = epoch.finish().unwrap();
    let forward = row(&summary, "forward");
    assert_eq!((forward.entered_count, forward.rise_median_bytes, forward.rise_max_bytes), (5, 30 * MIB, 50 * MIB));
    assert_eq!((forward.device_allocation_count, forward.hit_rate()), (3, Some(0.4)), "10 and 30 MiB were cached");
}

#[test]
fn a_phase_may_be_open_when_an_epoch_begins_and_ends() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let phase = memtrack::phase("forward");
    // Before the epoch, so neither its bytes nor its peak count there.
    drop(take(&allocator, 100));
    let before = take(&allocator, 8);
    let first = allocator.epoch(1);
    let kept = take(&allocator, 2);
    let summary = first.finish().unwrap();
    let forward = row(&summary, "forward");
    assert_eq!((forward.entered_count, forward.net_bytes, forward.peak_bytes), (0, 2 * MIB, 10 * MIB));
    assert_eq!(row(&summary, "other").allocation_count, 0);
    let second = allocator.epoch(2);
    drop(kept);
    drop(phase);
    let summary = second.finish().unwrap();
    let forward = row(&summary, "forward");
    assert_eq!((forward.net_bytes, forward.peak_bytes, forward.free_count), (-2 * MIB, 10 * MIB, 1));
    assert_eq!((row(&summary, "other").peak_bytes, summary.previous), (8 * MIB, Some((1, 10 * MIB))));
    assert!(summary.adds_up());
    drop(before);
}

#[test]
fn epochs_may_overlap_and_end_in_any_order() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let first = allocator.epoch(1);
    let one = {
        let _step = memtrack::step(1);
        let _phase = memtrack::phase("train");
        take(&allocator, 10)
    };
    let second = allocator.epoch(2);
    let two = {
        let _step = memtrack::step(2);
        let _phase = memtrack::phase("eval");
        take(&allocator, 20)
    };
    let first = first.finish().unwrap();
    drop(one);
    let second = second.finish().unwrap();
    assert_eq!((first.step_count, first.net_bytes(), first.peak_step), (2, 30 * MIB, Some(2)));
    assert_eq!((second.step_count, second.net_bytes(), second.peak_step), (1, 10 * MIB, Some(2)));
    assert_eq!(names(&first), ["train", "eval", "other"]);
    assert_eq!(names(&second), ["eval", "other"]);
    assert_eq!((second.before_bytes, row(&second, "other").net_bytes), (10 * MIB, -10 * MIB));
    assert_eq!((first.previous, second.previous), (None, Some((1, 30 * MIB))));
    drop(two);
}

#[test]
fn the_step_that_held_the_peak_is_named() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let epoch = memtrack::epoch(7);
    for (number, mebibytes) in [(10, 20), (11, 60), (12, 60), (13, 5)] {
        let step = memtrack::step(number);
        drop(take(&allocator, mebibytes));
        let record = step.finish().unwrap();
        assert_eq!(record.peak_delta_bytes(), mebibytes as i64 * MIB);
    }
    drop(take(&allocator, 30));
    let summary = epoch.finish().unwrap();
    assert_eq!((summary.number, summary.step_count, summary.peak_step), (7, 4, Some(11)));
}

#[test]
fn retries_and_refusals_are_booked_under_the_phase_that_met_them() {
    let allocator = allocator();
    allocator.set_memory_fraction(0.1).unwrap();
    let _current = allocator.make_current();
    let epoch = memtrack::epoch(1);
    drop(take(&allocator, 60));
    {
        let _phase = memtrack::phase("forward");
        drop(Buffer::<u8>::uninit_on(&allocator, Stream(1), 50 << 20).unwrap());
    }
    {
        let _phase = memtrack::phase("backward");
        Buffer::<u8>::uninit(&allocator, 200 << 20).unwrap_err();
    }
    let summary = epoch.finish().unwrap();
    let counted = |name| (row(&summary, name).retry_count, row(&summary, name).oom_count);
    assert_eq!((counted("forward"), counted("backward"), counted("other")), ((1, 0), (1, 1), (0, 0)));
    assert_eq!((summary.retry_count, summary.oom_count), (2, 1));
    assert_eq!(row(&summary, "backward").hit_rate(), None, "nothing was served");
    assert_eq!(summary.limit_bytes, allocator.limit_bytes().unwrap());
    assert_eq!(
        (summary.reserved_bytes, summary.largest_free_block_bytes),
        (0, 0),
        "the second retry emptied the cache"
    );
}

#[test]
fn other_threads_are_booked_under_their_own_phases_and_all_of_it_adds_up() {
    let allocator = allocator();
    let epoch = allocator.epoch(1);
    std::thread::scope(|threads| {
        for (thread, name) in ["data", "forward", "backward", "eval"].into_iter().enumerate() {
            let allocator = &allocator;
            threads.spawn(move || {
                let _current = allocator.make_current();
                let mut kept = Vec::new();
                for round in 0..200 {
                    let _phase = (round % 4 != 0).then(|| memtrack::phase(name));
                    kept.push(Buffer::<u8>::uninit_on(allocator, Stream(thread as u64), 1 + round * 977).unwrap());
                    if round % 3 == 0 {
                        kept.swap_remove(round % kept.len());
                    }
                }
                // The rest goes outside all phases.
                kept.truncate(10);
                std::mem::forget(kept);
            });
        }
    });
    let summary = epoch.finish().unwrap();
    assert!(summary.adds_up(), "{summary}");
    assert!(summary.net_bytes() > 0);
    assert_eq!(summary.phases.len(), 5);
    assert_eq!(summary.phases.iter().map(|phase| phase.allocation_count).sum::<u64>(), 800);
    for phase in &summary.phases[..4] {
        assert_eq!((phase.entered_count, phase.allocation_count), (150, 150));
    }
    assert_eq!(summary.phases.iter().map(|phase| phase.peak_bytes).max(), Some(summary.peak_bytes));
}

/// One move of a training loop.
#[derive(Debug, Clone)]
enum Move {
    Enter(&'static str),
    Step(u64),
    /// Ends any of the guards, not only the innermost.
    End(usize),
    Take(usize),
    Drop(usize),
    NextEpoch,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    prop::collection::vec(
        prop_oneof![
            4 => prop::sample::select(&["data", "forward", "backward"][..]).prop_map(Move::Enter),
            1 => (0..5_u64).prop_map(Move::Step),
            4 => (0..100_usize).prop_map(Move::End),
            8 => (1..3_000_000_usize).prop_map(Move::Take),
            7 => (0..100_usize).prop_map(Move::Drop),
            1 => Just(Move::NextEpoch),
        ],
        1..80,
    )
}

/// A guard of either kind, held to be dropped.
enum Guard {
    Phase { _guard: Phase },
    Step { _guard: Step },
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn rows_add_up_whatever_a_program_does(moves in moves()) {
        let allocator = allocator();
        let _current = allocator.make_current();
        let (mut guards, mut buffers) = (Vec::new(), Vec::new());
        let mut epoch = allocator.epoch(0);
        let mut ended: Option<EpochSummary> = None;
        for (number, next) in moves.iter().chain([&Move::NextEpoch]).enumerate() {
            match next {
                Move::Enter(name) => guards.push(Guard::Phase { _guard: memtrack::phase(name) }),
                Move::Step(number) => guards.push(Guard::Step { _guard: memtrack::step(*number) }),
                Move::End(pick) if !guards.is_empty() => drop(guards.remove(pick % guards.len())),
                Move::Take(bytes) => buffers.push(Buffer::<u8>::uninit(&allocator, *bytes).unwrap()),
                Move::Drop(pick) if !buffers.is_empty() => drop(buffers.swap_remove(pick % buffers.len())),
                Move::End(_) | Move::Drop(_) => {}
                Move::NextEpoch => {
                    let summary = epoch.finish().unwrap();
                    prop_assert!(summary.adds_up(), "{}", summary);
                    prop_assert_eq!(summary.after_bytes, allocator.memory_allocated());
                    prop_assert!(summary.peak_bytes >= summary.before_bytes.max(summary.after_bytes));
                    let highest = summary.phases.iter().map(|phase| phase.peak_bytes).max().unwrap();
                    prop_assert_eq!(highest, summary.peak_bytes, "some row held the peak");
                    let previous = ended.as_ref().map(|ended| (ended.number, ended.after_bytes));
                    prop_assert_eq!(summary.previous, previous);
                    ended = Some(summary);
                    epoch = allocator.epoch(number as u64);
                }
            }
        }
    }
}
