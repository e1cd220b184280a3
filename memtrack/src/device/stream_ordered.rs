//! Memory taken and given back in stream order, from a pool that the driver keeps.

use super::{DeviceError, Stream};

/// What a device's pool of stream-ordered memory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamOrderedUsage {
    /// Bytes allocated and not freed, unrounded. They fall when the free is asked for, not when its stream comes to it.
    pub used_bytes: u64,
    /// The most `used_bytes` since the last reset.
    pub used_high_bytes: u64,
    /// Bytes the pool has of the device. They grow in steps of the driver's (32 MiB on an H200) and fall only when the pool
    /// is trimmed.
    pub reserved_bytes: u64,
    /// The most `reserved_bytes` since the last reset. A request that was refused counts with what it would have taken.
    pub reserved_high_bytes: u64,
}

/// Allocation in stream order, as `cudaMallocAsync` has it: memory is there for the work that the stream is given after the
/// allocation, and goes when the stream comes to the free. Nobody waits for either.
///
/// The pool is this device's own: other libraries' `cudaMallocAsync` neither draws on it nor moves its figures. It keeps
/// what is freed until it is trimmed, as PyTorch 2.11 has the driver's default pool keep it.
///
/// All methods may be called from any thread, several at once; none may call back into memtrack.
///
/// # Captured streams
///
/// Memory taken on a stream while a graph is captured there would belong to the graph, which can be replayed and destroyed.
/// So [`allocate_ordered`] and [`free_ordered`] refuse a stream that takes part in a capture with
/// [`DeviceError::InvalidStream`], and leave the capture as it was.
///
/// [`allocate_ordered`]: Self::allocate_ordered
/// [`free_ordered`]: Self::free_ordered
///
/// # Safety
///
/// Buffers rely on it for memory safety. An implementation promises that memory from [`allocate_ordered`] overlaps nothing
/// live on this device, is a multiple of 256 in address, and stays usable, for work ordered behind the allocation, until
/// [`free_ordered`] is called for it or the device is dropped; and that work which the stream of the free was given before
/// it still finds the memory there.
pub unsafe trait StreamOrderedMemory {
    /// Takes exactly `bytes` bytes for the work that `stream` is given from now on, and returns their address, a multiple of
    /// 256. Other streams and the host may use them only after work of `stream` that follows this call (after an event
    /// recorded then).
    ///
    /// On cuda `cuMemAllocFromPoolAsync`: below a µs while the pool has room.
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfMemory`] when the device has no room (not sticky: the next call may succeed);
    /// [`DeviceError::InvalidSize`] for zero; [`DeviceError::InvalidStream`] for a stream that is unknown or captured;
    /// anything else is a failure of the driver.
    fn allocate_ordered(&self, bytes: u64, stream: Stream) -> Result<u64, DeviceError>;

    /// Gives memory of [`allocate_ordered`](Self::allocate_ordered) back when `stream`, which may be another than it was
    /// taken on, has done the work it was given before.
    ///
    /// # Errors
    ///
    /// [`DeviceError::InvalidAddress`] when no memory of this device starts there; [`DeviceError::InvalidStream`] for a
    /// stream that is unknown or captured; a failure of the driver. After any error the memory is as it was.
    ///
    /// # Safety
    ///
    /// Nobody uses the memory from now on: neither the host nor work that any stream is given later. Work that other streams
    /// were given on it is done, or ordered before this point of `stream`.
    unsafe fn free_ordered(&self, address: u64, stream: Stream) -> Result<(), DeviceError>;

    /// What the pool holds (on cuda four reads of the pool's counters, some 0.03 µs each).
    ///
    /// # Errors
    ///
    /// A failure of the driver.
    fn ordered_usage(&self) -> Result<StreamOrderedUsage, DeviceError>;

    /// Sets both high marks to what is current.
    ///
    /// # Errors
    ///
    /// A failure of the driver.
    fn reset_ordered_high_marks(&self) -> Result<(), DeviceError>;

    /// Gives the device back what the pool has beyond `keep_bytes` and does not need. Memory whose free a stream has not come
    /// to yet is still needed: whoever wants all of it synchronizes first.
    ///
    /// # Errors
    ///
    /// A failure of the driver.
    fn trim_ordered(&self, keep_bytes: u64) -> Result<(), DeviceError>;
}
