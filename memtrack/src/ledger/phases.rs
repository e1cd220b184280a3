//! Phase names and what was booked under each since the allocator began.

use std::collections::HashMap;

/// A phase's number; [`OTHER_PHASE`] for time outside every phase.
pub(crate) type PhaseId = u16;

/// Everything no phase was told of.
pub(crate) const OTHER_PHASE: PhaseId = 0;

/// So many names are looked at one by one.
const SCANNED_NAME_COUNT: usize = 16;

/// What was booked under one phase. The counters only grow, save `net_bytes`, so that two readings can be subtracted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PhaseTotals {
    pub(crate) entered_count: u64,
    /// Rounded bytes allocated less freed by the threads in this phase.
    pub(crate) net_bytes: i64,
    pub(crate) allocated_bytes: u64,
    pub(crate) allocation_count: u64,
    pub(crate) free_count: u64,
    /// Allocations that had to take a segment from the device.
    pub(crate) device_allocation_count: u64,
    pub(crate) retry_count: u64,
    pub(crate) oom_count: u64,
}

impl PhaseTotals {
    #[inline]
    pub(crate) fn allocated(&mut self, size_bytes: i64) {
        self.net_bytes = self.net_bytes.wrapping_add(size_bytes);
        self.allocated_bytes = self.allocated_bytes.wrapping_add(size_bytes.unsigned_abs());
        self.allocation_count += 1;
    }

    #[inline]
    pub(crate) fn freed(&mut self, size_bytes: i64) {
        self.net_bytes = self.net_bytes.wrapping_sub(size_bytes);
        self.free_count += 1;
    }

    /// What came after `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            entered_count: self.entered_count - earlier.entered_count,
            net_bytes: self.net_bytes.wrapping_sub(earlier.net_bytes),
            allocated_bytes: self.allocated_bytes.wrapping_sub(earlier.allocated_bytes),
            allocation_count: self.allocation_count - earlier.allocation_count,
            free_count: self.free_count - earlier.free_count,
            device_allocation_count: self.device_allocation_count - earlier.device_allocation_count,
            retry_count: self.retry_count - earlier.retry_count,
            oom_count: self.oom_count - earlier.oom_count,
        }
    }
}

/// All phases seen so far, "other" first.
#[derive(Debug)]
pub(crate) struct Phases {
    names: Vec<&'static str>,
    /// All but the first few, which are found faster by looking at each.
    numbers: HashMap<&'static str, PhaseId>,
    totals: Vec<PhaseTotals>,
}

impl Default for Phases {
    fn default() -> Self {
        Self { names: vec!["other"], numbers: HashMap::new(), totals: vec![PhaseTotals::default()] }
    }
}

impl Phases {
    /// The number of a phase, given on first sight. Beyond 65,535 names, more than any summary can show, the rest is
    /// booked under "other".
    pub(crate) fn intern(&mut self, name: &'static str) -> PhaseId {
        // The first entry is "other" itself, which a program may name.
        if let Some(index) = self.names.iter().take(SCANNED_NAME_COUNT).position(|known| *known == name) {
            return index as PhaseId;
        }
        if let Some(id) = self.numbers.get(name) {
            return *id;
        }
        let Ok(id) = PhaseId::try_from(self.names.len()) else {
            return OTHER_PHASE;
        };
        if self.names.len() >= SCANNED_NAME_COUNT {
            self.numbers.insert(name, id);
        }
        self.names.push(name);
        self.totals.push(PhaseTotals::default());
        id
    }

    pub(crate) fn name(&self, phase: PhaseId) -> Option<&'static str> {
        if phase == OTHER_PHASE { None } else { self.names.get(usize::from(phase)).copied() }
    }

    #[inline]
    pub(crate) fn totals(&mut self, phase: PhaseId) -> &mut PhaseTotals {
        &mut self.totals[usize::from(phase)]
    }

    pub(crate) fn all_totals(&self) -> &[PhaseTotals] {
        &self.totals
    }

    pub(crate) fn names(&self) -> &[&'static str] {
        &self.names
    }
}
