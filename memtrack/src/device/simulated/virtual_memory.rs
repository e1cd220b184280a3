//! Reservations, physical memory, and what is mapped where.

use std::collections::{BTreeMap, HashMap};

use super::faults::Operation;
use super::{Simulated, State};
use crate::device::{DeviceError, PhysicalMemory, VirtualMemory};

#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// Address to bytes.
    reservations: BTreeMap<u64, u64>,
    /// By handle, until it is released and mapped nowhere.
    physical: HashMap<u64, Physical>,
    /// Mapped pieces: address to (bytes, handle).
    mappings: BTreeMap<u64, (u64, u64)>,
    next_handle: u64,
}

/// A piece of physical memory.
#[derive(Debug, Clone, Copy)]
struct Physical {
    bytes: u64,
    /// At how many places it is mapped.
    mapping_count: usize,
    is_released: bool,
}

impl Ranges {
    /// A piece that was not released, if this is one.
    fn held(&mut self, memory: &PhysicalMemory) -> Option<&mut Physical> {
        let held = self.physical.get_mut(&memory.handle)?;
        (held.bytes == memory.bytes && !held.is_released).then_some(held)
    }

    /// The physical memory behind addresses, if all of them have some.
    pub(super) fn physical_ranges(&self, address: u64, bytes: u64) -> Option<Vec<(u64, u64, u64)>> {
        let end = address.checked_add(bytes)?;
        let mut found = Vec::new();
        let mut at = address;
        while at < end {
            let (start, (bytes, handle)) = self.mappings.range(..=at).next_back()?;
            let to = (start + bytes).min(end);
            if to <= at {
                return None;
            }
            found.push((*handle, at - start, to - start));
            at = to;
        }
        Some(found)
    }

    pub(super) fn mapping_count(&self) -> usize {
        self.mappings.len()
    }

    /// Forgets a piece that nobody holds and that is mapped nowhere; the bytes that are free by that.
    fn forget_unused(&mut self, handle: u64) -> u64 {
        match self.physical.get(&handle) {
            Some(Physical { bytes, mapping_count: 0, is_released: true }) => {
                let bytes = *bytes;
                self.physical.remove(&handle);
                bytes
            }
            _ => 0,
        }
    }
}

impl Simulated {
    fn check_granular(&self, bytes: u64) -> Result<(), DeviceError> {
        let granularity_bytes = VirtualMemory::granularity_bytes(self);
        if bytes == 0 || !bytes.is_multiple_of(granularity_bytes) {
            return Err(self.invalid_size(bytes, "not a positive multiple of the granularity"));
        }
        Ok(())
    }
}

// SAFETY: there is no memory behind the addresses, and every access to it is refused; live ranges are kept apart.
unsafe impl VirtualMemory for Simulated {
    fn granularity_bytes(&self) -> u64 {
        self.granularity_bytes.unwrap_or(1)
    }

    fn reserve(&self, bytes: u64) -> Result<u64, DeviceError> {
        self.check_granular(bytes)?;
        self.run_script(Operation::Reserve, bytes)?;
        let mut state = self.state();
        let address = self.place(&mut state, bytes, VirtualMemory::granularity_bytes(self))?;
        state.ranges.reservations.insert(address, bytes);
        Ok(address)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let mut state = self.state();
        if state.ranges.reservations.get(&address) != Some(&bytes) {
            return Err(self.invalid_address(address, "not a reservation of that size"));
        }
        // The sum fits: the reservation was placed there.
        if state.ranges.mappings.range(address..address + bytes).next().is_some() {
            return Err(self.invalid_address(address, "the reservation still has memory mapped in it"));
        }
        state.ranges.reservations.remove(&address);
        state.addresses.remove(address);
        Ok(())
    }

    fn create(&self, bytes: u64) -> Result<PhysicalMemory, DeviceError> {
        self.check_granular(bytes)?;
        self.run_script(Operation::Create, bytes)?;
        let mut state = self.state();
        self.check_room(&state, bytes)?;
        state.used_bytes += bytes;
        let Ranges { next_handle, physical, .. } = &mut state.ranges;
        *next_handle += 1;
        let handle = *next_handle;
        physical.insert(handle, Physical { bytes, mapping_count: 0, is_released: false });
        Ok(PhysicalMemory { handle, bytes })
    }

    fn release_physical(&self, memory: PhysicalMemory) -> Result<(), DeviceError> {
        self.run_script(Operation::ReleasePhysical, memory.bytes)?;
        let mut state = self.state();
        let State { ranges, used_bytes, .. } = &mut *state;
        let Some(physical) = ranges.held(&memory) else {
            return Err(self.invalid_address(memory.handle, "not the handle of live physical memory of that size"));
        };
        // Memory that is still mapped somewhere goes with its last mapping, as in the driver.
        physical.is_released = true;
        *used_bytes -= ranges.forget_unused(memory.handle);
        Ok(())
    }

    fn map(&self, address: u64, memory: PhysicalMemory) -> Result<(), DeviceError> {
        self.run_script(Operation::Map, memory.bytes)?;
        let mut state = self.state();
        if state.ranges.held(&memory).is_none() {
            return Err(self.invalid_address(memory.handle, "not the handle of live physical memory of that size"));
        }
        let reservation = state.ranges.reservations.range(..=address).next_back();
        let end = address
            .checked_add(memory.bytes)
            .filter(|end| reservation.is_some_and(|(start, bytes)| *end <= start + bytes))
            .ok_or_else(|| self.invalid_address(address, "the memory does not fit into one reservation there"))?;
        if !address.is_multiple_of(VirtualMemory::granularity_bytes(self)) {
            return Err(self.invalid_address(address, "not a multiple of the granularity"));
        }
        let clash =
            state.ranges.mappings.range(..end).next_back().is_some_and(|(start, (bytes, _))| start + bytes > address);
        if clash {
            return Err(self.invalid_address(address, "memory is mapped there already"));
        }
        state.ranges.mappings.insert(address, (memory.bytes, memory.handle));
        if let Some(physical) = state.ranges.held(&memory) {
            physical.mapping_count += 1;
        }
        Ok(())
    }

    unsafe fn unmap(&self, address: u64, bytes: u64) -> Result<(), DeviceError> {
        self.run_script(Operation::Unmap, bytes)?;
        let mut state = self.state();
        let end = address
            .checked_add(bytes)
            .ok_or_else(|| self.invalid_address(address, "the range reaches past the end of the address space"))?;
        let pieces: Vec<(u64, u64, u64)> = state
            .ranges
            .mappings
            .range(address..end)
            .map(|(start, (bytes, handle))| (*start, *bytes, *handle))
            .collect();
        let covered = pieces.iter().try_fold(address, |at, (start, bytes, _)| (*start == at).then_some(start + bytes));
        if bytes == 0 || covered != Some(end) {
            return Err(self.invalid_address(address, "not a range of whole mapped pieces"));
        }
        let State { streams, work, .. } = &mut *state;
        work.unmapped(streams, address, end);
        for (start, _, handle) in pieces {
            let State { ranges, used_bytes, .. } = &mut *state;
            ranges.mappings.remove(&start);
            if let Some(physical) = ranges.physical.get_mut(&handle) {
                physical.mapping_count -= 1;
            }
            *used_bytes -= ranges.forget_unused(handle);
        }
        Ok(())
    }
}
