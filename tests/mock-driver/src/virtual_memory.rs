//! Reserved ranges, physical memory, and what is mapped where.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::errors::{Answer, INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY};
use crate::mapping::{Mapping, clear, place_shared, protect, shared_memory};
use crate::state::{HandleKind, PAGE_BYTES, State, call, free_handle, put};

/// `CU_MEM_LOCATION_TYPE_DEVICE`
const LOCATION_IS_DEVICE: u32 = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`
const READ_AND_WRITE: u32 = 3;

/// `CUmemLocation`
#[repr(C)]
pub(crate) struct Location {
    kind: u32,
    id: i32,
}

/// `CUmemAllocationProp`
#[repr(C)]
struct AllocationProperties {
    kind: u32,
    handle_types: u32,
    location: Location,
    win32_handle_meta_data: usize,
    flags: [u8; 8],
}

/// `CUmemAccessDesc`
#[repr(C)]
struct AccessDescription {
    location: Location,
    flags: u32,
}

/// Physical memory; it goes when neither a handle nor a mapping holds it.
pub(crate) struct Physical {
    device: usize,
    bytes: u64,
    file: OwnedFd,
}

pub(crate) struct Piece {
    bytes: u64,
    physical: Arc<Physical>,
    is_accessible: bool,
}

#[derive(Default)]
pub(crate) struct Ranges {
    pub(crate) reservations: BTreeMap<u64, (u64, Mapping)>,
    pub(crate) physical: BTreeMap<u64, Arc<Physical>>,
    pub(crate) mapped: BTreeMap<u64, Piece>,
}

impl Ranges {
    pub(crate) fn is_accessible(&self, address: u64, end: u64) -> bool {
        let mut next = address;
        while next < end {
            match self.mapped.range(..=next).next_back() {
                Some((start, piece)) if start + piece.bytes > next && piece.is_accessible => next = start + piece.bytes,
                _ => return false,
            }
        }
        true
    }

    fn overlaps_mapped(&self, address: u64, end: u64) -> bool {
        self.mapped.range(..end).next_back().is_some_and(|(start, piece)| start + piece.bytes > address)
    }

    fn is_reserved(&self, address: u64, end: u64) -> bool {
        self.reservations.range(..=address).next_back().is_some_and(|(start, (bytes, _))| end <= start + bytes)
    }

    /// The starts of the pieces that make up exactly this range.
    fn pieces(&self, address: u64, bytes: usize) -> Answer<Vec<u64>> {
        let end = address.checked_add(bytes as u64).ok_or(INVALID_VALUE)?;
        let mut starts = Vec::new();
        let mut next = address;
        while next < end {
            let piece = self.mapped.get(&next).ok_or(INVALID_VALUE)?;
            starts.push(next);
            next += piece.bytes;
        }
        if next == end && !starts.is_empty() { Ok(starts) } else { Err(INVALID_VALUE) }
    }
}

impl State {
    fn let_go(&mut self, physical: Arc<Physical>) {
        if let Some(last) = Arc::into_inner(physical) {
            self.give_back(last.device, last.bytes);
        }
    }

    fn check_virtual_memory(&self) -> Answer {
        if self.has_virtual_memory { Ok(()) } else { Err(NOT_SUPPORTED) }
    }

    pub(crate) fn check_location(&self, location: &Location) -> Answer<usize> {
        if location.kind != LOCATION_IS_DEVICE {
            return Err(INVALID_VALUE);
        }
        let index = usize::try_from(location.id).map_err(|_| INVALID_DEVICE)?;
        if index < self.devices.len() { Ok(index) } else { Err(INVALID_DEVICE) }
    }
}

fn check_granular(number: u64) -> Answer {
    if number.is_multiple_of(PAGE_BYTES) { Ok(()) } else { Err(INVALID_VALUE) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetAllocationGranularity(
    granularity: *mut usize,
    properties: *const AllocationProperties,
    _option: u32,
) -> u32 {
    call("cuMemGetAllocationGranularity", |state| {
        state.check_virtual_memory()?;
        // SAFETY: null or the caller's properties, as cuda.h asks.
        let properties = unsafe { properties.as_ref() }.ok_or(INVALID_VALUE)?;
        state.check_location(&properties.location)?;
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(granularity, PAGE_BYTES as usize) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAddressReserve(
    address: *mut u64,
    bytes: usize,
    alignment: usize,
    wanted: u64,
    flags: u64,
) -> u32 {
    call("cuMemAddressReserve", |state| {
        state.check_unsafe_call()?;
        state.check_virtual_memory()?;
        check_granular(bytes as u64)?;
        let alignment = alignment.max(PAGE_BYTES as usize) as u64;
        if bytes == 0 || flags != 0 || wanted != 0 || address.is_null() || !alignment.is_power_of_two() {
            return Err(INVALID_VALUE);
        }
        let mapping = Mapping::addresses(bytes as u64, alignment).ok_or(OUT_OF_MEMORY)?;
        let start = mapping.address();
        state.ranges.reservations.insert(start, (bytes as u64, mapping));
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(address, start) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAddressFree(address: u64, bytes: usize) -> u32 {
    call("cuMemAddressFree", |state| {
        state.check_unsafe_call()?;
        let end = address.checked_add(bytes as u64).ok_or(INVALID_VALUE)?;
        let is_whole = state.ranges.reservations.get(&address).is_some_and(|(found, _)| *found == bytes as u64);
        if !is_whole || state.ranges.overlaps_mapped(address, end) {
            return Err(INVALID_VALUE);
        }
        state.ranges.reservations.remove(&address);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemCreate(
    handle: *mut u64,
    bytes: usize,
    properties: *const AllocationProperties,
    flags: u64,
) -> u32 {
    call("cuMemCreate", |state| {
        state.check_unsafe_call()?;
        state.check_virtual_memory()?;
        // SAFETY: null or the caller's properties, as cuda.h asks.
        let properties = unsafe { properties.as_ref() }.ok_or(INVALID_VALUE)?;
        let device = state.check_location(&properties.location)?;
        let bytes = bytes as u64;
        check_granular(bytes)?;
        let AllocationProperties { kind, handle_types, win32_handle_meta_data, flags: own_flags, .. } = properties;
        let is_plain = *kind == 1 && *handle_types == 0 && *win32_handle_meta_data == 0 && *own_flags == [0; 8];
        if bytes == 0 || flags != 0 || handle.is_null() || !is_plain {
            return Err(INVALID_VALUE);
        }
        state.check_request(bytes)?;
        state.take(device, bytes)?;
        let Ok(file) = shared_memory(bytes) else {
            state.give_back(device, bytes);
            return Err(OUT_OF_MEMORY);
        };
        let number = free_handle(&state.ranges.physical, HandleKind::Physical);
        state.ranges.physical.insert(number, Arc::new(Physical { device, bytes, file }));
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(handle, number) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemRelease(handle: u64) -> u32 {
    call("cuMemRelease", |state| {
        state.check_unsafe_call()?;
        let physical = state.ranges.physical.remove(&handle).ok_or(INVALID_VALUE)?;
        state.let_go(physical);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) -> u32 {
    call("cuMemMap", |state| {
        state.check_unsafe_call()?;
        let physical = Arc::clone(state.ranges.physical.get(&handle).ok_or(INVALID_VALUE)?);
        check_granular(address)?;
        let end = address.checked_add(bytes as u64).ok_or(INVALID_VALUE)?;
        let fits = bytes as u64 == physical.bytes && offset == 0 && flags == 0;
        if !fits || !state.ranges.is_reserved(address, end) || state.ranges.overlaps_mapped(address, end) {
            return Err(INVALID_VALUE);
        }
        // SAFETY: inside a reservation of this driver's, with nothing mapped there.
        if !unsafe { place_shared(address, bytes as u64, &physical.file) } {
            return Err(OUT_OF_MEMORY);
        }
        state.ranges.mapped.insert(address, Piece { bytes: bytes as u64, physical, is_accessible: false });
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemSetAccess(
    address: u64,
    bytes: usize,
    description: *const AccessDescription,
    count: usize,
) -> u32 {
    call("cuMemSetAccess", |state| {
        state.check_unsafe_call()?;
        // SAFETY: null or the caller's descriptions, as cuda.h asks.
        let description = unsafe { description.as_ref() }.ok_or(INVALID_VALUE)?;
        state.check_location(&description.location)?;
        if count != 1 {
            return Err(INVALID_VALUE);
        }
        let is_accessible = description.flags == READ_AND_WRITE;
        for start in state.ranges.pieces(address, bytes)? {
            let piece = state.ranges.mapped.get_mut(&start).ok_or(INVALID_VALUE)?;
            // SAFETY: a mapped piece of this driver's; who uses it while access is taken away is wrong on a GPU too.
            if !unsafe { protect(start, piece.bytes, is_accessible) } {
                return Err(OUT_OF_MEMORY);
            }
            piece.is_accessible = is_accessible;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemUnmap(address: u64, bytes: usize) -> u32 {
    call("cuMemUnmap", |state| {
        state.check_unsafe_call()?;
        for start in state.ranges.pieces(address, bytes)? {
            let piece = state.ranges.mapped.remove(&start).ok_or(INVALID_VALUE)?;
            // SAFETY: a mapped piece of this driver's, inside a reservation.
            if !unsafe { clear(start, piece.bytes) } {
                state.ranges.mapped.insert(start, piece);
                return Err(OUT_OF_MEMORY);
            }
            state.let_go(piece.physical);
        }
        Ok(())
    })
}
