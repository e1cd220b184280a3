//! The allocators that there are.

use std::sync::{Arc, Mutex, Weak};

use super::{CachingAllocator, Handle};
use crate::sync::lock;

/// Weak: being listed keeps no allocator.
static ALLOCATORS: Mutex<Vec<Weak<Handle>>> = Mutex::new(Vec::new());

/// Lists a new allocator, and forgets those that are gone.
pub(super) fn add(handle: &Arc<Handle>) {
    let mut allocators = lock(&ALLOCATORS);
    allocators.retain(|allocator| allocator.strong_count() > 0);
    allocators.push(Arc::downgrade(handle));
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
    let handles: Vec<_> = lock(&ALLOCATORS).iter().filter_map(Weak::upgrade).collect();
    let mut allocators: Vec<_> = handles.into_iter().map(|handle| CachingAllocator { handle }).collect();
    // Two that were made at the same time may have been listed in the other order.
    allocators.sort_by_key(|allocator| allocator.inner().id);
    allocators
}
