//! Device memory whose end can be seen.

use crate::spans::Spans;
use memtrack::device::Host;
use memtrack::{Buffer, CachingAllocator};
use std::sync::Arc;

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
