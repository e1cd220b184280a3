//! Capturing a CUDA stream into a graph, on a GPU as on the mock.

use std::sync::Arc;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUresult, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaStream, DriverError, result};

/// A stream whose work goes into a graph until this is ended or dropped. Both only on the thread that began it.
#[derive(Debug)]
#[must_use = "the capture ends when this is dropped"]
pub struct CapturedStream(Option<Arc<CudaStream>>);

/// Begins a capture in global mode, the one that forbids most, to every thread.
///
/// # Errors
///
/// When the driver refuses.
pub fn capture(stream: &Arc<CudaStream>) -> Result<CapturedStream, DriverError> {
    capture_in(stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL)
}

/// Begins a capture in a mode of choice.
///
/// # Errors
///
/// When the driver refuses.
pub fn capture_in(stream: &Arc<CudaStream>, mode: CUstreamCaptureMode) -> Result<CapturedStream, DriverError> {
    stream.begin_capture(mode)?;
    Ok(CapturedStream(Some(Arc::clone(stream))))
}

impl CapturedStream {
    /// Ends the capture and destroys its graph.
    ///
    /// # Errors
    ///
    /// When the driver refuses, also because something broke the capture.
    pub fn end(mut self) -> Result<(), DriverError> {
        self.finish()
    }

    /// Ends the capture and makes its graph ready to be launched.
    ///
    /// # Errors
    ///
    /// When the driver refuses, also because something broke the capture.
    pub fn into_graph(mut self) -> Result<CudaGraph, DriverError> {
        let graph = match self.0.take() {
            Some(stream) => stream.end_capture(CUgraphInstantiate_flags(0))?,
            None => None,
        };
        graph.ok_or(DriverError(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED))
    }

    fn finish(&mut self) -> Result<(), DriverError> {
        let Some(stream) = self.0.take() else { return Ok(()) };
        stream.context().bind_to_thread()?;
        // SAFETY: the stream is alive; a broken capture gives no graph.
        let graph = unsafe { result::stream::end_capture(stream.cu_stream()) }?;
        // SAFETY: a graph that was just made, which nobody else knows.
        unsafe { result::graph::destroy(graph) }
    }
}

impl Drop for CapturedStream {
    fn drop(&mut self) {
        // Whoever wants to know has called `end`.
        let _ = self.finish();
    }
}
