//! Reserved ranges, physical memory and what is mapped where: the table that checks each call before the driver, for
//! which some of these mistakes are undefined.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

use cudarc::driver::sys;

use super::Cuda;
use super::driver::Driver;
use crate::device::{DeviceError, PhysicalMemory, VirtualMemory};
use crate::sync::{get_mut, lock};

/// The ranges of one device.
#[derive(Debug)]
pub(super) struct Ranges {
    granularity_bytes: u64,
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    /// Address to bytes.
    reservations: BTreeMap<u64, u64>,
    /// Handle to bytes, until released.
    physical: HashMap<u64, u64>,
    /// Mapped pieces, address to bytes. A piece outlives the release of its handle.
    mappings: BTreeMap<u64, u64>,
}

impl Tables {
    /// Whether the range lies within one reservation.
    fn is_reserved(&self, address: u64, bytes: u64) -> bool {
        let Some(end) = address.checked_add(bytes) else { return false };
        let before = self.reservations.range(..=address).next_back();
        before.is_some_and(|(start, length)| end <= start + length)
    }

    fn is_mapped_anywhere_in(&self, address: u64, bytes: u64) -> bool {
        let end = address.saturating_add(bytes);
        let before = self.mappings.range(..end).next_back();
        before.is_some_and(|(start, length)| start + length > address)
    }

    /// The pieces that make up exactly this range.
    fn pieces(&self, address: u64, bytes: u64) -> Result<Vec<(u64, u64)>, &'static str> {
        let end = address.checked_add(bytes).ok_or("past the end of the address space")?;
        let mut pieces = Vec::new();
        let mut next = address;
        while next < end {
            let length = *self.mappings.get(&next).ok_or("not mapped, or inside a mapped piece")?;
            pieces.push((next, length));
            next += length;
        }
        if next == end { Ok(pieces) } else { Err("the range ends inside a mapped piece") }
    }

    /// Maps pieces into a range that was checked to be reserved and free, with handles that were checked. After an error some
    /// may be mapped.
    fn map_free(&mut self, driver: &Driver, address: u64, pieces: &[PhysicalMemory]) -> Result<(), DeviceError> {
        let mut next = address;
        for PhysicalMemory { handle, bytes } in pieces.iter().copied() {
            // SAFETY: reserved, free and aligned, with an unreleased handle of this size; all of it stays so under the lock.
            unsafe { driver.map(next, bytes, handle) }?;
            self.mappings.insert(next, bytes);
            next += bytes;
        }
        // One call for all: it costs the same for a range as for a piece.
        // SAFETY: whole pieces, mapped above.
        unsafe { driver.make_accessible(address, next - address) }
    }

    /// Unmaps what is mapped in a range that nobody was given.
    fn unmap_unused(&mut self, driver: &Driver, address: u64, bytes: u64) {
        let pieces: Vec<(u64, u64)> =
            self.mappings.range(address..address + bytes).map(|(at, of)| (*at, *of)).collect();
        for (address, bytes) in pieces {
            // SAFETY: a whole mapped piece that nobody was given.
            if unsafe { driver.unmap(address, bytes) }.is_ok() {
                self.mappings.remove(&address);
            }
            // Else it is still mapped: the table says so, and `unmap` may be tried again.
        }
    }
}

/// Calls are made with the table locked, so that what was checked still holds when the driver acts on it.
impl Ranges {
    pub(super) fn new(granularity_bytes: u64) -> Self {
        Self { granularity_bytes, tables: Mutex::default() }
    }

    pub(super) fn granularity_bytes(&self) -> u64 {
        self.granularity_bytes
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // Only whole insertions and removals happen under this lock, so a poisoned one still guards whole tables.
        lock(&self.tables)
    }

    fn check_size(&self, driver: &Driver, bytes: u64) -> Result<(), DeviceError> {
        if bytes == 0 || !bytes.is_multiple_of(self.granularity_bytes) {
            let reason = "not a positive multiple of the granularity";
            return Err(DeviceError::InvalidSize { device: driver.device_name.clone(), bytes, reason });
        }
        Ok(())
    }

    pub(super) fn reserve(&self, driver: &Driver, bytes: u64) -> Result<u64, DeviceError> {
        self.check_size(driver, bytes)?;
        let address = driver.reserve_addresses(bytes, self.granularity_bytes)?;
        self.tables().reservations.insert(address, bytes);
        Ok(address)
    }

    pub(super) fn unreserve(&self, driver: &Driver, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let mut tables = self.tables();
        match tables.reservations.get(&address) {
            Some(found) if *found == bytes => {}
            Some(_) => return Err(invalid(driver, address, "a reservation is given back whole, with its own size")),
            None => return Err(invalid(driver, address, "not the start of a reservation")),
        }
        if tables.is_mapped_anywhere_in(address, bytes) {
            return Err(invalid(driver, address, "memory is still mapped in the reservation; unmap it first"));
        }
        // SAFETY: a whole reservation with nothing mapped in it, and it stays so under the lock.
        unsafe { driver.free_addresses(address, bytes) }?;
        tables.reservations.remove(&address);
        Ok(())
    }

    pub(super) fn create(&self, driver: &Driver, bytes: u64) -> Result<PhysicalMemory, DeviceError> {
        self.check_size(driver, bytes)?;
        let handle = driver.create_physical(bytes)?;
        self.tables().physical.insert(handle, bytes);
        Ok(PhysicalMemory { handle, bytes })
    }

