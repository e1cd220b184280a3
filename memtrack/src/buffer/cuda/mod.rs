//! Buffers lent to cudarc: for kernels, copies and cuBLAS.
//!
//! A loan costs nothing on the buffer's own stream, since the allocator orders reuse by stream. On another stream the two
//! streams are ordered by events at both ends of the loan, so that the borrower sees what was written before and the
//! buffer's later use and reuse comes after it ([`loan`]).

mod loan;

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::RangeBounds;
use std::sync::Arc;

use cudarc::driver::{
    CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut, DeviceSlice, LaunchArgs, PushKernelArg,
    SyncOnDrop, sys,
};

use self::loan::{Loan, despite_earlier_errors};
use super::Buffer;
use crate::allocator::AllocationError;
use crate::device::{Cuda, DeviceError};

impl<T> Buffer<T> {
    /// Lends the elements to be read on the buffer's own stream.
    ///
    /// # Errors
    ///
    /// [`AllocationError::NoAccess`] when the buffer is not on a cuda device.
    pub fn cuda(&self) -> Result<CudaRef<'_, T>, AllocationError> {
        Ok(CudaRef { loan: self.loan(None)?, buffer: PhantomData })
    }

    /// Lends the elements to be written on the buffer's own stream.
    ///
    /// # Errors
    ///
    /// As for [`cuda`](Self::cuda).
    pub fn cuda_mut(&mut self) -> Result<CudaRefMut<'_, T>, AllocationError> {
        Ok(CudaRefMut { loan: self.loan(None)?, buffer: PhantomData })
    }

    /// Lends the elements to be read on another stream of the device: it first waits for the buffer's own stream, which
    /// waits for it when the loan ends.
    ///
    /// A loan that may not end by a drop, as one given to [`std::mem::forget`], is announced first by
    /// [`record_stream`](Self::record_stream), so that the memory is not reused before that stream is done.
    ///
    /// # Errors
    ///
    /// As for [`cuda`](Self::cuda); [`DeviceError::InvalidStream`] for a stream of another context, since cudarc takes the
    /// memory for one of the stream's context (a stream that asks a loan for its pointer may be of any), and for the
    /// per-thread default stream; a failure of the driver.
    pub fn cuda_on(&self, stream: &Arc<CudaStream>) -> Result<CudaRef<'_, T>, AllocationError> {
        Ok(CudaRef { loan: self.loan(Some(stream))?, buffer: PhantomData })
    }

    /// Lends the elements to be written on another stream, as [`cuda_on`](Self::cuda_on) does to read.
    ///
    /// # Errors
    ///
    /// As for [`cuda_on`](Self::cuda_on).
    pub fn cuda_mut_on(&mut self, stream: &Arc<CudaStream>) -> Result<CudaRefMut<'_, T>, AllocationError> {
        Ok(CudaRefMut { loan: self.loan(Some(stream))?, buffer: PhantomData })
    }

    /// Lends a [`CudaSlice`] to be read, for code that takes nothing else. It makes and destroys three events (the two of
    /// the slice, and one to see first whether the driver makes any), many times the price of a cached allocation, where
    /// [`cuda`](Self::cuda) is free.
    ///
    /// Other streams are ordered as cudarc orders its slices: by the last read and the last write.
    ///
    /// # Errors
    ///
    /// As for [`cuda`](Self::cuda); a failure of the driver.
    pub fn cuda_slice(&self) -> Result<CudaSliceRef<'_, T>, AllocationError> {
        Ok(CudaSliceRef { slice: self.lent_slice()?, buffer: PhantomData })
    }

    /// Lends a [`CudaSlice`] to be written, at the cost of [`cuda_slice`](Self::cuda_slice).
    ///
    /// # Errors
    ///
    /// As for [`cuda_slice`](Self::cuda_slice).
    pub fn cuda_slice_mut(&mut self) -> Result<CudaSliceRefMut<'_, T>, AllocationError> {
        Ok(CudaSliceRefMut { slice: self.lent_slice()?, buffer: PhantomData })
    }

    fn cuda_device(&self) -> Result<(&Cuda, Arc<CudaStream>), AllocationError> {
        let device = self.device();
        let Some(cuda) = device.as_any().downcast_ref::<Cuda>() else {
            return Err(AllocationError::NoAccess {
                device: device.name().to_owned(),
                access: "lent to cudarc",
                advice: "allocate the buffer on a `Cuda` device",
            });
        };
        let stream = self.stream();
        let home = cuda.cuda_stream(stream).ok_or_else(|| DeviceError::InvalidStream {
            device: device.name().to_owned(),
            stream,
            reason: "not registered with the device any more",
        })?;
        Ok((cuda, home))
    }

    fn loan(&self, borrower: Option<&Arc<CudaStream>>) -> Result<Loan, AllocationError> {
        let (cuda, home) = self.cuda_device()?;
        if let Some(borrower) = borrower {
            cuda.check_lendable(borrower)?;
        }
        let stream = Arc::clone(borrower.unwrap_or(&home));
        let loan = Loan::new(self.address(), self.len(), home, stream);
        Ok(loan.map_err(|error| cuda.failure("cuStreamWaitEvent", error))?)
    }

    fn lent_slice(&self) -> Result<LentSlice<T>, AllocationError> {
        let (cuda, home) = self.cuda_device()?;
        // Making the slice panics where no event can be made, as on a broken context: ask first.
        let slice = despite_earlier_errors(home.context(), || {
            drop(home.context().new_event(None)?);
            // SAFETY: the block is `len` elements long and lives at least as long as this loan, which borrows the buffer. The
            // slice never frees it: `LentSlice` takes the pointer out again before the slice would be dropped.
            Ok(unsafe { home.upgrade_device_ptr(self.address(), self.len()) })
        });
        let slice = slice.map_err(|error| cuda.failure("cuEventCreate", error))?;
        Ok(LentSlice(ManuallyDrop::new(slice)))
    }
}

