//! Phases, steps and epochs: scopes with a meaning, and the summary that adds up.
//!
//! A phase says what the program is doing (`forward`, `optimizer`), a step counts repetitions, an epoch ends with a
//! summary. Here live their guards, the summary with its forms (table, events, JSON), what is compared with the epochs before, and
//! the sampling of the device's memory; what is booked under which phase is the ledger's affair. `docs/summary.md` explains each
//! figure.

mod companion;
mod driver_view;
mod events;
mod findings;
mod growth;
mod json;
mod lines;
mod origins;
mod sampling;
mod sources;
mod summary;
mod table;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

pub use growth::{AgeGroup, EpochSite, Growth};
pub use origins::{BlockTotal, OriginSummary, PeakHolder};
pub use sampling::{DriverSampler, SampledMemory, SamplingFailure};
pub use summary::{EpochSummary, PhaseSummary};

use crate::allocator::{CachingAllocator, Inner};
use crate::context;
use crate::current::{measured, measured_inner};
use crate::ledger::{EpochKey, ScopeKind};
use crate::observer;
use crate::publish;
use crate::run_file;
use crate::scope::{OpenScope, Outcome, Scope, ScopeRecord};
use crate::source;

/// The name of an epoch's scope, for blocks that are allocated in it and in no other.
const EPOCH_SCOPE: &str = "epoch";

/// The row of what no phase was told of.
const OUTSIDE: &str = "other";

/// While it lives, what this thread allocates and frees is booked under a phase.
///
/// It belongs to the thread that made it. Inside it, the innermost phase counts.
#[derive(Debug)]
#[must_use = "the phase ends when this guard is dropped"]
pub struct Phase {
    scope: Option<Scope>,
}

impl Phase {
    /// Ends the phase and says what happened in it; `None` when nothing was measured.
    pub fn finish(self) -> Option<ScopeRecord> {
        self.scope.map(|scope| scope.close(Outcome::Ok))
    }
}

/// Begins a phase on the current allocator. Without one, or with measuring off, the guard does nothing.
///
/// `name` is one of a fixed set, such as `data`, `forward`, `backward`, `optimizer`, `eval`; it is also what
/// `#[track_memory(phase = "…")]` takes. `other` is the row of what happens outside all phases: a phase of that name is called
/// `other (phase)`.
pub fn phase(name: &'static str) -> Phase {
    let scope =
        measured_inner().map(|inner| Scope::enter(OpenScope::open_kind(inner, name, ScopeKind::Function, Some(name))));
    Phase { scope }
}

/// While it lives, an epoch is in this step.
#[derive(Debug)]
#[must_use = "the step ends when this guard is dropped"]
pub struct Step {
    scope: Option<Scope>,
}

impl Step {
    /// Ends the step and says what happened in it; `None` when nothing was measured.
    pub fn finish(mut self) -> Option<ScopeRecord> {
        self.end()
    }

    fn end(&mut self) -> Option<ScopeRecord> {
        let scope = self.scope.take()?;
        let inner = Arc::clone(scope.inner());
        let record = scope.close(Outcome::Ok);
        look_at_peaks(&inner);
        if !record.has_allocator {
            return Some(record);
        }
        companion::of_inner(&inner).watched.step_ended(&inner, record.after_bytes, record.peak_bytes);
        Some(record)
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        // A step that unwinds is none to judge by; its scope ends with it.
        if !std::thread::panicking() {
            self.end();
        }
    }
}

/// Begins a step on the current allocator; the summary names the step that held the peak by this number. Without an
/// allocator, or with measuring off, the guard does nothing.
pub fn step(number: u64) -> Step {
    let scope = measured_inner().map(|inner| {
        companion::begin_era(&inner);
        look_at_peaks(&inner);
        Scope::enter(OpenScope::open_kind(inner, "step", ScopeKind::Step(number), None))
    });
    Step { scope }
}

