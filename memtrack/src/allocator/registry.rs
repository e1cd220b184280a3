//! The allocators that there are.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock, Weak};

use super::CachingAllocator;
use super::inner::Inner;
use crate::sync::{read, write};

/// By their numbers. Weak: being listed keeps no allocator.
static ALLOCATORS: RwLock<BTreeMap<u64, Weak<Inner>>> = RwLock::new(BTreeMap::new());

impl Inner {
    /// Enters a new allocator, and forgets those that are gone.
    pub(super) fn register(self: &Arc<Self>) {
        let mut allocators = write(&ALLOCATORS);
        allocators.retain(|_, allocator| allocator.strong_count() > 0);
        allocators.insert(self.id, Arc::downgrade(self));
    }

    /// The allocator of this number, `None` once it is gone.
    pub(crate) fn find(id: u64) -> Option<Arc<Self>> {
        read(&ALLOCATORS).get(&id).and_then(Weak::upgrade)
    }
}

/// All allocators of the process that have a handle, in the order in which they were made.
///
/// ```
/// # use std::sync::Arc;
/// use memtrack::{CachingAllocator, device::Host};
/// let (first, second) = (CachingAllocator::new(Arc::new(Host::new())), CachingAllocator::new(Arc::new(Host::new())));
/// drop(first);
/// let all = memtrack::allocators();
/// assert!(all.len() == 1 && all[0].is_same(&second));
/// ```
pub fn allocators() -> Vec<CachingAllocator> {
    let all: Vec<Arc<Inner>> = read(&ALLOCATORS).values().filter_map(Weak::upgrade).collect();
    all.iter().filter(|inner| !inner.is_stand_in).filter_map(|inner| inner.handle()).collect()
}
