//! What a diagnosis looks at: an allocator's segments, live blocks and settings at one moment.
//!
//! Figures are copied under the locks under which blocks change, so that they fit together; everything that takes time (texts, the driver)
//! comes afterwards, with no lock held.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::{Arc, Mutex};

use super::block::{Block, BlockIndex, BlockState, NO_BLOCK};
use super::inner::{Growth, Inner};
use super::pools::StreamPools;
use super::private_pools::PoolId;
use super::shard::Shard;
use crate::context;
use crate::device::DeviceKind;
use crate::diagnosis::{
    AllocatorView, BlockView, FailedAttemptView, LiveGroup, OutsideView, SegmentView, SettingsView,
};
use crate::driver::{ContextMemory, DriverReport, OtherProcesses};
use crate::history::BlockStatus;
use crate::ledger::{FailedAttempt, Ledger, ScopeKey};
use crate::stats::PoolKind;
use crate::sync::{BiasedGuard, lock};

/// So many failed attempts are remembered.
const ATTEMPT_COUNT: usize = 4;

/// What an allocator remembers for its diagnoses.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    /// Taken last, under whatever other locks are held.
    attempts: Mutex<Vec<FailedAttempt>>,
    /// What was on the device outside of the allocator when that was first looked at.
    outside_before_bytes: std::sync::OnceLock<u64>,
}

/// Asks the driver's view that a later layer keeps with an allocator, with the allocated and the reserved bytes.
#[derive(Debug)]
pub(crate) struct DriverReporter {
    /// The figures beside these bytes allocated and reserved.
    pub(crate) report: fn(&Inner, u64, u64) -> Option<DriverReport>,
    /// The context as it was measured last.
    pub(crate) context: fn(&Inner) -> Option<ContextMemory>,
}

/// Live blocks by the line and the scope that they came from; texts are made of it later.
#[derive(Debug, Clone, Copy)]
struct RawGroup {
    location: Option<&'static Location<'static>>,
    scope: &'static str,
    block_count: u64,
    requested_bytes: u64,
    size_bytes: u64,
}

impl RawGroup {
    fn new(location: Option<&'static Location<'static>>, scope: &'static str) -> Self {
        Self { location, scope, block_count: 0, requested_bytes: 0, size_bytes: 0 }
    }

    fn add(&mut self, block: &Block) {
        self.block_count += 1;
        self.requested_bytes = self.requested_bytes.saturating_add(block.requested_bytes);
        self.size_bytes = self.size_bytes.saturating_add(block.size_bytes);
    }

    fn finish(&self) -> LiveGroup {
        LiveGroup {
            place: self.location.map(ToString::to_string).unwrap_or_default(),
            scope: self.scope.to_owned(),
            block_count: self.block_count,
            requested_bytes: self.requested_bytes,
            size_bytes: self.size_bytes,
        }
    }
}

