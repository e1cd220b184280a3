//! Graph captures: whether a stream takes part in one, and memory calls in spite of one.

use cudarc::driver::sys;

use super::driver::Driver;
use crate::device::DeviceError;

/// The second version of `cuStreamGetCaptureInfo`. Every driver from 11.3 on has it, but no one set of bindings has a version
/// that all of them have.
pub(super) type CaptureInfo = unsafe extern "C" fn(
    stream: sys::CUstream,
    status: *mut u32,
    id: *mut u64,
    graph: *mut sys::CUgraph,
    dependencies: *mut *const sys::CUgraphNode,
    dependency_count: *mut usize,
) -> sys::CUresult;

/// `CU_STREAM_CAPTURE_STATUS_NONE`
const NOT_CAPTURED: u32 = 0;
/// `CU_STREAM_CAPTURE_STATUS_ACTIVE`
const CAPTURED: u32 = 1;

/// What a stream has to do with graph captures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Capture {
    /// Nothing.
    No,
    /// It takes part in the capture with this number.
    Of(u64),
    /// It takes part in a capture that a forbidden call has broken and that was not ended yet.
    Broken,
    /// It is the default stream, and one that synchronizes with it is captured: the driver refuses work on it.
    Blocked,
}

/// Lets the calling thread make calls that a capture in its strictest mode forbids to every thread of the process, until this
/// is dropped.
struct Relaxed {
    mode_before: sys::CUstreamCaptureMode,
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        // SAFETY: a place for one mode, which holds the thread's own. The driver refuses it only when it is going down, and
        // the caller has an answer already.
        let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut self.mode_before) };
    }
}

impl Driver {
    /// Runs calls that have nothing to do with a capture, though one in its strictest mode forbids them to every thread of
    /// the process and is broken by them. The thread's mode is as before afterwards, whatever the calls answer.
    ///
    /// Whether anybody captures is not asked: that costs as much as the two exchanges, which set a variable of the thread's.
    /// The calls in question take from two to hundreds of µs.
    pub(super) fn outside_captures<R>(
        &self,
        calls: impl FnOnce(&Self) -> Result<R, DeviceError>,
    ) -> Result<R, DeviceError> {
        self.bind()?;
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: a place for one mode, which holds one.
        let answer = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
        self.check("cuThreadExchangeStreamCaptureMode", answer)?;
        let _relaxed = Relaxed { mode_before: mode };
        calls(self)
    }

    /// # Safety
    ///
    /// `stream` is alive in this context.
    pub(super) unsafe fn capture(&self, stream: sys::CUstream) -> Result<Capture, DeviceError> {
        use std::ptr::null_mut;
        self.bind()?;
        let (mut status, mut id) = (NOT_CAPTURED, 0);
        // SAFETY: as promised by the caller; places for a status and a number, and none for the rest, which may be left out.
        let answer =
            unsafe { (self.capture_info)(stream, &raw mut status, &raw mut id, null_mut(), null_mut(), null_mut()) };
        if answer == sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT {
            // Asking does not break the other stream's capture.
            return Ok(Capture::Blocked);
        }
        self.check("cuStreamGetCaptureInfo", answer)?;
        Ok(match status {
            NOT_CAPTURED => Capture::No,
            CAPTURED => Capture::Of(id),
            _ => Capture::Broken,
        })
    }
}
