//! Address ranges and the memory behind them, apart.

use super::DeviceError;

/// A piece of physical memory that can be mapped into a reserved range, possibly at two places at once.
#[derive(Debug, PartialEq, Eq, Hash, Clone, Copy)]
pub struct PhysicalMemory {
    /// The driver's handle.
    pub handle: u64,
    /// Its size, a multiple of the granularity.
    pub bytes: u64,
}

/// Address ranges and physical pages, apart. All sizes and addresses are multiples of [`granularity_bytes`].
///
/// [`granularity_bytes`]: Self::granularity_bytes
///
/// # Safety
///
/// Buffers rely on it for memory safety. An implementation promises that a range from [`reserve`](Self::reserve) overlaps no live
/// segment or range; that after [`map`](Self::map) and [`map_pieces`](Self::map_pieces) the physical memory is behind the addresses, usable by
/// every stream, until [`unmap`](Self::unmap) is called for it or the device is dropped; and that a piece of physical memory is nobody
/// else's.
pub unsafe trait VirtualMemory {
    /// The smallest piece (2 MiB on today's GPUs).
    fn granularity_bytes(&self) -> u64;

    /// Takes an address range without memory behind it.
    ///
    /// # Errors
    ///
    /// A size that is zero or no multiple of the granularity; a failure of the driver.
    fn reserve(&self, bytes: u64) -> Result<u64, DeviceError>;

    /// Gives a range back; nothing may be mapped in it.
    ///
    /// # Errors
    ///
    /// A range that was not reserved so, or still has memory mapped in it.
    fn unreserve(&self, address: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Takes physical memory.
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfMemory`] when there is none; a bad size; a failure of the driver.
    fn create(&self, bytes: u64) -> Result<PhysicalMemory, DeviceError>;

    /// Gives physical memory back; it goes when its last mapping goes.
    ///
    /// # Errors
    ///
    /// A handle this device did not make or already released.
    fn release_physical(&self, memory: PhysicalMemory) -> Result<(), DeviceError>;

    /// Puts physical memory behind `address` and makes it readable and writable.
    ///
    /// # Errors
    ///
    /// An address outside a reservation or already mapped; a failure of the driver.
    fn map(&self, address: u64, memory: PhysicalMemory) -> Result<(), DeviceError>;

    /// Puts pieces of physical memory behind consecutive addresses from `address` on, one after the other, and makes them
    /// readable and writable: all of them, or none. Without pieces nothing happens.
    ///
    /// As many calls of [`map`](Self::map), but on cuda with one call for the access (26 µs) instead of one a piece.
    ///
    /// # Errors
    ///
    /// As for [`map`](Self::map). After an error nothing is mapped there, save what could not be unmapped again.
    fn map_pieces(&self, address: u64, pieces: &[PhysicalMemory]) -> Result<(), DeviceError> {
        let mut next = address;
        for piece in pieces {
            if let Err(error) = self.map(next, *piece) {
                if next > address {
                    // SAFETY: mapped above, so nobody was given the range yet.
                    let _ = unsafe { self.unmap(address, next - address) };
                }
                return Err(error);
            }
            // The sum fits: memory was mapped up to there.
            next += piece.bytes;
        }
        Ok(())
    }

    /// Takes the memory away from behind a range mapped in whole pieces, at once: unlike [`Device::release`](super::Device::release) it waits for
    /// nobody.
    ///
    /// # Errors
    ///
    /// A range that is not mapped, or cuts a piece: then nothing has changed. When the driver fails on the way, pieces at the front may be
    /// unmapped; of one piece alone, it is or it is not.
    ///
    /// # Safety
    ///
    /// Nobody uses the range any more: neither a slice nor a copy on the host, nor work given to a stream before. Whoever
    /// cannot know that of a stream synchronizes it first.
    unsafe fn unmap(&self, address: u64, bytes: u64) -> Result<(), DeviceError>;
}
