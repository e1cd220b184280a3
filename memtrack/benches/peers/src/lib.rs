//! memtrack for a program in C++ that measures GPU allocators side by side.
//!
//! [`Peer`] is an allocator on the first GPU with the streams that were made for it; [`setup`] is what the names of peers mean,
//! and [`interface`] is all of it in C.

pub mod interface;
pub mod setup;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memtrack::device::{Cuda, CudaUnavailable, Device, DeviceError, Simulated, Stream};
use memtrack::scope::Scope;
use memtrack::units::GIB;
use memtrack::{AllocationError, CachingAllocator, Config, ConfigError, InvalidSetting};

use crate::setup::Setup;

/// `simulated` in this variable puts a device without bytes in the GPU's place, to see whether the steps run at all.
pub const DEVICE_VARIABLE: &str = "MEMTRACK_PEERS_DEVICE";

/// The memory of the simulated device, as much as a large GPU has.
const SIMULATED_BYTES: u64 = 140 * GIB;

/// An allocator on `cuda:0`, or on a simulated device.
#[derive(Debug)]
pub struct Peer {
    opened: Opened,
    setup: Setup,
    allocator: CachingAllocator,
}

#[derive(Debug)]
enum Opened {
    Cuda(Arc<Cuda>),
    Simulated { device: Arc<Simulated>, last_stream: AtomicU64 },
}

/// Why there is no allocator, or no stream.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// No peer has this name.
    #[error("this build has no peer {0}")]
    Unknown(String),
    /// The variable that names the device.
    #[error("{DEVICE_VARIABLE} is `{0}`; it may be `simulated`, or unset for the GPU")]
    DeviceVariable(String),
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
    /// Cached memory could not be given back.
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    /// cudarc could not make a stream.
    #[error("a stream cannot be made: {0}")]
    Stream(String),
}

impl Opened {
    fn new() -> Result<Self, PeerError> {
        match std::env::var(DEVICE_VARIABLE) {
            Err(_) => Ok(Self::Cuda(Arc::new(Cuda::new(0)?))),
            Ok(value) if value == "simulated" => Ok(Self::Simulated {
                device: Arc::new(Simulated::with_capacity(SIMULATED_BYTES)),
                last_stream: AtomicU64::new(0),
            }),
            Ok(value) => Err(PeerError::DeviceVariable(value)),
        }
    }

    fn device(&self) -> Arc<dyn Device> {
        match self {
            Self::Cuda(cuda) => Arc::<Cuda>::clone(cuda),
            Self::Simulated { device, .. } => Arc::<Simulated>::clone(device),
        }
    }
}

impl Peer {
    /// Opens the device for the peer of this name, which [`Setup::of`] must know.
    ///
    /// # Errors
    ///
    /// An unknown name, or no GPU.
    pub fn open(name: &str) -> Result<Self, PeerError> {
        let setup = Setup::of(name).ok_or_else(|| PeerError::Unknown(name.to_owned()))?;
        let opened = Opened::new()?;
        let allocator = make_allocator(&opened, setup)?;
        Ok(Self { opened, setup, allocator })
    }

    /// Puts a new allocator in the place of the old one, whose cached memory goes back first. Nothing may be allocated.
    ///
    /// What an allocator has seen before decides what it does later: `policy:compact` reserves by the highest peak so far.
    ///
    /// # Errors
    ///
    /// The device refused.
    pub fn renew(&mut self) -> Result<(), PeerError> {
        self.allocator.empty_cache().map_err(AllocationError::from)?;
        self.allocator = make_allocator(&self.opened, self.setup)?;
        Ok(())
    }

    /// A new stream that waits for no other. It lives as long as the device; on a GPU its number is the driver's handle.
    ///
    /// # Errors
    ///
    /// The driver has no more streams.
    pub fn new_stream(&self) -> Result<Stream, PeerError> {
        match &self.opened {
            Opened::Cuda(cuda) => {
                let stream = cuda.context().new_stream().map_err(|error| PeerError::Stream(error.to_string()))?;
                Ok(cuda.register_stream(&stream)?)
            }
            Opened::Simulated { last_stream, .. } => Ok(Stream(last_stream.fetch_add(1, Ordering::Relaxed) + 1)),
        }
    }

    /// Opens a scope with a phase on this thread, as an annotated function of a training run does; `None` for peers that are
    /// measured outside any scope.
    pub fn enter(&self) -> Option<Scope> {
        self.setup.has_scope.then(|| Scope::open(&self.allocator, "measured_steps", Some("steps")))
    }

    /// The allocator.
    pub fn allocator(&self) -> &CachingAllocator {
        &self.allocator
    }

    /// Pages that `policy:compact` has moved so far; `None` under the other policy.
    pub fn moved_page_count(&self) -> Option<u64> {
        self.setup.is_compact.then(|| self.allocator.compact_stats().moved_page_count)
    }
}

fn make_allocator(opened: &Opened, setup: Setup) -> Result<CachingAllocator, PeerError> {
    let config: Config = setup.configuration.parse()?;
    Ok(CachingAllocator::with_config(opened.device(), config)?)
}
