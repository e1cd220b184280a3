//! Where bytes came from: who held the peak, and in which phase what each phase allocated was freed.

use crate::ledger::{Amount, HeldAtPeak, OriginRow};

/// So many blocks, and their rounded bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockTotal {
    /// Rounded bytes.
    pub bytes: u64,
    /// Blocks.
    pub block_count: u64,
}

impl From<Amount> for BlockTotal {
    fn from(Amount { bytes, count }: Amount) -> Self {
        Self { bytes: u64::try_from(bytes).unwrap_or(0), block_count: u64::try_from(count).unwrap_or(0) }
    }
}

/// Live blocks at the moment of an epoch's peak that one scope allocated. Exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeakHolder {
    /// The phase in which they were allocated: their origin.
    pub phase: &'static str,
    /// The innermost scope in which they were allocated: a function with `#[track_memory]`, a block, a phase, `step` or
    /// `epoch`. `None` outside all scopes.
    pub scope: Option<&'static str>,
    /// How much they were.
    pub held: BlockTotal,
}

impl From<HeldAtPeak> for PeakHolder {
    fn from(HeldAtPeak { phase, scope, held }: HeldAtPeak) -> Self {
        Self { phase, scope, held: held.into() }
    }
}

/// What became of the blocks of one origin during an epoch: `before + allocated = freed + live`, in bytes and in blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OriginSummary {
    /// The phase that allocated. `(further phases)` is all beyond the first 63.
    pub phase: &'static str,
    /// Live when the epoch began.
    pub before: BlockTotal,
    /// Allocated in the epoch.
    pub allocated: BlockTotal,
    /// Freed in the epoch, by the phase of the thread that freed; phases that freed nothing of it are left out.
    pub freed: Vec<(&'static str, BlockTotal)>,
    /// Live when the epoch ended.
    pub live: BlockTotal,
}

impl OriginSummary {
    /// What was freed in a phase.
    pub fn freed_in(&self, phase: &str) -> BlockTotal {
        self.freed.iter().find(|(name, _)| *name == phase).map(|(_, total)| *total).unwrap_or_default()
    }
}

impl From<OriginRow> for OriginSummary {
    fn from(OriginRow { origin, before, allocated, freed, live }: OriginRow) -> Self {
        Self {
            phase: origin,
            before: before.into(),
            allocated: allocated.into(),
            freed: freed.into_iter().map(|(phase, amount)| (phase, amount.into())).collect(),
            live: live.into(),
        }
    }
}
