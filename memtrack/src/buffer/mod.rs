//! Typed, owned pieces of device memory.
//!
//! Here live [`Buffer`], the slices it lends on host memory, and what it lends to cudarc. How memory is found for it is
//! the allocator's affair.

use std::fmt;
use std::marker::PhantomData;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crate::allocator::{AllocationError, CachingAllocator, Inner, Lease};
use crate::device::{Device, Stream};

#[cfg(feature = "cuda")]
mod cuda;
mod host;

#[cfg(feature = "cuda")]
pub use cuda::{CudaRef, CudaRefMut, CudaSliceRef, CudaSliceRefMut};

/// What a [`Buffer`] can hold: plain data, for which every bit pattern is a value.
pub trait Element: bytemuck::Pod + Send + Sync {}

impl<T: bytemuck::Pod + Send + Sync> Element for T {}

/// `len` elements of device memory, given back to the allocator's cache on drop.
///
/// Contents are ordered by the buffer's stream, as kernels are. On host memory ([`Host`](crate::device::Host)) the
/// elements can be borrowed as slices; on cuda the buffer is lent to kernels, copies and cuBLAS. A buffer of length zero
/// takes no memory. Allocating costs the cached pair of the allocator and nothing more; see [`CachingAllocator`].
pub struct Buffer<T> {
    storage: Storage,
    len: usize,
    elements: PhantomData<T>,
}

#[derive(Debug)]
enum Storage {
    /// Zero bytes: only where they would be.
    Empty {
        inner: Arc<Inner>,
        stream: Stream,
    },
    Block(Lease),
}

// As for its allocator: a panic elsewhere leaves a buffer what it was.
impl<T> UnwindSafe for Buffer<T> {}
impl<T> RefUnwindSafe for Buffer<T> {}

impl<T: Element> Buffer<T> {
    /// `len` elements of unspecified content, on the default stream.
    ///
    /// # Errors
    ///
    /// [`AllocationError::OutOfMemory`], [`AllocationError::TooLarge`], or a failure of the device.
    #[track_caller]
    pub fn uninit(allocator: &CachingAllocator, len: usize) -> Result<Self, AllocationError> {
        Self::uninit_on(allocator, Stream::DEFAULT, len)
    }

    /// `len` elements of unspecified content, whose use is ordered by `stream`.
    ///
    /// The content is what the memory's last user left: every bit pattern is a valid [`Element`].
    ///
    /// # Errors
    ///
    /// As for [`uninit`](Self::uninit), and for an unknown stream.
    #[track_caller]
    pub fn uninit_on(allocator: &CachingAllocator, stream: Stream, len: usize) -> Result<Self, AllocationError> {
        const { assert!(align_of::<T>() <= 512, "device memory is aligned to 512 bytes") };
        let bytes = len.checked_mul(size_of::<T>()).and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(u64::MAX);
        let inner = allocator.inner();
        let storage = match bytes {
            0 => {
                inner.device.check_stream(stream)?;
                Storage::Empty { inner: Arc::clone(inner), stream }
            }
            _ => Storage::Block(allocator.lend(bytes, stream, Location::caller())?),
        };
        Ok(Self { storage, len, elements: PhantomData })
    }

    /// `len` elements whose bytes are all zero, on the default stream.
    ///
    /// # Errors
    ///
    /// As for [`uninit`](Self::uninit); [`NoBytes`](crate::device::DeviceError::NoBytes) on a simulated device.
    #[track_caller]
    pub fn zeros(allocator: &CachingAllocator, len: usize) -> Result<Self, AllocationError> {
        Self::zeros_on(allocator, Stream::DEFAULT, len)
    }

    /// `len` elements whose bytes are all zero, on `stream`.
    ///
    /// # Errors
    ///
    /// As for [`zeros`](Self::zeros), and for an unknown stream.
    #[track_caller]
    pub fn zeros_on(allocator: &CachingAllocator, stream: Stream, len: usize) -> Result<Self, AllocationError> {
        let mut buffer = Self::uninit_on(allocator, stream, len)?;
        buffer.fill_zero()?;
        Ok(buffer)
    }

