//! Buffers lent to cudarc: for kernels, copies and cuBLAS.
//!
//! A loan costs nothing on the buffer's own stream, since the allocator orders reuse by stream. On another stream the two
//! streams are ordered by events at both ends of the loan, so that the borrower sees what was written before and the
//! buffer's later use and reuse comes after it.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::RangeBounds;
use std::sync::{Arc, OnceLock};

use cudarc::driver::{
    CudaEvent, CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut, DeviceSlice, LaunchArgs,
    PushKernelArg, SyncOnDrop, sys,
};

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
    /// # Errors
    ///
    /// As for [`cuda`](Self::cuda); a failure of the driver.
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

    /// Lends a [`CudaSlice`] to be read, for code that takes nothing else. It makes and destroys two events, many times
    /// the price of a cached allocation, where [`cuda`](Self::cuda) is free.
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
        let stream = match borrower.filter(|borrower| !is_same(borrower, &home)) {
            Some(borrower) => {
                borrower.join(&home).map_err(|error| cuda.failure("cuStreamWaitEvent", error))?;
                Arc::clone(borrower)
            }
            None => Arc::clone(&home),
        };
        Ok(Loan { address: self.address(), len: self.len(), home, stream, used_elsewhere: OnceLock::new() })
    }

    fn lent_slice(&self) -> Result<LentSlice<T>, AllocationError> {
        let (cuda, home) = self.cuda_device()?;
        // Making the slice panics where no event can be made, as on a broken context: ask first.
        drop(home.context().new_event(None).map_err(|error| cuda.failure("cuEventCreate", error))?);
        // SAFETY: the block is `len` elements long and lives at least as long as this loan, which borrows the buffer. The
        // slice never frees it: `LentSlice` takes the pointer out again before the slice would be dropped.
        let slice = unsafe { home.upgrade_device_ptr(self.address(), self.len()) };
        Ok(LentSlice(ManuallyDrop::new(slice)))
    }
}

fn is_same(one: &CudaStream, other: &CudaStream) -> bool {
    // Handles, not the `Arc`s: cudarc makes a new `Arc` each time it is asked for the default stream.
    one.cu_stream() == other.cu_stream()
}

/// Device memory in a borrower's hands.
#[derive(Debug)]
struct Loan {
    address: sys::CUdeviceptr,
    len: usize,
    /// The buffer's own stream.
    home: Arc<CudaStream>,
    /// The stream it is lent to.
    stream: Arc<CudaStream>,
    /// The end of its use on a third stream, which cudarc asked for through `device_ptr`.
    used_elsewhere: OnceLock<CudaEvent>,
}

impl Loan {
    fn pointer<'a>(&'a self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        if is_same(stream, &self.stream) {
            return (self.address, SyncOnDrop::Record(None));
        }
        let context = self.home.context();
        context.record_err(stream.join(&self.stream));
        // One such use is ordered by an event, waited for when the loan ends; where cudarc would not record it, or for a
        // second use, the borrower's stream is waited for at once.
        if stream.context().is_managing_stream_synchronization()
            && let Ok(event) = context.new_event(None)
            && self.used_elsewhere.set(event).is_ok()
        {
            return (self.address, SyncOnDrop::Record(self.used_elsewhere.get().map(|event| (event, stream))));
        }
        (self.address, SyncOnDrop::sync_stream(stream))
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let context = self.home.context();
        if !is_same(&self.stream, &self.home) {
            context.record_err(self.home.join(&self.stream));
        }
        if let Some(event) = self.used_elsewhere.get() {
            context.record_err(self.home.wait(event));
        }
    }
}

/// A buffer's elements, lent to be read: a kernel argument, and what cuBLAS and copies read from.
///
/// As a kernel argument it must be launched on the stream it was lent to, since a launch does not tell its stream: the
/// buffer's own for [`Buffer::cuda`], the named one for [`Buffer::cuda_on`]. The loan must end by a drop; one that is
/// forgotten leaves work on another stream unordered.
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
        self.arg(&arg.loan.address)
    }
}

// SAFETY: as above.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b mut CudaRefMut<'_, T>> for LaunchArgs<'a> {
    fn arg(&mut self, arg: &'b mut CudaRefMut<'_, T>) -> &mut Self {
        self.arg(&arg.loan.address)
    }
}

/// A slice over a buffer's memory. The memory stays the buffer's.
#[derive(Debug)]
struct LentSlice<T>(ManuallyDrop<CudaSlice<T>>);

impl<T> Drop for LentSlice<T> {
    fn drop(&mut self) {
        // SAFETY: the slice is taken once, here, and not used afterwards.
        let slice = unsafe { ManuallyDrop::take(&mut self.0) };
        // Orders the buffer's stream behind every use of the slice, and frees nothing.
        let _ = slice.leak();
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
