//! Hooks that are asked when memory runs out, and the wrapper that tries again with less.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use memtrack::device::Stream;
use memtrack::diagnosis::FindingCode;
use memtrack::history::HistoryOptions;
use memtrack::scope::Scope;
use memtrack::{AllocationError, OomHookOptions, OomResponse, OutOfMemory, RetryError, RetryOptions, retry_halving};
use memtrack_tests::listening::listen;
use memtrack_tests::scenarios::{MIB, Scenario, finding, mib};
use memtrack_tests::watchdog::within_patience;

fn counter() -> (Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    (Arc::clone(&count), count)
}

/// 100 MiB of which 60 can be freed by a hook.
fn nearly_full() -> (Scenario, Arc<Mutex<Vec<u64>>>) {
    let scenario = Scenario::new(100, "");
    let spare = Arc::new(Mutex::new(vec![scenario.take(60)]));
    (scenario, spare)
}

#[test]
fn a_hook_frees_memory_and_the_request_is_served_as_if_nothing_had_been() {
    let (scenario, spare) = nearly_full();
    let (allocator, to_free) = (scenario.allocator.clone(), Arc::clone(&spare));
    let hook = scenario.allocator.on_oom(move |error| {
        assert_eq!((error.requested_bytes, error.findings().len()), (80 * MIB, 1));
        match to_free.lock().unwrap().pop() {
            Some(block) => {
                allocator.free_raw(block).unwrap();
                OomResponse::Retry
            }
            None => OomResponse::GiveUp,
        }
    });
    let said = listen(
        || {},
        || {
            scenario.take(80);
        },
    );
    assert!(said.iter().all(|said| said.target != "memtrack::oom"), "{said:?}");
    assert_eq!((scenario.figures().ooms, scenario.figures().retries), (0, 2));

    let said = listen(|| {}, || assert_eq!(scenario.fail(80).requested_bytes, 80 * MIB));
    assert_eq!(said.iter().filter(|said| said.target == "memtrack::oom").count(), 1, "the hook gave up: {said:?}");
    assert_eq!(scenario.figures().ooms, 1);
    drop(hook);
    scenario.fail(80);
    assert_eq!(scenario.figures().ooms, 2);
}

#[test]
fn without_a_hook_and_with_one_that_gives_up_the_counters_are_the_same() {
    let figures = |with_hook: bool| {
        let (scenario, _) = nearly_full();
        let _hook = with_hook.then(|| scenario.allocator.on_oom(|_| OomResponse::GiveUp));
        scenario.fail(80);
        (scenario.figures(), scenario.allocator.memory_stats().to_map())
    };
    assert_eq!(figures(false), figures(true));
}

#[test]
fn a_hook_that_always_wants_another_try_is_asked_so_often_and_no_more() {
    let (scenario, _) = nearly_full();
    let (asked, counts) = counter();
    let options = OomHookOptions::default().attempt_limit(3).least_bytes(50 * MIB);
    let _hook = scenario.allocator.on_oom_with(options, move |_| {
        counts.fetch_add(1, Ordering::Relaxed);
        OomResponse::Retry
    });
    scenario.fail(80);
    assert_eq!((asked.load(Ordering::Relaxed), scenario.figures().ooms, scenario.figures().retries), (3, 1, 4));
    scenario.fail(49);
    assert_eq!(asked.load(Ordering::Relaxed), 3, "smaller than it wants to know of");
}

#[test]
fn the_newest_hook_is_asked_first_and_the_next_when_it_gives_up() {
    let (scenario, _) = nearly_full();
    let order = Arc::new(Mutex::new(Vec::new()));
    let hooks = ["older", "newer"].map(|name| {
        let order = Arc::clone(&order);
        scenario.allocator.on_oom(move |_| {
            order.lock().unwrap().push(name);
            if name == "older" { OomResponse::Retry } else { OomResponse::GiveUp }
        })
    });
    scenario.fail(80);
    assert_eq!(*order.lock().unwrap(), ["newer", "older"], "each once");
    drop(hooks);
}

/// The last part of R14.
#[test]
fn r14_what_fails_inside_a_hook_is_not_reported_through_itself() {
    let (scenario, _) = nearly_full();
    let (asked, counts) = counter();
    let inner = Arc::new(Mutex::new(None));
    let (allocator, seen) = (scenario.allocator.clone(), Arc::clone(&inner));
    let _hook = scenario.allocator.on_oom(move |_| {
        counts.fetch_add(1, Ordering::Relaxed);
        *seen.lock().unwrap() = allocator.allocate_raw(90 * MIB, Stream::DEFAULT).err();
        OomResponse::GiveUp
    });
    let error = scenario.fail(80);
    assert_eq!((asked.load(Ordering::Relaxed), error.requested_bytes), (1, 80 * MIB));
    let inside = inner.lock().unwrap().take().unwrap();
    assert_eq!(OutOfMemory::behind(&inside).unwrap().requested_bytes, 90 * MIB, "a plain error");
    assert_eq!(scenario.figures().ooms, 2);
}

#[test]
fn a_panic_in_a_hook_reaches_the_caller_and_leaves_the_allocator_and_the_hooks_working() {
    let (scenario, _) = nearly_full();
    let (asked, counts) = counter();
    let older = counter();
    let _older = scenario.allocator.on_oom(move |_| {
        older.1.fetch_add(1, Ordering::Relaxed);
        OomResponse::GiveUp
    });
    let _hook = scenario.allocator.on_oom(move |_| {
        assert!(counts.fetch_add(1, Ordering::Relaxed) > 0, "the first time");
        OomResponse::GiveUp
    });
    let outcome = std::panic::catch_unwind(|| scenario.ask(80, Stream::DEFAULT));
    let said = outcome.unwrap_err();
    assert!(said.downcast_ref::<&str>().is_some_and(|text| text.contains("the first time")), "the hook's own panic");
    assert_eq!(older.0.load(Ordering::Relaxed), 0, "no further hook is asked");
    scenario.take(30);
    scenario.fail(80);
    assert_eq!(asked.load(Ordering::Relaxed), 2, "it is asked again");
}

