//! Blocks that were freed while the driver refused to wait for their work, as it does while a graph is captured.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use memtrack::CachingAllocator;

use super::lock;
use crate::real::{SUCCESS, real};

/// They wait to be given back.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    addresses: Mutex<Vec<u64>>,
    count: AtomicUsize,
}

impl Deferred {
    pub(super) fn put(&self, more: Vec<u64>) {
        if !more.is_empty() {
            let mut addresses = lock(&self.addresses);
            addresses.extend(more);
            self.count.store(addresses.len(), Ordering::Release);
        }
    }

    pub(super) fn take(&self) -> Vec<u64> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut addresses = lock(&self.addresses);
        self.count.store(0, Ordering::Release);
        std::mem::take(&mut *addresses)
    }

    /// Waits for the thread's context, and gives back what is here; how many blocks that were.
    pub(super) fn give_back(&self, allocator: &CachingAllocator) -> usize {
        let addresses = self.take();
        if addresses.is_empty() {
            return 0;
        }
        // SAFETY: no arguments.
        if unsafe { real().context_synchronize() } != SUCCESS {
            self.put(addresses);
            return 0;
        }
        let count = addresses.len();
        for address in addresses {
            // One that memtrack does not know any more was its before, and is nobody's.
            let _ = allocator.free_raw(address);
        }
        count
    }
}
