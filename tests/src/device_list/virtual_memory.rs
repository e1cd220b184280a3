//! Address ranges and physical memory.

use crate::unused::UnmapUnused as _;
use std::sync::Arc;

use memtrack::device::{Device, DeviceError, PhysicalMemory, Stream, VirtualMemory};

use super::{Check, Checked, Controls, Outcome, ensure, ensure_matches};

const NO_VIRTUAL_MEMORY: Outcome = Outcome::Skipped("there is no virtual memory");

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("memory mapped into a range can be used", mapped_memory_can_be_used),
    ("several pieces are mapped at once", several_pieces_are_mapped_at_once),
    ("several pieces are mapped all or none", several_pieces_are_mapped_all_or_none),
    ("memory shows the same bytes at two addresses", the_same_bytes_at_two_addresses),
    ("remapped memory keeps its bytes", remapped_memory_keeps_its_bytes),
    ("physical memory goes with its last mapping", physical_memory_goes_with_its_last_mapping),
    ("physical memory runs out without sticking", physical_memory_runs_out),
    ("sizes that are no multiple of the granularity are refused", odd_sizes_are_refused),
    ("memory is mapped only into free reserved addresses", memory_is_mapped_only_where_it_fits),
    ("only whole mapped pieces are unmapped", only_whole_pieces_are_unmapped),
    ("only a whole empty reservation is given back", only_a_whole_empty_reservation_is_given_back),
    ("physical memory is released once", physical_memory_is_released_once),
];

/// A range of four pieces, and the granularity.
fn reserve_four(memory: &dyn VirtualMemory) -> Result<(u64, u64), DeviceError> {
    let granularity_bytes = memory.granularity_bytes();
    Ok((memory.reserve(4 * granularity_bytes)?, granularity_bytes))
}

fn read(device: &Arc<dyn Device>, address: u64) -> Result<[u8; 16], DeviceError> {
    let mut found = [0; 16];
    // SAFETY: only called on mapped addresses that the check alone knows.
    unsafe { device.read(address, &mut found, Stream::DEFAULT) }?;
    Ok(found)
}

fn write(device: &Arc<dyn Device>, address: u64, value: u8) -> Result<(), DeviceError> {
    // SAFETY: only called on mapped addresses that the check alone knows.
    unsafe { device.write(address, &[value; 16], Stream::DEFAULT) }
}

fn mapped_memory_can_be_used(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let Some(memory) = device.virtual_memory() else { return Ok(NO_VIRTUAL_MEMORY) };
    let (range, granularity_bytes) = reserve_four(memory)?;
    ensure!(granularity_bytes > 0 && range.is_multiple_of(granularity_bytes), "{range:#x} of {granularity_bytes}");
    let small = memory.create(granularity_bytes)?;
    let large = memory.create(2 * granularity_bytes)?;
    memory.map(range, small)?;
    memory.map(range + granularity_bytes, large)?;
    if controls.has_bytes {
        // Across the border between the two pieces.
        let (start, length) = (range + granularity_bytes - 1000, 2000);
        let mut found = vec![0; length];
        // SAFETY: the range is mapped, and only this check knows it.
        unsafe {
            device.fill(range, 0, 3 * granularity_bytes, Stream::DEFAULT)?;
            device.write(start, &vec![7; length], Stream::DEFAULT)?;
            device.read(start, &mut found, Stream::DEFAULT)?;
        }
        ensure!(found.iter().all(|&byte| byte == 7), "bytes across two pieces came back changed");
        device.synchronize()?;
    }
    memory.unmap_unused(range, 3 * granularity_bytes)?;
    memory.release_physical(small)?;
    memory.release_physical(large)?;
    memory.unreserve(range, 4 * granularity_bytes)?;
    Ok(Outcome::Held)
}

