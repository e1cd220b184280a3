//! The bug class: events of several threads entered in an order that contradicts the one in which they happened.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use super::super::{BlockEntry, EventLog, Ledger, SharedLedger, SplitChange};
use crate::stats::PoolKind;

fn entry(size_bytes: i64) -> BlockEntry {
    BlockEntry { pool: PoolKind::Small, size_bytes, requested_bytes: size_bytes, oversize: false }
}

fn allocate(ledger: &SharedLedger, log: &Arc<EventLog>, size_bytes: i64) {
    ledger.allocated(log, &entry(size_bytes), SplitChange::default(), None);
}

fn free(ledger: &SharedLedger, log: &Arc<EventLog>, size_bytes: i64) {
    ledger.freed(log, &entry(size_bytes), SplitChange::default(), None, None);
}

#[test]
fn events_logged_while_the_books_are_taken_are_entered_in_their_order() {
    let ledger = SharedLedger::new(Ledger::new(-1));
    let logs: [Arc<EventLog>; 2] = std::array::from_fn(|_| Arc::default());
    let books = ledger.lock();
    thread::scope(|scope| {
        let ledger = &ledger;
        let logs = &logs;
        scope.spawn(move || {
            for _ in 0..100 {
                allocate(ledger, &logs[0], 512);
                allocate(ledger, &logs[1], 1024);
                free(ledger, &logs[0], 512);
                free(ledger, &logs[1], 1024);
            }
            allocate(ledger, &logs[1], 2048);
        });
    });
    assert_eq!(books.stats().allocation.all.allocated, 0, "nothing was entered behind the holder's back");
    drop(books);
    let stats = *ledger.lock().stats();
    assert_eq!(stats.allocation.all.allocated, 201);
    assert_eq!(stats.allocated_bytes.all.current, 2048);
    assert_eq!(stats.allocated_bytes.all.peak, 2048, "1536 at most before the last");
}

#[test]
fn a_log_that_is_never_read_is_entered_by_its_writer() {
    let ledger = SharedLedger::new(Ledger::new(-1));
    let log = Arc::<EventLog>::default();
    let books = ledger.lock();
    thread::scope(|scope| {
        scope.spawn(|| allocate(&ledger, &log, 512));
    });
    drop(books);
    for _ in 0..1000 {
        free(&ledger, &log, 512);
        allocate(&ledger, &log, 512);
    }
    assert!(log.len() < super::super::shared::BATCH_LEN);
    assert_eq!(ledger.lock().stats().allocated_bytes.all.peak, 512);
    assert_eq!(log.len(), 0);
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
                    let log = Arc::<EventLog>::default();
                    for _ in 0..20_000 {
                        let _mine = turn.lock().unwrap();
                        allocate(&ledger, &log, 512);
                        free(&ledger, &log, 512);
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    let stats = *ledger.lock().stats();
    assert_eq!(stats.allocation.all.allocated, 80_000);
    assert_eq!(stats.allocation.all.freed, 80_000);
    assert_eq!((stats.allocation.all.current, stats.allocation.all.peak), (0, 1));
}