    /// A copy of host elements, on the default stream.
    ///
    /// # Errors
    ///
    /// As for [`zeros`](Self::zeros).
    #[track_caller]
    pub fn from_slice(allocator: &CachingAllocator, source: &[T]) -> Result<Self, AllocationError> {
        Self::from_slice_on(allocator, Stream::DEFAULT, source)
    }

    /// A copy of host elements, on `stream`.
    ///
    /// # Errors
    ///
    /// As for [`zeros_on`](Self::zeros_on).
    #[track_caller]
    pub fn from_slice_on(allocator: &CachingAllocator, stream: Stream, source: &[T]) -> Result<Self, AllocationError> {
        let mut buffer = Self::uninit_on(allocator, stream, source.len())?;
        buffer.copy_from_slice(source)?;
        Ok(buffer)
    }

    /// A new buffer of the same allocator, stream and content.
    ///
    /// # Errors
    ///
    /// As for [`zeros`](Self::zeros); [`AllocationError::AllocatorDropped`] when no handle of the allocator is left.
    #[track_caller]
    pub fn try_clone(&self) -> Result<Self, AllocationError> {
        let allocator = self.allocator().ok_or(AllocationError::AllocatorDropped)?;
        let mut buffer = Self::uninit_on(&allocator, self.stream(), self.len)?;
        buffer.copy_from(self)?;
        Ok(buffer)
    }

    /// Sets every byte to zero.
    ///
    /// # Errors
    ///
    /// A failure of the device, or one without bytes.
    pub fn fill_zero(&mut self) -> Result<(), AllocationError> {
        let Storage::Block(lease) = &self.storage else { return Ok(()) };
        // SAFETY: the range is this buffer's block, alive as long as the lease, and `&mut self` excludes other users.
        unsafe { self.device().fill(lease.address(), 0, self.requested_bytes(), self.stream()) }?;
        Ok(())
    }

    /// Copies host elements into the buffer.
    ///
    /// # Errors
    ///
    /// [`AllocationError::LengthMismatch`]; a failure of the device, or one without bytes.
    pub fn copy_from_slice(&mut self, source: &[T]) -> Result<(), AllocationError> {
        self.check_len(source.len())?;
        let Storage::Block(lease) = &self.storage else { return Ok(()) };
        // SAFETY: the range is this buffer's block, as long as the source by the check above, alive as long as the lease,
        // and `&mut self` excludes other users.
        unsafe { self.device().write(lease.address(), bytemuck::cast_slice(source), self.stream()) }?;
        Ok(())
    }

    /// Copies another buffer's elements into this one, in the order of this buffer's stream. When the other buffer is of
    /// another stream, the copy comes after what that stream has been given, and what it is given later comes after the
    /// copy.
    ///
    /// # Errors
    ///
    /// [`AllocationError::LengthMismatch`]; [`AllocationError::NoAccess`] when the buffers are of different devices; a
    /// failure of the device, or one without bytes.
    pub fn copy_from(&mut self, source: &Self) -> Result<(), AllocationError> {
        self.check_len(source.len)?;
        let (Storage::Block(target_lease), Storage::Block(source_lease)) = (&self.storage, &source.storage) else {
            return Ok(());
        };
        let device = self.device();
        if !Arc::ptr_eq(device, source.device()) {
            return Err(AllocationError::NoAccess {
                device: device.name().to_owned(),
                access: "copied from another device's",
                advice: "copy through the host: `to_vec` there, `copy_from_slice` here",
            });
        }
        let (stream, from) = (self.stream(), source.stream());
        let order = |later: Stream, earlier: Stream| {
            let event = device.record_event(earlier)?;
            let ordered = device.stream_wait_event(later, &event);
            device.release_event(event);
            ordered
        };
        if stream != from {
            order(stream, from)?;
        }
        // SAFETY: both ranges are blocks of equal length held by their leases, so they are alive and do not overlap;
        // `&mut self` excludes other users of the target, `&source` writers of the source, and the streams are ordered.
        unsafe { device.copy(source_lease.address(), target_lease.address(), self.requested_bytes(), stream) }?;
        if stream != from
            && let Err(error) = order(from, stream)
        {
            // At least the memory is not reused too early.
            source_lease.record_stream(stream);
            return Err(error.into());
        }
        Ok(())
    }