/// The counters, the history, the event and what is remembered of the attempt are those of a hook that gives up.
#[test]
fn a_request_whose_hook_panics_counts_as_one_that_failed() {
    let outcome = |panics: bool| {
        let (scenario, _) = nearly_full();
        scenario.allocator.record_memory_history(Some(&HistoryOptions::default()));
        let _hook = scenario.allocator.on_oom(move |_| {
            assert!(!panics, "a bug in the hook");
            OomResponse::GiveUp
        });
        let said = listen(
            || {},
            || {
                let attempt = Scope::open(&scenario.allocator, "attempt", None);
                scenario.take(10);
                let asked = std::panic::catch_unwind(AssertUnwindSafe(|| scenario.ask(80, Stream::DEFAULT)));
                assert_eq!(asked.is_err(), panics);
                drop(attempt);
            },
        );
        let told = said.iter().filter(|said| said.target == "memtrack::oom").count();
        let snapshot = scenario.allocator.snapshot();
        let events = snapshot.device_traces.iter().flatten();
        let oom_count = events.filter(|event| event.action.name() == "oom").count();
        let findings = scenario.allocator.diagnose();
        let suspect = finding(&findings, FindingCode::FailedAttemptAlive);
        let alive = mib(suspect, "alive_bytes");
        // And it goes on as if nothing had been.
        let block = scenario.take(20);
        scenario.free([block]);
        (scenario.figures(), scenario.allocator.memory_stats().to_map(), told, oom_count, alive)
    };
    let given_up = outcome(false);
    assert_eq!((given_up.0.ooms, given_up.2, given_up.3, given_up.4), (1, 1, 1, 10));
    assert_eq!(outcome(true), given_up);
}

/// Nobody can tell that the other thread works for the hook, so the hook is asked for it too, but not for ever.
#[test]
fn a_hook_that_waits_for_allocations_of_other_threads_does_not_ask_itself_for_ever() {
    within_patience("a hook that waits for another thread", ask_through_another_thread);
}

fn ask_through_another_thread() {
    let (scenario, _) = nearly_full();
    let (asked, counts) = counter();
    let allocator = scenario.allocator.clone();
    let options = OomHookOptions::default().attempt_limit(3);
    let _hook = scenario.allocator.on_oom_with(options, move |_| {
        counts.fetch_add(1, Ordering::Relaxed);
        for _ in 0..2 {
            let allocator = allocator.clone();
            let failed = std::thread::spawn(move || allocator.allocate_raw(90 * MIB, Stream::DEFAULT).is_err());
            assert!(failed.join().unwrap());
        }
        OomResponse::Retry
    });
    assert_eq!(scenario.fail(80).requested_bytes, 80 * MIB);
    assert_eq!(asked.load(Ordering::Relaxed), 3 * 256, "the bound, for each time that the program's own request asks");
    asked.store(0, Ordering::Relaxed);
    scenario.fail(80);
    assert_eq!(asked.load(Ordering::Relaxed), 3 * 256, "nothing of it stays");
}

/// Each hook waits until all threads are in one, so that they would wait for ever if one held what another needs.
#[test]
fn threads_that_run_out_together_ask_together() {
    within_patience("threads that run out of memory together", fail_together);
}

fn fail_together() {
    let (scenario, _) = nearly_full();
    let barrier = Arc::new(Barrier::new(4));
    let (allocator, together) = (scenario.allocator.clone(), Arc::clone(&barrier));
    let _hook = scenario.allocator.on_oom(move |_| {
        together.wait();
        let block = allocator.allocate_raw(MIB, Stream::DEFAULT).unwrap();
        allocator.free_raw(block).unwrap();
        allocator.empty_cache().unwrap();
        assert!(!allocator.memory_view().live.is_empty());
        OomResponse::Retry
    });
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| scenario.fail(80));
        }
    });
    assert_eq!(scenario.figures().ooms, 4);
}

#[test]
fn a_retry_halves_down_to_its_floor_and_never_tries_a_size_twice() {
    let (scenario, _) = nearly_full();
    let sizes = Mutex::new(Vec::new());
    let work = |size: u64| -> Result<u64, AllocationError> {
        sizes.lock().unwrap().push(size);
        scenario.ask(size, Stream::DEFAULT)
    };
    let done = retry_halving(100, RetryOptions::default(), work).unwrap();
    assert_eq!((done.size, done.attempt_count), (25, 3));
    scenario.free([done.value]);
    let Err(RetryError::OutOfMemory { size, attempt_count, .. }) =
        retry_halving(1000, RetryOptions::default().least_size(60), work)
    else {
        panic!("there is no room for 60")
    };
    assert_eq!((size, attempt_count), (60, 6));
    let Err(RetryError::OutOfMemory { size, attempt_count, .. }) =
        retry_halving(1000, RetryOptions::default().attempt_limit(2), work)
    else {
        panic!("there is no room for 500")
    };
    assert_eq!((size, attempt_count), (500, 2));
    assert_eq!(*sizes.lock().unwrap(), [100, 50, 25, 1000, 500, 250, 125, 62, 60, 1000, 500]);
    let other = retry_halving(5, RetryOptions::default(), |_| -> Result<(), AllocationError> {
        scenario.allocator.free_raw(12_345)
    });
    assert!(matches!(other, Err(RetryError::Other(AllocationError::InvalidPointer { .. }))), "tried once");
}
