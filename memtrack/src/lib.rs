//! Where GPU memory went, why it ran out, and why nvidia-smi shows another number.

mod allocator;
mod buffer;
mod context;
pub mod device;
pub mod driver;
mod ledger;
mod stats;
mod sync;
pub mod units;

pub use allocator::{
    AllocationError, CachingAllocator, Config, ConfigError, ENVIRONMENT_VARIABLE, EnvironmentError, OutOfMemory,
    Refusal, RoundupDivisions,
};
pub use buffer::{Buffer, Element};
pub use stats::{MemoryStats, PoolKind, PoolStatistic, Statistic};
