//! An allocator's shared state, and the path of an allocation that finds a cached block.

use std::any::Any;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};

use super::block::Origin;
use super::compact::Compact;
use super::config::{Backend, Config};
use super::error::AllocationError;
use super::events;
use super::hooks::OomHooks;
use super::known_shards::KnownShards;
use super::pending::PendingFrees;
use super::private_pools::{PoolId, PoolOptions, PrivatePool, Routes};
use super::raw::RawBlocks;
use super::rounding::SizeRules;
use super::shard::{Lease, Shard};
use super::stream_ordered::OrderedFrees;
use super::survey::{DriverReporter, Remembered};
use super::{CachingAllocator, Handle};
use crate::device::{Device, PhysicalMemory, Stream};
use crate::history::recording::{Recorder, StackId};
use crate::ledger::{Ledger, LedgerGuard, SharedLedger};
use crate::stats::PoolKind;
use crate::sync::{lock, read, write};

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// What growing and giving back work on; its lock is held during the device's calls.
#[derive(Debug)]
pub(crate) struct Growth {
    /// Taken from the device and not given back.
    pub(crate) reserved_bytes: u64,
    pub(crate) limit_bytes: Option<u64>,
    /// The settings in force.
    pub(super) config: Config,
    /// The same as the pools use them; each shard has a copy.
    pub(super) rules: SizeRules,
    /// Where the program asked for what is going on, if that is recorded.
    pub(super) asked_at: StackId,
    /// Physical memory that is mapped nowhere any more and that the device did not take back yet.
    pub(super) unmapped: Vec<PhysicalMemory>,
    /// What `policy:compact` keeps.
    pub(super) compact: Compact,
}

/// All of an allocator but its public handle.
pub(crate) struct Inner {
    pub(crate) id: u64,
    /// It has no memory, and keeps the books of a program that takes its memory elsewhere.
    pub(crate) is_stand_in: bool,
    /// The device's name, for records that outlive the device.
    pub(crate) name: Arc<str>,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) pending: PendingFrees,
    pub(super) growth: Mutex<Growth>,
    pub(crate) ledger: SharedLedger,
    /// The most bytes requested at once before peaks were reset last.
    pub(super) requested_peak_bytes: AtomicU64,
    /// The streams that may have spare pages, where pages move.
    pub(super) giving_stream_count: Arc<AtomicUsize>,
    pub(crate) history: Recorder,
    /// By pool and stream: the default pools first, streams in the order of their handles.
    shards: RwLock<Vec<Arc<Shard>>>,
    pub(super) routes: Routes,
    /// The backend is the driver's own pool.
    pub(super) is_stream_ordered: bool,
    pub(super) ordered: OrderedFrees,
    /// In the order in which they were made.
    private_pools: Mutex<Vec<Arc<PrivatePool>>>,
    searches: [AtomicU64; 2],
    /// Blocks that the program holds by address.
    pub(super) raw: RawBlocks,
    handle: OnceLock<Weak<Handle>>,
    pub(super) oom_hooks: Arc<OomHooks>,
    /// For diagnoses.
    pub(super) remembered: Remembered,
    /// Set by the layer that keeps a driver's view with the allocator.
    pub(crate) driver_reporter: OnceLock<DriverReporter>,
    /// What a later layer keeps with an allocator; the allocator itself makes no use of it.
    pub(crate) companion: OnceLock<Box<dyn Any + Send + Sync>>,
    /// Counts what a later layer calls the beginning of an era; blocks keep theirs.
    pub(crate) era: AtomicU32,
    /// What a later layer wants to do when a phase begins or ends, by its name.
    pub(crate) at_phase_boundary: OnceLock<fn(&Arc<Inner>, &'static str)>,
}

impl fmt::Debug for Inner {
    /// What a person wants to know of an allocator, and no lock that a caller in the midst of it could hold.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("CachingAllocator");
        text.field("device", &self.device.name());
        if let Ok(growth) = self.growth.try_lock() {
            text.field("config", &growth.config);
        }
        text.finish_non_exhaustive()
    }
}

