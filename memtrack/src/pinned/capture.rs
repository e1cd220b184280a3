//! Memory for copies that are captured into graphs: a block that a stream has used is not used again until somebody says
//! that the graphs are gone.

use std::fmt;
use std::sync::{Arc, Mutex};

use super::PinnedAllocator;
use super::block::{Block, FreeLists};
use super::error::PinnedError;
use super::events;
use super::inner::{Inner, block_size};
use super::uses::Use;
use crate::sync::lock;

/// Pinned memory for graphs. Cloning gives another handle to the same pool; graphs may share one.
///
/// A copy that is captured into a graph is done each time the graph is launched, so its memory must stay what it is for as
/// long as the graph lives. The rule is simple: a block of this pool that no stream has used is cached for the pool's next
/// buffer when it is freed; one that a stream has used is kept until [`release`](Self::release). Allocating from a pool asks
/// the device for no events, which a capture in its strictest mode forbids.
///
/// When the last handle is dropped, cached blocks go to the allocator's cache. Kept ones that were not released stay
/// page-locked as long as the process lives, and a warning says so.
#[derive(Clone)]
pub struct CapturePool {
    handle: Arc<Handle>,
}

/// Shared by the public handles; the last one to go dissolves the pool.
struct Handle {
    pool: Arc<Pool>,
    /// After the pool, and kept with it: no block comes back to an allocator that has ended.
    allocator: PinnedAllocator,
}

/// What the handles and the buffers of a pool share.
#[derive(Debug)]
pub(super) struct Pool {
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    free: FreeLists,
    /// Freed blocks that graphs may use.
    kept: Vec<Block>,
    /// How often the pool was released: graphs of earlier generations are gone.
    generation: u64,
    is_dissolved: bool,
}

impl fmt::Debug for CapturePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CapturePool").field("allocator", &self.handle.allocator).finish_non_exhaustive()
    }
}

impl CapturePool {
    pub(super) fn new(allocator: &PinnedAllocator) -> Self {
        let pool = Arc::new(Pool { books: Mutex::default() });
        Self { handle: Arc::new(Handle { pool, allocator: allocator.clone() }) }
    }

    /// The allocator that the pool is of.
    pub fn allocator(&self) -> &PinnedAllocator {
        &self.handle.allocator
    }

    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.handle.pool
    }

    /// Says that the graphs captured with the pool's buffers are gone: freed blocks can be used again, and buffers that are
    /// left can be borrowed on the host.
    ///
    /// # Safety
    ///
    /// No graph in which a buffer of this pool was used is launched any more, every launch is done, and so is what streams were
    /// given to do with buffers of this pool that have been dropped.
    pub unsafe fn release(&self) {
        let mut books = lock(&self.handle.pool.books);
        books.generation += 1;
        let Books { free, kept, .. } = &mut *books;
        let mut sizes = Vec::with_capacity(kept.len());
        for block in kept.drain(..) {
            sizes.push(block.size_bytes);
            free.push(block);
        }
        drop(books);
        let mut state = self.handle.allocator.inner().state();
        sizes.into_iter().for_each(|size_bytes| state.counters.completed(size_bytes));
    }
}

impl Pool {
    pub(super) fn generation(&self) -> u64 {
        lock(&self.books).generation
    }

    pub(super) fn allocate(&self, inner: &Inner, requested_bytes: u64) -> Result<Block, PinnedError> {
        let size_bytes = block_size(requested_bytes)?;
        let cached = lock(&self.books).free.pop(size_bytes);
        match cached {
            Some(block) => {
                inner.state().counters.handed_out(size_bytes);
                Ok(block)
            }
            // Nothing is waited for: a stream that is being captured cannot be.
            None => inner.grow(size_bytes, requested_bytes, |_, _| None),
        }
    }

    /// Takes a block back; `used_in` is the generation in which a stream used it last.
    pub(super) fn free(&self, inner: &Inner, block: Block, uses: Vec<Use>, used_in: Option<u64>) {
        let mut books = lock(&self.books);
        if used_in == Some(books.generation) {
            if books.is_dissolved {
                drop(books);
                keep_for_ever(inner, vec![block]);
            } else {
                books.kept.push(block);
                drop(books);
            }
            uses.into_iter().filter_map(|found| found.event).for_each(|event| inner.device.release_event(event));
        } else if uses.is_empty() && !books.is_dissolved {
            inner.state().counters.returned(block.size_bytes);
            books.free.push(block);
        } else {
            drop(books);
            inner.free(block, uses);
        }
    }
}

/// Leaves blocks locked, and their device alive: a graph may come to them at any time.
fn keep_for_ever(inner: &Inner, blocks: Vec<Block>) {
    let bytes: u64 = blocks.iter().map(|block| block.size_bytes).sum();
    std::mem::forget(Arc::clone(&inner.device));
    events::log_captured_memory(inner, bytes);
}

impl Drop for Handle {
    fn drop(&mut self) {
        let inner = self.allocator.inner();
        let (cached, kept) = {
            let mut books = lock(&self.pool.books);
            books.is_dissolved = true;
            (books.free.take_all(), std::mem::take(&mut books.kept))
        };
        {
            let mut state = inner.state();
            cached.into_iter().for_each(|block| state.free.push(block));
        }
        if !kept.is_empty() {
            keep_for_ever(inner, kept);
        }
    }
}
