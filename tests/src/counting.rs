//! A global allocator that counts, for tests of what allocates on the heap and what does not.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static HELD_BYTES: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator, counting each thread's allocations. Install it with `#[global_allocator]`.
#[derive(Debug)]
pub struct Counting;

fn count(bytes: i64) {
    // A thread that is being torn down is not counted.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
    hold(bytes);
}

fn hold(bytes: i64) {
    let _ = HELD_BYTES.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: everything is passed on to the system's allocator as it came; the counter does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: as the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: as the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as i64 - layout.size() as i64);
        // SAFETY: as the caller's promise.
        unsafe { System.realloc(pointer, layout, new_size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        hold(-(layout.size() as i64));
        // SAFETY: as the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// How often this thread took heap memory in `work`; 0 where [`Counting`] is not installed.
pub fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

/// Heap bytes that this thread took and did not give back; fewer than none where it gives back what others took.
pub fn held_bytes() -> i64 {
    HELD_BYTES.get()
}
