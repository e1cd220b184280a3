//! The allocator against a second, slow one that was written from the rules alone: after every step of a random program
//! all 122 statistics, the address, the refusal with its figures, and the segments on the device must be the same, and
//! the blocks and the history where the allocator shows them.
//!
//! A failure names family and seed and shows the program, made as small as it still fails. These are looked at:
//! `MEMTRACK_MODEL_SEED`, to run that seed of every family alone, and `MEMTRACK_MODEL_PROGRAMS`, how many seeds of each
//! family are run.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod compare;
mod family;
mod program;
mod random;

use std::collections::BTreeMap;
use std::time::Instant;

use compare::{compare, shrink};
use family::{FAMILIES, Family};
use memtrack_tests::conformance::memtrack::Memtrack;
use memtrack_tests::conformance::step::Step;
use memtrack_tests::conformance::subject::Subject;
use memtrack_tests::conformance::world::{Outcome, World};
use memtrack_tests::reference_allocator::{
    Action, Activity, COUNTER_COUNT, Counters, ReferenceAllocator, Refused, counter_names,
};
use program::{Program, program};

/// The seeds to run where `count` is usual.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    if let Some(seed) = number("MEMTRACK_MODEL_SEED") {
        return seed..seed + 1;
    }
    0..number("MEMTRACK_MODEL_PROGRAMS").unwrap_or(count)
}

/// Runs as many programs of every family that the subject covers; how many those were.
fn compare_all<S: Subject>(families: &[Family], count: u64) -> usize {
    let mut compared = 0;
    for family in families {
        for seed in seeds(count) {
            let program = program(family, seed);
            if !S::FEATURES.cover(&program.needs()) {
                continue;
            }
            for torch_exact in [false, true] {
                let Err(difference) = compare::<S>(&program, torch_exact) else { continue };
                let small = shrink(&program, |program| compare::<S>(program, torch_exact).is_err());
                let smallest = compare::<S>(&small, torch_exact).unwrap_err();
                let way = if torch_exact { "PyTorch's way" } else { "memtrack's way" };
                panic!("{}, seed {seed}, {way}: {difference}\nmade small: {smallest}\n{small:#?}", family.name);
            }
            compared += 1;
        }
    }
    compared
}

/// In two halves, for two processors.
#[test]
fn memtrack_answers_as_the_slow_allocator() {
    let compared = compare_all::<Memtrack>(&FAMILIES[..3], 560);
    println!("{compared} programs");
    assert!(compared > 0);
}

#[test]
fn memtrack_answers_as_the_slow_allocator_with_garbage_collection_waiting_and_the_rest() {
    let compared = compare_all::<Memtrack>(&FAMILIES[3..], 560);
    println!("{compared} programs");
    assert!(compared > 0);
}

/// Blocks freed and nothing emptied: the device has everything back once the allocator is gone. The statistics have their
/// names.
#[test]
fn a_dropped_allocator_leaves_nothing_on_the_device() {
    for seed in seeds(100) {
        let program = program(&FAMILIES[0], seed);
        let mut world = World::<Memtrack>::start(&program.setup(false)).unwrap();
        for step in &program.steps {
            world.run(step);
        }
        let named = world.subject.allocator.memory_stats().to_map();
        assert_eq!(named, counter_names().into_iter().zip(world.subject.counters().0).collect());
        for id in world.live().keys().copied().collect::<Vec<_>>() {
            world.run(&Step::Free { id });
        }
        let Memtrack { device, allocator, .. } = world.subject;
        drop(allocator);
        assert_eq!((device.used_bytes(), device.segments()), (0, Vec::new()), "seed {seed}");
    }
}

/// Every program of every family leaves the slow allocator's books in order, in memtrack's way and in PyTorch's.
#[test]
fn the_slow_allocator_keeps_its_books() {
    let start = Instant::now();
    let (mut programs, mut steps) = (0, 0);
    for family in FAMILIES {
        for seed in seeds(750) {
            let program = program(family, seed);
            let torch_exact = seed % 2 == 1;
            let mut world = World::<ReferenceAllocator>::start(&program.setup(torch_exact)).unwrap();
            for step in &program.steps {
                world.run(step);
                world.subject.check();
            }
            for step in world.closing_steps() {
                world.run(&step);
                world.subject.check();
            }
            assert_eq!(world.subject.reserved_bytes(), 0, "{}, seed {seed}", family.name);
            programs += 1;
            steps += program.steps.len();
        }
    }
    println!("{programs} programs, {steps} steps in {:?}", start.elapsed());
}