/// Groups under way.
#[derive(Debug, Default)]
struct Groups {
    groups: Vec<RawGroup>,
    by_value: HashMap<(Option<&'static Location<'static>>, &'static str), u32>,
    /// The same line has few addresses; hashing its text for each block would take longer than all else here.
    by_address: HashMap<(usize, usize), u32>,
}

impl Groups {
    fn add(&mut self, block: &Block, scope: &'static str) -> u32 {
        let location = block.location;
        let address = (location.map_or(0, |location| std::ptr::from_ref(location).addr()), scope.as_ptr().addr());
        let index = *self.by_address.entry(address).or_insert_with(|| {
            *self.by_value.entry((location, scope)).or_insert_with(|| {
                self.groups.push(RawGroup::new(location, scope));
                self.groups.len() as u32 - 1
            })
        });
        self.groups[index as usize].add(block);
        index
    }
}

/// A view of which the texts are not made yet.
#[derive(Debug)]
pub(super) struct Survey {
    view: AllocatorView,
    groups: Vec<RawGroup>,
    attempts: Vec<(&'static str, u64, Vec<RawGroup>)>,
}

/// What a request that failed leaves behind it, for the diagnosis of those to come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failure {
    pub(super) context: Option<ScopeKey>,
    pub(super) requested_bytes: u64,
}

/// The whole pages that free blocks beside others could give up. A mapped range that is all free is a segment wholly free.
fn free_page_bytes(pools: &StreamPools) -> u64 {
    let in_use = |index: BlockIndex| {
        index != NO_BLOCK && matches!(pools.blocks[index].state, BlockState::Allocated | BlockState::PendingFree)
    };
    let free = [PoolKind::Small, PoolKind::Large].into_iter().flat_map(|pool| pools.free_blocks(pool));
    let beside_others = free.filter(|free| {
        let block = &pools.blocks[free.index];
        block.is_expandable() && (in_use(block.prev) || in_use(block.next))
    });
    beside_others.filter_map(|free| pools.pages_of(&free)).fold(0, |sum, range| sum.saturating_add(range.bytes))
}

type Held<'a> = [(&'a Arc<Shard>, BiasedGuard<'a, StreamPools>)];

impl Inner {
    /// Copies everything that a diagnosis needs. With `failure`, the attempt is remembered.
    pub(super) fn survey(&self, growth: &Growth, device_free_bytes: Option<u64>, failure: Option<Failure>) -> Survey {
        self.at_rest_in(growth, |shards| {
            let mut ledger = self.ledger();
            let mut groups = Groups::default();
            let mut segments = Vec::new();
            for (shard, pools) in shards {
                self.survey_shard(shard, pools, &ledger, &mut groups, &mut segments);
            }
            // As `empty_cache` does: pages need their stream synchronized, which a capture forbids.
            let default_pools_kept = self.routes.any();
            let gives_pages = |shard: &Shard| match &shard.private {
                None => !default_pools_kept,
                Some(pool) => pool.is_freeable() && !self.routes.any_capture(),
            };
            let with_pages = shards.iter().filter(|(shard, _)| gives_pages(shard));
            let free_page_bytes = with_pages.fold(0_u64, |sum, (_, pools)| sum.saturating_add(free_page_bytes(pools)));
            let attempts = self.survey_attempts(shards, &mut ledger, failure);
            let stats = ledger.stats();
            let unsigned = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
            let [allocated_bytes, active_bytes, requested_bytes, reserved_bytes] =
                [&stats.allocated_bytes, &stats.active_bytes, &stats.requested_bytes, &stats.reserved_bytes]
                    .map(|statistic| unsigned(statistic.all.current));
            let view = AllocatorView {
                device: self.name.to_string(),
                allocated_bytes,
                active_bytes,
                requested_bytes,
                reserved_bytes,
                limit_bytes: growth.limit_bytes,
                device_free_bytes,
                device_total_bytes: self.device.total_bytes(),
                settings: SettingsView {
                    expandable_segments: growth.rules.expandable,
                    expandable_possible: self.device.virtual_memory().is_some() && !self.is_stream_ordered,
                    max_split_size_bytes: growth.config.max_split_size_bytes,
                    large_segment_size_bytes: growth.rules.large_segment_size_bytes,
                },
                segments,
                free_page_bytes,
                default_pools_kept,
                ..AllocatorView::default()
            };
            Survey { view, groups: groups.groups, attempts }
        })
    }

    fn survey_shard(
        &self,
        shard: &Shard,
        pools: &StreamPools,
        ledger: &Ledger,
        groups: &mut Groups,
        segments: &mut Vec<SegmentView>,
    ) {
        let PoolId(major, minor) = shard.pool_id();
        let private_pool = shard.private.as_ref().map(|_| (major, minor));
        let is_kept = shard.private.as_ref().is_some_and(|pool| !pool.is_freeable());
        for head in pools.blocks.indices().into_iter().filter(|index| pools.blocks[*index].prev == NO_BLOCK) {
            let mut at = head;
            let mut blocks = Vec::new();
            let first = &pools.blocks[head];
            let segment = |blocks: Vec<BlockView>| SegmentView {
                stream: shard.stream,
                pool: first.pool,
                private_pool,
                is_kept,
                is_expandable: first.is_expandable(),
                blocks,
            };
            while at != NO_BLOCK {
                let block = &pools.blocks[at];
                at = block.next;
                let status = match block.state {
                    BlockState::Allocated => BlockStatus::ActiveAllocated,
                    BlockState::PendingFree => BlockStatus::ActivePendingFree,
                    BlockState::Free => BlockStatus::Inactive,
                    BlockState::Unmapped => {
                        segments.extend((!blocks.is_empty()).then(|| segment(std::mem::take(&mut blocks))));
                        continue;
                    }
                };
                let group = (block.state == BlockState::Allocated).then(|| {
                    let scope = block.owner.and_then(|owner| ledger.scope_name(owner)).unwrap_or("");
                    groups.add(block, scope)
                });
                blocks.push(BlockView { size_bytes: block.size_bytes, status, group });
            }
            // The driver's own pool has blocks, but no segments.
            if !self.is_stream_ordered && !blocks.is_empty() {
                segments.push(segment(blocks));
            }
        }
    }

