//! Who held an epoch's peak: the live bytes of each scope at that moment.
//!
//! Nothing is copied while memory rises. Between two frees there are only allocations, so the highest point of such a stretch
//! is the live bytes just before the next free: there one comparison tells whether an epoch has a new peak, which then gets a
//! *serial*. A scope's own count is noted for that peak when it changes for the first time afterwards: until then it
//! is what it was at the peak. A peak that is overtaken takes its notes with it.
//!
//! The reserved bytes at the peak are exact in the same way: a segment that comes or goes settles a peak too.

use super::Ledger;
use super::matrix::Amount;
use super::phases::{OTHER_PHASE, PhaseId};
use super::scopes::Scopes;
use super::slot::NO_SLOT;

/// The live blocks that were allocated in one scope itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Held {
    pub(super) amount: Amount,
    /// The serial of the latest peak when the amount last changed.
    pub(super) noted_serial: u64,
}

/// Live blocks of a phase and a scope at a peak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) phase: PhaseId,
    /// None for blocks of no scope.
    pub(crate) scope: Option<&'static str>,
    pub(crate) held: Amount,
}

/// The latest peak of an epoch, and the notes for it.
#[derive(Debug, Default)]
pub(super) struct PeakNotes {
    pub(super) peak_bytes: i64,
    pub(super) serial: u64,
    pub(super) reserved_bytes: i64,
    pub(super) active_bytes: i64,
    notes: Vec<Holder>,
}

impl PeakNotes {
    fn note(&mut self, holder: Holder) {
        let same = |known: &&mut Holder| {
            // By address: the same text elsewhere is put together when it is read.
            let same_scope = match (known.scope, holder.scope) {
                (Some(known), Some(scope)) => std::ptr::eq(known, scope),
                (known, scope) => known == scope,
            };
            known.phase == holder.phase && same_scope
        };
        match self.notes.iter_mut().find(same) {
            Some(known) => known.held.add(holder.held),
            None => self.notes.push(holder),
        }
    }
}

impl Ledger {
    /// Before live bytes fall, or reserved bytes change: the highest point of the stretch that ends may be a peak.
    #[inline]
    pub(super) fn settle_peaks(&mut self) {
        if self.live_bytes() > self.epochs.lowest_peak_bytes {
            self.settle_new_peaks();
        }
    }

    #[cold]
    #[inline(never)]
    fn settle_new_peaks(&mut self) {
        // Until here scopes hold what they hold at the peak.
        self.settle();
        self.scopes.peak_serial += 1;
        let serial = self.scopes.peak_serial;
        let (live_bytes, active_bytes) = (self.live_bytes(), self.active_bytes());
        let reserved_bytes = self.reserved_bytes();
        for peak in self.epochs.peaks_mut().filter(|peak| peak.peak_bytes < live_bytes) {
            peak.notes.clear();
            let notes = std::mem::take(&mut peak.notes);
            *peak = PeakNotes { peak_bytes: live_bytes, serial, reserved_bytes, active_bytes, notes };
        }
        self.epochs.find_lowest_peak();
    }

    /// The notes of an epoch that begins now, with its first peak here.
    pub(super) fn begin_notes(&mut self) -> PeakNotes {
        self.scopes.peak_serial += 1;
        PeakNotes {
            peak_bytes: self.live_bytes(),
            serial: self.scopes.peak_serial,
            reserved_bytes: self.reserved_bytes(),
            active_bytes: self.active_bytes(),
            notes: Vec::new(),
        }
    }

    /// Blocks of `owner` come and go. Returns the phase they were allocated in.
    #[inline]
    pub(super) fn change_held(&mut self, owner: u32, change: Amount) -> PhaseId {
        let serial = self.scopes.peak_serial;
        let (held, phase) = self.scopes.held(owner);
        if held.noted_serial != serial {
            self.note_held(owner);
        }
        let (held, _) = self.scopes.held(owner);
        held.amount.add(change);
        phase
    }

    /// The owner's count changes for the first time since the latest peak.
    #[cold]
    #[inline(never)]
    fn note_held(&mut self, owner: u32) {
        let serial = self.scopes.peak_serial;
        let (held, _) = self.scopes.held(owner);
        let Held { amount, noted_serial } = std::mem::replace(held, Held { noted_serial: serial, ..*held });
        if amount.is_nothing() {
            return;
        }
        let holder = self.holder(owner, amount);
        for peak in self.epochs.peaks_mut().filter(|peak| peak.serial > noted_serial) {
            peak.note(holder);
        }
    }

    fn holder(&self, owner: u32, held: Amount) -> Holder {
        match self.scopes.slots.get(owner as usize) {
            Some(slot) => Holder { phase: slot.phase, scope: Some(slot.name), held },
            None => Holder { phase: OTHER_PHASE, scope: None, held },
        }
    }

    /// Who held a peak: what was noted, and those whose count has not changed since. In no order.
    pub(super) fn holders(&self, peak: &PeakNotes) -> Vec<Holder> {
        let mut holders = peak.notes.clone();
        let unchanged = |held: &Held| !held.amount.is_nothing() && held.noted_serial < peak.serial;
        for (index, slot) in self.scopes.slots.iter().enumerate() {
            if unchanged(&slot.held) {
                holders.push(self.holder(index as u32, slot.held.amount));
            }
        }
        if unchanged(&self.scopes.unowned) {
            holders.push(self.holder(NO_SLOT, self.scopes.unowned.amount));
        }
        holders
    }
}

impl Scopes {
    #[inline]
    fn held(&mut self, owner: u32) -> (&mut Held, PhaseId) {
        match self.slots.get_mut(owner as usize) {
            Some(slot) => (&mut slot.held, slot.phase),
            None => (&mut self.unowned, OTHER_PHASE),
        }
    }
}
