//! Who keeps memory: the blocks allocated inside a scope that are still live.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::panic::Location;

use super::{OpenScope, Scope};
use crate::allocator::LiveBlock;
use crate::units::Bytes;

impl OpenScope {
    /// The requested bytes allocated in the scope that are live. One lock.
    pub(crate) fn own_live_bytes(&self) -> i64 {
        self.inner.ledger().own_live_bytes(self.key)
    }

    /// The blocks allocated inside this scope, and in the scopes opened inside it, closed ones included, that the program still holds.
    /// By stream and address; their requested bytes add up to the scope's `own_delta_bytes`.
    ///
    /// All blocks of the allocator are looked at, and its allocations and frees wait meanwhile: for reports and tests, not for
    /// each step of a training loop.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use memtrack::{Buffer, CachingAllocator, device::Host};
    /// use memtrack::scope::{LiveSite, Scope};
    ///
    /// let allocator = CachingAllocator::new(Arc::new(Host::new()));
    /// let scope = Scope::open(&allocator, "epoch", None);
    /// let mut history = Vec::new();
    /// for _ in 0..3 {
    ///     let _step = Scope::open(&allocator, "step", None);
    ///     let loss = Buffer::<f32>::zeros(&allocator, 1)?;
    ///     let _activations = Buffer::<f32>::zeros(&allocator, 1000)?;
    ///     history.push(loss); // Never freed.
    /// }
    /// for site in LiveSite::group(&scope.live_blocks()) {
    ///     println!("{site}"); // 12 B in 3 blocks, allocated at src/train.rs:9:16 in step
    ///     assert_eq!((site.requested_bytes, site.block_count, site.scope), (12, 3, "step"));
    /// }
    /// # Ok::<(), memtrack::AllocationError>(())
    /// ```
    pub fn live_blocks(&self) -> Vec<LiveBlock> {
        self.inner.live_blocks_inside(self.key)
    }
}

impl Scope {
    /// As [`OpenScope::live_blocks`].
    pub fn live_blocks(&self) -> Vec<LiveBlock> {
        self.open.live_blocks()
    }
}

/// The live blocks that one line of the program allocated in one scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveSite {
    /// The line that allocated.
    pub location: &'static Location<'static>,
    /// The name of the innermost scope it allocated in.
    pub scope: &'static str,
    /// How many blocks.
    pub block_count: u64,
    /// Their bytes as asked for.
    pub requested_bytes: u64,
    /// Their bytes rounded.
    pub size_bytes: u64,
}

impl LiveSite {
    /// Sums blocks by line and scope, those with the most requested bytes first.
    pub fn group<'a>(blocks: impl IntoIterator<Item = &'a LiveBlock>) -> Vec<Self> {
        let mut sites: HashMap<(&Location<'static>, &str), Self> = HashMap::new();
        for block in blocks {
            let LiveBlock { location, scope, .. } = *block;
            let empty = Self { location, scope, block_count: 0, requested_bytes: 0, size_bytes: 0 };
            let site = sites.entry((location, scope)).or_insert(empty);
            site.block_count += 1;
            site.requested_bytes = site.requested_bytes.saturating_add(block.requested_bytes);
            site.size_bytes = site.size_bytes.saturating_add(block.size_bytes);
        }
        let mut sites: Vec<Self> = sites.into_values().collect();
        sites.sort_by_key(|site| (Reverse(site.requested_bytes), site.location, site.scope));
        sites
    }
}

impl fmt::Display for LiveSite {
    /// As `1.00 MiB in 2 blocks, allocated at src/model.rs:31:20 in forward`, in bytes as asked for.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { location, scope, block_count, requested_bytes, .. } = self;
        let blocks = if *block_count == 1 { "block" } else { "blocks" };
        let sum = Bytes::unsigned(*requested_bytes);
        write!(f, "{sum} in {block_count} {blocks}, allocated at {location} in {scope}")
    }
}