    pub(super) fn release(&self, driver: &Driver, memory: PhysicalMemory) -> Result<(), DeviceError> {
        let mut tables = self.tables();
        check_physical(driver, &tables, memory)?;
        // SAFETY: in the table, so made here and not released.
        unsafe { driver.release_physical(memory.handle) }?;
        tables.physical.remove(&memory.handle);
        Ok(())
    }

    /// All pieces, one behind the other, or none.
    pub(super) fn map(&self, driver: &Driver, address: u64, pieces: &[PhysicalMemory]) -> Result<(), DeviceError> {
        if pieces.is_empty() {
            return Ok(());
        }
        let mut tables = self.tables();
        pieces.iter().try_for_each(|piece| check_physical(driver, &tables, *piece))?;
        if !address.is_multiple_of(self.granularity_bytes) {
            return Err(invalid(driver, address, "not a multiple of the granularity"));
        }
        // One piece can come several times, so the sum need not fit.
        let bytes = pieces.iter().try_fold(0_u64, |sum, piece| sum.checked_add(piece.bytes)).unwrap_or(u64::MAX);
        if !tables.is_reserved(address, bytes) {
            return Err(invalid(driver, address, "the memory does not fit into one reservation there"));
        }
        if tables.is_mapped_anywhere_in(address, bytes) {
            return Err(invalid(driver, address, "already mapped; unmap it first"));
        }
        if let Err(error) = tables.map_free(driver, address, pieces) {
            tables.unmap_unused(driver, address, bytes);
            return Err(error);
        }
        Ok(())
    }

    pub(super) fn unmap(&self, driver: &Driver, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.check_size(driver, bytes)?;
        let mut tables = self.tables();
        let pieces = tables.pieces(address, bytes).map_err(|reason| invalid(driver, address, reason))?;
        for (address, bytes) in pieces {
            // One call a piece: the driver does not promise to take several at once.
            // SAFETY: a whole mapped piece, which nobody uses any more, as the caller of `VirtualMemory::unmap` promised.
            unsafe { driver.unmap(address, bytes) }?;
            tables.mappings.remove(&address);
        }
        Ok(())
    }

    /// Takes everything apart when the device goes; the bytes of physical memory the driver refused to take back.
    pub(super) fn release_all(&mut self, driver: &Driver) -> u64 {
        let tables = std::mem::take(get_mut(&mut self.tables));
        let Tables { reservations, physical, mappings } = tables;
        let mut refused_bytes = 0;
        for (address, bytes) in mappings {
            // SAFETY: a whole mapped piece; the device is going, so nobody can reach it through it any more.
            if unsafe { driver.unmap(address, bytes) }.is_err() {
                refused_bytes += bytes;
            }
        }
        for (handle, bytes) in physical {
            // SAFETY: in the table until here, so not released.
            if unsafe { driver.release_physical(handle) }.is_err() {
                refused_bytes += bytes;
            }
        }
        for (address, bytes) in reservations {
            // SAFETY: a whole reservation. Where an unmapping was refused above, the driver refuses this too, and the range
            // stays until the process ends; no bytes are lost by it.
            let _ = unsafe { driver.free_addresses(address, bytes) };
        }
        refused_bytes
    }
}

fn invalid(driver: &Driver, address: u64, reason: &'static str) -> DeviceError {
    DeviceError::InvalidAddress { device: driver.device_name.clone(), address, reason }
}

fn check_physical(driver: &Driver, tables: &Tables, memory: PhysicalMemory) -> Result<(), DeviceError> {
    match tables.physical.get(&memory.handle) {
        Some(bytes) if *bytes == memory.bytes => Ok(()),
        Some(_) => Err(invalid(driver, memory.handle, "this physical memory has another size")),
        None => Err(invalid(driver, memory.handle, "not the handle of physical memory, or already released")),
    }
}

impl Cuda {
    fn ranges(&self) -> Result<&Ranges, DeviceError> {
        self.ranges.as_ref().ok_or_else(|| DeviceError::Driver {
            device: self.name.clone(),
            call: "virtual memory",
            code: sys::CUresult::CUDA_ERROR_NOT_SUPPORTED as u32,
            name: "CUDA_ERROR_NOT_SUPPORTED".to_owned(),
            description: "this device has no virtual memory management".to_owned(),
        })
    }
}

/// Unmapping does not wait for the device: whoever unmaps a range first waits for the work that uses it.
// SAFETY: the driver keeps ranges and physical memory apart, and the table of what is mapped where refuses what does not fit.
unsafe impl VirtualMemory for Cuda {
    fn granularity_bytes(&self) -> u64 {
        self.ranges.as_ref().map_or(0, Ranges::granularity_bytes)
    }

    fn reserve(&self, bytes: u64) -> Result<u64, DeviceError> {
        self.ranges()?.reserve(&self.driver, bytes)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.ranges()?.unreserve(&self.driver, address, bytes)
    }

    fn create(&self, bytes: u64) -> Result<PhysicalMemory, DeviceError> {
        self.ranges()?.create(&self.driver, bytes)
    }

    fn release_physical(&self, memory: PhysicalMemory) -> Result<(), DeviceError> {
        self.ranges()?.release(&self.driver, memory)
    }

    fn map(&self, address: u64, memory: PhysicalMemory) -> Result<(), DeviceError> {
        self.ranges()?.map(&self.driver, address, &[memory])
    }

    fn map_pieces(&self, address: u64, pieces: &[PhysicalMemory]) -> Result<(), DeviceError> {
        self.ranges()?.map(&self.driver, address, pieces)
    }

    unsafe fn unmap(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.ranges()?.unmap(&self.driver, address, bytes)
    }
}
