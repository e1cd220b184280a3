//! A memory source as tests script it: a counter with a high-water mark, as the driver keeps one.

use std::sync::{Mutex, MutexGuard, PoisonError};

use memtrack::source::{Exactness, MemorySource, SourceError, SourceReading};

/// A pool that remembers every amount it ever held.
#[derive(Debug)]
pub struct Pool {
    name: String,
    keeps_peaks: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The last is current.
    history: Vec<u64>,
    mark: u64,
    failures: Vec<SourceError>,
    reset_failures: Vec<SourceError>,
    panics: bool,
    read_count: u64,
}

impl State {
    fn current(&self) -> u64 {
        self.history.last().copied().unwrap_or(0)
    }
}

impl Pool {
    /// A pool with nothing in it, which keeps its peak.
    pub fn new(name: &str) -> Self {
        let state = State {
            history: vec![0],
            mark: 0,
            failures: Vec::new(),
            reset_failures: Vec::new(),
            panics: false,
            read_count: 0,
        };
        Self { name: name.to_owned(), keeps_peaks: true, state: Mutex::new(state) }
    }

    /// One that keeps no peak.
    pub fn without_peak(name: &str) -> Self {
        Self { keeps_peaks: false, ..Self::new(name) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes so many bytes, or gives them back.
    pub fn change(&self, bytes: i64) {
        let mut state = self.state();
        let now = state.current().saturating_add_signed(bytes);
        state.history.push(now);
        state.mark = state.mark.max(now);
    }

    /// The mark as somebody else resets it.
    pub fn reset_elsewhere(&self) {
        let mut state = self.state();
        state.mark = state.current();
    }

    /// The next reading fails.
    pub fn fail_once(&self, error: SourceError) {
        self.state().failures.push(error);
    }

    /// The next reset fails.
    pub fn fail_reset_once(&self, error: SourceError) {
        self.state().reset_failures.push(error);
    }

    /// Whether readings panic.
    pub fn set_panics(&self, panics: bool) {
        self.state().panics = panics;
    }

    /// A moment, for [`highest_since`](Self::highest_since).
    pub fn moment(&self) -> usize {
        self.state().history.len() - 1
    }

    /// The most it held since a moment.
    pub fn highest_since(&self, moment: usize) -> u64 {
        self.state().history[moment..].iter().copied().max().unwrap_or(0)
    }

    /// What it holds.
    pub fn current(&self) -> u64 {
        self.state().current()
    }

    /// How often it was read.
    pub fn read_count(&self) -> u64 {
        self.state().read_count
    }
}

impl MemorySource for Pool {
    fn name(&self) -> &str {
        &self.name
    }

    fn device(&self) -> Option<u32> {
        Some(0)
    }

    fn exactness(&self) -> Exactness {
        Exactness::ExactProcessWide
    }

    fn read(&self) -> Result<SourceReading, SourceError> {
        let mut state = self.state();
        assert!(!state.panics, "the pool is on fire");
        state.read_count += 1;
        if let Some(error) = state.failures.pop() {
            return Err(error);
        }
        let current = state.current();
        // Reserved in steps, as drivers do.
        let stepped = |bytes: u64| bytes.next_multiple_of(1000);
        let reading = SourceReading::new(current).with_reserved(stepped(current)).with_retries(state.read_count);
        Ok(if self.keeps_peaks {
            reading.with_peak(state.mark).with_reserved_peak(stepped(state.mark))
        } else {
            reading
        })
    }

    fn reset_peak(&self) -> Result<(), SourceError> {
        let mut state = self.state();
        if let Some(error) = state.reset_failures.pop() {
            return Err(error);
        }
        state.mark = state.current();
        Ok(())
    }
}

/// One test at a time: sources are the process's.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
