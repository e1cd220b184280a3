//! Blocks that the program holds by their address alone.

use std::sync::Mutex;

use super::address_table::{AddressTable, Addressed};
use super::error::AllocationError;
use super::shard::Lease;
use crate::sync::{BiasedMutex, lock};

/// So many tables there are. Threads that use streams of their own use segments of their own, and so mostly tables of their own.
const TABLE_COUNT: usize = 32;
/// Addresses that differ in lower bits alone are in one table: the smallest segment is so large.
const TABLE_SHIFT: u32 = 21;

impl Addressed for Lease {
    #[inline(always)]
    fn address(&self) -> u64 {
        self.address()
    }
}

/// Leases by address.
#[derive(Debug, Default)]
pub(super) struct RawBlocks {
    tables: [BiasedMutex<AddressTable<Lease>>; TABLE_COUNT],
    /// Blocks of no bytes whose address another block got: nobody can name them any more.
    displaced: Mutex<Vec<Lease>>,
}

impl RawBlocks {
    #[inline]
    fn table(&self, address: u64) -> &BiasedMutex<AddressTable<Lease>> {
        // The highest bits of a product depend on all of the number's.
        let hash = (address >> TABLE_SHIFT).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.tables[(hash >> (u64::BITS - TABLE_COUNT.trailing_zeros())) as usize]
    }

    /// Gives a block to the program by its address.
    pub(super) fn hold(&self, lease: Lease) -> u64 {
        let address = lease.address();
        let displaced = self.table(address).lock().insert(lease);
        if let Some(displaced) = displaced {
            lock(&self.displaced).push(displaced);
        }
        address
    }

    /// Takes a block out; dropping the lease gives it back, which is to be done without the table's lock.
    pub(super) fn take(&self, address: u64) -> Result<Lease, AllocationError> {
        self.table(address).lock().remove(address).ok_or(AllocationError::InvalidPointer { address })
    }

    /// Uses a block that stays where it is.
    pub(super) fn with<R>(&self, address: u64, use_lease: impl FnOnce(&Lease) -> R) -> Result<R, AllocationError> {
        self.table(address).lock().get(address).map(use_lease).ok_or(AllocationError::InvalidPointer { address })
    }

    /// Gives every block back.
    pub(super) fn clear(&self) {
        for table in &self.tables {
            // The lock is let go first: dropping a lease takes others.
            let leases = table.lock().take_all();
            leases.for_each(drop);
        }
        let displaced = std::mem::take(&mut *lock(&self.displaced));
        drop(displaced);
    }
}
