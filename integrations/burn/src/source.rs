//! What cubecl holds of a GPU's memory, for memtrack: burn's `cuda`, `wgpu` and `rocm` backends all allocate through cubecl.
//!
//! cubecl takes pages from the driver and gives tensors slices of them, so the driver's figures alone say little. This source asks
//! cubecl itself. It needs nothing of this package; copy the file.
//!
//! # When things happen
//!
//! An operation of burn's is queued, and its memory is taken later, by a thread of cubecl's own. The question goes through the same
//! queue, behind all that this thread has asked for before it, and is waited for. So what stands between two readings is what was
//! asked for between them, although it happened elsewhere. What that costs: the calling thread waits until cubecl's thread has come
//! so far (it launches kernels, it does not wait for them), so the two no longer overlap across the boundary of a scope. The GPU's
//! own queue goes on.
//!
//! With burn's `fusion` operations are gathered first and may not be in the queue yet; [`CubeclSource::after`] has them sent.

use std::fmt;

use cubecl::client::ComputeClient;
use cubecl::stream_id::StreamId;
use cubecl::{MemoryUsage, Runtime};
use memtrack::source::{Exactness, MemorySource, SourceError, SourceReading};

/// Sends what is not queued yet.
type Flush = Box<dyn Fn() -> Result<(), SourceError> + Send + Sync>;

/// The memory of one stream of a cubecl client, for [`register_source`](memtrack::source::register_source).
///
/// - **In use** are the bytes of live tensors as they were asked for, without padding. A tensor that is dropped is out at once,
///   while kernels that read it may still run: cubecl gives its slice to the next tensor of the same stream.
/// - **Reserved** are the pages that cubecl has from the driver: in use, padding and free.
/// - **No peak**: cubecl 0.10 keeps none, so records have the highest figure of where scopes began and ended, and call it
///   `at_boundaries`. A temporary inside one function is not seen; more and smaller scopes see more. On CUDA,
///   [`CudaPoolSource`](memtrack::source::CudaPoolSource) beside this one has the exact peak of cubecl's pages.
/// - **One stream**: cubecl has a stream, with pools of its own, for each thread that computes, and 0.10 tells of one at a time.
///   Here it is that of the thread that made the source, whichever thread opens a scope. Make it on the thread that trains.
///   Pinned host memory and kernel metadata are not in the figures.
pub struct CubeclSource<R: Runtime> {
    name: String,
    device: Option<u32>,
    client: ComputeClient<R>,
    stream: StreamId,
    flush: Option<Flush>,
}

impl<R: Runtime> CubeclSource<R> {
    /// The calling thread's stream of a client, as from `CudaRuntime::client(&device)`.
    pub fn of_this_thread(name: impl Into<String>, client: ComputeClient<R>) -> Self {
        Self { name: name.into(), device: None, client, stream: StreamId::current(), flush: None }
    }

    /// Says which device it is, in CUDA's order.
    #[must_use]
    pub fn on_device(self, ordinal: u32) -> Self {
        Self { device: Some(ordinal), ..self }
    }

    /// Does this before each reading, on the thread that reads: `Backend::sync`, which with `fusion` sends what is gathered. It
    /// also waits for the GPU, at every boundary of a scope; without `fusion` it is not needed.
    #[must_use]
    pub fn after(self, flush: impl Fn() -> Result<(), SourceError> + Send + Sync + 'static) -> Self {
        Self { flush: Some(Box::new(flush)), ..self }
    }
}

impl<R: Runtime> fmt::Debug for CubeclSource<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("CubeclSource");
        fields.field("name", &self.name).field("stream", &self.stream.value).finish_non_exhaustive()
    }
}

impl<R: Runtime> MemorySource for CubeclSource<R> {
    fn name(&self) -> &str {
        &self.name
    }

    fn device(&self) -> Option<u32> {
        self.device
    }

    fn exactness(&self) -> Exactness {
        Exactness::Limited("bytes in use of one thread's stream, as cubecl counts them")
    }

    fn read(&self) -> Result<SourceReading, SourceError> {
        if let Some(flush) = &self.flush {
            flush()?;
        }
        let usage = self.stream.executes(|| self.client.memory_usage());
        usage.map(|usage| reading(&usage)).map_err(|error| {
            SourceError::new(format!(
                "cubecl does not say what `{}` holds, after an error of its own: {error}",
                self.name
            ))
        })
    }
}

/// What memtrack understands of it.
fn reading(usage: &MemoryUsage) -> SourceReading {
    SourceReading::new(usage.bytes_in_use).with_reserved(usage.bytes_reserved)
}
