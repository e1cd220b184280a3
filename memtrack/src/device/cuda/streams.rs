//! Streams by handle: registered ones are held alive, so that a handle never comes to name another stream while cached
//! memory is keyed by it.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use cudarc::driver::{CudaContext, CudaStream, sys};

use crate::device::{DeviceError, Stream};
use crate::sync::{read, write};

/// `CU_STREAM_LEGACY`: the default stream by another name.
const LEGACY_DEFAULT: u64 = 1;
/// `CU_STREAM_PER_THREAD`
const PER_THREAD: u64 = 2;

const PER_THREAD_REASON: &str = "this handle names a different stream on each thread, so memory cannot be kept by it; use \
                                 CudaContext::default_stream or a stream from CudaContext::new_stream";

/// The streams a device knows.
#[derive(Debug)]
pub(super) struct Streams {
    default: Arc<CudaStream>,
    /// By handle. Nothing is ever taken out.
    others: RwLock<BTreeMap<u64, Arc<CudaStream>>>,
}

fn number(stream: &CudaStream) -> u64 {
    stream.cu_stream().addr() as u64
}

/// What tells two of the driver's streams apart, under whatever names: built-in streams have the same handles in every
/// context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamIdentity {
    context: usize,
    handle: u64,
}

impl StreamIdentity {
    /// `None` for the per-thread default stream, which is another on each thread.
    pub(crate) fn of(stream: &CudaStream) -> Option<Self> {
        let handle = match number(stream) {
            LEGACY_DEFAULT => 0,
            PER_THREAD => return None,
            handle => handle,
        };
        Some(Self { context: stream.context().cu_ctx().addr(), handle })
    }
}

impl Streams {
    pub(super) fn new(context: &Arc<CudaContext>) -> Self {
        Self { default: context.default_stream(), others: RwLock::default() }
    }

    pub(super) fn default_stream(&self) -> &Arc<CudaStream> {
        &self.default
    }

    /// Whether memory of this device can be kept for, or lent to, a stream; the stream's name here.
    pub(super) fn check(&self, device: &str, stream: &CudaStream) -> Result<Stream, DeviceError> {
        let handle = number(stream);
        let refuse = |reason| DeviceError::InvalidStream { device: device.to_owned(), stream: Stream(handle), reason };
        if stream.context().cu_ctx() != self.default.context().cu_ctx() {
            return Err(refuse("it belongs to another context; make it from this device's context()"));
        }
        match handle {
            0 | LEGACY_DEFAULT => Ok(Stream::DEFAULT),
            PER_THREAD => Err(refuse(PER_THREAD_REASON)),
            _ => Ok(Stream(handle)),
        }
    }

    pub(super) fn register(&self, device: &str, stream: &Arc<CudaStream>) -> Result<Stream, DeviceError> {
        let name = self.check(device, stream)?;
        if name != Stream::DEFAULT {
            // The first holder stays: while it does, the handle can only be the same stream again.
            let mut others = write(&self.others);
            others.entry(name.0).or_insert_with(|| Arc::clone(stream));
        }
        Ok(name)
    }

    pub(super) fn find(&self, stream: Stream) -> Option<Arc<CudaStream>> {
        if stream == Stream::DEFAULT {
            return Some(Arc::clone(&self.default));
        }
        read(&self.others).get(&stream.0).cloned()
    }

    /// The driver's handle, alive for as long as this table is.
    pub(super) fn handle(&self, device: &str, stream: Stream) -> Result<sys::CUstream, DeviceError> {
        if stream == Stream::DEFAULT {
            return Ok(self.default.cu_stream());
        }
        let others = read(&self.others);
        others.get(&stream.0).map(|stream| stream.cu_stream()).ok_or_else(|| {
            let reason = if stream.0 == PER_THREAD {
                PER_THREAD_REASON
            } else {
                "unknown to this device; register it with Cuda::register_stream first"
            };
            DeviceError::InvalidStream { device: device.to_owned(), stream, reason }
        })
    }
}
