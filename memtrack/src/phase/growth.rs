//! What was live at the ends of epochs, by where it was allocated: what grows, and what seems to leak.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::panic::Location;
use std::sync::Arc;

use super::companion::{Age, Companion};
use crate::allocator::{Inner, LiveOrigin};
use crate::sync::lock;

/// So many ends of epochs are kept for the slope.
const KEPT_ENDS: usize = 16;

/// A site that grew at so many ends in a row is suspected.
const SUSPICIOUS_ENDS: u64 = 2;

/// The blocks of one age that one line allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgeGroup {
    /// Epochs begun since they were allocated: 0 for those of the epoch that ends.
    pub age_epochs: u64,
    /// How many.
    pub block_count: u64,
    /// Their rounded bytes.
    pub size_bytes: u64,
}

/// Live blocks at the end of an epoch that one line of the program allocated in one scope and phase.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EpochSite {
    /// The phase in which they were allocated.
    pub phase: &'static str,
    /// The innermost scope in which they were allocated; `None` outside all scopes.
    pub scope: Option<&'static str>,
    /// The line that allocated them.
    pub location: &'static Location<'static>,
    /// How many.
    pub block_count: u64,
    /// Their rounded bytes.
    pub size_bytes: u64,
    /// Their bytes as asked for.
    pub requested_bytes: u64,
    /// By age, the youngest first.
    pub ages: Vec<AgeGroup>,
    /// Steps begun since the oldest of them was allocated.
    pub oldest_age_steps: u64,
    /// Bytes more than at the end of the epoch before; 0 at the first.
    pub grown_bytes: i64,
    /// Blocks more than at the end of the epoch before; 0 at the first.
    pub grown_blocks: i64,
    /// At how many ends of epochs in a row it had grown, this one included.
    pub grown_epoch_count: u64,
}

impl EpochSite {
    /// Epochs begun since the oldest of its blocks was allocated.
    pub fn oldest_age_epochs(&self) -> u64 {
        self.ages.last().map_or(0, |group| group.age_epochs)
    }

    /// Whether it looks like a leak: it has grown at two or more ends of epochs in a row, and has blocks of an earlier epoch.
    pub fn is_suspected(&self) -> bool {
        self.grown_epoch_count >= SUSPICIOUS_ENDS && self.oldest_age_epochs() > 0
    }
}

/// How allocated bytes at the ends of epochs grew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Growth {
    /// Bytes more than at the end of the epoch before.
    pub bytes: i64,
    /// The mean change from one end to the next over the latest ends, rounded towards zero.
    pub bytes_per_epoch: i64,
    /// Over how many changes: up to 15.
    pub change_count: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct SiteKey {
    phase: &'static str,
    scope: Option<&'static str>,
    location: &'static Location<'static>,
}

#[derive(Debug, Clone, Copy)]
struct SiteEnd {
    block_count: u64,
    size_bytes: u64,
    grown_epoch_count: u64,
}

/// How the latest epochs ended.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// Allocated bytes, the oldest first.
    totals: VecDeque<i64>,
    /// Of the latest.
    sites: HashMap<SiteKey, SiteEnd>,
}

/// What is live as an epoch ends, compared with the end of the epoch before.
pub(super) fn at_end(companion: &Companion, inner: &Arc<Inner>, after_bytes: i64) -> (Vec<EpochSite>, Option<Growth>) {
    let calendar = companion.calendar(inner);
    let mut sites: HashMap<SiteKey, EpochSite> = HashMap::new();
    for origin in inner.live_origins() {
        let key = SiteKey { phase: origin.phase, scope: origin.scope, location: origin.location };
        let age = calendar.age(origin.born);
        sites.entry(key).or_insert_with(|| EpochSite::empty(key)).add(age, &origin);
    }
    let mut ends = lock(&companion.ends);
    let growth = ends.totals.back().map(|last| {
        let first = ends.totals.front().unwrap_or(last);
        let change_count = ends.totals.len() as i64;
        Growth {
            bytes: after_bytes - last,
            bytes_per_epoch: (after_bytes - first) / change_count,
            change_count: change_count.unsigned_abs(),
        }
    });
    for (key, site) in &mut sites {
        if growth.is_some() {
            site.compare(ends.sites.get(key));
        }
    }
    ends.sites = sites.iter().map(|(key, site)| (*key, site.end())).collect();
    ends.totals.push_back(after_bytes);
    if ends.totals.len() >= KEPT_ENDS {
        ends.totals.pop_front();
    }
    drop(ends);
    let mut sites: Vec<EpochSite> = sites.into_values().collect();
    sites.sort_by_key(|site| (Reverse(site.size_bytes), site.location, site.phase, site.scope));
    (sites, growth)
}

impl EpochSite {
    fn empty(SiteKey { phase, scope, location }: SiteKey) -> Self {
        Self {
            phase,
            scope,
            location,
            block_count: 0,
            size_bytes: 0,
            requested_bytes: 0,
            ages: Vec::new(),
            oldest_age_steps: 0,
            grown_bytes: 0,
            grown_blocks: 0,
            grown_epoch_count: 0,
        }
    }

    fn add(&mut self, age: Age, origin: &LiveOrigin) {
        let LiveOrigin { block_count, size_bytes, requested_bytes, .. } = *origin;
        self.block_count += block_count;
        self.size_bytes = self.size_bytes.saturating_add(size_bytes);
        self.requested_bytes = self.requested_bytes.saturating_add(requested_bytes);
        self.oldest_age_steps = self.oldest_age_steps.max(age.steps);
        let at = self.ages.binary_search_by_key(&age.epochs, |group| group.age_epochs).unwrap_or_else(|at| {
            self.ages.insert(at, AgeGroup { age_epochs: age.epochs, block_count: 0, size_bytes: 0 });
            at
        });
        let group = &mut self.ages[at];
        group.block_count += block_count;
        group.size_bytes = group.size_bytes.saturating_add(size_bytes);
    }

    fn compare(&mut self, before: Option<&SiteEnd>) {
        let (bytes, blocks, in_a_row) =
            before.map_or((0, 0, 0), |end| (end.size_bytes, end.block_count, end.grown_epoch_count));
        self.grown_bytes = signed_change(self.size_bytes, bytes);
        self.grown_blocks = signed_change(self.block_count, blocks);
        self.grown_epoch_count = if self.grown_bytes > 0 { in_a_row + 1 } else { 0 };
    }

    fn end(&self) -> SiteEnd {
        let Self { block_count, size_bytes, grown_epoch_count, .. } = *self;
        SiteEnd { block_count, size_bytes, grown_epoch_count }
    }
}

fn signed_change(now: u64, before: u64) -> i64 {
    i64::try_from(i128::from(now) - i128::from(before)).unwrap_or(if now > before { i64::MAX } else { i64::MIN })
}
