//! The bug class: a figure for several devices that is none of any moment, such as a sum of peaks reached at different times.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use memtrack::device::Simulated;
use memtrack::scope::{CallSite, DevicesRecord, DevicesScope, OpenDevicesScope, Outcome, Scope};
use memtrack::{Buffer, CachingAllocator};

const MIB: i64 = 1 << 20;

fn allocators<const COUNT: usize>() -> [CachingAllocator; COUNT] {
    std::array::from_fn(|_| CachingAllocator::new(Arc::new(Simulated::new())))
}

/// So many MiB.
fn take(allocator: &CachingAllocator, mebibytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, mebibytes << 20).unwrap()
}

/// Before, peak and after of all devices together, in MiB.
fn levels(record: &DevicesRecord) -> [i64; 3] {
    let combined = &record.combined;
    [combined.before_bytes, combined.peak_bytes, combined.after_bytes].map(|bytes| bytes / MIB)
}

#[test]
fn the_peak_is_that_of_the_sum_and_not_the_sum_of_the_peaks() {
    let devices = allocators::<2>();
    let _before = take(&devices[0], 7);
    let scope = DevicesScope::open(&devices, "move", None);
    drop(take(&devices[0], 100));
    let kept = take(&devices[1], 60);
    drop(take(&devices[0], 30));
    let record = scope.close(Outcome::Ok);
    assert_eq!(levels(&record), [7, 107, 67]);
    let peaks: Vec<_> = record.devices.iter().map(|device| device.peak_bytes / MIB).collect();
    assert_eq!(peaks, [107, 60]);
    assert_eq!(record.combined.delta_bytes(), 60 * MIB);
    assert_eq!((record.combined.own_peak_bytes, record.combined.own_delta_bytes), (100 * MIB, 60 * MIB));
    assert_eq!(record.combined.own_allocated_bytes, 190 * MIB);
    assert_eq!((record.combined.allocation_count, record.combined.free_count), (3, 2));
    assert_eq!(record.changed_device_count, 2);
    assert_eq!((record.combined.name, record.combined.device.as_str()), ("move", "simulated,simulated"));
    drop(kept);
}

#[test]
fn a_peak_of_the_sum_may_be_where_no_device_has_its_own() {
    let devices = allocators::<2>();
    let scope = DevicesScope::open(&devices, "both", None);
    drop(take(&devices[0], 50));
    drop(take(&devices[1], 50));
    let kept = (take(&devices[0], 40), take(&devices[1], 40));
    let record = scope.close(Outcome::Ok);
    assert_eq!(levels(&record), [0, 80, 80]);
    assert_eq!(record.combined.own_peak_bytes, 80 * MIB);
    assert!(record.devices.iter().all(|device| device.peak_bytes == 50 * MIB));
    drop(kept);
}

#[test]
fn what_others_move_is_in_the_devices_figures_and_not_in_the_own_ones() {
    let devices = allocators::<2>();
    let scope = DevicesScope::open(&devices, "here", None);
    let kept = take(&devices[0], 1);
    std::thread::scope(|threads| {
        threads.spawn(|| drop(take(&devices[1], 20)));
    });
    let record = scope.close(Outcome::Err);
    assert_eq!((levels(&record), record.combined.own_peak_bytes), ([0, 21, 1], MIB));
    assert_eq!((record.combined.foreign_bytes, record.combined.outcome), (40 * MIB, Outcome::Err));
    drop(kept);
}

#[test]
fn an_allocator_named_twice_counts_once_and_none_measures_nothing() {
    let [first, second, third] = allocators();
    let _quiet = take(&third, 5);
    let scope = DevicesScope::open(&[second.clone(), first.clone(), second.clone(), third], "some", Some("load"));
    let kept = take(&second, 3);
    let record = scope.close(Outcome::Ok);
    let deltas: Vec<_> = record.devices.iter().map(|device| device.delta_bytes() / MIB).collect();
    assert_eq!((levels(&record), deltas), ([5, 8, 8], vec![3, 0, 0]), "in the order given");
    assert_eq!((record.changed_device_count, record.combined.phase), (1, Some("load")));
    let nothing = DevicesScope::open(&[], "nothing", None).close(Outcome::Ok);
    assert_eq!((levels(&nothing), nothing.devices.len(), nothing.changed_device_count), ([0, 0, 0], 0, 0));
    drop((kept, first));
}

#[test]
fn a_scope_sent_to_another_thread_owns_what_is_allocated_where_it_is_attached() {
    fn sendable<T: Send>(value: T) -> T {
        value
    }
    let devices = allocators::<2>();
    let scope = sendable(OpenDevicesScope::open(&devices, "task", None));
    let unowned = take(&devices[0], 1);
    let (record, kept) = std::thread::scope(|threads| {
        let worker = threads.spawn(|| {
            let attached = scope.attach();
            let kept = (take(&devices[0], 2), take(&devices[1], 4));
            let inner = Scope::open(&devices[1], "inner", None);
            drop(take(&devices[1], 8));
            assert_eq!(inner.close(Outcome::Ok).own_peak_bytes, 8 * MIB);
            drop(attached);
            drop(take(&devices[1], 16));
            (scope.close(Outcome::Ok), kept)
        });
        worker.join().unwrap()
    });
    assert_eq!((levels(&record), record.combined.own_peak_bytes), ([0, 23, 7], 14 * MIB));
    assert_eq!(record.combined.own_delta_bytes, 6 * MIB);
    assert_eq!(record.combined.exclusive_allocated_bytes, 6 * MIB, "the inner scope's is its own");
    drop((unowned, kept));
}

