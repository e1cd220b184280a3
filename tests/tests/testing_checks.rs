//! What the checks of `memtrack::testing` let pass and what they do not.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;

use memtrack::device::{Simulated, Stream};
use memtrack::scope::{OpenScope, Outcome, Scope, ScopeHandle};
use memtrack::testing::{self, Measured};
use memtrack::{Buffer, CachingAllocator, Config, track_memory};
use memtrack_tests::panics::panicked;

fn allocator() -> CachingAllocator {
    CachingAllocator::new(Arc::new(Simulated::new()))
}

fn take(allocator: &CachingAllocator, bytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, bytes).unwrap()
}

/// Keeps 100 bytes, has a peak of 400 and makes 3 allocations.
fn work(allocator: &CachingAllocator) -> Buffer<u8> {
    drop(take(allocator, 50));
    let kept = take(allocator, 100);
    drop(take(allocator, 300));
    kept
}

/// The verdict of a check that fails.
#[track_caller]
fn verdict(check: impl FnOnce()) -> String {
    panicked(check).text.lines().next().unwrap().to_owned()
}

fn figures<T>(measured: &Measured<T>) -> (u64, u64, u64) {
    (measured.kept_bytes(), measured.peak_bytes(), measured.allocation_count())
}

#[test]
fn checks_hold_up_to_their_limits_and_not_beyond() {
    let allocator = allocator();
    let measure = || testing::on(&allocator).expect(|| work(&allocator));
    assert_eq!(figures(&measure()), (100, 400, 3));

    measure().keeps_at_most(100).peak_under(401).peak_at_most(400).allocations_at_most(3);
    let kept = "memtrack: the work kept 100 bytes of simulated memory and";
    assert_eq!(verdict(|| drop(measure().keeps_at_most(99))), format!("{kept} may keep at most 99 bytes"));
    assert_eq!(verdict(|| drop(measure().keeps_nothing())), format!("{kept} may keep nothing"));
    let peak = "memtrack: the work used 400 bytes of simulated memory at its peak and";
    assert_eq!(verdict(|| drop(measure().peak_under(400))), format!("{peak} must stay under 400 bytes"));
    assert_eq!(verdict(|| drop(measure().peak_at_most(399))), format!("{peak} may use at most 399 bytes"));
    let made = "memtrack: the work made 3 allocations of simulated memory and";
    assert_eq!(verdict(|| drop(measure().allocations_at_most(2))), format!("{made} may make at most 2"));
    assert_eq!(verdict(|| drop(measure().no_allocations())), format!("{made} may make none"));

    let nothing = testing::on(&allocator).expect(|| 7).keeps_nothing().peak_at_most(0).no_allocations();
    assert_eq!((*nothing.value(), nothing.into_value()), (7, 7));
    testing::on(&allocator).expect(|| ()).peak_under(1);
    assert!(verdict(|| drop(testing::on(&allocator).expect(|| ()).peak_under(0))).contains("must stay under 0 bytes"));
}

#[test]
fn the_plain_functions_return_the_value_of_the_work() {
    let allocator = allocator();
    let _current = allocator.make_current();
    assert_eq!(testing::assert_keeps_nothing(|| work(&allocator).len()), 100);
    assert_eq!(testing::assert_peak_under("1 KiB", || work(&allocator)).len(), 100);
    let kept = work(&allocator);
    assert_eq!(testing::assert_no_allocations(|| kept.len()), 100);
    assert!(verdict(|| drop(testing::assert_keeps_nothing(|| work(&allocator)))).contains("kept 100 bytes"));
    assert!(verdict(|| drop(testing::assert_peak_under(400, || work(&allocator)))).contains("400 bytes of simulated"));
    assert!(verdict(|| drop(testing::assert_no_allocations(|| work(&allocator)))).contains("made 3 allocations"));
}

