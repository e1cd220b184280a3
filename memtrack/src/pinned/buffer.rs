//! Typed, owned pieces of pinned memory.

use std::fmt;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::Arc;

use super::PinnedAllocator;
use super::capture::{CapturePool, Pool};
use super::error::PinnedError;
use super::inner::Inner;
use super::lease::Lease;
use crate::buffer::{Buffer, Element};
use crate::device::{Device, PINNED_ALIGNMENT_BYTES, PinnedMemory, Stream, pointer_to};

/// `len` elements of page-locked host memory, given back to the allocator's cache on drop.
///
/// [`Buffer::copy_from_pinned`] and [`Buffer::copy_to_pinned`] copy without waiting. The buffer knows which streams are not
/// done with it: [`as_slice`](Self::as_slice) first waits for those that write it, [`as_mut_slice`](Self::as_mut_slice) for
/// all, and after a drop the memory is reused only when they are done. So no borrow is ever under a copy, and nothing is
/// waited for that the program does not look at.
///
/// ```
/// use std::sync::Arc;
/// use memtrack::{Buffer, CachingAllocator, PinnedAllocator, PinnedBuffer, device};
///
/// let device = device::auto();
/// let (allocator, pinned) = (CachingAllocator::new(Arc::clone(&device)), PinnedAllocator::new(device)?);
/// let mut batch = PinnedBuffer::<f32>::zeros(&pinned, 1000)?;
/// let mut on_device = Buffer::<f32>::uninit(&allocator, 1000)?;
/// for step in 0..3 {
///     batch.as_mut_slice()?.fill(step as f32); // Waits for the last step's copy.
///     on_device.copy_from_pinned(&batch)?; // Does not wait.
/// }
/// assert_eq!(on_device.to_vec()?[999], 2.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PinnedBuffer<T> {
    inner: Arc<Inner>,
    /// `None` for zero bytes.
    lease: Option<Lease>,
    len: usize,
    elements: PhantomData<T>,
}

// As for its allocator: a panic elsewhere leaves a buffer what it was.
impl<T> UnwindSafe for PinnedBuffer<T> {}
impl<T> RefUnwindSafe for PinnedBuffer<T> {}

impl<T: Element> PinnedBuffer<T> {
    /// `len` elements of unspecified content: what the memory's last user left. Every bit pattern is a valid [`Element`].
    ///
    /// # Errors
    ///
    /// [`PinnedError::OutOfMemory`], [`PinnedError::TooLarge`], or a failure of the device, also of earlier work of a stream
    /// that used pinned memory.
    pub fn uninit(allocator: &PinnedAllocator, len: usize) -> Result<Self, PinnedError> {
        Self::new(allocator, None, len)
    }

    /// As [`uninit`](Self::uninit), of a pool for graphs.
    ///
    /// # Errors
    ///
    /// As for [`uninit`](Self::uninit).
    pub fn uninit_in(pool: &CapturePool, len: usize) -> Result<Self, PinnedError> {
        Self::new(pool.allocator(), Some(pool.pool()), len)
    }

    fn new(allocator: &PinnedAllocator, pool: Option<&Arc<Pool>>, len: usize) -> Result<Self, PinnedError> {
        const { assert!(align_of::<T>() <= PINNED_ALIGNMENT_BYTES as usize, "pinned memory is aligned to 512 bytes") };
        let bytes = len.checked_mul(size_of::<T>()).and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(u64::MAX);
        let inner = Arc::clone(allocator.inner());
        let lease = if bytes == 0 { None } else { Some(Lease::new(&inner, pool, bytes)?) };
        Ok(Self { inner, lease, len, elements: PhantomData })
    }

    /// `len` elements whose bytes are all zero.
    ///
    /// # Errors
    ///
    /// As for [`uninit`](Self::uninit).
    pub fn zeros(allocator: &PinnedAllocator, len: usize) -> Result<Self, PinnedError> {
        let mut buffer = Self::uninit(allocator, len)?;
        buffer.as_mut_slice()?.fill(T::zeroed());
        Ok(buffer)
    }