fn several_pieces_are_mapped_at_once(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let Some(memory) = device.virtual_memory() else { return Ok(NO_VIRTUAL_MEMORY) };
    let (range, granularity_bytes) = reserve_four(memory)?;
    let (small, large) = (memory.create(granularity_bytes)?, memory.create(2 * granularity_bytes)?);
    memory.map_pieces(range, &[])?;
    // One of them twice.
    memory.map_pieces(range, &[small, large, small])?;
    if controls.has_bytes {
        let places = [(range, 31), (range + granularity_bytes, 32), (range + 2 * granularity_bytes, 33)];
        for (address, value) in places {
            write(device, address, value)?;
        }
        for (address, value) in places.into_iter().chain([(range + 3 * granularity_bytes, 31)]) {
            ensure!(read(device, address)? == [value; 16], "other bytes than {value} at {address:#x}");
        }
    }
    // They come off singly, and at once.
    memory.unmap_unused(range + granularity_bytes, 2 * granularity_bytes)?;
    memory.map_pieces(range + granularity_bytes, &[large])?;
    memory.unmap_unused(range, 4 * granularity_bytes)?;
    memory.release_physical(small)?;
    memory.release_physical(large)?;
    memory.unreserve(range, 4 * granularity_bytes)?;
    Ok(Outcome::Held)
}

fn several_pieces_are_mapped_all_or_none(device: &Arc<dyn Device>, _: &Controls) -> Checked {
    let Some(memory) = device.virtual_memory() else { return Ok(NO_VIRTUAL_MEMORY) };
    let (range, granularity_bytes) = reserve_four(memory)?;
    let (piece, double) = (memory.create(granularity_bytes)?, memory.create(2 * granularity_bytes)?);
    let unknown = PhysicalMemory { handle: 0xbad_0000, bytes: granularity_bytes };
    memory.map(range + 3 * granularity_bytes, piece)?;
    let refused = [
        ("over a mapped piece", range, vec![double, double]),
        ("over the end of the reservation", range + 2 * granularity_bytes, vec![piece, double]),
        ("an unknown handle behind a good one", range, vec![piece, unknown]),
        ("at an odd address", range + 512, vec![piece]),
    ];
    for (what, address, pieces) in refused {
        let answer = memory.map_pieces(address, &pieces);
        ensure!(matches!(answer, Err(DeviceError::InvalidAddress { .. })), "{what}: {answer:?}");
        // Nothing of it is left: there is room for all.
        memory.map_pieces(range, &[piece, double])?;
        memory.unmap_unused(range, 3 * granularity_bytes)?;
    }
    memory.unmap_unused(range + 3 * granularity_bytes, granularity_bytes)?;
    memory.release_physical(piece)?;
    memory.release_physical(double)?;
    memory.unreserve(range, 4 * granularity_bytes)?;
    Ok(Outcome::Held)
}

fn the_same_bytes_at_two_addresses(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let Some(memory) = device.virtual_memory() else { return Ok(NO_VIRTUAL_MEMORY) };
    let (range, granularity_bytes) = reserve_four(memory)?;
    let piece = memory.create(granularity_bytes)?;
    let (first, second) = (range, range + 2 * granularity_bytes);
    memory.map(first, piece)?;
    memory.map(second, piece)?;
    if controls.has_bytes {
        write(device, first, 11)?;
        ensure!(read(device, second)? == [11; 16], "the second address does not show what the first was given");
        write(device, second + 512, 12)?;
        ensure!(read(device, first + 512)? == [12; 16], "the first address does not show what the second was given");
    }
    memory.unmap_unused(first, granularity_bytes)?;
    if controls.has_bytes {
        ensure!(read(device, second)? == [11; 16], "the bytes went with the first mapping");
    }
    memory.unmap_unused(second, granularity_bytes)?;
    memory.release_physical(piece)?;
    memory.unreserve(range, 4 * granularity_bytes)?;
    Ok(Outcome::Held)
}

fn remapped_memory_keeps_its_bytes(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let Some(memory) = device.virtual_memory() else { return Ok(NO_VIRTUAL_MEMORY) };
    let (range, granularity_bytes) = reserve_four(memory)?;
    let pieces: Vec<PhysicalMemory> =
        (0..4).map(|_| memory.create(granularity_bytes)).collect::<Result<_, DeviceError>>()?;
    let place = |index: usize| range + index as u64 * granularity_bytes;
    for (index, piece) in pieces.iter().enumerate() {
        memory.map(place(index), *piece)?;
        if controls.has_bytes {
            write(device, place(index), index as u8)?;
        }
    }
    memory.unmap_unused(range, 4 * granularity_bytes)?;
    for (index, piece) in pieces.iter().rev().enumerate() {
        memory.map(place(index), *piece)?;
        if controls.has_bytes {
            ensure!(read(device, place(index))? == [3 - index as u8; 16], "piece {index} came with other bytes");
        }
    }
    memory.unmap_unused(range, 4 * granularity_bytes)?;
    for piece in pieces {
        memory.release_physical(piece)?;
    }
    memory.unreserve(range, 4 * granularity_bytes)?;
    Ok(Outcome::Held)
}

