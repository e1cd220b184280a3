//! What a scope says when it closes.

use std::fmt;
use std::sync::Arc;

use crate::ledger::{ClosedScope, Outcome};
use crate::source::SourceFigures;

/// The name of a device, such as `cuda:0`; cheap to clone.
#[derive(Clone)]
pub struct DeviceName(Arc<str>);

impl DeviceName {
    pub(crate) fn new(name: &Arc<str>) -> Self {
        Self(Arc::clone(name))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// What happened to a device's memory while a scope was open.
///
/// The *device view* (`before`, `after`, `peak`, counts) is the state of the device over the interval, whoever caused it,
/// in rounded bytes as PyTorch's `allocated_bytes` counts them. The *owner view* (`own_…`) is what was allocated inside the
/// scope and the scopes in it, in bytes as asked for; a free is credited to the scope that allocated, wherever it happens.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ScopeRecord {
    /// The scope's name.
    pub name: &'static str,
    /// The device measured.
    pub device: DeviceName,
    /// The phase in force: the scope's own, or that of the scopes around it.
    pub phase: Option<&'static str>,
    /// Allocated bytes when the scope opened.
    pub before_bytes: i64,
    /// Allocated bytes when it closed.
    pub after_bytes: i64,
    /// The most bytes allocated at any moment in between, both ends included. Exact for any nesting and overlap.
    pub peak_bytes: i64,
    /// Allocations on the device meanwhile.
    pub allocation_count: i64,
    /// Frees on the device meanwhile.
    pub free_count: i64,
    /// Allocations on the device that gave cached memory back and asked again.
    pub retry_count: i64,
    /// Allocations on the device that ran out of memory.
    pub oom_count: i64,
    /// Change of the bytes taken from the device.
    pub reserved_delta_bytes: i64,
    /// Requested bytes allocated inside the scope that are still live.
    pub own_delta_bytes: i64,
    /// The most requested bytes allocated inside the scope that were live at once.
    pub own_peak_bytes: i64,
    /// Requested bytes of all allocations made inside the scope, those of inner scopes included, whether they are live or not.
    pub own_allocated_bytes: i64,
    /// The same without what was allocated in inner scopes and phases: what the function itself took. Steps and epochs are no
    /// function, and take nothing away.
    pub exclusive_allocated_bytes: i64,
    /// Allocations made inside the scope.
    pub own_allocation_count: i64,
    /// Frees, wherever they happened, of what was allocated inside the scope.
    pub own_free_count: i64,
    /// Allocations made inside the scope that gave cached memory back and asked again.
    pub own_retry_count: i64,
    /// Allocations made inside the scope that ran out of memory.
    pub own_oom_count: i64,
    /// Bytes that others allocated and freed meanwhile. Not zero means that the device view is shared.
    pub foreign_bytes: i64,
    /// How the scope ended.
    pub outcome: Outcome,
    /// What each registered [source](crate::source) said meanwhile, in the order of registration.
    pub sources: Vec<SourceFigures>,
    /// Whether an allocator of memtrack's was measured. Without one, `device` and the figures of the device view are those of the
    /// first of the `sources` (0 where it has none; its own figures then are absent); allocations, frees and the owner view are not
    /// known, and 0.
    pub has_allocator: bool,
}

impl ScopeRecord {
    #[inline]
    pub(crate) fn new(name: &'static str, device: &Arc<str>, closed: Option<ClosedScope>, outcome: Outcome) -> Self {
        let closed = closed.unwrap_or_default();
        let owned = closed.owned;
        Self {
            name,
            device: DeviceName::new(device),
            phase: closed.phase_name,
            before_bytes: closed.before_bytes,
            after_bytes: closed.after_bytes,
            peak_bytes: closed.peak_bytes,
            allocation_count: closed.allocation_count,
            free_count: closed.free_count,
            retry_count: closed.retry_count,
            oom_count: closed.oom_count,
            reserved_delta_bytes: closed.reserved_delta_bytes,
            own_delta_bytes: owned.live_bytes(),
            own_peak_bytes: owned.peak_bytes,
            own_allocated_bytes: owned.allocated_bytes,
            exclusive_allocated_bytes: owned.exclusive_bytes,
            own_allocation_count: owned.allocation_count,
            own_free_count: owned.free_count,
            own_retry_count: owned.retry_count,
            own_oom_count: owned.oom_count,
            foreign_bytes: closed.foreign_bytes,
            outcome,
            sources: Vec::new(),
            has_allocator: true,
        }
    }

    /// With what sources said. Without an allocator, the first of them stands in its place.
    #[cold]
    #[inline(never)]
    pub(crate) fn add_sources(&mut self, sources: Vec<SourceFigures>, is_stand_in: bool) {
        if let (true, Some(first)) = (is_stand_in, sources.first()) {
            self.has_allocator = false;
            self.device = DeviceName::new(&first.name);
            self.before_bytes = first.before_bytes.unwrap_or(0);
            self.after_bytes = first.after_bytes.unwrap_or(0);
            self.peak_bytes = first.peak_bytes.unwrap_or(0);
            self.reserved_delta_bytes = first.reserved_delta_bytes().unwrap_or(0);
            self.retry_count = first.retry_count.unwrap_or(0);
            self.oom_count = first.oom_count.unwrap_or(0);
        }
        self.sources = sources;
    }

    /// Allocated bytes at the end less those at the start.
    pub fn delta_bytes(&self) -> i64 {
        self.after_bytes.wrapping_sub(self.before_bytes)
    }

    /// How far the peak rose above the start.
    pub fn peak_delta_bytes(&self) -> i64 {
        self.peak_bytes.wrapping_sub(self.before_bytes)
    }
}
