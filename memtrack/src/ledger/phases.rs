//! Phases by name and by what they were entered in, and what was booked under each since the allocator began.
//!
//! A phase that is entered inside others is a *node* of its own: its name and the set of names around it. Booking is by node, at
//! the cost of booking by name, and a name's figures are sums of nodes: *exclusive* those that have the name, *inclusive* also
//! those that have it around them. As it is a set, recursion of any depth makes no more nodes than its names can.

use std::collections::HashMap;

use super::counters::Volume;

/// A node's number; [`OTHER_PHASE`] for time outside every phase.
pub(crate) type PhaseId = u16;

/// A name's number; 0 for "other".
pub(crate) type NameId = u16;

/// Everything no phase was told of.
pub(crate) const OTHER_PHASE: PhaseId = 0;

/// A program's own phase `other`, beside the row of what no phase was told of.
pub(crate) const NAMED_OTHER: &str = "other (phase)";

/// What the matrix cannot name.
pub(crate) const FURTHER_PHASES: &str = "(further phases)";
/// A program's own phase of that name.
const NAMED_FURTHER: &str = "(further phases) (phase)";

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
    /// Spent in allocations that found no cached block.
    pub(crate) slow_path_nanos: u64,
}

impl PhaseTotals {
    #[inline]
    pub(super) fn moved(&mut self, allocated: &Volume, freed: &Volume) {
        self.net_bytes = self.net_bytes.wrapping_add(allocated.bytes).wrapping_sub(freed.bytes);
        self.allocated_bytes = self.allocated_bytes.wrapping_add(allocated.bytes.cast_unsigned());
        self.allocation_count = self.allocation_count.wrapping_add(allocated.count.cast_unsigned());
        self.free_count = self.free_count.wrapping_add(freed.count.cast_unsigned());
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
            slow_path_nanos: self.slow_path_nanos - earlier.slow_path_nanos,
        }
    }

    fn add(&mut self, other: &Self) {
        self.entered_count += other.entered_count;
        self.net_bytes = self.net_bytes.wrapping_add(other.net_bytes);
        self.allocated_bytes = self.allocated_bytes.wrapping_add(other.allocated_bytes);
        self.allocation_count += other.allocation_count;
        self.free_count += other.free_count;
        self.device_allocation_count += other.device_allocation_count;
        self.retry_count += other.retry_count;
        self.oom_count += other.oom_count;
        self.slow_path_nanos += other.slow_path_nanos;
    }
}

/// What was booked under one name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NameTotals {
    /// While it was the innermost phase.
    pub(crate) exclusive: PhaseTotals,
    /// With the phases inside it.
    pub(crate) inclusive: PhaseTotals,
}

#[derive(Debug, Default)]
struct Node {
    name: NameId,
    /// The other names around it, sorted.
    around: Vec<NameId>,
}

/// All phases seen so far, "other" first.
#[derive(Debug)]
pub(crate) struct Phases {
    names: Vec<&'static str>,
    /// All but the first few, which are found faster by looking at each.
    numbers: HashMap<&'static str, NameId>,
    nodes: Vec<Node>,
    by_content: HashMap<(NameId, Vec<NameId>), PhaseId>,
    /// What entering a name in a node comes to: a row a node, for the first few names.
    entered: Vec<[Option<PhaseId>; SCANNED_NAME_COUNT]>,
    /// The same for all other names.
    entered_further: HashMap<(PhaseId, NameId), PhaseId>,
    totals: Vec<PhaseTotals>,
}

impl Default for Phases {
    fn default() -> Self {
        Self {
            names: vec!["other"],
            numbers: HashMap::new(),
            nodes: vec![Node::default()],
            by_content: HashMap::new(),
            entered: vec![[None; SCANNED_NAME_COUNT]],
            entered_further: HashMap::new(),
            totals: vec![PhaseTotals::default()],
        }
    }
}