    /// A copy of other host elements.
    ///
    /// # Errors
    ///
    /// As for [`uninit`](Self::uninit).
    pub fn from_slice(allocator: &PinnedAllocator, source: &[T]) -> Result<Self, PinnedError> {
        let mut buffer = Self::uninit(allocator, source.len())?;
        buffer.as_mut_slice()?.copy_from_slice(source);
        Ok(buffer)
    }

    /// The elements, once no stream writes them any more; waits for that.
    ///
    /// # Errors
    ///
    /// [`PinnedError::Captured`] while a graph may write them; a failure of the device, also of earlier work. There is no
    /// slice then, since a stream may still be writing.
    pub fn as_slice(&self) -> Result<&[T], PinnedError> {
        if let Some(lease) = &self.lease {
            lease.wait(false)?;
        }
        // SAFETY: the block is `len` elements long, aligned to 512 bytes, initialised (so the device promises, and `T` takes
        // every bit pattern), and held by this buffer. No stream writes it: those that did are done, and a copy into it needs
        // `&mut`. No host code writes it while `&self` is borrowed. Without a block there are no bytes to read.
        Ok(unsafe { std::slice::from_raw_parts(self.pointer(), self.len) })
    }

    /// The elements to be written, once no stream uses them any more; waits for that.
    ///
    /// # Errors
    ///
    /// As for [`as_slice`](Self::as_slice).
    pub fn as_mut_slice(&mut self) -> Result<&mut [T], PinnedError> {
        if let Some(lease) = &self.lease {
            lease.wait(true)?;
        }
        // SAFETY: as for `as_slice`, and no stream reads it either: those that did are done, and every copy needs a borrow of
        // the buffer, which `&mut self` excludes for as long as the slice lives.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.pointer(), self.len) })
    }

    fn pointer(&self) -> *mut T {
        self.lease.as_ref().map_or(NonNull::dangling().as_ptr(), |lease| pointer_to(lease.address).cast())
    }

    /// Where the elements are, for code that copies by itself. Dangling for an empty buffer.
    ///
    /// Whoever gives a stream work on the memory announces it by [`record_stream`](Self::record_stream), after giving it and
    /// before the buffer is borrowed or dropped, and keeps it off a stream that is being captured unless the buffer is of a
    /// [`CapturePool`].
    pub fn as_ptr(&self) -> *const T {
        self.pointer()
    }

    /// As [`as_ptr`](Self::as_ptr), to be written.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.pointer()
    }
}

impl<T> PinnedBuffer<T> {
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

    /// Bytes of the block behind them, the next power of two: what `active_bytes` counts.
    pub fn allocated_bytes(&self) -> u64 {
        self.lease.as_ref().map_or(0, |lease| lease.size_bytes)
    }

    /// Where the elements are in host memory, 0 for an empty buffer.
    pub fn address(&self) -> u64 {
        self.lease.as_ref().map_or(0, |lease| lease.address)
    }

    /// The device that copies from and to the memory.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.inner.device
    }

    /// Says that `stream` uses the buffer beside the copies that the buffer knows of: its work up to the next borrow, or up
    /// to the drop, is waited for before the memory is borrowed or reused. PyTorch's `record_event` of the host allocator.
    ///
    /// # Errors
    ///
    /// An unknown stream; [`PinnedError::Capturing`] when it is being captured and the buffer is of no [`CapturePool`].
    pub fn record_stream(&self, stream: Stream) -> Result<(), PinnedError> {
        match &self.lease {
            Some(lease) => lease.record_stream(stream),
            None => Ok(self.inner.device.check_stream(stream)?),
        }
    }

    /// Whether no stream uses the buffer, so that borrowing it does not wait. Never waits; on cuda one `cuEventQuery` for
    /// each stream that used it. Of a buffer used by a captured graph it is `false`.
    ///
    /// # Errors
    ///
    /// A failure of the device, also of earlier work.
    pub fn is_idle(&self) -> Result<bool, PinnedError> {
        self.lease.as_ref().map_or(Ok(true), Lease::is_idle)
    }
}