fn physical_memory_goes_with_its_last_mapping(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let Some(memory) = device.virtual_memory() else { return Ok(NO_VIRTUAL_MEMORY) };
    let (range, granularity_bytes) = reserve_four(memory)?;
    let before_bytes = device.memory()?.free_bytes;
    let piece = memory.create(granularity_bytes)?;
    let created_bytes = device.memory()?.free_bytes;
    memory.map(range, piece)?;
    memory.release_physical(piece)?;
    let mapped_bytes = device.memory()?.free_bytes;
    if controls.has_bytes {
        write(device, range, 21)?;
        ensure!(read(device, range)? == [21; 16], "released memory went although it is mapped");
    }
    memory.unmap_unused(range, granularity_bytes)?;
    let after_bytes = device.memory()?.free_bytes;
    memory.unreserve(range, 4 * granularity_bytes)?;
    let all = [before_bytes, created_bytes, mapped_bytes, after_bytes];
    ensure!(created_bytes + granularity_bytes <= before_bytes, "not counted when made: {all:?}");
    ensure!(mapped_bytes + granularity_bytes <= before_bytes, "not counted while mapped: {all:?}");
    ensure!(after_bytes >= mapped_bytes + granularity_bytes, "still counted after the last mapping went: {all:?}");
    Ok(Outcome::Held)
}

fn physical_memory_runs_out(device: &Arc<dyn Device>, _: &Controls) -> Checked {
    let Some(memory) = device.virtual_memory() else { return Ok(NO_VIRTUAL_MEMORY) };
    let granularity_bytes = memory.granularity_bytes();
    let asked_bytes = (2 * device.total_bytes()).next_multiple_of(granularity_bytes);
    for _ in 0..2 {
        ensure_matches!(
            memory.create(asked_bytes),
            Err(DeviceError::OutOfMemory { requested_bytes, .. }) if requested_bytes == asked_bytes
        );
        let piece = memory.create(granularity_bytes)?;
        memory.release_physical(piece)?;
    }
    Ok(Outcome::Held)
}

fn odd_sizes_are_refused(device: &Arc<dyn Device>, _: &Controls) -> Checked {
    let Some(memory) = device.virtual_memory() else { return Ok(NO_VIRTUAL_MEMORY) };
    let granularity_bytes = memory.granularity_bytes();
    for bytes in [0, 1, granularity_bytes - 1, granularity_bytes + 512] {
        let reserved = memory.reserve(bytes);
        ensure!(matches!(reserved, Err(DeviceError::InvalidSize { .. })), "reserving {bytes} bytes: {reserved:?}");
        let created = memory.create(bytes);
        ensure!(matches!(created, Err(DeviceError::InvalidSize { .. })), "creating {bytes} bytes: {created:?}");
    }
    Ok(Outcome::Held)
}

fn memory_is_mapped_only_where_it_fits(device: &Arc<dyn Device>, _: &Controls) -> Checked {
    let Some(memory) = device.virtual_memory() else { return Ok(NO_VIRTUAL_MEMORY) };
    let (range, granularity_bytes) = reserve_four(memory)?;
    let end = range + 4 * granularity_bytes;
    let piece = memory.create(granularity_bytes)?;
    let double = memory.create(2 * granularity_bytes)?;
    memory.map(range + granularity_bytes, piece)?;
    let refused = [
        ("outside any reservation", 0, piece),
        ("before the reservation", range - granularity_bytes, piece),
        ("behind the reservation", end, piece),
        ("over the end of the reservation", end - granularity_bytes, double),
        ("at an odd address", range + 2 * granularity_bytes + 512, piece),
        ("onto a mapped piece", range + granularity_bytes, piece),
        ("into a mapped piece", range, double),
        ("an unknown handle", range, PhysicalMemory { handle: 0xbad_0000, bytes: granularity_bytes }),
        ("another size", range + 2 * granularity_bytes, PhysicalMemory { bytes: granularity_bytes, ..double }),
    ];
    for (what, address, physical) in refused {
        let answer = memory.map(address, physical);
        ensure!(matches!(answer, Err(DeviceError::InvalidAddress { .. })), "{what}: {answer:?}");
    }
    // The books are as before: what fits still does.
    memory.map(range + 2 * granularity_bytes, double)?;
    memory.unmap_unused(range + granularity_bytes, 3 * granularity_bytes)?;
    memory.release_physical(piece)?;
    memory.release_physical(double)?;
    memory.unreserve(range, 4 * granularity_bytes)?;
    Ok(Outcome::Held)
}

