//! An allocator's shared state, and the path of an allocation that finds a cached block.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};

use super::config::Config;
use super::error::AllocationError;
use super::pending::PendingFrees;
use super::raw::RawBlocks;
use super::rounding::{REQUEST_LIMIT_BYTES, SizeRules};
use super::shard::{Lease, Shard};
use super::{CachingAllocator, Handle};
use crate::device::{Device, Stream};
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
}

/// All of an allocator but its public handle.
pub(crate) struct Inner {
    pub(crate) id: u64,
    /// The device's name, for records that outlive the device.
    pub(crate) name: Arc<str>,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) config: Config,
    pub(crate) rules: SizeRules,
    pub(crate) pending: PendingFrees,
    pub(super) growth: Mutex<Growth>,
    pub(super) ledger: SharedLedger,
    /// By stream, in the order of stream handles.
    shards: RwLock<Vec<Arc<Shard>>>,
    /// Searches are counted only while the garbage collector can use the count: with a limit and a threshold.
    counts_searches: AtomicBool,
    searches: [AtomicU64; 2],
    /// Blocks that the program holds by address.
    pub(super) raw: RawBlocks,
    handle: OnceLock<Weak<Handle>>,
    /// What a later layer keeps with an allocator; the allocator itself makes no use of it.
    pub(crate) companion: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Inner {
    /// What a person wants to know of an allocator, and no lock that a caller in the midst of it could hold.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachingAllocator")
            .field("device", &self.device.name())
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

thread_local! {
    /// The shard this thread used last, so that a repeated stream costs no shared lock. Weak: a thread that sleeps must
    /// not keep an allocator's memory.
    static LAST_SHARD: RefCell<Option<(u64, Stream, Weak<Shard>)>> = const { RefCell::new(None) };
}

impl Inner {
    pub(super) fn new(device: Arc<dyn Device>, config: Config) -> Self {
        let rules = SizeRules::new(&config);
        let max_split_size = config.signed_max_split_size();
        let inner = Self {
            name: device.name().into(),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            device,
            rules,
            pending: PendingFrees::default(),
            growth: Mutex::new(Growth { reserved_bytes: 0, limit_bytes: None }),
            ledger: SharedLedger::new(Ledger::new(max_split_size)),
            shards: RwLock::default(),
            counts_searches: AtomicBool::new(false),
            searches: [const { AtomicU64::new(0) }; 2],
            raw: RawBlocks::default(),
            handle: OnceLock::new(),
            companion: OnceLock::new(),
            config,
        };
        inner.set_fraction(inner.config.per_process_memory_fraction);
        inner
    }

    #[inline]
    pub(crate) fn ledger(&self) -> LedgerGuard<'_> {
        self.ledger.lock()
    }

    /// The first public handle, made once.
    pub(super) fn into_allocator(self) -> CachingAllocator {
        let inner = Arc::new(self);
        let handle = Arc::new(Handle { inner: Arc::clone(&inner) });
        // Just made, so it cannot have been set.
        let _ = inner.handle.set(Arc::downgrade(&handle));
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
        let collects = growth.limit_bytes.is_some() && self.config.garbage_collection_threshold.is_some();
        self.counts_searches.store(collects, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn search_count(&self, pool: PoolKind) -> u64 {
        self.searches[pool as usize].load(Ordering::Relaxed)
    }

    #[inline]
    fn count_search(&self, pool: PoolKind) {
        if self.counts_searches.load(Ordering::Relaxed) {
            self.searches[pool as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A block of at least `requested_bytes`, which is not zero.
    #[inline]
    pub(crate) fn allocate(self: &Arc<Self>, requested_bytes: u64, stream: Stream) -> Result<Lease, AllocationError> {
        if requested_bytes >= REQUEST_LIMIT_BYTES {
            return Err(AllocationError::TooLarge { requested_bytes });
        }
        if self.pending.any() {
            self.pending.poll(&*self.device)?;
        }
        let shard = self.shard(stream)?;
        let size_bytes = self.rules.round(requested_bytes);
        self.count_search(self.rules.pool(size_bytes));
        match shard.serve_cached(size_bytes, requested_bytes) {
            Some(grant) => Ok(Lease::new(shard, grant)),
            None => self.grow(shard, size_bytes, requested_bytes),
        }
    }

    /// The shard of a stream, made on first use.
    #[inline]
    pub(crate) fn shard(self: &Arc<Self>, stream: Stream) -> Result<Arc<Shard>, AllocationError> {
        let last = LAST_SHARD.try_with(|last| match &*last.borrow() {
            Some((id, of, shard)) if *id == self.id && *of == stream => shard.upgrade(),
            _ => None,
        });
        match last {
            Ok(Some(shard)) => Ok(shard),
            _ => self.find_shard(stream),
        }
    }

    #[cold]
    fn find_shard(self: &Arc<Self>, stream: Stream) -> Result<Arc<Shard>, AllocationError> {
        let known = |shards: &[Arc<Shard>]| shards.binary_search_by_key(&stream, |shard| shard.stream);
        let found = {
            let shards = read(&self.shards);
            known(&shards).ok().map(|at| Arc::clone(&shards[at]))
        };
        let shard = match found {
            Some(shard) => shard,
            None => {
                self.device.check_stream(stream)?;
                let mut shards = write(&self.shards);
                let at = known(&shards).unwrap_or_else(|at| {
                    shards.insert(at, Arc::new(Shard::new(Arc::clone(self), stream)));
                    at
                });
                Arc::clone(&shards[at])
            }
        };
        let _ = LAST_SHARD.try_with(|last| last.replace(Some((self.id, stream, Arc::downgrade(&shard)))));
        Ok(shard)
    }

    /// All shards in the order of stream handles.
    pub(super) fn shards(&self) -> Vec<Arc<Shard>> {
        read(&self.shards).clone()
    }

    /// The last handle is gone. Cached memory goes back to the device; what buffers hold goes with the last of them.
    pub(super) fn shut_down(&self) {
        self.raw.clear();
        self.pending.close(&*self.device);
        // Shards refer to this and this to shards: here the circle is broken.
        let shards = std::mem::take(&mut *write(&self.shards));
        for shard in &shards {
            self.release_segments_of(shard);
        }
    }
}
