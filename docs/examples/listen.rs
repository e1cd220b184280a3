// What the examples of docs/attribute.md share: an allocator that needs no GPU, and the lines that a subscriber writes.

pub use memtrack::{Buffer, CachingAllocator, track_memory};
use std::io::{Result as IoResult, Write};
pub use std::sync::Arc;
use std::sync::Mutex;
use tracing_subscriber::fmt::format::FmtSpan;

/// An allocator on host memory, the current one on this thread.
pub fn host() -> (CachingAllocator, memtrack::Current) {
    let allocator = CachingAllocator::new(Arc::new(memtrack::device::Host::new()));
    let current = allocator.make_current();
    (allocator, current)
}

/// So many bytes on the current allocator.
pub fn take(bytes: usize) -> Buffer<u8> {
    let allocator = memtrack::current().expect("a current allocator");
    Buffer::uninit(&allocator, bytes).expect("memory")
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> IoResult<usize> {
        self.0.lock().expect("no panic while writing").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> IoResult<()> {
        Ok(())
    }
}

/// Runs `work` under tracing's `fmt` subscriber and returns what it wrote, a line for each span that closed.
pub fn listen(work: impl FnOnce()) -> String {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(false)
        .without_time()
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, work);
    let bytes = lines.0.lock().expect("no panic while writing").clone();
    String::from_utf8(bytes).expect("text")
}
