//! This process's figures now.

use std::sync::Mutex;
use std::time::SystemTime;

use super::liveness::{own_namespace, start_of};
use super::{Publication, PublishedAllocator};
use crate::allocator::{CachingAllocator, allocators};
use crate::sync::lock;

/// A function that gives figures of others than memtrack's allocators.
pub type Source = fn() -> Vec<PublishedAllocator>;

static SOURCES: Mutex<Vec<Source>> = Mutex::new(Vec::new());

/// From now on publishes what `source` gives too, behind memtrack's own allocators: for whoever counts memory that memtrack does not
/// allocate. It is called each time figures are published.
pub fn add_source(source: Source) {
    lock(&SOURCES).push(source);
}

pub(super) fn gather() -> Publication {
    let pid = std::process::id();
    let program = std::env::current_exe().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    Publication {
        pid,
        start_ticks: start_of(pid),
        pid_namespace: own_namespace(),
        program: program.unwrap_or_default(),
        published: SystemTime::now(),
        allocators: allocators().iter().map(figures).chain(of_others()).collect(),
    }
}

fn of_others() -> Vec<PublishedAllocator> {
    // Called without the lock.
    let sources = lock(&SOURCES).clone();
    sources.into_iter().flat_map(|source| source()).collect()
}

fn figures(allocator: &CachingAllocator) -> PublishedAllocator {
    let (device, stats) = (allocator.device(), allocator.memory_stats());
    PublishedAllocator {
        device: device.name().to_owned(),
        kind: device.kind(),
        model: device.model().to_owned(),
        uuid: device.uuid(),
        pci_address: device.pci_address(),
        allocated_bytes: unsigned(stats.allocated_bytes.all.current),
        requested_bytes: unsigned(stats.requested_bytes.all.current),
        reserved_bytes: unsigned(stats.reserved_bytes.all.current),
        peak_allocated_bytes: unsigned(stats.allocated_bytes.all.peak),
        peak_reserved_bytes: unsigned(stats.reserved_bytes.all.peak),
        inactive_split_bytes: unsigned(stats.inactive_split_bytes.all.current),
        largest_free_block_bytes: allocator.inner().largest_free_block_bytes(),
        // A limit of all that a number can say is none.
        limit_bytes: allocator.limit_bytes().filter(|bytes| *bytes != u64::MAX),
        retry_count: unsigned(stats.num_alloc_retries),
        oom_count: unsigned(stats.num_ooms),
        // Of a view that is attached already; none is attached for this.
        context: allocator.inner().context_memory(),
    }
}

fn unsigned(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or(0)
}
