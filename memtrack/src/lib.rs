//! Where GPU memory went, why it ran out, and why nvidia-smi shows another number.

mod allocator;
mod attribute;
mod buffer;
mod context;
mod current;
pub mod device;
pub mod driver;
mod ledger;
pub mod phase;
pub mod scope;
mod stats;
mod sync;
pub mod units;

pub use allocator::{
    AllocationError, CachingAllocator, Config, ConfigError, ENVIRONMENT_VARIABLE, EnvironmentError, OutOfMemory,
    Refusal, RoundupDivisions,
};
pub use attribute::AsAllocator;
#[doc(hidden)]
pub use attribute::private as __private;
pub use buffer::{Buffer, Element};
#[cfg(feature = "cuda")]
pub use buffer::{CudaRef, CudaRefMut, CudaSliceRef, CudaSliceRefMut};
pub use current::{Current, clear_default, current, enabled, set_default, set_enabled};
pub use memtrack_macros::track_memory;
pub use phase::{EpochSummary, epoch, phase, step};
pub use scope::scope;
pub use stats::{MemoryStats, PoolKind, PoolStatistic, Statistic};
