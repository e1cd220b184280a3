//! The allocators of the process by their numbers, for those who know a number alone.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock, Weak};

use super::inner::Inner;
use crate::sync::{read, write};

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