/// Between two such looks is when an epoch's peak was reached; no clock is read at a new maximum.
fn look_at_peaks(inner: &Inner) {
    let mut ledger = inner.ledger();
    if !ledger.is_in_epoch() {
        return;
    }
    // Read while the books are held: what they have was before, what they have not comes after.
    ledger.look_at_peaks(Instant::now());
}

/// An epoch in progress. It ends with [`finish`](Self::finish), or with the guard; both log the summary.
///
/// It belongs to the thread that made it.
#[derive(Debug)]
#[must_use = "the epoch ends when this guard is dropped"]
pub struct Epoch {
    running: Option<Running>,
    not_send: PhantomData<*const ()>,
}

#[derive(Debug)]
struct Running {
    allocator: CachingAllocator,
    key: EpochKey,
    started: Instant,
}

/// Begins an epoch on the current allocator. Without one, or with measuring off, the guard does nothing.
///
/// ```
/// # use std::sync::Arc;
/// # use memtrack::{Buffer, CachingAllocator, device::Host};
/// let allocator = CachingAllocator::new(Arc::new(Host::new()));
/// memtrack::set_default(&allocator);
/// let epoch = memtrack::epoch(1);
/// for number in 0..3 {
///     let _step = memtrack::step(number);
///     let forward = memtrack::phase("forward");
///     let activations = Buffer::<f32>::zeros(&allocator, 100_000)?;
///     drop(forward);
///     let _backward = memtrack::phase("backward");
///     drop(activations);
/// }
/// let summary = epoch.finish().unwrap();
/// assert_eq!(summary.step_count, 3);
/// assert_eq!(summary.peak_phase, "forward");
/// assert_eq!(summary.phases[0].net_bytes, 3 * 400_384);
/// assert_eq!(summary.phases[1].net_bytes, -3 * 400_384);
/// println!("{summary}");
/// # Ok::<(), memtrack::AllocationError>(())
/// ```
pub fn epoch(number: u64) -> Epoch {
    match measured() {
        Some(allocator) => Epoch::open(allocator, number),
        None => Epoch { running: None, not_send: PhantomData },
    }
}

impl CachingAllocator {
    /// Begins an epoch on this allocator.
    pub fn epoch(&self, number: u64) -> Epoch {
        Epoch::open(self.clone(), number)
    }
}

impl Epoch {
    fn open(allocator: CachingAllocator, number: u64) -> Self {
        // Before the first epoch, so that what the driver shows is compared with a context measured at a quiet moment.
        let _ = driver_view::attached(&allocator);
        let inner = allocator.inner();
        companion::of(&allocator).begin_epoch(inner);
        let around = context::current(inner.id);
        let key = {
            let mut ledger = inner.ledger();
            let key = ledger.open_epoch(number, around);
            ledger.name_scope(key.scope, EPOCH_SCOPE);
            key
        };
        observer::opened(inner.id, around, key.scope, EPOCH_SCOPE);
        if source::is_active() {
            source::opened_epoch(inner, key.scope);
        }
        context::enter(inner.id, key.scope);
        let running = Running { allocator, key, started: Instant::now() };
        Self { running: Some(running), not_send: PhantomData }
    }

    /// Ends the epoch, logs its summary as one INFO event and returns it; `None` when nothing was measured.
    pub fn finish(mut self) -> Option<EpochSummary> {
        self.end()
    }

    fn end(&mut self) -> Option<EpochSummary> {
        let Running { allocator, key, started } = self.running.take()?;
        let inner = allocator.inner();
        let sources = if source::is_active() { source::closed_epoch(inner, key.scope) } else { Vec::new() };
        context::leave(inner.id, key.scope);
        let lasted = started.elapsed();
        let closed = inner.ledger().close_epoch(&key, lasted)?;
        let summary = EpochSummary::new(&allocator, closed, started, sources);
        events::log(&summary);
        run_file::write(|| summary.to_json());
        publish::when_on();
        Some(summary)
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.end();
    }
}
