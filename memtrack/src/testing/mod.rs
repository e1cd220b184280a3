//! Budgets of memory in ordinary tests: what a piece of work keeps, how far its peak rises, how often it allocates.
//!
//! ```
//! # use std::sync::Arc;
//! # use memtrack::{AllocationError, Buffer, CachingAllocator, device::Host};
//! use memtrack::testing;
//!
//! fn step(allocator: &CachingAllocator) -> Result<f32, AllocationError> {
//!     let activations = Buffer::<f32>::zeros(allocator, 100_000)?;
//!     Ok(activations.to_vec()?[0])
//! }
//!
//! // In a `#[test]`:
//! let allocator = CachingAllocator::new(Arc::new(Host::new()));
//! let _current = allocator.make_current();
//! let loss = testing::expect(|| step(&allocator))
//!     .keeps_nothing()
//!     .peak_at_most("400 kB")
//!     .allocations_at_most(1)
//!     .into_value()?;
//! assert_eq!(loss, 0.0);
//! # Ok::<(), AllocationError>(())
//! ```
//!
//! [`expect`] does the work and measures it, and each of the calls behind it checks one thing at once; a check that fails panics at
//! its line, with the lines that allocated. [`assert_keeps_nothing`], [`assert_peak_under`] and [`assert_no_allocations`] are short for
//! one check. [`expect_async`] is for futures, and [`on`] for an allocator that is not the current one.
//!
//! # What is measured
//!
//! Bytes as asked for, of what this thread allocates on one allocator during the work, and of what other threads and tasks allocate
//! inside a [`ScopeHandle`](crate::scope::ScopeHandle) that was taken there. What other tests do at the same time on the same allocator does
//! not count, so tests can run in parallel. A free counts wherever it happens. An allocation that the cache serves is an
//! allocation; a buffer without elements takes no memory and is none.
//!
//! The allocator is the current one: of [`make_current`](crate::CachingAllocator::make_current) on the thread, else of
//! [`set_default`](fn@crate::set_default). Without one, and with measuring switched off, [`expect`] panics and says so.
//!
//! # What the work returns
//!
//! The value of the work is still there when it is measured, so memory in it counts as kept. Either allow for it, or drop it first:
//!
//! ```
//! # use std::sync::Arc;
//! # use memtrack::{AllocationError, Buffer, CachingAllocator, device::Host, testing};
//! # let allocator = CachingAllocator::new(Arc::new(Host::new()));
//! # let _current = allocator.make_current();
//! fn forward(allocator: &CachingAllocator) -> Result<Buffer<f32>, AllocationError> {
//!     let _scratch = Buffer::<f32>::zeros(allocator, 5000)?;
//!     Buffer::zeros(allocator, 1000)
//! }
//!
//! let output = testing::expect(|| forward(&allocator)).keeps_at_most(4000).into_value()?;
//! # drop(output);
//! testing::expect(|| forward(&allocator)).without_value().keeps_nothing();
//! # Ok::<(), AllocationError>(())
//! ```
//!
//! # Functions with a budget
//!
//! While the guard of [`strict()`] lives, functions whose own budgets are breached panic instead of logging it.

// Here live the checks and their texts. What is measured is the business of scopes and of the observer.

mod bytes;
mod checks;
mod failure;
mod future;
mod strict;

use std::future::Future;

pub use bytes::{IntoBytes, SizeError};
pub use checks::{Measured, On, on};
pub use future::ExpectFuture;
pub use strict::{Strict, is_strict, strict};

use crate::allocator::CachingAllocator;
use crate::current;

/// Does the work and measures it, on the current allocator.
///
/// # Panics
///
/// When no allocator is current, or measuring is switched off; and as the work does.
#[track_caller]
#[must_use = "nothing is checked yet"]
pub fn expect<T>(work: impl FnOnce() -> T) -> Measured<T> {
    on(&required()).expect(work)
}

