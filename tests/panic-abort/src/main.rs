//! Panics in measured functions, in a program whose panics abort. What a subscriber hears is written to standard output.

use memtrack::device::Simulated;
use memtrack::{Buffer, CachingAllocator, track_memory};
use std::fmt;
use std::future::Future;
use std::io::Write as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Writes each call as a line.
struct Lines(AtomicU64);

fn say(line: &str) {
    let mut output = std::io::stdout();
    // Whoever reads has gone away.
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

struct Outcome<'a>(&'a mut String);

impl Visit for Outcome<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if ["mem.outcome", "mem.delta"].contains(&field.name()) {
            self.0.push_str(&format!(" {value:?}"));
        }
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let number = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        say(&format!("new {number} {}", attributes.metadata().name()));
        Id::from_u64(number)
    }
    fn record(&self, id: &Id, record: &Record<'_>) {
        let mut line = format!("record {}", id.into_u64());
        record.record(&mut Outcome(&mut line));
        say(&line);
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
    fn try_close(&self, id: Id) -> bool {
        say(&format!("close {}", id.into_u64()));
        true
    }
}

#[track_memory(err)]
fn synchronous(allocator: &CachingAllocator, fails: bool) -> Result<usize, memtrack::AllocationError> {
    let kept = Buffer::<u8>::uninit(allocator, 1024)?;
    assert!(!fails, "on purpose");
    Ok(kept.len())
}

#[track_memory(err)]
async fn asynchronous(allocator: &CachingAllocator, fails: bool) -> Result<usize, memtrack::AllocationError> {
    let mut yielded = false;
    std::future::poll_fn(|_| if std::mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending }).await;
    synchronous(allocator, fails)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing::subscriber::set_global_default(Lines(AtomicU64::new(0)))?;
    let allocator = CachingAllocator::new(Arc::new(Simulated::new()));
    let _current = allocator.make_current();
    if cfg!(panic = "unwind") {
        return Err("built with panics that unwind".into());
    }
    match std::env::args().nth(1).as_deref() {
        Some("none") => {
            synchronous(&allocator, false)?;
            block_on(asynchronous(&allocator, false))?;
            drop(Box::pin(asynchronous(&allocator, false)));
        }
        Some("sync") => {
            synchronous(&allocator, false)?;
            synchronous(&allocator, true)?;
        }
        Some("async") => {
            block_on(asynchronous(&allocator, false))?;
            block_on(asynchronous(&allocator, true))?;
        }
        _ => return Err("say none, sync or async".into()),
    }
    say("the end");
    Ok(())
}