/// How often each path was taken, by name.
type Paths = BTreeMap<&'static str, usize>;

/// Looks at one step of a program for the paths it took.
fn note_paths(paths: &mut Paths, step: &Step, outcome: Outcome, change: &dyn Fn(&str) -> i64, actions: &[Action]) {
    let mut note = |name, taken: bool| *paths.entry(name).or_default() += usize::from(taken);
    let has = |action| actions.contains(&action);
    let allocated = matches!(outcome, Outcome::Allocated(Ok(_)));
    let retried = change("num_alloc_retries") > 0;
    let waited = change("num_sync_all_streams") > 0;
    let grew = has(Action::SegmentAlloc) || has(Action::SegmentMap);
    let is_allocation = matches!(step, Step::Allocate { .. });
    note("a block free after another stream is done", is_allocation && has(Action::FreeCompleted) && !waited);
    note("a retry that grew", retried && allocated && grew);
    note("a retry served by a block that was waited for", retried && allocated && !grew);
    note("the limit's refusal", outcome == Outcome::Allocated(Err(Refused::ByLimit)));
    note("the device's refusal", outcome == Outcome::Allocated(Err(Refused::ByDevice)));
    note("a segment returned without waiting", is_allocation && has(Action::SegmentFree) && !waited);
    note("a part of a segment to be returned", outcome == Outcome::Allocated(Err(Refused::PartOfSegment)));
    let maps = actions.iter().filter(|action| **action == Action::SegmentMap).count();
    note("two mappings for one request", maps >= 2);
    note("memory mapped for a request that was refused", !allocated && maps > 0);
    note("pages unmapped", has(Action::SegmentUnmap));
    note("a refusal without waiting, for something is routed", has(Action::Oom) && !retried);
    note("settings refused", outcome == Outcome::Settings(false));
    note("settings taken", outcome == Outcome::Settings(true));
    note("a pool entered twice", outcome == Outcome::Entered(false));
    let dropped = matches!(step, Step::DeletePool { .. });
    note("a dropped pool's memory returned", dropped && (has(Action::SegmentFree) || has(Action::SegmentUnmap)));
    note("a free put off while something is routed", matches!(step, Step::Free { .. }) && change("deferred") > 0);
    note("a request served by a pool for out of memory", allocated && change("fallback") > 0);
}

/// Random programs prove nothing about paths that they do not take.
#[test]
fn the_random_programs_take_every_path() {
    let names = counter_names();
    let mut paths = Paths::new();
    for family in FAMILIES {
        for seed in 0..60 {
            let program: Program = program(family, seed);
            let mut world = World::<ReferenceAllocator>::start(&program.setup(seed % 2 == 1)).unwrap();
            let mut before = Counters([0; COUNTER_COUNT]);
            for step in &program.steps {
                let history = world.subject.trace().len();
                let deferred = world.subject.deferred_count();
                let outcome = world.run(step);
                let after = world.subject.counters().clone();
                let actions: Vec<Action> = world.subject.trace()[history..].iter().map(|entry| entry.action).collect();
                let change = |name: &str| match name {
                    "deferred" => world.subject.deferred_count() as i64 - deferred as i64,
                    "fallback" => i64::from(serves_another(&world, step, outcome)),
                    name => {
                        let at = names.iter().position(|known| known == name).unwrap();
                        after.0[at] - before.0[at]
                    }
                };
                note_paths(&mut paths, step, outcome, &change, &actions);
                before = after;
            }
        }
    }
    for (path, times) in &paths {
        println!("{path}: {times} times");
    }
    let untaken: Vec<_> = paths.iter().filter(|(_, times)| **times == 0).collect();
    assert!(untaken.is_empty(), "no program took these: {untaken:?}");
}

/// A block of a private pool went to a thread that is in none.
fn serves_another(world: &World<ReferenceAllocator>, step: &Step, outcome: Outcome) -> bool {
    let (Step::Allocate { thread, stream, .. }, Outcome::Allocated(Ok(address))) = (step, outcome) else {
        return false;
    };
    let holds = |segment: &memtrack_tests::reference_allocator::SegmentState| {
        let at = |block: &memtrack_tests::reference_allocator::BlockState| {
            block.address == address && block.activity == Activity::Allocated
        };
        segment.pool != (0, 0) && segment.blocks.iter().any(at)
    };
    world.subject.routed_pool(*thread, *stream) == (0, 0) && world.subject.snapshot().iter().any(holds)
}