impl Inner {
    pub(super) fn new(device: Arc<dyn Device>, config: Config) -> Self {
        let max_split_size = config.signed_max_split_size();
        let fraction = config.per_process_memory_fraction;
        let rules = SizeRules::new(&config);
        let inner = Self {
            name: device.name().into(),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            is_stand_in: false,
            device,
            pending: PendingFrees::default(),
            ledger: SharedLedger::new(Ledger::new(max_split_size)),
            history: Recorder::new(),
            shards: RwLock::default(),
            routes: Routes::new(config.torch_exact),
            is_stream_ordered: config.backend == Backend::CudaMallocAsync,
            ordered: OrderedFrees::default(),
            growth: Mutex::new(Growth {
                reserved_bytes: 0,
                limit_bytes: None,
                config,
                rules,
                asked_at: StackId::NONE,
                unmapped: Vec::new(),
                compact: Compact::default(),
            }),
            requested_peak_bytes: AtomicU64::new(0),
            giving_stream_count: Arc::default(),
            private_pools: Mutex::default(),
            searches: [const { AtomicU64::new(0) }; 2],
            raw: RawBlocks::default(),
            handle: OnceLock::new(),
            oom_hooks: Arc::default(),
            remembered: Remembered::default(),
            driver_reporter: OnceLock::new(),
            companion: OnceLock::new(),
            era: AtomicU32::new(0),
            at_phase_boundary: OnceLock::new(),
        };
        inner.set_fraction(fraction);
        inner.warn_not_expandable();
        inner
    }