/// As [`expect`], of a future: it is measured when it is awaited, on whichever threads it is polled.
///
/// ```
/// # use std::sync::Arc;
/// # use memtrack::{Buffer, CachingAllocator, device::Host, testing};
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// # let allocator = CachingAllocator::new(Arc::new(Host::new()));
/// # let _current = allocator.make_current();
/// let step = async {
///     let buffer = Buffer::<u8>::zeros(&allocator, 1000);
///     tokio::task::yield_now().await;
///     drop(buffer);
/// };
/// testing::expect_async(step).await.keeps_nothing().peak_at_most(1000);
/// # });
/// ```
///
/// # Panics
///
/// As [`expect`], at once.
#[track_caller]
pub fn expect_async<F: Future>(work: F) -> ExpectFuture<F> {
    on(&required()).expect_async(work)
}

/// Does the work and returns its value; panics unless all that the work allocated was freed.
///
/// The value itself must hold no memory: see [the module](self#what-the-work-returns).
///
/// ```
/// # use std::sync::Arc;
/// # use memtrack::{Buffer, CachingAllocator, device::Host, testing};
/// # let allocator = CachingAllocator::new(Arc::new(Host::new()));
/// # let _current = allocator.make_current();
/// testing::assert_keeps_nothing(|| drop(Buffer::<f32>::zeros(&allocator, 1000)));
/// ```
///
/// ```should_panic
/// # use std::sync::Arc;
/// # use memtrack::{Buffer, CachingAllocator, device::Host, testing};
/// # let allocator = CachingAllocator::new(Arc::new(Host::new()));
/// # let _current = allocator.make_current();
/// let mut history = Vec::new();
/// testing::assert_keeps_nothing(|| history.push(Buffer::<f32>::zeros(&allocator, 1000)));
/// ```
///
/// # Panics
///
/// When memory is kept; and as [`expect`].
#[track_caller]
pub fn assert_keeps_nothing<T>(work: impl FnOnce() -> T) -> T {
    expect(work).keeps_nothing().into_value()
}

/// Does the work and returns its value; panics unless what it allocated stayed under `limit` at every moment.
///
/// ```
/// # use std::sync::Arc;
/// # use memtrack::{Buffer, CachingAllocator, device::Host, testing};
/// # let allocator = CachingAllocator::new(Arc::new(Host::new()));
/// # let _current = allocator.make_current();
/// let buffer = testing::assert_peak_under("1 MiB", || Buffer::<f32>::zeros(&allocator, 1000))?;
/// # Ok::<(), memtrack::AllocationError>(())
/// ```
///
/// # Panics
///
/// When the peak reached the limit; when the limit is no size ([`IntoBytes`]); and as [`expect`].
#[track_caller]
pub fn assert_peak_under<T>(limit: impl IntoBytes, work: impl FnOnce() -> T) -> T {
    let limit_bytes = bytes::required(limit);
    expect(work).peak_under(limit_bytes).into_value()
}

/// Does the work and returns its value; panics if it allocated at all, freed or not.
///
/// ```
/// # use std::sync::Arc;
/// # use memtrack::{Buffer, CachingAllocator, device::Host, testing};
/// # let allocator = CachingAllocator::new(Arc::new(Host::new()));
/// # let _current = allocator.make_current();
/// let mut buffer = Buffer::<f32>::zeros(&allocator, 1000)?;
/// testing::assert_no_allocations(|| buffer.fill_zero())?;
/// # Ok::<(), memtrack::AllocationError>(())
/// ```
///
/// # Panics
///
/// When there was an allocation; and as [`expect`].
#[track_caller]
pub fn assert_no_allocations<T>(work: impl FnOnce() -> T) -> T {
    expect(work).no_allocations().into_value()
}

/// The allocator that is measured where none is named.
#[track_caller]
fn required() -> CachingAllocator {
    if !current::enabled() {
        panic!("memtrack: nothing can be measured: measuring is switched off; call memtrack::set_enabled(true)");
    }
    let Some(allocator) = current::current() else {
        panic!(
            "memtrack: nothing can be measured: no allocator is current; call memtrack::set_default(&allocator) once, or \
             make_current() on this thread, or name one by memtrack::testing::on(&allocator)"
        );
    };
    allocator
}
