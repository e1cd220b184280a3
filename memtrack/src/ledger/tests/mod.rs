//! The ledger against a plain history of every state: random interleavings of threads, scopes closed in any order.

mod history;
mod shared;

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use self::history::{Answer, Block, EpochAnswer, History, OTHER, Origin, Row};
use super::{
    Amount, BlockEntry, ClosedEpoch, ClosedScope, EpochKey, Ledger, OriginRow, Outcome, PhaseRow, ScopeKey, ScopeKind,
    SplitChange, ThreadNumber,
};
use crate::stats::PoolKind;

const PHASES: [&str; 3] = ["forward", "backward", "optimizer"];

/// One event. Picks are taken modulo what there is to pick from.
#[derive(Debug, Clone)]
enum Step {
    Open { thread: usize, kind: Kind },
    Close { pick: usize },
    Attach { thread: usize, pick: usize },
    Leave { thread: usize },
    Allocate { thread: usize, requested: i64 },
    Free { thread: usize, pick: usize },
    Segment { thread: usize },
    Release,
    Retry { thread: usize },
    OutOfMemory { thread: usize },
    Reset,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Function,
    Phase(usize),
    Step(u64),
    Epoch,
}

fn step(threads: usize) -> impl Strategy<Value = (usize, Step)> {
    let thread = move || 0..threads;
    let pick = || 0..usize::MAX;
    let kind = prop_oneof![
        3 => Just(Kind::Function),
        4 => (0..PHASES.len()).prop_map(Kind::Phase),
        2 => (0..9_u64).prop_map(Kind::Step),
        1 => Just(Kind::Epoch),
    ];
    let step = prop_oneof![
        8 => (thread(), kind).prop_map(|(thread, kind)| Step::Open { thread, kind }),
        7 => pick().prop_map(|pick| Step::Close { pick }),
        2 => (thread(), pick()).prop_map(|(thread, pick)| Step::Attach { thread, pick }),
        1 => thread().prop_map(|thread| Step::Leave { thread }),
        14 => (thread(), 1..5000_i64).prop_map(|(thread, requested)| Step::Allocate { thread, requested }),
        10 => (thread(), pick()).prop_map(|(thread, pick)| Step::Free { thread, pick }),
        1 => thread().prop_map(|thread| Step::Segment { thread }),
        1 => Just(Step::Release),
        1 => thread().prop_map(|thread| Step::Retry { thread }),
        1 => thread().prop_map(|thread| Step::OutOfMemory { thread }),
        1 => Just(Step::Reset),
    ];
    (0..3_usize, step)
}

/// An open scope, as the ledger and as the history name it.
#[derive(Debug)]
struct Open {
    key: ScopeKey,
    scope: usize,
    epoch: Option<EpochKey>,
}

/// One device: the ledger, the history, and what the program holds.
struct Device {
    ledger: Ledger,
    history: History,
    open: Vec<Open>,
    blocks: Vec<(BlockEntry, Option<ScopeKey>, Block)>,
    segments: Vec<i64>,
    /// For each thread the scopes it has entered.
    entered: [Vec<(ScopeKey, usize)>; 4],
    last_epoch: Option<(u64, i64)>,
    epoch_count: u64,
}

impl Device {
    fn new() -> Self {
        Self {
            ledger: Ledger::new(-1),
            history: History::new(),
            open: Vec::new(),
            blocks: Vec::new(),
            segments: Vec::new(),
            entered: Default::default(),
            last_epoch: None,
            epoch_count: 0,
        }
    }