    /// What is alive of earlier attempts that are over; then remembers the one that failed now.
    fn survey_attempts(
        &self,
        shards: &Held<'_>,
        ledger: &mut Ledger,
        failure: Option<Failure>,
    ) -> Vec<(&'static str, u64, Vec<RawGroup>)> {
        let mut attempts = lock(&self.remembered.attempts);
        if attempts.is_empty() && failure.is_none_or(|failure| failure.context.is_none()) {
            return Vec::new();
        }
        let blocks = || {
            let of_shard = |pools: &'_ StreamPools| {
                let indices = pools.blocks.indices().into_iter();
                indices.filter(|index| pools.blocks[*index].state == BlockState::Allocated).collect::<Vec<_>>()
            };
            shards.iter().flat_map(move |(_, pools)| of_shard(pools).into_iter().map(|index| &pools.blocks[index]))
        };
        let mut found = Vec::new();
        attempts.retain(|attempt| {
            let Some((position, name)) = ledger.ended_attempt(attempt) else {
                let is_settled = ledger.attempt_is_settled(attempt);
                if is_settled {
                    ledger.forget_attempt(attempt);
                }
                return !is_settled;
            };
            let owners: HashMap<u32, ScopeKey> =
                attempt.owners_inside(position).map(|owner| (owner.slot(), owner)).collect();
            let mut groups = Groups::default();
            for block in blocks() {
                if let Some(owner) = block.owner.filter(|owner| owners.get(&owner.slot()) == Some(owner)) {
                    groups.add(block, ledger.scope_name(owner).unwrap_or(""));
                }
            }
            let is_alive = !groups.groups.is_empty();
            if is_alive {
                found.push((name, attempt.requested_bytes, groups.groups));
            } else {
                ledger.forget_attempt(attempt);
            }
            is_alive
        });
        if let Some(Failure { context: Some(context), requested_bytes }) = failure {
            let mut owners: HashMap<u32, ScopeKey> = HashMap::new();
            owners.extend(blocks().filter_map(|block| block.owner).map(|owner| (owner.slot(), owner)));
            if let Some(attempt) = ledger.note_attempt(Some(context), requested_bytes, owners.into_values()) {
                let again = attempts.iter().position(|earlier| earlier.is_of_the_same_scopes(&attempt));
                if let Some(replaced) = again.or((attempts.len() >= ATTEMPT_COUNT).then_some(0)) {
                    ledger.forget_attempt(&attempts.remove(replaced));
                }
                attempts.push(attempt);
            }
        }
        found
    }

    /// The figures that findings are made from, as of now.
    pub(crate) fn view_now(&self) -> AllocatorView {
        self.finish(self.survey_now())
    }

    /// A look at an allocator that works as it should.
    pub(super) fn survey_now(&self) -> Survey {
        let growth = lock(&self.growth);
        let device_free_bytes = self.device.memory().ok().map(|memory| memory.free_bytes);
        self.survey(&growth, device_free_bytes, None)
    }

    /// The thread's innermost scope, for [`Failure`].
    pub(super) fn failure(&self, requested_bytes: u64) -> Failure {
        Failure { context: context::current(self.id), requested_bytes }
    }

    /// Makes the texts, and asks the driver's view if one is attached. No lock may be held.
    pub(super) fn finish(&self, survey: Survey) -> AllocatorView {
        let Survey { mut view, groups, attempts } = survey;
        view.live = groups.iter().map(RawGroup::finish).collect();
        view.sort_live();
        let attempt = |(scope, requested_bytes, groups): (&'static str, u64, Vec<RawGroup>)| {
            let mut alive: Vec<LiveGroup> = groups.iter().map(RawGroup::finish).collect();
            alive.sort_by(|a, b| b.requested_bytes.cmp(&a.requested_bytes).then_with(|| a.place.cmp(&b.place)));
            FailedAttemptView { scope: scope.to_owned(), requested_bytes, alive }
        };
        view.failed_attempts = attempts.into_iter().map(attempt).collect();
        view.outside = self.outside(&view);
        view
    }

    fn outside(&self, view: &AllocatorView) -> OutsideView {
        let now_bytes = view.outside_bytes();
        let mut outside = OutsideView {
            before_bytes: now_bytes.map(|now| *self.remembered.outside_before_bytes.get_or_init(|| now)),
            without_driver: self.device.kind() != DeviceKind::Cuda,
            ..OutsideView::default()
        };
        let Some(report) = self.driver_report(view.allocated_bytes, view.reserved_bytes) else { return outside };
        if let Some(parts) = report.reconciliation() {
            outside.context_bytes = Some(parts.context_bytes);
            outside.other_processes_bytes = parts.other_processes_bytes;
            outside.own_growth_bytes = parts.own_unexplained_bytes;
            if let OtherProcesses::Listed { known_count, unknown_count, .. } = &parts.other_processes {
                outside.process_count = Some(u64::from(*known_count) + u64::from(*unknown_count));
            }
        }
        outside
    }

    /// What the driver's view says, if somebody attached one; none is attached here, which would take time.
    pub(super) fn driver_report(&self, allocated_bytes: u64, reserved_bytes: u64) -> Option<DriverReport> {
        (self.driver_reporter.get()?.report)(self, allocated_bytes, reserved_bytes)
    }

    /// The context that such a view measured.
    pub(crate) fn context_memory(&self) -> Option<ContextMemory> {
        (self.driver_reporter.get()?.context)(self)
    }
}