#[test]
fn limits_are_texts_or_whole_numbers_of_any_type() {
    let allocator = allocator();
    let mut measured = testing::on(&allocator).expect(|| drop(take(&allocator, 2 << 20)));
    measured = measured.peak_at_most("2 MiB").peak_at_most("2097152").peak_under("2.1MB");
    measured.peak_at_most(2_097_152).peak_at_most(2_097_152_u64).peak_at_most(2_097_152_usize);
    let bad = |check: fn(Measured<()>) -> Measured<()>| {
        let measured = testing::on(&allocator).expect(|| ());
        panicked(move || drop(check(measured))).text
    };
    assert_eq!(
        bad(|measured| measured.peak_under("2G")),
        "memtrack: not a size: ambiguous unit `G` in `2G`; write `GB` (powers of 1000) or `GiB` (powers of 1024)"
    );
    assert_eq!(bad(|measured| measured.keeps_at_most(-1)), "memtrack: not a size: -1 bytes: a size cannot be negative");
    // Before the work is done.
    let text = panicked(|| testing::assert_peak_under("much", || unreachable!())).text;
    assert!(text.starts_with("memtrack: not a size: `much` does not start with a number"), "{text}");
}

#[test]
fn what_the_work_returns_counts_as_kept_until_it_is_dropped() {
    let allocator = allocator();
    let measured = testing::on(&allocator).expect(|| work(&allocator));
    assert_eq!(figures(&measured), (100, 400, 3));
    let measured = measured.without_value().keeps_nothing();
    assert_eq!(figures(&measured), (0, 400, 3));

    let mut history = Vec::new();
    let measured = testing::on(&allocator).expect(|| {
        history.push(take(&allocator, 10));
        work(&allocator)
    });
    assert_eq!(figures(&measured), (110, 410, 4));
    assert_eq!(figures(&measured.without_value()), (10, 410, 4));
}

#[test]
fn a_value_that_allocates_as_it_is_dropped_changes_no_figure_of_the_work() {
    struct Allocates(CachingAllocator, Option<Buffer<u8>>);
    impl Drop for Allocates {
        fn drop(&mut self) {
            drop((take(&self.0, 10_000), self.1.take()));
        }
    }
    let allocator = allocator();
    let work = || Allocates(allocator.clone(), Some(take(&allocator, 100)));
    let measured = testing::on(&allocator).expect(work).without_value();
    assert_eq!(figures(&measured), (0, 100, 1));
}

#[test]
fn scopes_inside_the_work_and_handles_taken_there_count_to_it() {
    #[track_memory(phase = "forward", device = allocator)]
    fn forward(allocator: &CachingAllocator) -> Buffer<u8> {
        work(allocator)
    }
    let allocator = allocator();
    let measured = testing::on(&allocator).expect(|| {
        let _phase = Scope::open(&allocator, "phase", Some("phase"));
        let epoch = allocator.epoch(1);
        let kept = forward(&allocator);
        let handle = ScopeHandle::current();
        let there = std::thread::scope(|threads| {
            let (handle, allocator) = (&handle, &allocator);
            // The second is a thread that works for itself.
            threads.spawn(|| drop(take(allocator, 5000))).join().unwrap();
            threads.spawn(move || handle.in_scope(|| forward(allocator))).join().unwrap()
        });
        drop(epoch);
        (kept, there)
    });
    assert_eq!(figures(&measured), (200, 500, 6));
}

#[test]
fn work_goes_on_counting_where_its_scope_has_closed_meanwhile() {
    let allocator = allocator();
    let measured = testing::on(&allocator).expect(|| {
        let inner = OpenScope::open(&allocator, "inner", None);
        let handle = inner.handle();
        let first = inner.handle().in_scope(|| take(&allocator, 1));
        handle.in_scope(|| {
            inner.close(Outcome::Ok);
            // Still inside what is closed now.
            [first, take(&allocator, 10), handle.in_scope(|| take(&allocator, 100))]
        })
    });
    assert_eq!(figures(&measured), (111, 111, 3));
}

#[test]
fn what_handles_allocate_after_the_work_is_not_the_works() {
    let allocator = allocator();
    let mut handle = None;
    let measured = testing::on(&allocator).expect(|| {
        handle = Some(ScopeHandle::current());
        take(&allocator, 10)
    });
    let after = handle.unwrap().in_scope(|| take(&allocator, 100));
    assert_eq!(figures(&measured), (10, 10, 1));
    assert_eq!(figures(&measured.without_value()), (0, 10, 1));
    drop(after);
}

