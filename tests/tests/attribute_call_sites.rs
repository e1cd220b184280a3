//! The totals of all calls of an annotated function. One test in the process at a time: the switch is the process's.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use memtrack::scope::{CallSiteTotals, set_measure_all};
use memtrack::{Buffer, CachingAllocator, track_memory};
use memtrack_tests::futures::{block_on, yield_now};
use memtrack_tests::memory::host_allocator;
use memtrack_tests::spans::Spans;
use tracing::Level;

static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take(allocator: &CachingAllocator, bytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, bytes).unwrap_or_else(|error| panic!("{error}"))
}

fn of(allocator: &CachingAllocator, name: &str) -> CallSiteTotals {
    let sites = allocator.call_sites();
    let mut found = sites.into_iter().filter(|totals| totals.name() == name);
    let totals = found.next().unwrap_or_else(|| panic!("no {name}"));
    assert!(found.next().is_none(), "{name} has one site");
    totals
}

#[track_memory(device = allocator)]
fn generic<T>(allocator: &CachingAllocator, count: usize) -> Buffer<T>
where
    T: Default + memtrack::Element,
{
    Buffer::uninit(allocator, count).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn instantiations_of_a_generic_function_are_one_site() {
    let _turn = turn();
    set_measure_all(true);
    let allocator = host_allocator();
    drop((generic::<u8>(&allocator, 100), generic::<f32>(&allocator, 100)));
    set_measure_all(false);
    let totals = of(&allocator, "generic");
    assert_eq!((totals.call_count, totals.inclusive_allocated_bytes), (2, 500));
    let site = totals.site.expect("a site");
    assert_eq!((site.file(), site.module_path()), (file!(), module_path!()));
    assert_eq!(site.line(), 32, "the line of its name");
}

#[test]
fn a_level_filter_does_not_change_the_totals_once_all_is_measured() {
    let _turn = turn();
    #[track_memory(device = allocator)]
    fn sync(allocator: &CachingAllocator) {
        drop(take(allocator, 512));
    }
    #[track_memory(device = allocator)]
    async fn suspends(allocator: &CachingAllocator) {
        let kept = take(allocator, 512);
        yield_now().await;
        drop(kept);
    }
    let run = |allocator: &CachingAllocator| {
        for _ in 0..3 {
            sync(allocator);
            block_on(suspends(allocator));
        }
    };
    let counts = |allocator: &CachingAllocator| {
        ["sync", "suspends"].map(|name| {
            let totals = allocator.call_sites().into_iter().find(|totals| totals.name() == name);
            totals.map_or(0, |totals| totals.call_count)
        })
    };
    let unheard = host_allocator();
    run(&unheard);
    assert_eq!(counts(&unheard), [0, 0], "nobody reads them");
    set_measure_all(true);
    let all = host_allocator();
    run(&all);
    let filtered = host_allocator();
    let (spans, _installed) = Spans::install_filtered(Level::ERROR);
    run(&filtered);
    set_measure_all(false);
    assert_eq!((counts(&all), counts(&filtered)), ([3, 3], [3, 3]));
    assert!(spans.all().is_empty());
}

#[test]
fn sampling_leaves_the_number_of_calls_exact() {
    let _turn = turn();
    #[track_memory(sample = 4, device = allocator)]
    fn sampled(allocator: &CachingAllocator) {
        drop(take(allocator, 512));
    }
    let allocator = host_allocator();
    let (spans, _installed) = Spans::install();
    for _ in 0..10 {
        sampled(&allocator);
    }
    let totals = of(&allocator, "sampled");
    assert_eq!((totals.call_count, totals.unmeasured_call_count), (3, 7));
    set_measure_all(true);
    for _ in 0..10 {
        sampled(&allocator);
    }
    set_measure_all(false);
    let totals = of(&allocator, "sampled");
    assert_eq!((totals.call_count, totals.unmeasured_call_count), (13, 7));
    assert_eq!(spans.all().len(), 5, "calls 1, 5, 9, 13 and 17");
}

#[test]
fn outcomes_are_counted() {
    let _turn = turn();
    #[track_memory(err, device = allocator)]
    fn ends(allocator: &CachingAllocator, how: u8) -> Result<(), ()> {
        drop(take(allocator, 512));
        match how {
            0 => Ok(()),
            1 => Err(()),
            _ => panic!("{}", "ends"),
        }
    }
    let (_spans, _installed) = Spans::install();
    let allocator = host_allocator();
    for how in [0, 0, 0, 1, 1, 2] {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ends(&allocator, how)));
    }
    let totals = of(&allocator, "ends");
    assert_eq!((totals.ok_count, totals.err_count, totals.panic_count, totals.cancelled_count), (3, 2, 1, 0));
}
