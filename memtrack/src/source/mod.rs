//! Memory that others allocate: what a framework's allocator says of itself, read where scopes begin and end.
//!
//! A program that trains with candle, burn or tch takes its memory from that framework and not from a
//! [`CachingAllocator`](crate::CachingAllocator). Register where the framework's figures can be read, once, and every scope,
//! [`#[track_memory]`](macro@crate::track_memory) function, phase, step and epoch has them: in [`ScopeRecord::sources`] and
//! [`EpochSummary::sources`], beside the allocator's own figures or, in a program without a memtrack allocator, in their place.
//! `docs/sources.md` says which frameworks can be read how.
//!
//! [`ScopeRecord::sources`]: crate::scope::ScopeRecord::sources
//! [`EpochSummary::sources`]: crate::EpochSummary::sources
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use memtrack::scope::Outcome;
//! use memtrack::source::{Exactness, MemorySource, SourceError, SourceReading, register_source};
//!
//! /// Counts what a framework holds, and keeps no peak.
//! #[derive(Debug)]
//! struct Framework(AtomicU64);
//!
//! impl MemorySource for Framework {
//!     fn name(&self) -> &str {
//!         "framework"
//!     }
//!     fn exactness(&self) -> Exactness {
//!         Exactness::ExactProcessWide
//!     }
//!     fn read(&self) -> Result<SourceReading, SourceError> {
//!         Ok(SourceReading::new(self.0.load(Ordering::Relaxed)))
//!     }
//! }
//!
//! let framework = Arc::new(Framework(AtomicU64::new(100)));
//! let _registered = register_source(framework.clone())?;
//! let scope = memtrack::scope("load").unwrap();
//! framework.0.fetch_add(400, Ordering::Relaxed);
//! let record = scope.close(Outcome::Ok);
//! assert_eq!(record.sources[0].delta_bytes(), Some(400));
//! // No allocator of memtrack's is current, so the record's own figures are the first source's.
//! assert_eq!((record.device.as_str(), record.delta_bytes()), ("framework", 400));
//! # Ok::<(), SourceError>(())
//! ```
//!
//! # Cost
//!
//! Without a source, one load where a scope begins and one where it ends. With sources, one lock that all scopes share, and for each
//! source a reading, or two with a reset between them where it keeps a peak; then a comparison for each scope that is open.

// Here live the trait, the registration, the figures, and the arithmetic of a mark that can only be set back ([`books`]). How a
// framework is read lives with whoever knows it; of those only the driver's own pools are here.

mod books;
#[cfg(feature = "cuda")]
mod cuda_pool;
mod error;
mod figures;
mod reading;
mod registry;
mod rows;

use std::fmt;

#[cfg(feature = "cuda")]
pub use cuda_pool::CudaPoolSource;
pub use error::SourceError;
pub use figures::{PeakKind, SourceFigures};
pub use reading::{Exactness, SourceReading};
pub use registry::{SourceRegistration, register_source};
pub(crate) use registry::{closed, closed_epoch, closed_unread, is_active, opened, opened_epoch, stand_in};
pub use rows::{SourcePhase, SourceSummary};

/// An allocator, a pool or a counter that can say how much memory it holds.
///
/// It is read on whichever thread a scope begins or ends, under a lock that no two readings hold at once. So it should be quick and
/// wait for nobody that may begin a scope itself; scopes that it begins on the thread that reads it are not measured by sources. A
/// panic in it is caught, and counts as an error.
pub trait MemorySource: fmt::Debug + Send + Sync {
    /// What people and summaries call it, as `cuda:0 default pool`. Asked for once, at registration.
    fn name(&self) -> &str;

    /// The number of the device its memory is of, in CUDA's order; `None` where there is no single one. Asked for once.
    fn device(&self) -> Option<u32> {
        None
    }

    /// What its figures are good for. Asked for once.
    fn exactness(&self) -> Exactness;

    /// What it holds now. Figures that it does not keep are left out.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from knowing. The figures of the scope that began or ended here are then absent, and its record says why; a
    /// scope around it loses nothing.
    fn read(&self) -> Result<SourceReading, SourceError>;

    /// Which high-water mark it reads, where another source may read the same: any number that only sources of this mark give, as the
    /// address of the counter. They are all read before one of them sets it back, so each has exact peaks. Asked for each time; to be quick.
    fn mark(&self) -> Option<u64> {
        None
    }

    /// Sets the peaks that [`read`](Self::read) tells back to what is held now. Called only if a reading had a peak; without peaks
    /// there is nothing to do.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from doing so. A scope that begins here then has no figures.
    fn reset_peak(&self) -> Result<(), SourceError> {
        Ok(())
    }
}
