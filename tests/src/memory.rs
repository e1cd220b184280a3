//! Device memory whose end can be seen.

use crate::spans::{SpanLog, Spans};
use memtrack::device::Host;
use memtrack::{Buffer, CachingAllocator, Current};
use std::sync::Arc;
use tracing::subscriber::DefaultGuard;

/// An allocator on a host device of its own.
pub fn host_allocator() -> CachingAllocator {
    CachingAllocator::new(Arc::new(Host::new()))
}

/// Device memory that notes `drop NAME` in a span recorder's journal just before it is freed.
pub struct Probe {
    name: &'static str,
    spans: Spans,
    buffer: Buffer<u8>,
}

impl Probe {
    /// Takes `bytes` of device memory.
    ///
    /// # Panics
    ///
    /// Panics if there is no memory.
    pub fn new(name: &'static str, spans: &Spans, allocator: &CachingAllocator, bytes: usize) -> Self {
        let buffer = Buffer::uninit(allocator, bytes).unwrap_or_else(|error| panic!("{error}"));
        Self { name, spans: spans.clone(), buffer }
    }

    /// How much it holds.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.spans.note(format!("drop {}", self.name));
    }
}

/// A recorder of spans, and an allocator that is current, both on this thread while it lives.
pub struct Bench {
    /// What reaches the subscriber.
    pub spans: Spans,
    /// What is measured where no other allocator is named.
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
    /// On a host device of its own.
    pub fn new() -> Self {
        Self::with_allocator(host_allocator())
    }

    /// With an allocator to measure.
    pub fn with_allocator(allocator: CachingAllocator) -> Self {
        let (spans, installed) = Spans::install();
        let current = allocator.make_current();
        Self { spans, allocator, _installed: installed, _current: current }
    }

    /// 1024 bytes of the allocator's memory.
    pub fn probe(&self, name: &'static str) -> Probe {
        Probe::new(name, &self.spans, &self.allocator, 1024)
    }

    /// The outcome, the change and the rise of the one call of this name.
    ///
    /// # Panics
    ///
    /// Panics unless there is one span of the name, closed, and recorded in one call.
    #[track_caller]
    pub fn call(&self, name: &str) -> (String, i64, i64) {
        let figures = figures(&self.spans.one(name));
        let closed = self.spans.journal().iter().filter(|line| **line == format!("close {name}")).count();
        assert_eq!(closed, 1, "{name} is closed");
        figures
    }

    /// The journal is `new f`, `enter f`, these lines, then `record f`, `exit f`, `close f`.
    ///
    /// # Panics
    ///
    /// Panics if it is not, or if the outcome or the change are others.
    #[track_caller]
    pub fn assert_freed_inside(&self, lines: &[&str], delta_bytes: i64, outcome: &str) {
        let expected = [&["new f", "enter f"], lines, &["record f", "exit f", "close f"]].concat();
        assert_eq!(self.spans.journal(), expected);
        let (found, delta, _) = figures(&self.spans.one("f"));
        assert_eq!((delta, found.as_str()), (delta_bytes, outcome));
    }
}

/// A call's outcome, change and rise.
///
/// # Panics
///
/// Panics unless the span was recorded on once.
#[track_caller]
pub fn figures(span: &SpanLog) -> (String, i64, i64) {
    assert_eq!(span.records.len(), 1, "records of {}", span.name);
    (span.text("mem.outcome"), span.number("mem.delta"), span.number("mem.peak_delta"))
}
