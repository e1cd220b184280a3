//! A device and an allocator on it, doing what a recording says.

use std::collections::HashMap;
use std::sync::Arc;

use memtrack::device::{Device, DeviceError, Simulated, Stream};
use memtrack::{
    AllocationError, CachingAllocator, Config, InvalidSetting, MemoryPool, MemoryStats, PoolGuard, PoolOptions,
    TorchConfigError,
};

use crate::operation::{BlockId, Operation, PoolName};
use crate::recording::{OWN_STREAMS, Script};

#[cfg(feature = "cuda")]
mod gpu;

/// What a simulated device has when nobody says: so much that only a limit refuses.
const DEFAULT_TOTAL_BYTES: u64 = 1 << 40;

/// Streams that stand for "whoever still uses this block" lie above those of the files.
const USER_STREAMS: u64 = OWN_STREAMS + 1;

/// Where a recording is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Place {
    /// On a device without bytes: no GPU is needed, and addresses and busy streams are as scripted.
    #[default]
    Simulated,
    /// On the GPU of this number.
    Cuda(usize),
}

/// How a session is set up.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Where.
    pub place: Place,
    /// The allocator's settings.
    pub config: Config,
    /// Bytes of a simulated device, `None` for so much that only a limit refuses. A GPU has what it has.
    pub total_bytes: Option<u64>,
    /// What may be taken of the device.
    pub limit: Limit,
}

impl Setup {
    /// A device without bytes and without a limit, with these settings.
    pub fn simulated(config: Config) -> Self {
        Self { place: Place::Simulated, config, total_bytes: None, limit: Limit::AsConfigured }
    }
}

/// What may be taken of a device.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Limit {
    /// What the settings say.
    #[default]
    AsConfigured,
    /// This share of the memory that the recording's device had.
    Fraction(f64),
    /// So many bytes.
    Bytes(u64),
}

/// The share that comes to so many bytes of a device's memory, cut off as `set_per_process_memory_fraction` does.
fn fraction_for(limit_bytes: u64, total_bytes: u64) -> f64 {
    if limit_bytes >= total_bytes {
        return 1.0;
    }
    let fraction = limit_bytes as f64 / total_bytes as f64;
    let comes_to = |fraction: f64| (fraction * total_bytes as f64) as u64;
    if comes_to(fraction) < limit_bytes { fraction.next_up() } else { fraction }
}

/// Why a session cannot be had, or cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// No such GPU, or no driver.
    #[error("no GPU: {0}")]
    NoGpu(String),
    /// The settings make no sense.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// Settings applied at run time are refused.
    #[error("settings: {0}")]
    RunTimeSettings(#[from] TorchConfigError),
    /// The allocator or its device failed, not for want of memory.
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The addresses of the file cannot be.
    #[error("{place}: the recorded addresses cannot be: {error}")]
    Script {
        /// Where the replay came to one.
        place: String,
        /// What the device said.
        error: AllocationError,
    },
    /// An operation names a pool that is not there.
    #[error("pool {0} does not exist here")]
    NoPool(PoolName),
}

/// What an operation came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Done,
    /// Memory was had, at this address.
    Address(u64),
    /// There was none.
    OutOfMemory,
    /// It cannot be done on this device, and was not.
    Skipped,
}

/// Where a session's blocks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    /// Nowhere: not asked for, refused, or given back.
    Not,
    At(u64),
    /// Given back while that stream used it.
    Leaving(Stream),
}

/// An allocator on a device of its own, with what a recording holds of it.
pub struct Session {
    device: SessionDevice,
    allocator: CachingAllocator,
    memory: Memory,
    initial_fraction: Option<f64>,
    held: Vec<Held>,
    pools: HashMap<PoolName, MemoryPool>,
    entered: HashMap<PoolName, PoolGuard>,
    scripted_answers: bool,
}

/// How much memory there is, and how much there was where the recording was made.
#[derive(Debug, Clone, Copy)]
struct Memory {
    total_bytes: u64,
    recorded_bytes: Option<u64>,
}

impl Memory {
    /// The share of this device that has the bytes which this share had of the recording's.
    fn fraction(self, recorded: f64) -> f64 {
        match self.recorded_bytes {
            Some(bytes) if bytes != self.total_bytes && recorded < 1.0 => {
                fraction_for((recorded * bytes as f64) as u64, self.total_bytes)
            }
            _ => recorded,
        }
    }
}

