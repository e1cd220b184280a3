//! Segments: the table of those alive, so that the driver is never handed an address that is none.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use super::driver::Driver;
use crate::device::DeviceError;
use crate::sync::{get_mut, lock};

/// Live segments, address to bytes.
#[derive(Debug, Default)]
pub(super) struct Segments {
    live: Mutex<BTreeMap<u64, u64>>,
}

impl Segments {
    fn live(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        // Only whole insertions and removals happen under this lock, so a poisoned one still guards a whole table.
        lock(&self.live)
    }

    pub(super) fn allocate(&self, driver: &Driver, bytes: u64) -> Result<u64, DeviceError> {
        if bytes == 0 {
            let reason = "a segment has at least one byte";
            return Err(DeviceError::InvalidSize { device: driver.device_name.clone(), bytes, reason });
        }
        let address = driver.allocate(bytes)?;
        self.live().insert(address, bytes);
        Ok(address)
    }

    pub(super) fn release(&self, driver: &Driver, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.take(driver, address, bytes)?;
        // SAFETY: the segment was in the table and is so no more, so it is live and no other call can free it; nobody uses it
        // from now on, as the caller of `Device::release` promised.
        let freed = unsafe { driver.free(address) };
        if freed.is_err() {
            // Still ours as far as anybody knows.
            self.live().insert(address, bytes);
        }
        freed
    }

    fn take(&self, driver: &Driver, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let mut live = self.live();
        let reason = match live.get(&address) {
            Some(found) if *found == bytes => {
                live.remove(&address);
                return Ok(());
            }
            Some(_) => "a segment is released whole, with the size it was allocated with",
            None => "not the start of a live segment",
        };
        Err(DeviceError::InvalidAddress { device: driver.device_name.clone(), address, reason })
    }

    /// Frees what is left when the device goes; the bytes that the driver refused to take back.
    pub(super) fn release_all(&mut self, driver: &Driver) -> u64 {
        let live = std::mem::take(get_mut(&mut self.live));
        let mut refused_bytes = 0;
        for (address, bytes) in live {
            // SAFETY: live until here; the device is going, so nobody can reach it through it any more.
            if unsafe { driver.free(address) }.is_err() {
                refused_bytes += bytes;
            }
        }
        refused_bytes
    }
}