    fn context(&self, thread: usize) -> (Option<ScopeKey>, Option<usize>) {
        self.entered[thread].last().map_or((None, None), |(key, scope)| (Some(*key), Some(*scope)))
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Open { thread, kind } => self.open(thread, kind),
            Step::Close { pick } => {
                if !self.open.is_empty() {
                    self.close(pick % self.open.len());
                }
            }
            Step::Attach { thread, pick } => {
                if !self.open.is_empty() {
                    let Open { key, scope, .. } = self.open[pick % self.open.len()];
                    self.entered[thread].push((key, scope));
                }
            }
            Step::Leave { thread } => {
                self.entered[thread].pop();
            }
            Step::Allocate { thread, requested } => {
                let (key, scope) = self.context(thread);
                let entry = BlockEntry { thread: ThreadNumber::of_test(thread), ..entry(requested) };
                self.ledger.allocated(&entry, SplitChange::default(), key);
                let block = self.history.allocate(thread, entry.size_bytes, requested, scope);
                self.blocks.push((entry, key, block));
            }
            Step::Free { thread, pick } => {
                if !self.blocks.is_empty() {
                    self.free(thread, pick % self.blocks.len(), pick % 5 == 0);
                }
            }
            Step::Segment { thread } => {
                let (key, scope) = self.context(thread);
                self.ledger.segment_allocated(PoolKind::Large, 1 << 20, false, key);
                self.history.segment(1 << 20, scope);
                self.segments.push(1 << 20);
            }
            Step::Release => {
                if let Some(bytes) = self.segments.pop() {
                    self.ledger.segment_released(PoolKind::Large, bytes, false);
                    self.history.release(bytes);
                }
            }
            Step::Retry { thread } => {
                let (key, scope) = self.context(thread);
                self.ledger.retried(key);
                self.history.retry(scope);
            }
            Step::OutOfMemory { thread } => {
                let (key, scope) = self.context(thread);
                self.ledger.out_of_memory(key);
                self.history.out_of_memory(scope);
            }
            Step::Reset => {
                self.ledger.reset_peak();
                self.ledger.reset_accumulated();
            }
        }
    }

    fn free(&mut self, thread: usize, at: usize, waits: bool) {
        let (key, scope) = self.context(thread);
        let (entry, owner, block) = self.blocks.swap_remove(at);
        let entry = BlockEntry { thread: ThreadNumber::of_test(thread), ..entry };
        if waits {
            self.ledger.free_requested(&entry, owner, key);
            self.ledger.free_completed(&entry, SplitChange::default());
        } else {
            self.ledger.freed(&entry, SplitChange::default(), owner, key);
        }
        self.history.free(thread, block, scope);
    }

    fn open(&mut self, thread: usize, kind: Kind) {
        let (parent_key, parent) = self.context(thread);
        let (scope_kind, phase) = match kind {
            Kind::Function => (ScopeKind::Function, None),
            Kind::Phase(phase) => (ScopeKind::Function, Some(PHASES[phase])),
            Kind::Step(number) => (ScopeKind::Step(number), None),
            Kind::Epoch => (ScopeKind::Epoch, None),
        };
        let scope = self.history.open(parent, scope_kind, phase);
        let (key, epoch) = if let Kind::Epoch = kind {
            self.epoch_count += 1;
            let epoch = self.ledger.open_epoch(self.epoch_count, parent_key);
            (epoch.scope, Some(epoch))
        } else {
            (self.ledger.open_scope(parent_key, scope_kind, phase), None)
        };
        self.ledger.name_scope(key, self.history.name(scope));
        self.entered[thread].push((key, scope));
        self.open.push(Open { key, scope, epoch });
    }

    fn close(&mut self, at: usize) {
        let Open { key, scope, epoch } = self.open.remove(at);
        for entered in &mut self.entered {
            entered.retain(|(_, entered)| *entered != scope);
        }
        match epoch {
            None => {
                let expected = self.history.close(scope);
                let closed = self.ledger.close_scope(key, Outcome::Ok).unwrap();
                assert_eq!(answer(&self.ledger, &closed), expected);
                assert!(self.ledger.close_scope(key, Outcome::Ok).is_none(), "a scope closes once");
            }
            Some(epoch) => self.close_epoch(&epoch, scope),
        }
    }

    fn close_epoch(&mut self, key: &EpochKey, scope: usize) {
        let EpochAnswer { scope: expected, step_count, mut rows, origins, held_at_peak, reserved_at_peak } =
            self.history.close_epoch(scope);
        let closed = self.ledger.close_epoch(key, Duration::from_secs(1)).unwrap();
        assert_eq!(answer(&self.ledger, &closed.scope), expected);
        assert_eq!((closed.step_count, closed.peak_phase), (step_count, expected.peak_phase));
        assert_eq!(closed.previous, self.last_epoch.replace((closed.number, expected.after)));
        let net: i64 = closed.rows.iter().map(|row| row.totals.exclusive.net_bytes).sum();
        assert_eq!(net, expected.after - expected.before, "rows add up to the epoch's change");
        assert_eq!(closed.rows.last().map(|row| row.name), Some(OTHER));
        compare_rows(&closed, &mut rows);
        assert!(rows.is_empty(), "rows missing: {rows:?}");
        assert_eq!(origins_of(&closed), origins, "origins");
        assert_eq!(holders_of(&closed), held_at_peak, "who held the peak");
        let held: i64 = closed.held_at_peak.iter().map(|holder| holder.held.bytes).sum();
        assert_eq!((held, closed.reserved_at_peak_bytes), (expected.peak, reserved_at_peak));
        assert!(self.ledger.close_epoch(key, Duration::ZERO).is_none(), "an epoch ends once");
    }

    /// Closes and frees everything; no record may be left.
    fn finish(mut self) {
        while !self.open.is_empty() {
            self.close(0);
        }
        while !self.blocks.is_empty() {
            self.free(0, 0, false);
        }
        assert_eq!(self.ledger.scopes.record_count(), 0, "scope records are left");
        assert_eq!(self.ledger.stats().allocated_bytes.all.current, 0);
    }
}