enum SessionDevice {
    Simulated(Arc<Simulated>),
    #[cfg(feature = "cuda")]
    Cuda(gpu::Gpu),
}

impl Session {
    /// Opens the device and makes the allocator, for recordings of up to `block_count` allocations.
    ///
    /// # Errors
    ///
    /// No GPU where one was asked for; settings that make no sense.
    pub fn new(setup: &Setup, block_count: usize) -> Result<Self, SessionError> {
        let (device, shared): (_, Arc<dyn Device>) = match setup.place {
            Place::Simulated => {
                let total_bytes = setup.total_bytes.unwrap_or(DEFAULT_TOTAL_BYTES);
                let device = Arc::new(Simulated::with_capacity(total_bytes));
                (SessionDevice::Simulated(Arc::clone(&device)), device)
            }
            #[cfg(feature = "cuda")]
            Place::Cuda(ordinal) => {
                let gpu = gpu::Gpu::open(ordinal)?;
                let device = gpu.device();
                (SessionDevice::Cuda(gpu), device)
            }
            #[cfg(not(feature = "cuda"))]
            Place::Cuda(_) => {
                let reason = "this build has no CUDA; build memtrack-cli with its feature `cuda`";
                return Err(SessionError::NoGpu(reason.to_owned()));
            }
        };
        let memory = Memory { total_bytes: shared.total_bytes(), recorded_bytes: setup.total_bytes };
        let initial_fraction = match setup.limit {
            Limit::AsConfigured => None,
            Limit::Fraction(fraction) => Some(memory.fraction(fraction)),
            Limit::Bytes(bytes) => Some(fraction_for(bytes, memory.total_bytes)),
        };
        let allocator = CachingAllocator::with_config(shared, setup.config.clone())?;
        let mut session = Self {
            device,
            allocator,
            memory,
            initial_fraction,
            held: vec![Held::Not; block_count],
            pools: HashMap::new(),
            entered: HashMap::new(),
            scripted_answers: false,
        };
        session.set_initial_fraction()?;
        Ok(session)
    }

    /// Puts segments where a recording had them. A GPU puts them where it likes.
    pub fn follow(&mut self, script: &Script) {
        if let (SessionDevice::Simulated(device), Script::InOrder(addresses)) = (&self.device, script) {
            device.script_addresses(addresses.iter().copied());
        }
        self.scripted_answers = *script == Script::AtAnswer;
    }

    /// Lets others have so many bytes of a simulated device. Of a GPU they have what they have.
    pub fn set_other_use(&self, bytes: u64) {
        match &self.device {
            SessionDevice::Simulated(device) => device.set_other_use(bytes),
            #[cfg(feature = "cuda")]
            SessionDevice::Cuda(_) => {}
        }
    }

    /// Before an allocation: the address that the recording has for it, `None` for out of memory.
    pub fn expect_answer(&self, address: Option<u64>) {
        if let (SessionDevice::Simulated(device), true) = (&self.device, self.scripted_answers) {
            device.clear_scripted();
            device.script_addresses(address);
        }
    }

    /// The allocator.
    pub fn allocator(&self) -> &CachingAllocator {
        &self.allocator
    }

    /// Its statistics.
    pub fn stats(&self) -> MemoryStats {
        self.allocator.memory_stats()
    }

    /// Does one thing. Blocks that were never had are passed over.
    ///
    /// # Errors
    ///
    /// A failure other than want of memory.
    #[inline]
    pub fn perform(&mut self, operation: &Operation) -> Result<Outcome, SessionError> {
        match operation {
            Operation::Allocate { block, bytes, stream } => return self.allocate(*block, *bytes, *stream),
            Operation::Free { block } => {
                if let Held::At(address) = self.take(*block) {
                    self.allocator.free_raw(address)?;
                }
            }
            _ => return self.perform_rare(operation),
        }
        Ok(Outcome::Done)
    }

