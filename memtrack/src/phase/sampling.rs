//! The device's memory as the driver has it, sampled during an epoch: at phase boundaries, and by a thread of its own.
//!
//! Off unless asked for. A sample is one memory query, about 6 µs; never a synchronisation, a reset or a flush of the cache. After
//! each sample at a boundary the next is taken only once a thousand times its duration has passed, so all of them together stay
//! below a tenth of a percent of the time, whatever a query takes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::companion;
use crate::allocator::{CachingAllocator, Inner};
use crate::device::DeviceKind;
use crate::sync::lock;

/// The share of time that samples at boundaries may take is one in so many.
const REST_FACTOR: u32 = 1000;
/// At most so many boundaries pass between two readings of the clock.
const MOST_SKIPPED: u64 = 16;
/// Longer intervals are as good as never.
const LONGEST_INTERVAL: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What was sampled of the whole device's memory during an epoch, other processes included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SampledMemory {
    /// Samples taken where a phase began or ended.
    pub boundary_count: u64,
    /// Samples taken by a [`DriverSampler`].
    pub background_count: u64,
    /// Queries that failed; [`EpochSummary::sampling_failure`](crate::EpochSummary::sampling_failure) says why.
    pub failure_count: u64,
    /// The least free bytes that a sample saw: true lows between samples are not known.
    pub lowest_free_bytes: u64,
    /// The phase then in force: the one that began or ended, or for a background sample the one opened last.
    pub lowest_phase: &'static str,
    /// The most used bytes that a sample saw.
    pub highest_used_bytes: u64,
}

/// Samples of an epoch that could not be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SamplingFailure {
    /// How many.
    pub count: u64,
    /// What was said of the latest.
    pub error: String,
}

#[derive(Debug, Clone, Copy)]
enum Occasion {
    Boundary,
    Background,
}

/// An allocator's sampling.
#[derive(Debug, Default)]
pub(super) struct Sampling {
    at_boundaries: AtomicBool,
    /// Since `CLOCK`; no sample at a boundary before.
    next_nanos: AtomicU64,
    readings: Readings,
    taken: Mutex<Taken>,
}

/// When the clock was read at boundaries. Where phases are short it is read at few of them: it would cost as much as the phase's
/// own books. Threads that count at once may lose a count; then the clock is read a little later.
#[derive(Debug, Default)]
struct Readings {
    /// Boundaries still to pass before the next.
    left_count: AtomicU64,
    /// Boundaries passed without a reading before the last.
    skipped_count: AtomicU64,
    last_nanos: AtomicU64,
}

impl Readings {
    /// Whether the clock is to be read at this boundary.
    #[inline]
    fn is_due(&self) -> bool {
        let left_count = self.left_count.load(Ordering::Relaxed);
        if left_count > 0 {
            self.left_count.store(left_count - 1, Ordering::Relaxed);
        }
        left_count == 0
    }

