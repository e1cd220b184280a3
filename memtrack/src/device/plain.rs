//! Plain memory of the process: what is behind host segments, and behind the page-locked memory of devices that have no
//! driver to lock pages.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use super::pinned::PinnedTable;
use super::{DeviceError, PINNED_ALIGNMENT_BYTES};
use crate::sync::lock;

/// The pointer behind an address of host memory: one that a [`PlainMemory`] or a driver made, or an offset into it.
pub(crate) fn pointer_to(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// Zeroed memory from the global allocator, given back when dropped: whoever drops it knows that nobody uses it.
#[derive(Debug)]
pub(crate) struct PlainMemory {
    address: u64,
    /// What the operating system gave: somewhat more than asked for, so that `address` can be aligned.
    base_address: u64,
    layout: Layout,
}

impl PlainMemory {
    /// At least `bytes` bytes at a multiple of `alignment_bytes`, a power of two; `None` where there is no room.
    pub(crate) fn zeroed(bytes: u64, alignment_bytes: usize) -> Option<Self> {
        // An alignment no stricter than the system allocator's own, with room to round up: for a stricter one it would zero
        // the memory by hand, page by page, where it can get zeroed pages from the operating system on first use.
        let size = usize::try_from(bytes).ok()?.checked_add(alignment_bytes)?;
        let layout = Layout::from_size_align(size, align_of::<u128>()).ok()?;
        // Zeroed, so that every byte ever lent out as a slice is initialised.
        // SAFETY: the layout has a size of at least one byte, the alignment's.
        let base = unsafe { alloc_zeroed(layout) };
        if base.is_null() {
            return None;
        }
        let base_address = base.expose_provenance() as u64;
        Some(Self { address: base_address.next_multiple_of(alignment_bytes as u64), base_address, layout })
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for PlainMemory {
    fn drop(&mut self) {
        // SAFETY: the base came from `alloc_zeroed` with this layout, and only this value gives it back.
        unsafe { dealloc(pointer_to(self.base_address), self.layout) };
    }
}

/// Page-locked memory of a device that has no pages to lock: plain memory, in the same books.
#[derive(Debug, Default)]
pub(super) struct PlainPinned {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    table: PinnedTable,
    memory: BTreeMap<u64, PlainMemory>,
}

impl PlainPinned {
    fn state(&self) -> MutexGuard<'_, State> {
        // Only whole insertions and removals happen under this lock, so a poisoned one still guards whole books.
        lock(&self.state)
    }

    pub(super) fn allocate(&self, device: &str, bytes: u64) -> Result<u64, DeviceError> {
        PinnedTable::check_size(device, bytes)?;
        let memory = PlainMemory::zeroed(bytes, PINNED_ALIGNMENT_BYTES as usize)
            .ok_or_else(|| DeviceError::OutOfMemory { device: device.to_owned(), requested_bytes: bytes })?;
        let address = memory.address();
        let mut state = self.state();
        state.table.add_allocated(address, bytes);
        state.memory.insert(address, memory);
        Ok(address)
    }

    /// Nobody uses the memory from now on, as the caller of `PinnedMemory::release_pinned` promised.
    pub(super) fn release(&self, device: &str, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let memory = {
            let mut state = self.state();
            state.table.take_allocated(device, address, bytes)?;
            state.memory.remove(&address)
        };
        drop(memory);
        Ok(())
    }

    pub(super) fn register(&self, device: &str, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.state().table.add_registered(device, address, bytes)
    }

    pub(super) fn unregister(&self, device: &str, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.state().table.take_registered(device, address, bytes)
    }

    /// What is page-locked now as (address, bytes), in address order.
    pub(super) fn live(&self) -> Vec<(u64, u64)> {
        self.state().table.live()
    }
}