fn entry(requested: i64) -> BlockEntry {
    let size_bytes = requested.unsigned_abs().next_multiple_of(512) as i64;
    BlockEntry {
        pool: PoolKind::Small,
        size_bytes,
        requested_bytes: requested,
        oversize: false,
        thread: ThreadNumber::default(),
    }
}

/// What the ledger says, in the history's words.
fn answer(ledger: &Ledger, closed: &ClosedScope) -> Answer {
    let owned = closed.owned;
    Answer {
        phase: closed.phase_name,
        before: closed.before_bytes,
        after: closed.after_bytes,
        peak: closed.peak_bytes,
        peak_phase: ledger.phases.name(closed.peak_place.phase).unwrap_or(OTHER),
        peak_step: closed.peak_place.step,
        counts: [closed.allocation_count, closed.free_count, closed.retry_count, closed.oom_count],
        reserved_delta: closed.reserved_delta_bytes,
        own_delta: owned.live_bytes(),
        own_peak: owned.peak_bytes,
        own_allocated: owned.allocated_bytes,
        exclusive: owned.exclusive_bytes,
        own_counts: [owned.allocation_count, owned.free_count, owned.retry_count, owned.oom_count],
        foreign: closed.foreign_bytes,
        other_threads: closed.own_phase.map(|_| closed.other_threads.count()),
    }
}

/// Each of the ledger's rows is expected, and taken out of the expected ones.
fn compare_rows(closed: &ClosedEpoch, rows: &mut std::collections::HashMap<&'static str, Row>) {
    for PhaseRow { name, totals, activity } in &closed.rows {
        let mut expected = rows.remove(name).unwrap_or_else(|| panic!("unexpected row {name}"));
        // Rises are kept in classes one 64th wide.
        let close = |percent: u64, exact: i64| {
            let found = activity.rise_percentile_bytes(percent);
            assert!(found >= exact && (found - exact) * 64 <= exact, "p{percent} of {name}: {found} for {exact}");
            found
        };
        expected.rise_median = close(50, expected.rise_median);
        expected.rise_p95 = close(95, expected.rise_p95);
        let (own, inclusive) = (totals.exclusive, totals.inclusive);
        let found = Row {
            entered: own.entered_count,
            net: own.net_bytes,
            allocated: own.allocated_bytes,
            counts: [own.allocation_count, own.free_count, own.device_allocation_count, own.retry_count, own.oom_count],
            inclusive_net: inclusive.net_bytes,
            inclusive_allocated: inclusive.allocated_bytes,
            inclusive_counts: [inclusive.allocation_count, inclusive.free_count],
            peak: activity.peak_bytes,
            rise_max: activity.rise_max_bytes(),
            rise_median: expected.rise_median,
            rise_p95: expected.rise_p95,
            foreign: activity.foreign_bytes,
            other_threads: activity.other_threads.count(),
        };
        assert_eq!(found, expected, "row {name}");
    }
}