fn only_whole_pieces_are_unmapped(device: &Arc<dyn Device>, _: &Controls) -> Checked {
    let Some(memory) = device.virtual_memory() else { return Ok(NO_VIRTUAL_MEMORY) };
    let (range, granularity_bytes) = reserve_four(memory)?;
    let double = memory.create(2 * granularity_bytes)?;
    let piece = memory.create(granularity_bytes)?;
    memory.map(range, double)?;
    memory.map(range + 3 * granularity_bytes, piece)?;
    let refused = [
        ("nothing mapped", range + 2 * granularity_bytes, granularity_bytes),
        ("the first half of a piece", range, granularity_bytes),
        ("the second half of a piece", range + granularity_bytes, granularity_bytes),
        ("a range with a hole", range, 4 * granularity_bytes),
        ("a range that ends in a hole", range, 3 * granularity_bytes),
        ("a range past the reservation", range + 3 * granularity_bytes, 2 * granularity_bytes),
    ];
    for (what, address, bytes) in refused {
        let answer = memory.unmap_unused(address, bytes);
        ensure!(matches!(answer, Err(DeviceError::InvalidAddress { .. })), "{what}: {answer:?}");
    }
    ensure!(memory.unmap_unused(range, 0).is_err(), "unmapping no bytes");
    memory.unmap_unused(range, 2 * granularity_bytes)?;
    ensure_matches!(memory.unmap_unused(range, 2 * granularity_bytes), Err(DeviceError::InvalidAddress { .. }));
    memory.unmap_unused(range + 3 * granularity_bytes, granularity_bytes)?;
    memory.release_physical(piece)?;
    memory.release_physical(double)?;
    memory.unreserve(range, 4 * granularity_bytes)?;
    Ok(Outcome::Held)
}

fn only_a_whole_empty_reservation_is_given_back(device: &Arc<dyn Device>, _: &Controls) -> Checked {
    let Some(memory) = device.virtual_memory() else { return Ok(NO_VIRTUAL_MEMORY) };
    let (range, granularity_bytes) = reserve_four(memory)?;
    let piece = memory.create(granularity_bytes)?;
    memory.map(range + 3 * granularity_bytes, piece)?;
    let refused = [
        ("with memory mapped", range, 4 * granularity_bytes),
        ("in part", range, 2 * granularity_bytes),
        ("from inside", range + granularity_bytes, 3 * granularity_bytes),
        ("what was never reserved", 0xdead_0000, granularity_bytes),
    ];
    for (what, address, bytes) in refused {
        let answer = memory.unreserve(address, bytes);
        ensure!(matches!(answer, Err(DeviceError::InvalidAddress { .. })), "{what}: {answer:?}");
    }
    memory.unmap_unused(range + 3 * granularity_bytes, granularity_bytes)?;
    memory.release_physical(piece)?;
    memory.unreserve(range, 4 * granularity_bytes)?;
    ensure_matches!(memory.unreserve(range, 4 * granularity_bytes), Err(DeviceError::InvalidAddress { .. }));
    Ok(Outcome::Held)
}

fn physical_memory_is_released_once(device: &Arc<dyn Device>, _: &Controls) -> Checked {
    let Some(memory) = device.virtual_memory() else { return Ok(NO_VIRTUAL_MEMORY) };
    let piece = memory.create(memory.granularity_bytes())?;
    let other_size = PhysicalMemory { bytes: 2 * piece.bytes, ..piece };
    ensure_matches!(memory.release_physical(other_size), Err(DeviceError::InvalidAddress { .. }));
    memory.release_physical(piece)?;
    ensure_matches!(memory.release_physical(piece), Err(DeviceError::InvalidAddress { .. }));
    Ok(Outcome::Held)
}
