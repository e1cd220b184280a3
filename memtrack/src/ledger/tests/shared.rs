//! The bug class: events of several threads entered in an order that contradicts the one in which they happened.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use super::super::{BlockEntry, Combined, Ledger, Outcome, ScopeKind, SharedLedger, SplitChange, ThreadNumber};
use crate::stats::PoolKind;

fn entry(size_bytes: i64) -> BlockEntry {
    BlockEntry {
        pool: PoolKind::Small,
        size_bytes,
        requested_bytes: size_bytes,
        oversize: false,
        thread: ThreadNumber::default(),
    }
}

fn allocate(ledger: &SharedLedger, size_bytes: i64) {
    ledger.allocated(&entry(size_bytes), SplitChange::default(), None);
}

fn free(ledger: &SharedLedger, size_bytes: i64) {
    ledger.freed(&entry(size_bytes), SplitChange::default(), None, None);
}

#[test]
fn events_logged_while_the_books_are_taken_are_entered_in_their_order() {
    let ledger = SharedLedger::new(Ledger::new(-1));
    let books = ledger.lock();
    thread::scope(|scope| {
        let ledger = &ledger;
        scope.spawn(move || {
            for _ in 0..100 {
                allocate(ledger, 512);
                allocate(ledger, 1024);
                free(ledger, 512);
                free(ledger, 1024);
            }
            allocate(ledger, 2048);
        });
    });
    assert_eq!(books.stats().allocation.all.allocated, 0, "nothing was entered behind the holder's back");
    drop(books);
    let stats = ledger.lock().stats();
    assert_eq!(stats.allocation.all.allocated, 201);
    assert_eq!(stats.allocated_bytes.all.current, 2048);
    assert_eq!(stats.allocated_bytes.all.peak, 2048, "1536 at most before the last");
}

#[test]
fn a_log_that_is_never_read_is_entered_by_its_writer() {
    let ledger = SharedLedger::new(Ledger::new(-1));
    let books = ledger.lock();
    thread::scope(|scope| {
        scope.spawn(|| allocate(&ledger, 512));
    });
    drop(books);
    for _ in 0..1000 {
        free(&ledger, 512);
        allocate(&ledger, 512);
    }
    assert!(ledger.waiting_count() < super::super::shared::BATCH_LEN);
    assert_eq!(ledger.lock().stats().allocated_bytes.all.peak, 512);
    assert_eq!(ledger.waiting_count(), 0);
}

#[test]
fn what_happens_one_after_the_other_on_many_threads_never_looks_simultaneous() {
    let ledger = SharedLedger::new(Ledger::new(-1));
    let turn = Mutex::new(());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        // Takes the books all the time, so that the others log.
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert!(ledger.lock().stats().allocation.all.current <= 1);
            }
        });
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let _mine = turn.lock().unwrap();
                        allocate(&ledger, 512);
                        free(&ledger, 512);
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    let stats = ledger.lock().stats();
    assert_eq!(stats.allocation.all.allocated, 80_000);
    assert_eq!(stats.allocation.all.freed, 80_000);
    assert_eq!((stats.allocation.all.current, stats.allocation.all.peak), (0, 1));
}

/// The highest sum of two devices in one scope over both.
fn peak_of_one_scope(devices: &[SharedLedger; 2], stay_open: impl FnOnce()) -> i64 {
    let mut books = devices.each_ref().map(SharedLedger::lock_at_once);
    let combined = Arc::new(Combined::new(books.iter().map(|ledger| ledger.live_bytes()).sum()));
    let keys = books.each_mut().map(|ledger| {
        let key = ledger.open_scope(None, ScopeKind::Function, None);
        ledger.join(key, &combined);
        key
    });
    drop(books);
    stay_open();
    let mut books = devices.each_ref().map(SharedLedger::lock);
    for (ledger, key) in books.iter_mut().zip(keys) {
        ledger.part(key);
        ledger.close_scope(key, Outcome::Ok).unwrap();
    }
    drop(books);
    devices.iter().for_each(SharedLedger::end_at_once);
    combined.peak_bytes()
}

/// Each step is over before the next begins, on one device or the other, and never are two blocks live. An event that waited
/// in a log while one of the other device went into its books would show two.
#[test]
fn what_happens_on_two_devices_one_after_the_other_never_looks_simultaneous() {
    let devices: [SharedLedger; 2] = std::array::from_fn(|_| SharedLedger::new(Ledger::new(-1)));
    let turn = Mutex::new(());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        // Take the books all the time, and hold them while the others run, so that these log.
        for device in &devices {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let books = device.lock();
                    thread::yield_now();
                    assert!(books.stats().allocation.all.current <= 1);
                    drop(books);
                    thread::yield_now();
                }
            });
        }
        let workers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut pair_count = 0;
                    while !done.load(Ordering::Relaxed) {
                        let _mine = turn.lock().unwrap();
                        for device in &devices {
                            allocate(device, 512);
                            // Time for somebody to enter what waits in a log.
                            (0..pair_count % 3).for_each(|_| thread::yield_now());
                            free(device, 512);
                        }
                        pair_count += 1;
                    }
                    pair_count
                })
            })
            .collect();
        let highest_bytes = (0..2000)
            .map(|count| peak_of_one_scope(&devices, || (0..count % 20).for_each(|_| thread::yield_now())))
            .max();
        done.store(true, Ordering::Relaxed);
        assert_eq!(highest_bytes, Some(512), "more than one block was live");
        let pair_count: i64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        for device in &devices {
            let stats = device.lock().stats();
            assert_eq!((stats.allocation.all.allocated, stats.allocation.all.peak), (pair_count, 1));
        }
    });
}

#[test]
fn what_is_in_the_logs_when_a_scope_over_several_devices_opens_came_before_it() {
    let devices: [SharedLedger; 2] = std::array::from_fn(|_| SharedLedger::new(Ledger::new(-1)));
    let books = devices[0].lock();
    thread::scope(|scope| {
        scope.spawn(|| allocate(&devices[0], 4096)).join().unwrap();
    });
    drop(books);
    assert_eq!(devices[0].waiting_count(), 1);
    let peak_bytes = peak_of_one_scope(&devices, || {
        assert_eq!(devices[0].waiting_count(), 0);
        free(&devices[0], 4096);
        allocate(&devices[1], 512);
        free(&devices[1], 512);
    });
    assert_eq!(peak_bytes, 4096);
}

#[test]
fn while_a_scope_over_several_devices_is_open_nothing_stays_in_a_log() {
    let devices: [SharedLedger; 2] = std::array::from_fn(|_| SharedLedger::new(Ledger::new(-1)));
    let allocate_while_the_books_are_taken = || {
        let books = devices[0].lock();
        let before = devices[0].put_off_count();
        thread::scope(|scope| {
            let writer = scope.spawn(|| allocate(&devices[0], 512));
            while devices[0].put_off_count() == before {
                thread::yield_now();
            }
            drop(books);
            writer.join().unwrap();
        });
        devices[0].waiting_count()
    };
    let peak_bytes = peak_of_one_scope(&devices, || {
        assert_eq!(allocate_while_the_books_are_taken(), 0);
        assert_eq!(allocate_while_the_books_are_taken(), 0);
    });
    assert_eq!(peak_bytes, 1024);
    assert_eq!(allocate_while_the_books_are_taken(), 1, "after it, logs are used again");
}