fn origins_of(closed: &ClosedEpoch) -> BTreeMap<&'static str, Origin> {
    let pair = |amount: Amount| (amount.bytes, amount.count);
    let origin = |row: &OriginRow| Origin {
        before: pair(row.before),
        allocated: pair(row.allocated),
        freed: row.freed.iter().map(|(name, amount)| (*name, pair(*amount))).collect(),
        live: pair(row.live),
    };
    closed.origins.iter().map(|row| (row.origin, origin(row))).collect()
}

fn holders_of(closed: &ClosedEpoch) -> BTreeMap<(&'static str, Option<&'static str>), (i64, i64)> {
    let holders = closed.held_at_peak.iter();
    holders.map(|holder| ((holder.phase, holder.scope), (holder.held.bytes, holder.held.count))).collect()
}

fn run_all(steps: &[(usize, Step)], devices: usize) {
    let mut all: Vec<Device> = (0..devices).map(|_| Device::new()).collect();
    for (device, step) in steps {
        all[device % devices].run(step);
    }
    all.into_iter().for_each(Device::finish);
}

/// What was in force when a step began may have ended by the time the step ends.
#[test]
fn steps_of_two_threads_may_end_in_any_order() {
    let mut ledger = Ledger::new(-1);
    let epoch = ledger.open_epoch(1, None);
    let first = ledger.open_scope(None, ScopeKind::Step(1), None);
    let second = ledger.open_scope(None, ScopeKind::Step(2), None);
    ledger.close_scope(first, Outcome::Ok).unwrap();
    ledger.allocated(&entry(512), SplitChange::default(), None);
    let during = ledger.open_scope(None, ScopeKind::Function, None);
    ledger.allocated(&entry(512), SplitChange::default(), None);
    assert_eq!(ledger.close_scope(during, Outcome::Ok).unwrap().peak_place.step, Some(2));
    ledger.close_scope(second, Outcome::Ok).unwrap();
    ledger.allocated(&entry(512), SplitChange::default(), None);
    let closed = ledger.close_epoch(&epoch, Duration::ZERO).unwrap();
    assert_eq!((closed.scope.peak_bytes, closed.scope.peak_place.step), (3 * 512, None), "after both steps");
}

/// A loop that assigns `guard = step(i)` opens each step inside the one before, which then closes: the chain of closed
/// records must neither grow nor be walked.
#[test]
fn a_scope_that_outlives_the_one_around_it_keeps_no_chain() {
    let mut ledger = Ledger::new(-1);
    let mut guard = ledger.open_scope(None, ScopeKind::Step(0), Some("train"));
    let mut kept = Vec::new();
    for number in 1..1000 {
        ledger.allocated(&entry(512), SplitChange::default(), Some(guard));
        kept.push(guard);
        let next = ledger.open_scope(Some(guard), ScopeKind::Step(number), None);
        ledger.close_scope(guard, Outcome::Ok).unwrap();
        guard = next;
    }
    // One record for each block that its step left behind, and the open one.
    assert_eq!(ledger.scopes.record_count(), 1000);
    for owner in kept {
        ledger.free_requested(&entry(512), Some(owner), Some(guard));
    }
    assert_eq!(ledger.scopes.record_count(), 1);
    assert_eq!(ledger.close_scope(guard, Outcome::Ok).unwrap().free_count, 999);
    assert_eq!(ledger.scopes.record_count(), 0);
}

#[test]
fn an_allocation_outside_every_phase_raises_the_peak_of_other_while_another_thread_is_in_a_phase() {
    let mut ledger = Ledger::new(-1);
    let epoch = ledger.open_epoch(1, None);
    let phase = ledger.open_scope(None, ScopeKind::Function, Some("forward"));
    ledger.allocated(&entry(2048), SplitChange::default(), Some(epoch.scope));
    ledger.allocated(&entry(512), SplitChange::default(), Some(phase));
    ledger.free_requested(&entry(2048), Some(epoch.scope), Some(epoch.scope));
    ledger.free_completed(&entry(2048), SplitChange::default());
    ledger.close_scope(phase, Outcome::Ok).unwrap();
    let closed = ledger.close_epoch(&epoch, Duration::ZERO).unwrap();
    let peak_of = |name| closed.rows.iter().find(|row| row.name == name).unwrap().activity.peak_bytes;
    assert_eq!((peak_of("forward"), peak_of("other")), (2560, 2048));
}

