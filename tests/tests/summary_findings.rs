//! What an epoch's summary finds by the floors of its steps, and what is told before the epoch ends.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack::device::Simulated;
use memtrack::diagnosis::{FindingCode, Numbers};
use memtrack::{Buffer, CachingAllocator, EpochSummary, Policy};
use memtrack_tests::spans::Spans;
use std::sync::Arc;

const MIB: usize = 1 << 20;

/// An epoch of so many steps, in each of which `step` gives what is kept.
fn epoch(
    number: u64,
    steps: u64,
    allocator: &CachingAllocator,
    kept: &mut Vec<Buffer<u8>>,
    step: impl Fn(u64) -> Vec<usize>,
) -> EpochSummary {
    let epoch = memtrack::epoch(number);
    for number in 0..steps {
        let _step = memtrack::step(number);
        let _phase = memtrack::phase("forward");
        drop(Buffer::<u8>::uninit(allocator, 30 * MIB).unwrap());
        kept.extend(step(number).into_iter().map(|bytes| Buffer::uninit(allocator, bytes).unwrap()));
    }
    epoch.finish().unwrap()
}

fn allocator() -> CachingAllocator {
    let allocator = CachingAllocator::new(Arc::new(Simulated::with_capacity(12 << 30)));
    assert_eq!(allocator.config().policy, Policy::Torch);
    allocator
}

fn codes(summary: &EpochSummary) -> Vec<FindingCode> {
    summary.findings.iter().map(|finding| finding.code()).collect()
}

#[test]
fn r15_loss_values_kept_with_their_graph_are_told_at_step_20_and_in_the_summary() {
    let (spans, _installed) = Spans::install();
    let allocator = allocator();
    let _current = allocator.make_current();
    let mut kept = Vec::new();
    let told = || spans.events_of("memtrack::finding").len();

    let first = epoch(1, 12, &allocator, &mut kept, |_| vec![24 * MIB, 4]);
    assert_eq!(told(), 0, "twelve steps are too few to be told by an event");
    assert!(codes(&first).contains(&FindingCode::Leak));

    // Steps are counted over the epochs: the twentieth is the eighth of this one.
    let second = epoch(2, 8, &allocator, &mut kept, |_| vec![24 * MIB, 4]);
    assert_eq!(told(), 1);
    let event = &spans.events_of("memtrack::finding")[0];
    assert_eq!(event.span, None);
    let leak = second.findings.iter().find(|finding| finding.code() == FindingCode::Leak).unwrap();
    let Numbers::Leak { slope_bytes, failing_step, .. } = leak.numbers else { panic!("{leak:?}") };
    assert_eq!(slope_bytes, 24 * MIB as i64 + 512);
    // 511 steps of 24 MiB leave 23.75 of 12 GiB, and each needs 30 MiB before it keeps anything.
    assert_eq!(failing_step, Some(512));
    assert!(second.to_string().contains("\n  finding   leak: "), "{second}");
    let line = second.to_json();
    assert!(line.contains(r#""findings":[{"code":"#) && line.contains(r#"{"code":"leak""#), "{line}");

    epoch(3, 30, &allocator, &mut kept, |_| vec![24 * MIB, 4]);
    assert_eq!(told(), 1, "a leak is told once");
}

#[test]
fn r07_what_is_kept_once_is_no_leak() {
    let (spans, _installed) = Spans::install();
    let allocator = allocator();
    let _current = allocator.make_current();
    let mut kept = Vec::new();
    let workspace = |number| if number == 3 { vec![8 * MIB + (128 << 10)] } else { Vec::new() };
    let summary = epoch(1, 30, &allocator, &mut kept, workspace);
    assert!(codes(&summary).contains(&FindingCode::OneTimeAllocation), "{summary}");
    assert!(!codes(&summary).contains(&FindingCode::Leak));
    assert_eq!(spans.events_of("memtrack::finding").len(), 0);
}

#[test]
fn what_is_kept_once_an_epoch_is_a_leak_by_the_epochs_though_most_steps_are_flat() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let mut kept = Vec::new();
    let mut last = None;
    for number in 1..=12 {
        let summary = epoch(number, 320, &allocator, &mut kept, |step| if step == 0 { vec![2 * MIB] } else { vec![] });
        // At the second epoch's end it has risen in one step of 640.
        assert!(number < 3 || !codes(&summary).contains(&FindingCode::OneTimeAllocation), "{summary}");
        last = Some(summary);
    }
    let last = last.unwrap();
    let leak = last.findings.iter().find(|finding| finding.code() == FindingCode::Leak).unwrap();
    let Numbers::Leak { slope_bytes, step_count, failing_step, .. } = leak.numbers else { panic!("{leak:?}") };
    assert_eq!((slope_bytes, step_count), (2 * MIB as i64, 10));
    let end = format!("epoch {} fails at the latest", failing_step.unwrap());
    assert!(leak.headline.contains("grows by 2.00 MiB (2097152 B) an epoch, over 10 epochs"), "{leak}");
    assert!(leak.headline.ends_with(&end), "{leak}");
}

#[test]
fn what_is_suspected_at_the_ends_of_epochs_is_not_called_a_one_time_allocation() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let mut kept = Vec::new();
    let first_step = |step| if step == 0 { vec![2 * MIB] } else { vec![] };
    let _ = epoch(1, 20, &allocator, &mut kept, first_step);
    let second = epoch(2, 20, &allocator, &mut kept, first_step);
    assert!(codes(&second).contains(&FindingCode::OneTimeAllocation), "one rise, and flat since: {second}");
    let third = epoch(3, 200, &allocator, &mut kept, first_step);
    assert!(third.live.iter().any(memtrack::phase::EpochSite::is_suspected));
    assert!(!codes(&third).contains(&FindingCode::OneTimeAllocation), "{third}");
}