    fn perform_rare(&mut self, operation: &Operation) -> Result<Outcome, SessionError> {
        match operation {
            Operation::Allocate { .. } | Operation::Free { .. } => return self.perform(operation),
            Operation::FreeInUse { block } => return self.free_in_use(*block),
            Operation::CompleteFree { block } => {
                if let (Held::Leaving(stream), SessionDevice::Simulated(device)) = (self.take(*block), &self.device) {
                    device.set_idle(stream);
                }
            }
            Operation::RecordStream { block, stream } => {
                let stream = self.stream(*stream)?;
                if let Some(Held::At(address)) = self.held.get(block.index).copied() {
                    self.allocator.record_stream_raw(address, stream)?;
                }
            }
            Operation::SetBusy { stream } => match &self.device {
                SessionDevice::Simulated(device) => device.set_busy(Stream(*stream)),
                #[cfg(feature = "cuda")]
                SessionDevice::Cuda(_) => return Ok(Outcome::Skipped),
            },
            Operation::CompleteEvents { count } => match &self.device {
                SessionDevice::Simulated(device) => device.complete_oldest_events(*count),
                #[cfg(feature = "cuda")]
                SessionDevice::Cuda(_) => return Ok(Outcome::Skipped),
            },
            Operation::Synchronize => self.allocator.device().synchronize()?,
            Operation::EmptyCache => self.allocator.empty_cache()?,
            Operation::ResetPeak => self.allocator.reset_peak_memory_stats(),
            Operation::ResetAccumulated => self.allocator.reset_accumulated_memory_stats(),
            Operation::SetFraction { fraction } => {
                self.allocator.set_memory_fraction(self.memory.fraction(*fraction))?;
            }
            Operation::Settings { text } => self.allocator.apply_settings(text)?,
            Operation::CreatePool { pool, use_on_oom, no_split } => {
                let options = PoolOptions::default().use_on_oom(*use_on_oom).no_split(*no_split);
                self.pools.insert(*pool, self.allocator.create_pool(options));
            }
            Operation::EnterPool { pool } => {
                let guard = self.pools.get(pool).ok_or(SessionError::NoPool(*pool))?.enter()?;
                self.entered.insert(*pool, guard);
            }
            Operation::LeavePool { pool } => drop(self.entered.remove(pool)),
            Operation::DeletePool { pool } => drop(self.pools.remove(pool)),
            Operation::Mark { .. } => {}
        }
        Ok(Outcome::Done)
    }

    /// Gives everything back that is still held, and begins again with what is cached.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    pub fn rewind(&mut self) -> Result<(), SessionError> {
        self.entered.clear();
        self.allocator.device().synchronize()?;
        for held in &mut self.held {
            if let Held::At(address) = std::mem::replace(held, Held::Not) {
                self.allocator.free_raw(address)?;
            }
        }
        self.pools.clear();
        self.set_initial_fraction()
    }

    fn set_initial_fraction(&mut self) -> Result<(), SessionError> {
        if let Some(fraction) = self.initial_fraction {
            self.allocator.set_memory_fraction(fraction)?;
        }
        Ok(())
    }

    #[inline]
    fn allocate(&mut self, block: BlockId, bytes: u64, stream: u64) -> Result<Outcome, SessionError> {
        let stream = self.stream(stream)?;
        match self.allocator.allocate_raw(bytes, stream) {
            Ok(address) => {
                // No bytes have no address, and nothing to give back.
                if let Some(held) = self.held.get_mut(block.index).filter(|_| address != 0) {
                    *held = Held::At(address);
                }
                Ok(Outcome::Address(address))
            }
            Err(AllocationError::OutOfMemory(_)) => Ok(Outcome::OutOfMemory),
            Err(error) => Err(error.into()),
        }
    }

    #[inline]
    fn take(&mut self, block: BlockId) -> Held {
        self.held.get_mut(block.index).map_or(Held::Not, |held| std::mem::replace(held, Held::Not))
    }

    fn free_in_use(&mut self, block: BlockId) -> Result<Outcome, SessionError> {
        let Held::At(address) = self.take(block) else { return Ok(Outcome::Done) };
        let outcome = match &self.device {
            SessionDevice::Simulated(device) => {
                let user = Stream(USER_STREAMS + block.index as u64);
                self.allocator.record_stream_raw(address, user)?;
                device.set_busy(user);
                self.held[block.index] = Held::Leaving(user);
                Outcome::Done
            }
            #[cfg(feature = "cuda")]
            SessionDevice::Cuda(_) => Outcome::Skipped,
        };
        self.allocator.free_raw(address)?;
        Ok(outcome)
    }

    /// The device's stream for a handle of the file.
    #[inline]
    fn stream(&mut self, handle: u64) -> Result<Stream, SessionError> {
        match &mut self.device {
            SessionDevice::Simulated(_) => Ok(Stream(handle)),
            #[cfg(feature = "cuda")]
            SessionDevice::Cuda(gpu) => gpu.stream(handle),
        }
    }
}
