//! The process's heap, counted: burn's `ndarray` backend has no allocator of its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use memtrack::source::{Exactness, MemorySource, SourceError, SourceReading};

/// Bytes that are allocated and not freed.
static CURRENT_BYTES: AtomicU64 = AtomicU64::new(0);
/// The most of them since the last reset.
static PEAK_BYTES: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, with two counters: one atomic addition for an allocation or a free, and one maximum for an allocation.
///
/// ```
/// use memtrack_burn_digits::heap::CountedHeap;
///
/// #[global_allocator]
/// static HEAP: CountedHeap = CountedHeap;
/// # fn main() {}
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct CountedHeap;

/// What [`CountedHeap`] has counted: bytes as requested, of all threads, of memtrack's own and of whatever else allocates in Rust.
///
/// The peak is exact as long as one thread allocates; what another thread allocates in the instant in which the peak is set back
/// may be in no peak. No reserved bytes: what the system's allocator keeps is not known here.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeapSource;

impl MemorySource for HeapSource {
    fn name(&self) -> &str {
        "heap"
    }

    fn exactness(&self) -> Exactness {
        Exactness::ExactProcessWide
    }

    fn read(&self) -> Result<SourceReading, SourceError> {
        let current_bytes = CURRENT_BYTES.load(Ordering::Relaxed);
        // A binary without the counters in its allocator would report an empty heap.
        if current_bytes == 0 {
            return Err(SourceError::new("nothing is counted: make `CountedHeap` the program's #[global_allocator]"));
        }
        Ok(SourceReading::new(current_bytes).with_peak(PEAK_BYTES.load(Ordering::Relaxed)))
    }

    fn reset_peak(&self) -> Result<(), SourceError> {
        PEAK_BYTES.store(CURRENT_BYTES.load(Ordering::Relaxed), Ordering::Relaxed);
        Ok(())
    }
}

fn grew(bytes: usize) {
    let bytes = bytes as u64;
    let current_bytes = CURRENT_BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK_BYTES.fetch_max(current_bytes, Ordering::Relaxed);
}

fn shrank(bytes: usize) {
    CURRENT_BYTES.fetch_sub(bytes as u64, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it came; counting touches no memory but two statics, and cannot unwind.
unsafe impl GlobalAlloc for CountedHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let address = unsafe { System.alloc(layout) };
        if !address.is_null() {
            grew(layout.size());
        }
        address
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let address = unsafe { System.alloc_zeroed(layout) };
        if !address.is_null() {
            grew(layout.size());
        }
        address
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(address, layout) };
        shrank(layout.size());
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        let moved = unsafe { System.realloc(address, layout, new_size) };
        if !moved.is_null() {
            // In this order, since both may exist while one is copied to the other.
            grew(new_size);
            shrank(layout.size());
        }
        moved
    }
}
