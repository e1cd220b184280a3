//! Driving futures by hand, one poll at a time.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Polls once.
pub fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls until the future completes. For futures that need no waking.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = poll_once(future.as_mut()) {
            return value;
        }
    }
}

/// Pending once.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|_| if std::mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Pending so often, waking its task each time: unlike [`yield_now`], an executor that waits for wakes goes on.
pub async fn wait(times: u32) {
    let mut left = times;
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// What driving a future to its end took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Driven {
    /// Polls, the last one included.
    pub polls: u32,
    /// Wakes.
    pub wakes: u32,
}

/// Polls once, and then whenever the future has woken its task, until it completes.
///
/// # Panics
///
/// Panics when the future is pending and has woken nobody: an executor would wait for ever.
pub fn drive<T>(future: impl Future<Output = T>) -> (T, Driven) {
    struct Counting(AtomicU32);
    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let counting = Arc::new(Counting(AtomicU32::new(0)));
    let waker = Waker::from(Arc::clone(&counting));
    let mut future = pin!(future);
    let mut driven = Driven { polls: 0, wakes: 0 };
    loop {
        driven.polls += 1;
        let poll = future.as_mut().poll(&mut Context::from_waker(&waker));
        let wakes = counting.0.load(Ordering::Relaxed);
        if let Poll::Ready(value) = poll {
            return (value, Driven { wakes, ..driven });
        }
        assert!(wakes > driven.wakes, "poll {} was pending and nobody will poll again", driven.polls);
        driven.wakes = wakes;
    }
}
