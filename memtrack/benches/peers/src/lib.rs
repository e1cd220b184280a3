//! memtrack for a program in C++ that measures GPU allocators side by side.
//!
//! [`Peer`] is an allocator on the first GPU with the streams that were made for it; [`interface`] is the same in C.

pub mod interface;

use std::sync::Arc;

use memtrack::device::{Cuda, CudaUnavailable, DeviceError, Stream};
use memtrack::{CachingAllocator, Config, ConfigError, InvalidSetting};

/// An allocator on `cuda:0`.
#[derive(Debug)]
pub struct Peer {
    cuda: Arc<Cuda>,
    allocator: CachingAllocator,
}

/// Why there is no allocator, or no stream.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The configuration's text is malformed.
    #[error(transparent)]
    Configuration(#[from] ConfigError),
    /// It is well-formed and makes no sense.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// No GPU, or no driver.
    #[error(transparent)]
    NoGpu(#[from] CudaUnavailable),
    /// The driver refused.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// cudarc could not make a stream.
    #[error("a stream cannot be made: {0}")]
    Stream(String),
}

impl Peer {
    /// Opens the GPU. `configuration` is in the grammar of `MEMTRACK_ALLOC_CONF`, such as `expandable_segments:True`.
    ///
    /// # Errors
    ///
    /// A malformed text, or no GPU.
    pub fn open(configuration: &str) -> Result<Self, PeerError> {
        let config: Config = configuration.parse()?;
        let cuda = Arc::new(Cuda::new(0)?);
        let allocator = CachingAllocator::with_config(Arc::<Cuda>::clone(&cuda), config)?;
        Ok(Self { cuda, allocator })
    }

    /// A new stream that waits for no other. It lives as long as the device; its number is the driver's handle.
    ///
    /// # Errors
    ///
    /// The driver has no more streams.
    pub fn new_stream(&self) -> Result<Stream, PeerError> {
        let stream = self.cuda.context().new_stream().map_err(|error| PeerError::Stream(error.to_string()))?;
        Ok(self.cuda.register_stream(&stream)?)
    }

    /// The allocator.
    pub fn allocator(&self) -> &CachingAllocator {
        &self.allocator
    }
}
