//! Trying again with less after an out of memory.

use std::error::Error;

use crate::allocator::OutOfMemory;

/// How [`retry_halving`] goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryOptions {
    /// The smallest size that is tried. 1 unless said.
    pub least_size: u64,
    /// So many attempts in all, the first included. 8 unless said.
    pub attempt_limit: u32,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self { least_size: 1, attempt_limit: 8 }
    }
}

impl RetryOptions {
    /// The smallest size that is tried; 0 counts as 1.
    pub fn least_size(mut self, size: u64) -> Self {
        self.least_size = size;
        self
    }

    /// So many attempts in all; 0 counts as 1.
    pub fn attempt_limit(mut self, count: u32) -> Self {
        self.attempt_limit = count;
        self
    }
}

/// What [`retry_halving`] came to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Halving<T> {
    /// What the attempt gave.
    pub value: T,
    /// The size that went through.
    pub size: u64,
    /// Attempts made, this one included.
    pub attempt_count: u32,
}

/// Why [`retry_halving`] gave up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetryError<E: Error + 'static> {
    /// Memory ran out at the smallest size, or in the last attempt.
    #[error("out of memory after {attempt_count} attempts, the last with size {size}: {error}")]
    OutOfMemory {
        /// Of the last attempt.
        size: u64,
        /// Attempts made.
        attempt_count: u32,
        /// Of the last attempt.
        #[source]
        error: E,
    },
    /// Something else failed; it was not tried again.
    #[error(transparent)]
    Other(E),
}

/// Calls `attempt` with `size`, such as a batch's, and after each out of memory with half of it, down to a floor and so many times.
/// No size is tried twice.
///
/// An error counts as an out of memory when [`OutOfMemory::behind`] finds one. Each is dropped before the next attempt, with all
/// that it holds: buffers that the failed attempt moved into its error would keep the memory that the next one needs.
///
/// ```
/// use std::sync::Arc;
/// use memtrack::{AllocationError, Buffer, CachingAllocator, RetryOptions, device::Simulated, retry_halving};
///
/// let allocator = CachingAllocator::new(Arc::new(Simulated::with_capacity(100 << 20)));
/// let train = |batch: u64| -> Result<(), AllocationError> {
///     let _activations = Buffer::<u8>::uninit(&allocator, (batch << 20) as usize)?;
///     Ok(())
/// };
/// let done = retry_halving(256, RetryOptions::default().least_size(8), train)?;
/// assert_eq!((done.size, done.attempt_count), (64, 3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`RetryError::OutOfMemory`] at the floor or after the last attempt, [`RetryError::Other`] at once.
pub fn retry_halving<T, E: Error + 'static>(
    size: u64,
    options: RetryOptions,
    mut attempt: impl FnMut(u64) -> Result<T, E>,
) -> Result<Halving<T>, RetryError<E>> {
    let least_size = options.least_size.max(1);
    let (mut size, mut attempt_count) = (size, 1);
    loop {
        let error = match attempt(size) {
            Ok(value) => return Ok(Halving { value, size, attempt_count }),
            Err(error) => error,
        };
        if OutOfMemory::behind(&error).is_none() {
            return Err(RetryError::Other(error));
        }
        // Never below the floor, and never the same again.
        let next_size = (size / 2).max(least_size);
        if next_size >= size || attempt_count >= options.attempt_limit.max(1) {
            return Err(RetryError::OutOfMemory { size, attempt_count, error });
        }
        drop(error);
        size = next_size;
        attempt_count += 1;
    }
}