impl Phases {
    /// The number of a name, given on first sight. Beyond 65,535 names, more than any summary can show, the rest is
    /// booked under "other".
    fn intern(&mut self, name: &'static str) -> NameId {
        let first_names = self.names.iter().enumerate().take(SCANNED_NAME_COUNT).skip(1);
        // Nearly always the same constant as before, which needs no look at the letters.
        if let Some((index, _)) = first_names.clone().find(|(_, known)| std::ptr::eq(**known, name)) {
            return index as NameId;
        }
        let name = match name {
            "other" => NAMED_OTHER,
            FURTHER_PHASES => NAMED_FURTHER,
            name => name,
        };
        if let Some((index, _)) = first_names.clone().find(|(_, known)| **known == name) {
            return index as NameId;
        }
        if let Some(id) = self.numbers.get(name) {
            return *id;
        }
        let Ok(id) = NameId::try_from(self.names.len()) else {
            return 0;
        };
        if self.names.len() >= SCANNED_NAME_COUNT {
            self.numbers.insert(name, id);
        }
        self.names.push(name);
        id
    }

    /// The phase of this name inside `around`.
    pub(crate) fn enter(&mut self, around: PhaseId, name: &'static str) -> PhaseId {
        let name = self.intern(name);
        match self.entered[usize::from(around)].get(usize::from(name)) {
            Some(Some(known)) => return *known,
            Some(None) => {}
            None => {
                if let Some(known) = self.entered_further.get(&(around, name)) {
                    return *known;
                }
            }
        }
        let phase = self.find_or_add(around, name);
        match self.entered[usize::from(around)].get_mut(usize::from(name)) {
            Some(place) => *place = Some(phase),
            None => {
                self.entered_further.insert((around, name), phase);
            }
        }
        phase
    }

    fn find_or_add(&mut self, around: PhaseId, name: NameId) -> PhaseId {
        if name == 0 {
            return OTHER_PHASE;
        }
        let outer = &self.nodes[usize::from(around)];
        let mut names: Vec<NameId> = outer.around.iter().copied().chain([outer.name]).collect();
        names.retain(|other| *other != name && *other != 0);
        names.sort_unstable();
        let key = (name, names);
        if let Some(known) = self.by_content.get(&key) {
            return *known;
        }
        let Ok(phase) = PhaseId::try_from(self.nodes.len()) else {
            return OTHER_PHASE;
        };
        self.nodes.push(Node { name, around: key.1.clone() });
        self.by_content.insert(key, phase);
        self.entered.push([None; SCANNED_NAME_COUNT]);
        self.totals.push(PhaseTotals::default());
        phase
    }

    /// `None` for "other".
    pub(crate) fn name(&self, phase: PhaseId) -> Option<&'static str> {
        match self.name_id(phase) {
            0 => None,
            name => self.names.get(usize::from(name)).copied(),
        }
    }

    pub(crate) fn name_id(&self, phase: PhaseId) -> NameId {
        self.nodes.get(usize::from(phase)).map_or(0, |node| node.name)
    }

    #[inline]
    pub(crate) fn totals(&mut self, phase: PhaseId) -> &mut PhaseTotals {
        &mut self.totals[usize::from(phase)]
    }

    /// By node.
    pub(crate) fn all_totals(&self) -> &[PhaseTotals] {
        &self.totals
    }

    pub(crate) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn names(&self) -> &[&'static str] {
        &self.names
    }

    /// By name: what came after `before`, which has the nodes of then.
    pub(crate) fn by_name_since(&self, before: &[PhaseTotals]) -> Vec<NameTotals> {
        let mut all = vec![NameTotals::default(); self.names.len()];
        let nothing = PhaseTotals::default();
        for (index, (node, totals)) in self.nodes.iter().zip(&self.totals).enumerate() {
            let totals = totals.since(before.get(index).unwrap_or(&nothing));
            let own = &mut all[usize::from(node.name)];
            own.exclusive.add(&totals);
            own.inclusive.add(&totals);
            for name in &node.around {
                all[usize::from(*name)].inclusive.add(&totals);
            }
        }
        all
    }
}
