//! Keeping a CUDA stream busy for as long as a test wants, on a GPU as on the mock: by a host function in the stream that
//! waits.

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use cudarc::driver::{CudaStream, DriverError, result};

#[derive(Debug, Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }

    fn wait(&self) {
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.opened.wait_while(is_open, |is_open| !*is_open).unwrap_or_else(PoisonError::into_inner));
    }
}

/// A stream that goes on when this is dropped.
#[derive(Debug)]
#[must_use = "the stream goes on when this is dropped"]
pub struct HeldStream(Arc<Gate>);

impl Drop for HeldStream {
    fn drop(&mut self) {
        self.0.open();
    }
}

unsafe extern "C" fn wait_at_gate(gate: *mut c_void) {
    // SAFETY: the pointer comes from `Arc::into_raw` in `hold`, which gives it to this one call.
    unsafe { Arc::from_raw(gate.cast_const().cast::<Gate>()) }.wait();
}

/// Holds a stream.
///
/// # Errors
///
/// When the driver refuses.
pub fn hold(stream: &CudaStream) -> Result<HeldStream, DriverError> {
    stream.context().bind_to_thread()?;
    let gate = Arc::new(Gate::default());
    let for_driver = Arc::into_raw(Arc::clone(&gate)).cast_mut().cast();
    // SAFETY: the stream is alive; the function runs once and takes the reference given to it here. It makes no CUDA call.
    let launched = unsafe { result::stream::launch_host_function(stream.cu_stream(), wait_at_gate, for_driver) };
    if let Err(error) = launched {
        // SAFETY: the driver refused the function, so nobody else takes the reference back.
        drop(unsafe { Arc::from_raw(for_driver.cast_const().cast::<Gate>()) });
        return Err(error);
    }
    Ok(HeldStream(gate))
}