#[test]
fn flat_steps_and_steps_that_unwind_say_nothing() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let mut kept = Vec::new();
    let flat = epoch(1, 30, &allocator, &mut kept, |_| Vec::new());
    assert!(codes(&flat).iter().all(|code| ![FindingCode::Leak, FindingCode::OneTimeAllocation].contains(code)));
    for number in 0..30 {
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _step = memtrack::step(number);
            kept.push(Buffer::<u8>::uninit(&allocator, MIB).unwrap());
            panic!("told");
        }));
        assert!(unwound.is_err());
    }
    let after = epoch(2, 2, &allocator, &mut kept, |_| Vec::new());
    assert!(!codes(&after).contains(&FindingCode::Leak), "{after}");
}

#[test]
fn what_an_epoch_s_steps_keep_and_its_end_gives_back_is_no_leak() {
    for (steps, epochs) in [(16, 2), (20, 2), (32, 2), (50, 2), (100, 2), (200, 2), (30, 3), (100, 3), (30, 4)] {
        let allocator = allocator();
        let _current = allocator.make_current();
        for number in 0..epochs {
            let epoch = memtrack::epoch(number);
            let mut outputs = Vec::new();
            for step in 0..steps {
                let _step = memtrack::step(number * steps + step);
                outputs.push(Buffer::<u8>::uninit(&allocator, MIB).unwrap());
            }
            drop(outputs);
            let summary = epoch.finish().unwrap();
            assert_eq!(allocator.memory_allocated(), 0);
            assert!(!codes(&summary).contains(&FindingCode::Leak), "{epochs} of {steps} steps: {summary}");
        }
    }
}

#[test]
fn retries_in_every_step_are_found() {
    let allocator = CachingAllocator::new(Arc::new(Simulated::with_capacity(100 << 20)));
    let _current = allocator.make_current();
    let epoch = memtrack::epoch(1);
    for number in 0..6 {
        let _step = memtrack::step(number);
        // Each is larger than what is cached, and the device has no room beside that.
        drop(Buffer::<u8>::uninit(&allocator, (60 + 2 * number as usize) * MIB).unwrap());
    }
    let summary = epoch.finish().unwrap();
    assert_eq!(summary.retry_count, 5);
    let finding = summary.findings.iter().find(|finding| finding.code() == FindingCode::RetriesEveryStep).unwrap();
    let Numbers::RetriesEveryStep { step_count, retry_count, .. } = finding.numbers else { panic!("{finding:?}") };
    assert_eq!((step_count, retry_count), (6, 5));
}
