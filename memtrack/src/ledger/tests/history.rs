//! The books of one device kept the plain way: every state the device was in, one after the other, and every question
//! answered by looking through them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::ledger::ScopeKind;

/// Under no phase.
pub(super) const OTHER: &str = "other";

/// What a block needs for its free.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub(super) size: i64,
    pub(super) requested: i64,
    owner: Option<usize>,
    /// The state in which it was allocated.
    born: usize,
}

#[derive(Debug, Clone, Copy)]
enum Cause {
    Nothing,
    Allocation(Block),
    Free(Block),
    Segment,
    Retry,
    OutOfMemory,
    PhaseBegan,
    StepBegan,
}

/// The device after one event.
#[derive(Debug, Clone, Copy)]
struct State {
    live: i64,
    reserved: i64,
    any_phase_open: bool,
    step: Option<u64>,
    /// What led here, in which scope and phase.
    cause: Cause,
    context: Option<usize>,
    phase: &'static str,
    thread: usize,
}

#[derive(Debug)]
struct Scope {
    kind: ScopeKind,
    parent: Option<usize>,
    own_phase: Option<&'static str>,
    phase: &'static str,
    step_at_opening: Option<u64>,
    opened: usize,
    closed: Option<usize>,
}

/// What a scope should say when it closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) phase: Option<&'static str>,
    pub(super) before: i64,
    pub(super) after: i64,
    pub(super) peak: i64,
    pub(super) peak_phase: &'static str,
    pub(super) peak_step: Option<u64>,
    /// Allocations, frees, retries, out of memory.
    pub(super) counts: [i64; 4],
    pub(super) reserved_delta: i64,
    pub(super) own_delta: i64,
    pub(super) own_peak: i64,
    pub(super) own_allocated: i64,
    pub(super) exclusive: i64,
    /// As `counts`, of what threads inside did and what became of it.
    pub(super) own_counts: [i64; 4],
    pub(super) foreign: i64,
    /// Of a phase.
    pub(super) other_threads: Option<u32>,
}

/// What an epoch should say of one phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) entered: u64,
    pub(super) net: i64,
    pub(super) allocated: u64,
    /// Allocations, frees, segments, retries, out of memory.
    pub(super) counts: [u64; 5],
    pub(super) inclusive_net: i64,
    pub(super) inclusive_allocated: u64,
    /// Allocations, frees.
    pub(super) inclusive_counts: [u64; 2],
    pub(super) peak: i64,
    pub(super) rise_max: i64,
    /// The lower median.
    pub(super) rise_median: i64,
    pub(super) rise_p95: i64,
    pub(super) foreign: i64,
    pub(super) other_threads: u32,
}

/// Bytes and blocks.
pub(super) type Amounts = (i64, i64);

/// What became of the blocks of one phase in an epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) before: Amounts,
    pub(super) allocated: Amounts,
    pub(super) freed: BTreeMap<&'static str, Amounts>,
    pub(super) live: Amounts,
}

/// What an epoch should say.
#[derive(Debug)]
pub(super) struct EpochAnswer {
    pub(super) scope: Answer,
    pub(super) step_count: u64,
    pub(super) rows: HashMap<&'static str, Row>,
    pub(super) origins: BTreeMap<&'static str, Origin>,
    pub(super) held_at_peak: BTreeMap<(&'static str, Option<&'static str>), Amounts>,
    pub(super) reserved_at_peak: i64,
}

fn add(amounts: &mut Amounts, block: &Block, sign: i64) {
    amounts.0 += sign * block.size;
    amounts.1 += sign;
}

/// Everything that ever happened on a device.
#[derive(Debug)]
pub(super) struct History {
    states: Vec<State>,
    scopes: Vec<Scope>,
}

impl History {
    pub(super) fn new() -> Self {
        let start = State {
            live: 0,
            reserved: 0,
            any_phase_open: false,
            step: None,
            cause: Cause::Nothing,
            context: None,
            phase: OTHER,
            thread: 0,
        };
        Self { states: vec![start], scopes: Vec::new() }
    }

    fn now(&self) -> usize {
        self.states.len() - 1
    }

    fn push(&mut self, cause: Cause, context: Option<usize>, change: impl FnOnce(&mut State)) {
        let mut state = self.states[self.now()];
        (state.cause, state.context, state.phase) = (cause, context, self.phase_of(context));
        change(&mut state);
        self.states.push(state);
    }

