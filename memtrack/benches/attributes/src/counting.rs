//! An allocator of the program that counts what the measuring thread asks of it.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, or hotpath's before it where hotpath counts too, with a counter in front.
#[derive(Debug)]
pub struct Counting;

#[cfg(feature = "hotpath-alloc")]
static BEHIND: hotpath::CountingAllocator = hotpath::CountingAllocator::new();
#[cfg(not(feature = "hotpath-alloc"))]
static BEHIND: std::alloc::System = std::alloc::System;

/// How often this thread has allocated, or made an allocation another size.
pub fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

fn count() {
    // A thread that is being torn down is not the one that measures.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call goes on as it came to an allocator that keeps the trait's promises; counting neither allocates nor
// unwinds, since the thread-local needs no initialisation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, passed on.
        unsafe { BEHIND.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, passed on.
        unsafe { BEHIND.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on; all memory came from there.
        unsafe { BEHIND.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, passed on; all memory came from there.
        unsafe { BEHIND.realloc(pointer, layout, new_size) }
    }
}