/// A buffer's elements, lent to be read: a kernel argument, and what cuBLAS and copies read from.
///
/// As a kernel argument it must be launched on the stream it was lent to, since a launch does not tell its stream: the
/// buffer's own for [`Buffer::cuda`], the named one for [`Buffer::cuda_on`]. Any other stream gets at the memory through
/// [`DevicePtr::device_ptr`]: it first waits for the stream of the loan and for those that asked before it, and later users
/// wait for it. The first four such streams are ordered by events, without waiting on the host; further ones, the
/// per-thread default stream, and any while cudarc records no events are waited for when their use ends.
///
/// Loans, and what `device_ptr` gives along with the pointer, must end by a drop. One that is forgotten leaves the work of
/// another stream unordered: the buffer's memory may be reused while that stream still uses it, unless it was announced by
/// [`Buffer::record_stream`].
#[derive(Debug)]
pub struct CudaRef<'buffer, T> {
    loan: Loan,
    buffer: PhantomData<&'buffer Buffer<T>>,
}

/// A buffer's elements, lent to be written. Otherwise as [`CudaRef`].
#[derive(Debug)]
pub struct CudaRefMut<'buffer, T> {
    loan: Loan,
    buffer: PhantomData<&'buffer mut Buffer<T>>,
}

impl<T> DeviceSlice<T> for CudaRef<'_, T> {
    fn len(&self) -> usize {
        self.loan.len
    }

    fn stream(&self) -> &Arc<CudaStream> {
        &self.loan.stream
    }
}

impl<T> DeviceSlice<T> for CudaRefMut<'_, T> {
    fn len(&self) -> usize {
        self.loan.len
    }

    fn stream(&self) -> &Arc<CudaStream> {
        &self.loan.stream
    }
}

impl<T> DevicePtr<T> for CudaRef<'_, T> {
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        self.loan.pointer(stream)
    }
}

impl<T> DevicePtr<T> for CudaRefMut<'_, T> {
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        self.loan.pointer(stream)
    }
}

impl<T> DevicePtrMut<T> for CudaRefMut<'_, T> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        self.loan.pointer(stream)
    }
}

// SAFETY: a kernel argument is the address of a value of the parameter's type that lives until the launch; here the device
// address inside the loan, which `'b: 'a` keeps alive as long as the arguments.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b CudaRef<'_, T>> for LaunchArgs<'a> {
    fn arg(&mut self, arg: &'b CudaRef<'_, T>) -> &mut Self {
        self.arg(arg.loan.argument())
    }
}

// SAFETY: as above.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b mut CudaRefMut<'_, T>> for LaunchArgs<'a> {
    fn arg(&mut self, arg: &'b mut CudaRefMut<'_, T>) -> &mut Self {
        self.arg(arg.loan.argument())
    }
}

/// A slice over a buffer's memory. The memory stays the buffer's.
#[derive(Debug)]
struct LentSlice<T>(ManuallyDrop<CudaSlice<T>>);

impl<T> Drop for LentSlice<T> {
    fn drop(&mut self) {
        // SAFETY: the slice is taken once, here, and not used afterwards.
        let slice = unsafe { ManuallyDrop::take(&mut self.0) };
        let context = Arc::clone(slice.context());
        let earlier = context.check_err();
        // Orders the buffer's stream behind every use of the slice, and frees nothing.
        let _ = slice.leak();
        let ordered = context.check_err();
        // With an error on the context cudarc records and waits for nothing: then this thread waits for everything.
        if earlier.is_err() || ordered.is_err() {
            context.record_err(context.synchronize());
        }
        context.record_err(ordered);
        context.record_err(earlier);
    }
}

/// A [`CudaSlice`] over a buffer's memory, to be read.
#[derive(Debug)]
pub struct CudaSliceRef<'buffer, T> {
    slice: LentSlice<T>,
    buffer: PhantomData<&'buffer Buffer<T>>,
}

impl<T> CudaSliceRef<'_, T> {
    /// The slice. Cloning it makes memory that the allocator does not know.
    pub fn as_slice(&self) -> &CudaSlice<T> {
        &self.slice.0
    }
}

/// A [`CudaSlice`] over a buffer's memory, to be written.
///
/// It is lent as views, never as `&mut CudaSlice`: swapping the slice out would free memory that is the allocator's.
#[derive(Debug)]
pub struct CudaSliceRefMut<'buffer, T> {
    slice: LentSlice<T>,
    buffer: PhantomData<&'buffer mut Buffer<T>>,
}

impl<T> CudaSliceRefMut<'_, T> {
    /// The slice, to be read. Cloning it makes memory that the allocator does not know.
    pub fn as_slice(&self) -> &CudaSlice<T> {
        &self.slice.0
    }

    /// All elements, to be read.
    pub fn as_view(&self) -> CudaView<'_, T> {
        self.slice.0.as_view()
    }

    /// All elements, to be written.
    pub fn as_view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.slice.0.as_view_mut()
    }

    /// A range of the elements, to be written; `None` when it is out of bounds.
    pub fn try_slice_mut(&mut self, bounds: impl RangeBounds<usize>) -> Option<CudaViewMut<'_, T>> {
        self.slice.0.try_slice_mut(bounds)
    }

    /// Two parts that can be written at once; `None` when `middle` is out of bounds.
    pub fn try_split_at_mut(&mut self, middle: usize) -> Option<(CudaViewMut<'_, T>, CudaViewMut<'_, T>)> {
        self.slice.0.try_split_at_mut(middle)
    }
}