    fn phase_of(&self, scope: Option<usize>) -> &'static str {
        scope.map_or(OTHER, |scope| self.scopes[scope].phase)
    }

    /// Whether `scope` is `outer` or inside it.
    fn is_inside(&self, scope: Option<usize>, outer: usize) -> bool {
        let mut at = scope;
        while let Some(scope) = at {
            if scope == outer {
                return true;
            }
            at = self.scopes[scope].parent;
        }
        false
    }

    /// Whether no function that was open at an event stands between its context and `outer`.
    fn function_around(&self, context: Option<usize>, outer: usize, event: usize) -> bool {
        let mut at = context;
        while let Some(scope) = at.filter(|scope| *scope != outer) {
            let Scope { kind, parent, closed, .. } = self.scopes[scope];
            if kind == ScopeKind::Function && closed.is_none_or(|closed| event <= closed) {
                return false;
            }
            at = parent;
        }
        true
    }

    pub(super) fn allocate(&mut self, thread: usize, size: i64, requested: i64, context: Option<usize>) -> Block {
        let block = Block { size, requested, owner: context, born: self.states.len() };
        self.push(Cause::Allocation(block), context, |state| (state.live, state.thread) = (state.live + size, thread));
        block
    }

    pub(super) fn free(&mut self, thread: usize, block: Block, context: Option<usize>) {
        self.push(Cause::Free(block), context, |state| (state.live, state.thread) = (state.live - block.size, thread));
    }

    /// What a scope is called.
    pub(super) fn name(&self, scope: usize) -> &'static str {
        match (self.scopes[scope].own_phase, self.scopes[scope].kind) {
            (Some(phase), _) => phase,
            (None, ScopeKind::Step(_)) => "step",
            (None, ScopeKind::Epoch) => "epoch",
            (None, _) => "function",
        }
    }

    /// The phases that a scope is in, itself included.
    fn phases_around(&self, scope: Option<usize>) -> BTreeSet<&'static str> {
        let chain = std::iter::successors(scope, |at| self.scopes[*at].parent);
        chain.filter_map(|at| self.scopes[at].own_phase).collect()
    }

    pub(super) fn segment(&mut self, bytes: i64, context: Option<usize>) {
        self.push(Cause::Segment, context, |state| state.reserved += bytes);
    }

    pub(super) fn release(&mut self, bytes: i64) {
        self.push(Cause::Nothing, None, |state| state.reserved -= bytes);
    }

    pub(super) fn retry(&mut self, context: Option<usize>) {
        self.push(Cause::Retry, context, |_| {});
    }

    pub(super) fn out_of_memory(&mut self, context: Option<usize>) {
        self.push(Cause::OutOfMemory, context, |_| {});
    }

    pub(super) fn open(&mut self, parent: Option<usize>, kind: ScopeKind, own_phase: Option<&'static str>) -> usize {
        let phase = own_phase.unwrap_or(self.phase_of(parent));
        let step_at_opening = self.states[self.now()].step;
        let index = self.scopes.len();
        self.scopes.push(Scope { kind, parent, own_phase, phase, step_at_opening, opened: 0, closed: None });
        let cause = match (kind, own_phase) {
            (ScopeKind::Step(_), _) => Cause::StepBegan,
            (_, Some(_)) => Cause::PhaseBegan,
            _ => Cause::Nothing,
        };
        self.settle(cause, Some(index));
        self.scopes[index].opened = self.now();
        index
    }

    /// A new state in which the right scopes are open.
    fn settle(&mut self, cause: Cause, context: Option<usize>) {
        let open = || self.scopes.iter().filter(|scope| scope.closed.is_none());
        let any_phase_open = open().any(|scope| scope.own_phase.is_some());
        let step = open().rev().find_map(|scope| if let ScopeKind::Step(n) = scope.kind { Some(n) } else { None });
        self.push(cause, context, |state| (state.any_phase_open, state.step) = (any_phase_open, step));
    }

    pub(super) fn close(&mut self, scope: usize) -> Answer {
        self.scopes[scope].closed = Some(self.now());
        let answer = self.answer(scope);
        self.settle(Cause::Nothing, None);
        answer
    }

    /// The states that an open or just closed scope saw, its opening first.
    fn seen(&self, scope: usize) -> &[State] {
        let Scope { opened, closed, .. } = self.scopes[scope];
        &self.states[opened..=closed.unwrap_or(self.now())]
    }

    fn answer(&self, index: usize) -> Answer {
        let scope = &self.scopes[index];
        let seen = self.seen(index);
        let (first, later) = (seen[0], &seen[1..]);
        let last = seen[seen.len() - 1];
        let peak = seen.iter().map(|state| state.live).max().unwrap_or(0);
        let (peak_phase, peak_step) = match later.iter().find(|state| state.live == peak && peak > first.live) {
            Some(state) => (state.phase, state.step),
            None => (scope.phase, scope.step_at_opening),
        };
        let (mut own, mut own_peak, mut own_allocated, mut exclusive) = (0, 0, 0, 0);
        let (foreign, other_threads) = self.foreign(index);
        let (mut counts, mut own_counts) = ([0; 4], [0; 4]);
        for (event, state) in later.iter().enumerate() {
            let event = scope.opened + 1 + event;
            let inside = self.is_inside(state.context, index);
            match state.cause {
                Cause::Allocation(block) => {
                    counts[0] += 1;
                    if inside {
                        own += block.requested;
                        own_peak = own_peak.max(own);
                        own_allocated += block.requested;
                        if self.function_around(state.context, index, event) {
                            exclusive += block.requested;
                        }
                        own_counts[0] += 1;
                    }
                }
                Cause::Free(block) => {
                    counts[1] += 1;
                    if self.is_inside(block.owner, index) {
                        own -= block.requested;
                        own_counts[1] += 1;
                    }
                }
                Cause::Retry => {
                    counts[2] += 1;
                    own_counts[2] += i64::from(inside);
                }
                Cause::OutOfMemory => {
                    counts[3] += 1;
                    own_counts[3] += i64::from(inside);
                }
                Cause::Nothing | Cause::Segment | Cause::PhaseBegan | Cause::StepBegan => {}
            }
        }
        Answer {
            phase: (scope.phase != OTHER).then_some(scope.phase),
            before: first.live,
            after: last.live,
            peak,
            peak_phase,
            peak_step,
            counts,
            reserved_delta: last.reserved - first.reserved,
            own_delta: own,
            own_peak,
            own_allocated,
            exclusive,
            own_counts,
            foreign,
            other_threads: scope.own_phase.map(|_| other_threads.len() as u32),
        }
    }

    /// Bytes moved outside a scope while it was open, and the threads that did so and nothing inside.
    fn foreign(&self, index: usize) -> (i64, BTreeSet<usize>) {
        let mut foreign = 0;
        let (mut inside, mut outside) = (BTreeSet::new(), BTreeSet::new());
        for state in &self.seen(index)[1..] {
            if let Cause::Allocation(block) | Cause::Free(block) = state.cause {
                if self.is_inside(state.context, index) {
                    inside.insert(state.thread);
                } else {
                    outside.insert(state.thread);
                    foreign += block.size;
                }
            }
        }
        (foreign, outside.difference(&inside).copied().collect())
    }

    /// Ends an epoch.
    pub(super) fn close_epoch(&mut self, epoch: usize) -> EpochAnswer {
        let rows = self.rows(epoch);
        let steps = self.seen(epoch)[1..].iter().filter(|state| matches!(state.cause, Cause::StepBegan)).count();
        let (held_at_peak, reserved_at_peak) = self.held_at_peak(epoch);
        EpochAnswer {
            step_count: steps as u64,
            rows,
            origins: self.origins(epoch),
            held_at_peak,
            reserved_at_peak,
            scope: self.close(epoch),
        }
    }

    /// The blocks that are live in a state.
    fn live(&self, at: usize) -> Vec<Block> {
        let mut live: Vec<Block> = Vec::new();
        for state in &self.states[..=at] {
            match state.cause {
                Cause::Allocation(block) => live.push(block),
                Cause::Free(block) => live.retain(|other| other.born != block.born),
                _ => {}
            }
        }
        live
    }

    fn held_at_peak(&self, epoch: usize) -> (BTreeMap<(&'static str, Option<&'static str>), Amounts>, i64) {
        let opened = self.scopes[epoch].opened;
        let peak = self.seen(epoch).iter().map(|state| state.live).max().unwrap_or(0);
        let at = opened + self.seen(epoch).iter().position(|state| state.live == peak).unwrap_or(0);
        let mut held: BTreeMap<(&'static str, Option<&'static str>), Amounts> = BTreeMap::new();
        for block in self.live(at) {
            let scope = block.owner.map(|owner| self.name(owner));
            add(held.entry((self.phase_of(block.owner), scope)).or_default(), &block, 1);
        }
        (held, self.states[at].reserved)
    }

    fn origins(&self, epoch: usize) -> BTreeMap<&'static str, Origin> {
        let mut origins: BTreeMap<&'static str, Origin> = BTreeMap::new();
        let origin_of = |block: &Block| self.phase_of(block.owner);
        for block in self.live(self.scopes[epoch].opened) {
            add(&mut origins.entry(origin_of(&block)).or_default().before, &block, 1);
        }
        for state in &self.seen(epoch)[1..] {
            match state.cause {
                Cause::Allocation(block) => {
                    add(&mut origins.entry(origin_of(&block)).or_default().allocated, &block, 1)
                }
                Cause::Free(block) => {
                    let origin = origins.entry(origin_of(&block)).or_default();
                    add(origin.freed.entry(state.phase).or_default(), &block, 1);
                }
                _ => {}
            }
        }
        for block in self.live(self.now()) {
            add(&mut origins.entry(origin_of(&block)).or_default().live, &block, 1);
        }
        origins
    }

    fn rows(&self, epoch: usize) -> HashMap<&'static str, Row> {
        let mut rows: HashMap<&'static str, Row> = HashMap::from([(OTHER, Row::default())]);
        for state in &self.seen(epoch)[1..] {
            let mut book = |enter: fn(&mut Row, i64)| {
                let size = if let Cause::Allocation(block) | Cause::Free(block) = state.cause { block.size } else { 0 };
                enter(rows.entry(state.phase).or_default(), size);
            };
            match state.cause {
                Cause::Allocation(_) => book(|row, size| {
                    row.net += size;
                    row.allocated += size as u64;
                    row.counts[0] += 1;
                }),
                Cause::Free(_) => book(|row, size| {
                    row.net -= size;
                    row.counts[1] += 1;
                }),
                Cause::Segment => book(|row, _| row.counts[2] += 1),
                Cause::Retry => book(|row, _| row.counts[3] += 1),
                Cause::OutOfMemory => book(|row, _| row.counts[4] += 1),
                Cause::PhaseBegan => book(|row, _| row.entered += 1),
                Cause::Nothing | Cause::StepBegan => {}
            }
        }
        self.add_inclusive(epoch, &mut rows);
        let seen = self.seen(epoch);
        let unmarked = seen.iter().filter(|state| !state.any_phase_open);
        let allocated =
            seen[1..].iter().filter(|state| matches!(state.cause, Cause::Allocation(_)) && state.phase == OTHER);
        rows.entry(OTHER).or_default().peak = unmarked.chain(allocated).map(|state| state.live).max().unwrap_or(0);
        for (phase, mut rises) in self.activations(epoch, &mut rows) {
            rises.sort_unstable();
            let row = rows.entry(phase).or_default();
            row.rise_max = rises[rises.len() - 1];
            row.rise_median = rises[(rises.len() - 1) / 2];
            row.rise_p95 = rises[(rises.len() * 95).div_ceil(100) - 1];
        }
        rows
    }

    /// What happened in each phase or in one inside it.
    fn add_inclusive(&self, epoch: usize, rows: &mut HashMap<&'static str, Row>) {
        for state in &self.seen(epoch)[1..] {
            let mut phases = self.phases_around(state.context);
            if phases.is_empty() {
                phases.insert(OTHER);
            }
            for phase in phases {
                match state.cause {
                    Cause::Allocation(block) => {
                        let row = rows.entry(phase).or_default();
                        row.inclusive_net += block.size;
                        row.inclusive_allocated += block.size as u64;
                        row.inclusive_counts[0] += 1;
                    }
                    Cause::Free(block) => {
                        let row = rows.entry(phase).or_default();
                        row.inclusive_net -= block.size;
                        row.inclusive_counts[1] += 1;
                    }
                    // Rows are there for whatever was booked in a phase inside.
                    Cause::Segment | Cause::Retry | Cause::OutOfMemory | Cause::PhaseBegan => {
                        rows.entry(phase).or_default();
                    }
                    Cause::Nothing | Cause::StepBegan => {}
                }
            }
        }
    }

    /// The rises of all phases that were open at some time of the epoch; enters their peaks, as far as the epoch saw them.
    fn activations(&self, epoch: usize, rows: &mut HashMap<&'static str, Row>) -> HashMap<&'static str, Vec<i64>> {
        let began = self.scopes[epoch].opened;
        let mut rises: HashMap<&'static str, Vec<i64>> = HashMap::new();
        let mut others: HashMap<&'static str, BTreeSet<usize>> = HashMap::new();
        for (index, scope) in self.scopes.iter().enumerate() {
            let (Some(phase), end) = (scope.own_phase, scope.closed.unwrap_or(self.now())) else { continue };
            // A phase that closed is closed by the event after `closed`.
            if scope.closed.is_some_and(|closed| closed < began) {
                continue;
            }
            let seen = &self.states[scope.opened.max(began)..=end];
            let peak = seen.iter().map(|state| state.live).max().unwrap_or(0);
            let before = self.states[scope.opened].live;
            rises.entry(phase).or_default().push((peak - before).max(0));
            let row = rows.entry(phase).or_default();
            row.peak = row.peak.max(peak);
            let (foreign, threads) = self.foreign(index);
            row.foreign += foreign;
            let others = others.entry(phase).or_default();
            others.extend(threads);
            row.other_threads = others.len() as u32;
        }
        rises
    }
}