    #[inline]
    pub(crate) fn ledger(&self) -> LedgerGuard<'_> {
        self.ledger.lock()
    }

    /// The first public handle, made once.
    pub(super) fn into_allocator(self) -> CachingAllocator {
        let inner = Arc::new(self);
        let handle = Arc::new(Handle { inner: Arc::clone(&inner), shards: KnownShards::default() });
        // Just made, so it cannot have been set.
        let _ = inner.handle.set(Arc::downgrade(&handle));
        inner.register();
        CachingAllocator { handle }
    }

    /// Another public handle, `None` once all of them have been dropped.
    pub(crate) fn handle(&self) -> Option<CachingAllocator> {
        self.handle.get()?.upgrade().map(|handle| CachingAllocator { handle })
    }

    /// As PyTorch: `trunc(fraction * total)`, and no limit at all from 1 up.
    pub(super) fn set_fraction(&self, fraction: f64) {
        let mut growth = lock(&self.growth);
        let limit_bytes = (fraction * self.device.total_bytes() as f64) as u64;
        growth.limit_bytes = (fraction < 1.0).then_some(limit_bytes);
        self.put_in_force(&mut growth);
    }

    /// Says so when expandable segments are wanted and the device cannot have them. No lock may be held.
    pub(super) fn warn_not_expandable(&self) {
        let rules = {
            let growth = lock(&self.growth);
            (growth.config.expandable_segments && !growth.rules.expandable).then(|| SizeRules::new(&growth.config))
        };
        if let Some(reason) = rules.and_then(|rules| self.page_misfit(&rules)) {
            events::log_not_expandable(self, reason);
        }
    }

    /// Changes the settings; what the change leaves is in force even when it says that it failed.
    pub(super) fn change_settings<E>(&self, change: impl FnOnce(&mut Config) -> Result<(), E>) -> Result<(), E> {
        let mut growth = lock(&self.growth);
        let outcome = change(&mut growth.config);
        self.put_in_force(&mut growth);
        outcome
    }

    /// Gives every shard the settings.
    fn put_in_force(&self, growth: &mut Growth) {
        let mut rules = SizeRules::new(&growth.config);
        if rules.expandable && self.page_misfit(&rules).is_some() {
            rules = SizeRules::without_pages(&growth.config);
        }
        // The count is of use only to the garbage collector, which finds nothing where pages move.
        rules.counts_searches =
            !rules.is_compact && growth.limit_bytes.is_some() && growth.config.garbage_collection_threshold.is_some();
        growth.rules = rules;
        self.pending.set_reuses_in_captures(growth.config.graph_capture_record_stream_reuse);
        // No shard is made meanwhile, so none has older settings.
        let shards = write(&self.shards);
        for shard in shards.iter() {
            shard.pools().rules = rules;
        }
    }

    /// Why the device cannot have expandable segments, if it cannot.
    fn page_misfit(&self, rules: &SizeRules) -> Option<&'static str> {
        let Some(memory) = self.device.virtual_memory() else {
            return Some("the device has no virtual memory");
        };
        let fits = |pool| rules.page_bytes(pool).is_multiple_of(memory.granularity_bytes());
        let all_fit = fits(PoolKind::Small) && fits(PoolKind::Large);
        (!all_fit).then_some("the device's pages do not fit into 2 MiB or into large_segment_size_mb")
    }

    #[inline]
    pub(crate) fn search_count(&self, pool: PoolKind) -> u64 {
        self.searches[pool as usize].load(Ordering::Relaxed)
    }

    #[cold]
    pub(super) fn count_search(&self, pool: PoolKind) {
        self.searches[pool as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Sets every peak to the value now.
    pub(super) fn reset_peaks(&self) {
        let mut ledger = self.ledger();
        let (_, peak) = ledger.requested_bytes();
        self.requested_peak_bytes.fetch_max(u64::try_from(peak).unwrap_or(0), Ordering::Relaxed);
        ledger.reset_peak();
    }

    /// A block of at least `requested_bytes`, which is not zero, for the program's line `location`. `known` are a handle's shards.
    #[inline]
    pub(super) fn allocate(
        self: &Arc<Self>,
        known: &KnownShards,
        requested_bytes: u64,
        stream: Stream,
        location: &'static Location<'static>,
    ) -> Result<Lease, AllocationError> {
        if self.is_stream_ordered {
            return self.allocate_ordered(requested_bytes, stream, location);
        }
        // Before any lock: it may walk the stack.
        let origin = Origin { location, stack: self.history.capture_allocation() };
        if self.pending.any() {
            if self.routes.hold_events() {
                self.pending.reuse_in_capture(self, stream);
            } else {
                self.pending.poll(self)?;
                self.pending.report_lost(self);
            }
        }
        let found;
        let shard = match known.get(stream) {
            Some(shard) if !self.routes.any() => shard,
            _ => {
                found = if self.routes.any() { self.routed_shard(stream)? } else { known.find(self, stream)? };
                &found
            }
        };
        match shard.serve_cached(requested_bytes, origin) {
            Some(grant) => Ok(Lease::new(shard, grant)),
            None => self.grow(shard, requested_bytes, origin),
        }
    }

    /// The shard of a stream's default pools, made on first use.
    pub(crate) fn shard(self: &Arc<Self>, stream: Stream) -> Result<Arc<Shard>, AllocationError> {
        self.find_shard(None, stream)
    }

    /// The shard of the pool that an allocation by this thread is led into.
    #[cold]
    fn routed_shard(self: &Arc<Self>, stream: Stream) -> Result<Arc<Shard>, AllocationError> {
        match self.routes.find(&*self.device, stream)? {
            Some(pool) => self.find_shard(Some(&pool), stream),
            None => self.shard(stream),
        }
    }

    #[cold]
    fn find_shard(
        self: &Arc<Self>,
        pool: Option<&Arc<PrivatePool>>,
        stream: Stream,
    ) -> Result<Arc<Shard>, AllocationError> {
        let key = (pool.map_or(PoolId::DEFAULT, |pool| pool.id), stream);
        if let Some(shard) = self.known_shard(key) {
            return Ok(shard);
        }
        self.device.check_stream(stream)?;
        // In this order, so that the settings are those in force.
        let growth = lock(&self.growth);
        let mut shards = write(&self.shards);
        let at = position(&shards, key).unwrap_or_else(|at| {
            shards.insert(at, Arc::new(Shard::new(Arc::clone(self), stream, pool.cloned(), growth.rules)));
            at
        });
        Ok(Arc::clone(&shards[at]))
    }

    pub(super) fn known_shard(&self, key: (PoolId, Stream)) -> Option<Arc<Shard>> {
        let shards = read(&self.shards);
        position(&shards, key).ok().map(|at| Arc::clone(&shards[at]))
    }

    pub(super) fn add_private_pool(&self, options: PoolOptions) -> Arc<PrivatePool> {
        let pool = Arc::new(PrivatePool::new(options));
        lock(&self.private_pools).push(Arc::clone(&pool));
        pool
    }

    pub(super) fn private_pools(&self) -> Vec<Arc<PrivatePool>> {
        lock(&self.private_pools).clone()
    }

    /// Forgets a private pool that nobody uses and that has no block left.
    pub(super) fn forget_if_empty(&self, pool: &PrivatePool) {
        let mut shards = write(&self.shards);
        let is_of_pool = |shard: &Arc<Shard>| shard.pool_id() == pool.id;
        if pool.is_freeable() && shards.iter().filter(|shard| is_of_pool(shard)).all(|shard| shard.pools().is_empty()) {
            // Dropped without the list's lock: a shard that goes looks for memory to give back.
            let (gone, kept) = std::mem::take(&mut *shards).into_iter().partition::<Vec<_>, _>(is_of_pool);
            *shards = kept;
            drop(shards);
            lock(&self.private_pools).retain(|of| of.id != pool.id);
            gone.iter().for_each(|shard| shard.abandon());
            drop(gone);
        }
    }

    /// All shards: those of the default pools first, streams in the order of their handles.
    pub(super) fn shards(&self) -> Vec<Arc<Shard>> {
        read(&self.shards).clone()
    }

    pub(super) fn shard_count(&self) -> usize {
        read(&self.shards).len()
    }

    /// The shards of one pool, streams in the order of their handles.
    pub(super) fn shards_of(&self, pool: PoolId) -> Vec<Arc<Shard>> {
        read(&self.shards).iter().filter(|shard| shard.pool_id() == pool).cloned().collect()
    }

    /// The last handle is gone. Cached memory goes back to the device; what buffers hold goes with the last of them.
    pub(super) fn shut_down(&self) {
        self.raw.clear();
        if self.is_stream_ordered {
            self.close_ordered();
        }
        self.give_up_unused();
    }

    /// Whether [`shut_down`](Self::shut_down) has begun.
    pub(super) fn is_shut_down(&self) -> bool {
        self.handle.get().is_none_or(|handle| handle.strong_count() == 0)
    }

    /// Gives up all pools but those that a graph or an owner holds; none while events are held. Whoever is the last to hold either comes
    /// here again.
    pub(super) fn give_up_unused(&self) {
        if self.routes.hold_events() {
            return;
        }
        self.pending.close(self);
        let mut shards = write(&self.shards);
        let (kept, gone) =
            std::mem::take(&mut *shards).into_iter().partition::<Vec<_>, _>(|shard| shard.is_held_by_others());
        *shards = kept;
        drop(shards);
        // Shards refer to this and this to shards: here the circle is broken.
        for shard in &gone {
            self.release_segments_of(shard);
            shard.abandon();
        }
        lock(&self.growth).compact.close(&*self.device);
        self.pending.report_lost(self);
    }
}

/// Where a shard is in the list, or is to be.
fn position(shards: &[Arc<Shard>], key: (PoolId, Stream)) -> Result<usize, usize> {
    shards.binary_search_by_key(&key, |shard| (shard.pool_id(), shard.stream))
}