#[test]
fn a_scope_around_the_work_sees_what_the_work_sees() {
    let allocator = allocator();
    let around = Scope::open(&allocator, "around", None);
    let measured = testing::on(&allocator).expect(|| work(&allocator));
    let record = around.close(Outcome::Ok);
    let own = (record.own_delta_bytes as u64, record.own_peak_bytes as u64, record.own_allocation_count as u64);
    assert_eq!(figures(&measured), own);
}

#[test]
fn work_inside_work_counts_to_both() {
    let allocator = allocator();
    let mut inner = None;
    let outer = testing::on(&allocator).expect(|| {
        let before = take(&allocator, 1000);
        let measured = testing::on(&allocator).expect(|| {
            let kept = work(&allocator);
            drop(before);
            kept
        });
        inner = Some(figures(&measured));
        measured
    });
    assert_eq!(inner, Some((100, 400, 3)));
    assert_eq!(figures(&outer), (100, 1400, 4));
    // Freed inside the outer one's figures only after its end: what it kept stays what it was.
    let value = outer.value();
    assert_eq!(value.kept_bytes(), 100);
}

#[test]
fn what_was_allocated_before_the_work_does_not_count_when_it_is_freed() {
    let allocator = allocator();
    let before = take(&allocator, 1000);
    let measured = testing::on(&allocator).expect(|| {
        let first = take(&allocator, 10);
        drop(before);
        first
    });
    assert_eq!(figures(&measured), (10, 10, 1));
}

#[test]
fn a_scope_opened_before_the_work_keeps_what_is_attached_to_it() {
    let allocator = allocator();
    let elsewhere = OpenScope::open(&allocator, "elsewhere", None);
    let measured = testing::on(&allocator).expect(|| {
        let _attached = elsewhere.attach();
        take(&allocator, 10)
    });
    assert_eq!(figures(&measured), (0, 0, 0));
    assert_eq!(elsewhere.close(Outcome::Ok).own_delta_bytes, 10);
}

#[test]
fn other_allocators_do_not_count() {
    let (one, two) = (allocator(), allocator());
    let measured = testing::on(&one).expect(|| (take(&one, 10), take(&two, 1000)));
    assert_eq!(figures(&measured), (10, 10, 1));
    let _current = two.make_current();
    assert_eq!(figures(&testing::expect(|| (take(&one, 10), take(&two, 1000)))), (1000, 1000, 1));
}

#[test]
fn every_way_to_allocate_and_to_free_counts() {
    for settings in ["", "expandable_segments:True", "backend:cudaMallocAsync"] {
        let device = Arc::new(Simulated::new());
        let config: Config = settings.parse().unwrap();
        let allocator = CachingAllocator::with_config(device.clone(), config).unwrap();
        let measured = testing::on(&allocator).expect(|| {
            let address = allocator.allocate_raw(10, Stream::DEFAULT).unwrap();
            // Still in use by another stream when it is given back.
            let used = take(&allocator, 100);
            used.record_stream(Stream(7)).unwrap();
            device.set_busy(Stream(7));
            drop(used);
            allocator.free_raw(address).unwrap();
            let on_other_stream = Buffer::<u8>::uninit_on(&allocator, Stream(8), 1000).unwrap();
            std::thread::scope(|threads| {
                threads.spawn(|| drop(on_other_stream));
            });
            drop(Buffer::<u8>::uninit(&allocator, 0).unwrap());
            take(&allocator, 3 << 20)
        });
        assert_eq!(figures(&measured), (3 << 20, 3 << 20, 4), "{settings:?}");
        device.set_idle(Stream(7));
        assert_eq!(figures(&measured.without_value()), (0, 3 << 20, 4), "{settings:?}");
    }
}

#[test]
fn allocations_that_fail_do_not_count() {
    let allocator = CachingAllocator::new(Arc::new(Simulated::with_capacity(4 << 20)));
    let measured = testing::on(&allocator).expect(|| Buffer::<u8>::uninit(&allocator, 1 << 30));
    assert!(measured.value().is_err());
    measured.no_allocations();
}
