//! What most tests of the attribute begin with: a recorder of spans, and an allocator that is current.

use crate::memory::{Probe, host_allocator};
use crate::spans::Spans;
use memtrack::{CachingAllocator, Current};
use tracing::subscriber::DefaultGuard;

/// A recorder installed on this thread, and an allocator that is current on it.
pub struct Bench {
    /// The recorder.
    pub spans: Spans,
    /// The allocator.
    pub allocator: CachingAllocator,
    _installed: DefaultGuard,
    _current: Current,
}

impl Default for Bench {
    fn default() -> Self {
        Self::new()
    }
}

impl Bench {
    /// Installs both until the value is dropped.
    pub fn new() -> Self {
        let (spans, installed) = Spans::install();
        let allocator = host_allocator();
        let current = allocator.make_current();
        Self { spans, allocator, _installed: installed, _current: current }
    }

    /// 1024 bytes of the allocator's memory, whose end is noted among what happens to the spans.
    pub fn probe(&self, name: &'static str) -> Probe {
        Probe::new(name, &self.spans, &self.allocator, 1024)
    }

    /// Compares the spans so far, each as its name and its phase, with those expected.
    ///
    /// # Panics
    ///
    /// Panics if they differ.
    #[track_caller]
    pub fn assert_spans(&self, expected: &[(&str, &str)]) {
        let spans = self.spans.all();
        let found: Vec<(&str, String)> = spans.iter().map(|span| (span.name, span.text("mem.phase"))).collect();
        let found: Vec<(&str, &str)> = found.iter().map(|(name, phase)| (*name, phase.as_str())).collect();
        assert_eq!(found, expected);
    }

    /// Compares the names of the spans so far with those expected.
    ///
    /// # Panics
    ///
    /// Panics if they differ.
    #[track_caller]
    pub fn assert_names(&self, expected: &[&str]) {
        let names: Vec<&str> = self.spans.all().iter().map(|span| span.name).collect();
        assert_eq!(names, expected);
    }
}
