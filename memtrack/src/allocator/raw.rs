//! Blocks that the program holds by their address alone.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Mutex;

use super::error::AllocationError;
use super::shard::Lease;
use crate::sync::{BiasedMutex, lock};

/// So many tables there are. Threads that use streams of their own use segments of their own, and so mostly tables of their own.
const TABLE_COUNT: usize = 32;
/// Addresses that differ in lower bits alone are in one table: the smallest segment is so large.
const TABLE_SHIFT: u32 = 21;

type Table = HashMap<u64, Lease, BuildHasherDefault<AddressHasher>>;

/// Leases by address.
#[derive(Debug, Default)]
pub(super) struct RawBlocks {
    tables: [BiasedMutex<Table>; TABLE_COUNT],
    /// Blocks of no bytes whose address another block got: nobody can name them any more.
    displaced: Mutex<Vec<Lease>>,
}

impl RawBlocks {
    #[inline]
    fn table(&self, address: u64) -> &BiasedMutex<Table> {
        // The highest bits of a product depend on all of the number's.
        let hash = (address >> TABLE_SHIFT).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.tables[(hash >> (u64::BITS - TABLE_COUNT.trailing_zeros())) as usize]
    }

    /// Gives a block to the program by its address.
    pub(super) fn hold(&self, lease: Lease) -> u64 {
        let address = lease.address();
        let displaced = self.table(address).lock().insert(address, lease);
        if let Some(displaced) = displaced {
            lock(&self.displaced).push(displaced);
        }
        address
    }

    /// Takes a block out; dropping the lease gives it back, which is to be done without the table's lock.
    pub(super) fn take(&self, address: u64) -> Result<Lease, AllocationError> {
        self.table(address).lock().remove(&address).ok_or(AllocationError::InvalidPointer { address })
    }

    /// Uses a block that stays where it is.
    pub(super) fn with<R>(&self, address: u64, use_lease: impl FnOnce(&Lease) -> R) -> Result<R, AllocationError> {
        self.table(address).lock().get(&address).map(use_lease).ok_or(AllocationError::InvalidPointer { address })
    }

    /// Gives every block back.
    pub(super) fn clear(&self) {
        for table in &self.tables {
            let leases = std::mem::take(&mut *table.lock());
            drop(leases);
        }
        let displaced = std::mem::take(&mut *lock(&self.displaced));
        drop(displaced);
    }
}

/// One multiplication. Addresses are the device's, not an adversary's, so nothing stronger is needed.
#[derive(Debug, Default)]
struct AddressHasher {
    hash: u64,
}

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, address: u64) {
        // Block addresses end in zeros, and so do their products; the table looks at the lowest and the highest bits.
        self.hash = (self.hash ^ address).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}
