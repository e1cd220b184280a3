//! One scope's record: what it was opened with, what it has seen, and what it says when it closes.

use std::num::{NonZeroU32, NonZeroU64};

use super::call_site::SiteId;
use super::held::Held;
use super::phases::PhaseId;
use super::threads::ThreadSet;

/// No scope.
pub(super) const NO_SLOT: u32 = u32::MAX;

/// Names one activation of a scope, in one word that is not zero: each block has an optional one, and compares it. A key of a scope
/// that is gone names nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScopeKey(NonZeroU64);

impl ScopeKey {
    #[inline]
    pub(super) const fn new(slot: u32, generation: NonZeroU32) -> Self {
        // Above zero since the generation is, which makes the upper half.
        let word = ((generation.get() as u64) << 32) | slot as u64;
        match NonZeroU64::new(word) {
            Some(word) => Self(word),
            None => Self(NonZeroU64::MIN),
        }
    }

    #[inline]
    pub(crate) fn slot(self) -> u32 {
        self.0.get() as u32
    }

    /// The upper half, as it is kept with the slot.
    #[inline]
    pub(super) fn generation(self) -> u32 {
        (self.0.get() >> 32) as u32
    }

    /// As one number, zero for none.
    #[inline]
    pub(super) fn to_word(key: Option<Self>) -> u64 {
        key.map_or(0, |key| key.0.get())
    }

    /// What [`to_word`](Self::to_word) gave.
    #[inline]
    pub(super) fn of_word(word: u64) -> Option<Self> {
        NonZeroU64::new(word).map(Self)
    }
}

/// What a scope means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScopeKind {
    /// A function, a block, or a phase.
    Function,
    /// A call of a function that is counted with its other calls.
    CallSite(SiteId),
    /// One step of an epoch, by its number.
    Step(u64),
    /// An epoch.
    Epoch,
}

/// Counters that only grow, whatever is reset by the user.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) allocation_count: i64,
    pub(super) free_count: i64,
    /// Rounded bytes of all allocations and frees together.
    pub(super) moved_bytes: i64,
    pub(super) retry_count: i64,
    pub(super) oom_count: i64,
}

/// The phase and step at which a peak was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Place {
    pub(crate) phase: PhaseId,
    pub(crate) step: Option<u64>,
}

/// What the threads inside a scope did, and what became of the blocks they took. Sizes are as asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Owned {
    pub(crate) allocated_bytes: i64,
    /// Of what was allocated inside.
    pub(crate) freed_bytes: i64,
    /// The most that was live.
    pub(crate) peak_bytes: i64,
    /// Without what was allocated in functions and phases inside.
    pub(crate) exclusive_bytes: i64,
    pub(crate) allocation_count: i64,
    pub(crate) free_count: i64,
    pub(crate) retry_count: i64,
    pub(crate) oom_count: i64,
}

/// What a scope that is a call of a call site has besides.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Call {
    /// Allocated bytes, as asked for, of functions inside that are of no site and in no inner call: besides those that the
    /// scope allocated exclusively, they are the site's own.
    pub(super) beside_bytes: i64,
    /// The outermost open call of the same site around this one, or this one.
    pub(super) outermost: u32,
    /// Of an outermost call: the open calls of the same site inside it.
    pub(super) inner_count: u32,
}

/// What happened in a scope.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClosedScope {
    pub(crate) phase: PhaseId,
    pub(crate) phase_name: Option<&'static str>,
    /// The phase this scope itself began, if it did.
    pub(crate) own_phase: Option<PhaseId>,
    pub(crate) before_bytes: i64,
    pub(crate) after_bytes: i64,
    pub(crate) peak_bytes: i64,
    pub(crate) peak_place: Place,
    pub(crate) allocation_count: i64,
    pub(crate) free_count: i64,
    pub(crate) retry_count: i64,
    pub(crate) oom_count: i64,
    pub(crate) reserved_delta_bytes: i64,
    pub(crate) owned: Owned,
    pub(crate) foreign_bytes: i64,
    /// Of a phase: threads that moved bytes meanwhile, and none inside it. Other scopes do not ask those inside them that are
    /// still open.
    pub(crate) other_threads: ThreadSet,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) generation: NonZeroU32,
    pub(super) open: bool,
    /// How it ended, once it is closed.
    pub(super) outcome: super::Outcome,
    pub(super) kind: ScopeKind,
    pub(super) name: &'static str,
    pub(super) parent: u32,
    /// Inner scopes and owned live blocks that refer to this record.
    pub(super) reference_count: u32,
    pub(super) own_phase: Option<PhaseId>,
    pub(super) phase: PhaseId,
    /// Neighbours among the open scopes, by time of opening.
    pub(super) older: u32,
    pub(super) newer: u32,
    pub(super) peak_bytes: i64,
    pub(super) peak_place: Place,
    pub(super) before_bytes: i64,
    pub(super) before_reserved_bytes: i64,
    pub(super) before: Totals,
    pub(super) owned: Owned,
    pub(super) call: Call,
    /// Rounded bytes allocated and freed by threads inside this scope.
    pub(super) moved_bytes: i64,
    /// The threads that did so.
    pub(super) threads_inside: ThreadSet,
    /// Threads that moved bytes anywhere, as of the last cut.
    pub(super) threads_seen: ThreadSet,
    /// The live blocks it allocated itself.
    pub(super) held: Held,
}

impl Slot {
    /// Rounded bytes that threads outside this scope moved since it opened.
    pub(super) fn foreign_bytes(&self, totals: &Totals) -> i64 {
        totals.moved_bytes.wrapping_sub(self.before.moved_bytes).wrapping_sub(self.moved_bytes)
    }

    /// Threads that moved bytes since it opened, and none inside it; as of the last cut.
    pub(super) fn other_threads(&self) -> ThreadSet {
        self.threads_seen.without(self.threads_inside)
    }
}