/// A thread may still be in a scope that another thread has closed.
#[test]
fn a_thread_in_a_closed_scope_is_inside_the_phase_around_it() {
    let mut ledger = Ledger::new(-1);
    let phase = ledger.open_scope(None, ScopeKind::Function, Some("forward"));
    let inner = ledger.open_scope(Some(phase), ScopeKind::Function, None);
    let by = |thread| BlockEntry { thread: ThreadNumber::of_test(thread), ..entry(512) };
    // Keeps its record.
    ledger.allocated(&by(0), SplitChange::default(), Some(inner));
    ledger.close_scope(inner, Outcome::Ok).unwrap();
    ledger.allocated(&by(1), SplitChange::default(), Some(inner));
    ledger.allocated(&by(2), SplitChange::default(), None);
    let closed = ledger.close_scope(phase, Outcome::Ok).unwrap();
    assert_eq!((closed.other_threads.count(), closed.foreign_bytes), (1, 512));
}

/// Its record goes with the last block, in the midst of what the thread does there.
#[test]
fn what_a_thread_allocates_in_a_closed_scope_without_blocks_is_of_no_scope() {
    let mut ledger = Ledger::new(-1);
    let scope = ledger.open_scope(None, ScopeKind::Function, None);
    let allocate = |ledger: &mut Ledger| ledger.allocated(&entry(512), SplitChange::default(), Some(scope));
    let free = |ledger: &mut Ledger| ledger.freed(&entry(512), SplitChange::default(), Some(scope), Some(scope));
    allocate(&mut ledger);
    ledger.close_scope(scope, Outcome::Ok).unwrap();
    allocate(&mut ledger);
    free(&mut ledger);
    free(&mut ledger);
    allocate(&mut ledger);
    ledger.settle();
    assert_eq!(ledger.scopes.record_count(), 0);
    assert_eq!(ledger.scopes.unowned.amount, Amount { bytes: 512, count: 1 });
}

#[test]
fn sums_beyond_what_a_counter_holds_do_not_panic() {
    let mut ledger = Ledger::new(-1);
    let huge = BlockEntry { size_bytes: 1 << 60, requested_bytes: 1 << 60, ..entry(512) };
    for _ in 0..20 {
        ledger.allocated(&huge, SplitChange::default(), None);
        ledger.free_requested(&huge, None, None);
        ledger.free_completed(&huge, SplitChange::default());
    }
    let stats = ledger.stats();
    assert_eq!((stats.allocated_bytes.all.current, stats.allocated_bytes.all.peak), (0, 1 << 60));
    assert_eq!(stats.allocated_bytes.all.allocated, stats.allocated_bytes.all.freed);
}

/// Each record refers to the one around it, and blocks to their scope's: what nothing refers to any more goes, however deep.
#[test]
fn records_of_deep_scopes_go_with_their_last_block() {
    let mut ledger = Ledger::new(-1);
    let mut keys: Vec<ScopeKey> = Vec::new();
    for _ in 0..10_000 {
        keys.push(ledger.open_scope(keys.last().copied(), ScopeKind::Function, None));
    }
    let owner = keys.last().copied();
    ledger.allocated(&entry(512), SplitChange::default(), owner);
    // The outermost first: nothing can go before the innermost does, and that waits for its block.
    for key in keys {
        ledger.close_scope(key, Outcome::Ok).unwrap();
    }
    assert_eq!(ledger.scopes.record_count(), 1, "only the block's owner is left");
    ledger.free_requested(&entry(512), owner, None);
    assert_eq!(ledger.scopes.record_count(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn every_interleaving_gives_what_the_history_says(
        (steps, devices) in (1..=4_usize, 1..=3_usize)
            .prop_flat_map(|(threads, devices)| (prop::collection::vec(step(threads), 1..50), Just(devices)))
    ) {
        run_all(&steps, devices);
    }
}
