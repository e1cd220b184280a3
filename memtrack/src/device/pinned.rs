//! Page-locked host memory: what a device offers, and the books that keep its calls within what a driver allows.

use std::collections::BTreeMap;

use super::{DeviceError, Stream};

/// Page-locked memory of a device starts at multiples of this.
pub(crate) const PINNED_ALIGNMENT_BYTES: u64 = 512;

/// Host memory whose pages stay where they are, so that a device copies to and from it by itself while the host goes on.
///
/// All methods may be called from any thread, several at once; none may call back into memtrack.
///
/// # Safety
///
/// Pinned buffers rely on it for memory safety. An implementation promises that
///
/// - memory from [`allocate_pinned`](Self::allocate_pinned) is host memory that overlaps no other, starts at a multiple of
///   512, has initialised bytes, and stays usable until [`release_pinned`](Self::release_pinned) is called for it or the
///   device is dropped;
/// - a copy touches the ranges given to it and nothing else, and not any more once the stream's work up to it is done, which
///   an event recorded behind it tells.
pub unsafe trait PinnedMemory {
    /// Takes page-locked memory of exactly `bytes` bytes and returns its address, a multiple of 512 (on cuda
    /// `cuMemHostAlloc`, from tens of µs to some 0.3 ms per MiB).
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfMemory`] when there is no room (not sticky); [`DeviceError::InvalidSize`] for zero; anything else
    /// is a failure of the driver.
    fn allocate_pinned(&self, bytes: u64) -> Result<u64, DeviceError>;

    /// Gives memory of [`allocate_pinned`](Self::allocate_pinned) back, whole and at once: unlike
    /// [`Device::release`](super::Device::release) it waits for nobody.
    ///
    /// # Errors
    ///
    /// [`DeviceError::InvalidAddress`] when it is no such memory of this device; a failure of the driver. After any error the
    /// memory is as it was.
    ///
    /// # Safety
    ///
    /// Nobody uses the memory any more: no slice of it is left, and the work that streams were given on it is done.
    unsafe fn release_pinned(&self, address: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Locks the pages of memory that the caller has (on cuda `cuMemHostRegister`).
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfMemory`] when so much cannot be locked; [`DeviceError::InvalidSize`] for zero;
    /// [`DeviceError::InvalidAddress`] when some of it is registered already; a failure of the driver.
    ///
    /// # Safety
    ///
    /// The range is memory of this process and stays so until it is unregistered or the device is dropped.
    unsafe fn register_pinned(&self, address: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Unlocks what [`register_pinned`](Self::register_pinned) locked, whole.
    ///
    /// # Errors
    ///
    /// [`DeviceError::InvalidAddress`] when the range was not registered so; a failure of the driver. After any error it is
    /// still registered.
    ///
    /// # Safety
    ///
    /// The work that streams were given on the range is done.
    unsafe fn unregister_pinned(&self, address: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Copies page-locked bytes at `source` to the device in stream order, without waiting.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NoBytes`] on a simulated device; an unknown stream; a failure of the driver. After an error the copy
    /// may have begun.
    ///
    /// # Safety
    ///
    /// The range at `target` lies in a live segment of this device, the range at `source` in page-locked memory of it. Until
    /// the stream has done the copy both stay so, nobody writes the source, and nobody else uses the target, save work
    /// ordered by the stream.
    unsafe fn write_pinned(&self, target: u64, source: u64, bytes: u64, stream: Stream) -> Result<(), DeviceError>;

    /// Copies device bytes at `source` to page-locked memory in stream order, without waiting.
    ///
    /// # Errors
    ///
    /// As for [`write_pinned`](Self::write_pinned).
    ///
    /// # Safety
    ///
    /// As for [`write_pinned`](Self::write_pinned), with the roles of the two ranges exchanged: until the stream has done the
    /// copy nobody else uses the page-locked range at all.
    unsafe fn read_pinned(&self, source: u64, target: u64, bytes: u64, stream: Stream) -> Result<(), DeviceError>;
}

/// What is page-locked, so that no driver is handed an address that is not. All tables of this kind answer alike.
#[derive(Debug, Default)]
pub(super) struct PinnedTable {
    /// Address to bytes.
    allocated: BTreeMap<u64, u64>,
    /// Address to bytes.
    registered: BTreeMap<u64, u64>,
}

fn take(table: &mut BTreeMap<u64, u64>, address: u64, bytes: u64, missing: &'static str) -> Result<(), &'static str> {
    match table.get(&address) {
        Some(found) if *found == bytes => {
            table.remove(&address);
            Ok(())
        }
        Some(_) => Err("page-locked memory is given back whole, with its own size"),
        None => Err(missing),
    }
}

impl PinnedTable {
    pub(super) fn check_size(device: &str, bytes: u64) -> Result<(), DeviceError> {
        if bytes == 0 {
            let reason = "page-locked memory has at least one byte";
            return Err(DeviceError::InvalidSize { device: device.to_owned(), bytes, reason });
        }
        Ok(())
    }

    /// Memory that the driver, or who stands in for it, has just given.
    pub(super) fn add_allocated(&mut self, address: u64, bytes: u64) {
        self.allocated.insert(address, bytes);
    }

    pub(super) fn take_allocated(&mut self, device: &str, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let missing = "not the start of live page-locked memory";
        take(&mut self.allocated, address, bytes, missing).map_err(|reason| invalid(device, address, reason))
    }

    pub(super) fn add_registered(&mut self, device: &str, address: u64, bytes: u64) -> Result<(), DeviceError> {
        Self::check_size(device, bytes)?;
        let Some(end) = address.checked_add(bytes) else {
            return Err(invalid(device, address, "the range reaches past the end of the address space"));
        };
        let overlaps = |table: &BTreeMap<u64, u64>| {
            table.range(..end).next_back().is_some_and(|(start, length)| start + length > address)
        };
        if overlaps(&self.registered) || overlaps(&self.allocated) {
            return Err(invalid(device, address, "some of the range is page-locked already"));
        }
        self.registered.insert(address, bytes);
        Ok(())
    }

    pub(super) fn take_registered(&mut self, device: &str, address: u64, bytes: u64) -> Result<(), DeviceError> {
        let missing = "not the start of a registered range";
        take(&mut self.registered, address, bytes, missing).map_err(|reason| invalid(device, address, reason))
    }

    /// What is page-locked now as (address, bytes), in address order.
    pub(super) fn live(&self) -> Vec<(u64, u64)> {
        let mut live: Vec<_> = self.allocated.iter().chain(&self.registered).map(|(at, bytes)| (*at, *bytes)).collect();
        live.sort_unstable();
        live
    }

    /// Addresses of what is left when the device goes: allocated, and registered.
    #[cfg(feature = "cuda")]
    pub(super) fn into_live(self) -> (BTreeMap<u64, u64>, BTreeMap<u64, u64>) {
        (self.allocated, self.registered)
    }
}

fn invalid(device: &str, address: u64, reason: &'static str) -> DeviceError {
    DeviceError::InvalidAddress { device: device.to_owned(), address, reason }
}