impl<T: Element> Buffer<T> {
    /// Copies pinned elements into the buffer in the order of its stream, without waiting. Copies and other announced uses of
    /// the pinned buffer that write it come first, whatever their streams.
    ///
    /// The pinned buffer may be read, dropped or copied from again at once; [`as_mut_slice`](PinnedBuffer::as_mut_slice) waits
    /// for the copy.
    ///
    /// # Errors
    ///
    /// [`PinnedError::LengthMismatch`], [`PinnedError::OtherDevice`]; while the stream is being captured
    /// [`PinnedError::Capturing`] or [`PinnedError::StillUsed`]; a failure of the device, or one without bytes.
    pub fn copy_from_pinned(&mut self, source: &PinnedBuffer<T>) -> Result<(), PinnedError> {
        check_pair(self, source, source.len, self.len())?;
        let (Some(lease), target, stream) = (&source.lease, self.address(), self.stream()) else { return Ok(()) };
        let bytes = self.requested_bytes();
        lease.with_stream(stream, false, |pinned: &dyn PinnedMemory| {
            // SAFETY: the target is this buffer's block, whose reuse is ordered by this stream, and `&mut self` excludes other
            // users. The source is the lease's block, as long by the check above. It is not written before the copy is done:
            // the lease knows of the use, so a borrow to write waits for it, and so does the block's next user.
            unsafe { pinned.write_pinned(target, lease.address, bytes, stream) }
        })
    }

    /// Copies the buffer's elements into pinned memory in the order of the buffer's stream, without waiting. Copies and other
    /// announced uses of the pinned buffer come first, whatever their streams.
    ///
    /// [`as_slice`](PinnedBuffer::as_slice) waits for the copy.
    ///
    /// # Errors
    ///
    /// As for [`copy_from_pinned`](Self::copy_from_pinned).
    pub fn copy_to_pinned(&self, target: &mut PinnedBuffer<T>) -> Result<(), PinnedError> {
        check_pair(self, target, self.len(), target.len)?;
        let (Some(lease), source, stream) = (&target.lease, self.address(), self.stream()) else { return Ok(()) };
        let bytes = self.requested_bytes();
        lease.with_stream(stream, true, |pinned: &dyn PinnedMemory| {
            // SAFETY: the source is this buffer's block, whose reuse is ordered by this stream, and `&self` excludes writers.
            // The target is the lease's block, as long by the check above. Nobody uses it before the copy is done: `&mut`
            // excludes borrows now, later ones wait for the use that the lease knows of, and so does the block's next user.
            unsafe { pinned.read_pinned(source, lease.address, bytes, stream) }
        })
    }
}

fn check_pair<T: Element>(
    buffer: &Buffer<T>,
    pinned: &PinnedBuffer<T>,
    source_len: usize,
    target_len: usize,
) -> Result<(), PinnedError> {
    if source_len != target_len {
        return Err(PinnedError::LengthMismatch { source_len, target_len });
    }
    let (of_buffer, of_pinned) = (buffer.device(), pinned.device());
    if !Arc::ptr_eq(of_buffer, of_pinned) {
        let (pinned, other) = (of_pinned.name().to_owned(), of_buffer.name().to_owned());
        return Err(PinnedError::OtherDevice { pinned, other });
    }
    Ok(())
}

impl<T> fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedBuffer")
            .field("element", &std::any::type_name::<T>())
            .field("len", &self.len)
            .field("device", &self.device().name())
            .field("address", &format_args!("{:#x}", self.address()))
            .finish()
    }
}