    /// The elements, copied to the host. Waits for the buffer's stream.
    ///
    /// # Errors
    ///
    /// A failure of the device, or one without bytes.
    pub fn to_vec(&self) -> Result<Vec<T>, AllocationError> {
        let mut elements = vec![T::zeroed(); self.len];
        self.copy_to_slice(&mut elements)?;
        Ok(elements)
    }

    /// Copies the elements into a slice of the host. Waits for the buffer's stream.
    ///
    /// # Errors
    ///
    /// [`AllocationError::LengthMismatch`]; a failure of the device, or one without bytes.
    pub fn copy_to_slice(&self, target: &mut [T]) -> Result<(), AllocationError> {
        if target.len() != self.len {
            return Err(AllocationError::LengthMismatch { source_len: self.len, target_len: target.len() });
        }
        let Storage::Block(lease) = &self.storage else { return Ok(()) };
        // SAFETY: the range is this buffer's block, as long as the target by the check above, alive as long as the lease,
        // and `&self` excludes writers.
        unsafe { self.device().read(lease.address(), bytemuck::cast_slice_mut(target), self.stream()) }?;
        Ok(())
    }

    fn check_len(&self, source_len: usize) -> Result<(), AllocationError> {
        if source_len == self.len {
            Ok(())
        } else {
            Err(AllocationError::LengthMismatch { source_len, target_len: self.len })
        }
    }
}

impl<T> Buffer<T> {
    fn inner(&self) -> &Arc<Inner> {
        match &self.storage {
            Storage::Empty { inner, .. } => inner,
            Storage::Block(lease) => &lease.shard().inner,
        }
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the elements, as asked for.
    pub fn requested_bytes(&self) -> u64 {
        // The product was checked when the buffer was made.
        (self.len * size_of::<T>()) as u64
    }

    /// Bytes of the block behind them: what `allocated_bytes` counts. Takes a lock.
    pub fn allocated_bytes(&self) -> u64 {
        match &self.storage {
            Storage::Empty { .. } => 0,
            Storage::Block(lease) => lease.size_bytes(),
        }
    }

    /// Where the elements are on the device, 0 for an empty buffer.
    pub fn address(&self) -> u64 {
        match &self.storage {
            Storage::Empty { .. } => 0,
            Storage::Block(lease) => lease.address(),
        }
    }

    /// The stream that orders the buffer's use.
    pub fn stream(&self) -> Stream {
        match &self.storage {
            Storage::Empty { stream, .. } => *stream,
            Storage::Block(lease) => lease.shard().stream,
        }
    }

    /// The device the memory is on.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.inner().device
    }

    /// The allocator the memory came from, `None` once all its handles are gone.
    pub fn allocator(&self) -> Option<CachingAllocator> {
        self.inner().handle()
    }

    /// Says that `stream` uses the buffer too: after the drop its memory is reused only when that stream's work up to then
    /// is done. Does not order the streams' work itself. PyTorch's `Tensor.record_stream`.
    ///
    /// # Errors
    ///
    /// An unknown stream.
    pub fn record_stream(&self, stream: Stream) -> Result<(), AllocationError> {
        self.device().check_stream(stream)?;
        if let Storage::Block(lease) = &self.storage {
            lease.record_stream(stream);
        }
        Ok(())
    }
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("element", &std::any::type_name::<T>())
            .field("len", &self.len)
            .field("device", &self.device().name())
            .field("stream", &self.stream())
            .field("address", &format_args!("{:#x}", self.address()))
            .finish()
    }
}