    /// It is `now`; nothing is to be done before `next`. Boundaries are left out for a quarter of that time, if they go on coming as
    /// fast as since the last reading.
    fn read(&self, now_nanos: u64, next_nanos: u64) {
        let last_nanos = self.last_nanos.swap(now_nanos, Ordering::Relaxed);
        let passed_count = self.skipped_count.load(Ordering::Relaxed) + 1;
        let apart_nanos = (now_nanos.saturating_sub(last_nanos) / passed_count).max(1);
        let skipped_count = (next_nanos.saturating_sub(now_nanos) / 4 / apart_nanos).min(MOST_SKIPPED);
        self.skipped_count.store(skipped_count, Ordering::Relaxed);
        self.left_count.store(skipped_count, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct Taken {
    failure: Option<SamplingFailure>,
    memory: Option<SampledMemory>,
}

static CLOCK: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();

fn now_nanos() -> u64 {
    u64::try_from(CLOCK.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl Sampling {
    /// What was sampled since the last call, and what could not be.
    pub(super) fn take(&self) -> (Option<SampledMemory>, Option<SamplingFailure>) {
        let Taken { failure, memory } = std::mem::take(&mut *lock(&self.taken));
        let failure_count = failure.as_ref().map_or(0, |failure| failure.count);
        (memory.map(|memory| SampledMemory { failure_count, ..memory }), failure)
    }

    fn add(&self, occasion: Occasion, phase: &'static str, sample: Result<(u64, u64), String>) {
        let mut taken = lock(&self.taken);
        let (free_bytes, used_bytes) = match sample {
            Ok(sample) => sample,
            Err(error) => {
                let count = taken.failure.as_ref().map_or(0, |failure| failure.count) + 1;
                taken.failure = Some(SamplingFailure { count, error });
                return;
            }
        };
        let memory = taken.memory.get_or_insert(SampledMemory {
            boundary_count: 0,
            background_count: 0,
            failure_count: 0,
            lowest_free_bytes: free_bytes,
            lowest_phase: phase,
            highest_used_bytes: used_bytes,
        });
        match occasion {
            Occasion::Boundary => memory.boundary_count += 1,
            Occasion::Background => memory.background_count += 1,
        }
        if free_bytes < memory.lowest_free_bytes {
            (memory.lowest_free_bytes, memory.lowest_phase) = (free_bytes, phase);
        }
        memory.highest_used_bytes = memory.highest_used_bytes.max(used_bytes);
    }
}

/// Free and used bytes of the whole device, or why they cannot be had.
fn query(inner: &Arc<Inner>) -> Result<(u64, u64), String> {
    let attached = companion::of_inner(inner).view.get();
    if let Some(Ok(view)) = attached {
        let memory = view.memory().map_err(|failure| failure.to_string())?;
        return Ok((memory.free_bytes, memory.used_bytes));
    }
    // The driver's own query could be refused while a graph is captured, and NVML is there or will not be.
    if inner.device.kind() == DeviceKind::Cuda {
        return Err(match attached {
            Some(Err(why)) => why.to_string(),
            _ => "the driver's view is not attached yet".to_owned(),
        });
    }
    let memory = inner.device.memory().map_err(|error| error.to_string())?;
    Ok((memory.free_bytes, memory.total_bytes.saturating_sub(memory.free_bytes)))
}

/// A phase began or ended. No lock may be held.
fn at_boundary(inner: &Arc<Inner>, phase: &'static str) {
    let sampling = &companion::of_inner(inner).sampling;
    if !sampling.at_boundaries.load(Ordering::Relaxed) || !sampling.readings.is_due() {
        return;
    }
    let started = now_nanos();
    let next = sampling.next_nanos.load(Ordering::Relaxed);
    // Of several threads one.
    let wins = || sampling.next_nanos.compare_exchange(next, u64::MAX, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if started < next || !wins() {
        // Another thread samples, and will say when the next is due.
        if next != u64::MAX {
            sampling.readings.read(started, next);
        }
        return;
    }
    super::look_at_peaks(inner);
    let sample = query(inner);
    let ended = now_nanos();
    let rest = ended.saturating_sub(started).saturating_mul(u64::from(REST_FACTOR));
    let next = ended.saturating_add(rest);
    sampling.next_nanos.store(next, Ordering::Relaxed);
    sampling.readings.read(ended, next);
    sampling.add(Occasion::Boundary, phase, sample);
}

impl CachingAllocator {
    /// Samples the device's free memory where phases begin and end, from now on or no more. Off at the start.
    ///
    /// A sample is one query of the driver, about 6 µs on an H200. After each the next is left out until a thousand times its
    /// duration has passed, so that they cost a program less than a tenth of a percent of its time. The summaries show the lowest
    /// that was seen, and where all failed, as on CUDA without NVML, why.
    pub fn sample_at_phase_boundaries(&self, on: bool) {
        let inner = self.inner();
        // Never taken back: a switch that is off costs a boundary one load.
        let _ = inner.at_phase_boundary.set(at_boundary);
        companion::of(self).sampling.at_boundaries.store(on, Ordering::Relaxed);
    }

    /// Starts a thread that samples the device's free memory every `interval`, until the returned guard is dropped.
    ///
    /// It holds no lock of the allocator during a query, and asks the driver for nothing but figures. An interval below a
    /// millisecond counts as one, and one above a year as a year.
    ///
    /// # Errors
    ///
    /// When the system gives no thread.
    pub fn sample_in_background(&self, interval: Duration) -> std::io::Result<DriverSampler> {
        let stop = Arc::new(Stop::default());
        let (inner, signal) = (Arc::clone(self.inner()), Arc::clone(&stop));
        // A clock counts no further than some centuries.
        let interval = interval.clamp(Duration::from_millis(1), LONGEST_INTERVAL);
        let thread = std::thread::Builder::new().name("memtrack-sampler".to_owned()).spawn(move || {
            while !signal.is_set_after(interval) {
                let sample = query(&inner);
                let phase = inner.ledger().newest_phase_name().unwrap_or("other");
                companion::of_inner(&inner).sampling.add(Occasion::Background, phase, sample);
            }
        })?;
        Ok(DriverSampler { stop, thread: Some(thread) })
    }
}

#[derive(Debug, Default)]
struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Waits so long, or until it is set.
    fn is_set_after(&self, interval: Duration) -> bool {
        let deadline = Instant::now() + interval;
        let mut is_set = lock(&self.is_set);
        while !*is_set {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            is_set = match self.changed.wait_timeout(is_set, left) {
                Ok((guard, _)) => guard,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        *is_set
    }
}

/// A thread that samples the device's memory. It ends when this is dropped, which waits for a query under way.
#[derive(Debug)]
#[must_use = "the sampling ends when this is dropped"]
pub struct DriverSampler {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for DriverSampler {
    fn drop(&mut self) {
        *lock(&self.stop.is_set) = true;
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It does not panic; if it did, there is nobody to tell.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_read_at_few_boundaries_where_they_come_fast_and_at_each_where_they_come_slowly() {
        let readings_of = |apart_nanos: u64, boundary_count: u64| {
            let (readings, mut read_count, mut next_nanos) = (Readings::default(), 0, 0);
            for boundary in 1..=boundary_count {
                if !readings.is_due() {
                    continue;
                }
                read_count += 1;
                let now_nanos = boundary * apart_nanos;
                // A sample of 6 microseconds, with the rest after it.
                next_nanos = if now_nanos >= next_nanos { now_nanos + 6_000_000 } else { next_nanos };
                readings.read(now_nanos, next_nanos);
            }
            read_count
        };
        assert_eq!(readings_of(1_000_000_000, 100), 100);
        assert_eq!(readings_of(2_000_000, 100), 100);
        let fast = readings_of(30_000, 17_000);
        assert!((1000..4000).contains(&fast), "{fast} readings");
    }

    #[test]
    fn an_epoch_whose_samples_all_failed_says_so_with_the_error() {
        let allocator = CachingAllocator::new(Arc::new(crate::device::Simulated::new()));
        let epoch = allocator.epoch(1);
        let sampling = &companion::of(&allocator).sampling;
        for error in ["first", "lost\nin the bus"] {
            sampling.add(Occasion::Boundary, "forward", Err(error.to_owned()));
        }
        let summary = epoch.finish().unwrap();
        assert_eq!(summary.sampled, None);
        let told = "  sampled   nothing: 2 samples failed, the latest with: lost\\nin the bus\n";
        assert!(summary.to_string().contains(told), "{summary}");
        let object =
            r#""sampled":{"at_boundaries":0,"in_background":0,"failures":2,"latest_error":"lost\nin the bus"}"#;
        assert!(summary.to_json().contains(object), "{}", summary.to_json());

        let epoch = allocator.epoch(2);
        sampling.add(Occasion::Background, "forward", Err("once".to_owned()));
        sampling.add(Occasion::Boundary, "forward", Ok((5 << 20, 3 << 20)));
        let summary = epoch.finish().unwrap();
        let told = "lowest free 5.00 MiB in forward (1 sample at phase boundaries, 1 failed, the latest with: once)\n";
        assert!(summary.to_string().contains(told), "{summary}");
        assert_eq!(summary.sampled.map(|sampled| sampled.failure_count), Some(1));
        // Each epoch has its own.
        assert_eq!(allocator.epoch(3).finish().unwrap().sampling_failure, None);
    }

    #[test]
    fn a_sampler_with_the_longest_interval_waits_and_ends_when_it_is_dropped() {
        let stop = Arc::new(Stop::default());
        let signal = Arc::clone(&stop);
        let waiting = std::thread::spawn(move || signal.is_set_after(LONGEST_INTERVAL));
        *lock(&stop.is_set) = true;
        stop.changed.notify_all();
        assert!(waiting.join().is_ok_and(|is_set| is_set));
    }
}