#[test]
fn scopes_over_several_devices_nest_and_overlap() {
    let devices = allocators::<3>();
    let outer = OpenDevicesScope::open(&devices, "outer", None);
    let attached = outer.attach();
    let pair = OpenDevicesScope::open(&devices[..2], "pair", None);
    let first = take(&devices[0], 10);
    let other = OpenDevicesScope::open(&devices[1..], "other pair", None);
    let second = take(&devices[1], 20);
    let third = take(&devices[2], 40);
    drop(first);
    let pair = pair.close(Outcome::Ok);
    drop(second);
    let again = take(&devices[0], 80);
    drop(attached);
    let (other, outer) = (other.close(Outcome::Ok), outer.close(Outcome::Ok));
    assert_eq!((levels(&pair), levels(&other), levels(&outer)), ([0, 30, 20], [0, 60, 40], [0, 120, 120]));
    let own_peaks = [&pair, &other, &outer].map(|record| record.combined.own_peak_bytes / MIB);
    assert_eq!(own_peaks, [0, 0, 120], "the inner ones were attached nowhere");
    drop((third, again));
}

#[test]
fn a_block_given_back_after_its_scope_changes_nothing_of_a_later_one() {
    let devices = allocators::<2>();
    let scope = DevicesScope::open(&devices, "first", None);
    let kept = take(&devices[0], 6);
    assert_eq!(scope.close(Outcome::Ok).combined.own_delta_bytes, 6 * MIB);
    let scope = DevicesScope::open(&devices, "second", None);
    drop(kept);
    let held = take(&devices[1], 2);
    let record = scope.close(Outcome::Ok);
    assert_eq!((levels(&record), record.combined.own_peak_bytes), ([6, 6, 2], 2 * MIB));
    drop(held);
}

#[test]
fn it_ends_as_scopes_do_and_counts_for_its_call_site_on_each_device() {
    static SITE: CallSite = CallSite::new("on all", module_path!(), file!(), line!());
    let devices = allocators::<2>();
    drop(OpenDevicesScope::open_site(&devices, &SITE, None));
    drop(DevicesScope::open_site(&devices, &SITE, None));
    let panics = || {
        let _scope = DevicesScope::open_site(&devices, &SITE, None);
        let _buffer = take(&devices[1], 3);
        panic!("on purpose");
    };
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    for (device, mebibytes) in devices.iter().zip([0, 3]) {
        let totals = &device.call_sites()[0];
        assert_eq!((totals.call_count, totals.inclusive_allocated_bytes), (3, mebibytes * MIB));
        assert_eq!((totals.ok_count, totals.panic_count, totals.cancelled_count), (1, 1, 1));
    }
    let after = Scope::open(&devices[0], "after", None);
    drop(take(&devices[0], 1));
    assert_eq!(after.close(Outcome::Ok).exclusive_allocated_bytes, MIB, "nothing is left on this thread");
}

#[test]
fn a_forgotten_attachment_ends_with_its_scope() {
    let devices = allocators::<2>();
    let outer = Scope::open(&devices[1], "outer", None);
    let inner = OpenDevicesScope::open(&devices, "inner", None);
    std::mem::forget(inner.attach());
    inner.close(Outcome::Ok);
    drop(take(&devices[1], 1));
    let record = outer.close(Outcome::Ok);
    assert_eq!((record.own_allocation_count, record.foreign_bytes), (1, 0));
}

/// Each thread names the devices in its own order, and all take all books.
#[test]
fn scopes_over_the_same_devices_in_any_order_do_not_wait_for_each_other_for_ever() {
    let devices = allocators::<3>();
    std::thread::scope(|threads| {
        for first in 0..3 {
            let devices = &devices;
            threads.spawn(move || {
                let order: Vec<_> = (0..3).map(|at| devices[(first + 2 * at) % 3].clone()).collect();
                for _ in 0..2000 {
                    let scope = DevicesScope::open(&order, "all", None);
                    drop(take(&order[0], 1));
                    let record = scope.close(Outcome::Ok);
                    assert_eq!((record.combined.own_peak_bytes, record.combined.own_delta_bytes), (MIB, 0));
                    assert!((1..=3).contains(&(record.combined.peak_bytes / MIB)));
                }
            });
        }
    });
}

/// On many threads, but one after the other: never are two blocks live, on whichever device.
#[test]
fn what_happens_on_two_devices_one_after_the_other_never_looks_simultaneous() {
    let devices = allocators::<2>();
    let turn = Mutex::new(());
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _mine = turn.lock().unwrap();
                    devices.iter().for_each(|device| drop(take(device, 1)));
                }
            });
        }
        // So that the others log.
        threads.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert!(devices[0].memory_allocated() <= MIB);
            }
        });
        let highest_bytes = (0..2000)
            .map(|_| {
                let scope = OpenDevicesScope::open(&devices, "watch", None);
                std::thread::yield_now();
                scope.close(Outcome::Ok).combined.peak_bytes
            })
            .max();
        done.store(true, Ordering::Relaxed);
        assert!(highest_bytes <= Some(MIB), "{highest_bytes:?}");
    });
}
