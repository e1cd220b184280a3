//! Hooks of the program that are asked when memory runs out, and the one more try that they can ask for.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use super::CachingAllocator;
use super::error::{AllocationError, OutOfMemory};
use super::events;
use super::inner::Inner;
use super::shard::Lease;
use super::watch;
use crate::sync::{lock, read, write};

/// So many calls of an allocator's hooks run at once,
const CALLS_AT_ONCE: u32 = 16;
/// and so many follow on each other before there is a moment without any.
const CALLS_TOGETHER: u32 = 256;

/// What a hook wants to be done about an out of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OomResponse {
    /// Something was freed: try once more.
    Retry,
    /// Nothing could be freed: ask the next hook, or let the request fail.
    GiveUp,
}

/// When a hook is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OomHookOptions {
    /// Requests of fewer bytes, as asked for, fail without the hook. 0 unless said.
    pub least_bytes: u64,
    /// So often it is asked about one request. 1 unless said.
    pub attempt_limit: u32,
}

impl Default for OomHookOptions {
    fn default() -> Self {
        Self { least_bytes: 0, attempt_limit: 1 }
    }
}

impl OomHookOptions {
    /// Requests of fewer bytes, as asked for, fail without the hook.
    pub fn least_bytes(mut self, bytes: u64) -> Self {
        self.least_bytes = bytes;
        self
    }

    /// So often the hook is asked about one request.
    pub fn attempt_limit(mut self, count: u32) -> Self {
        self.attempt_limit = count;
        self
    }
}

type Hook = dyn Fn(&OutOfMemory) -> OomResponse + Send + Sync;

struct Entry {
    id: u64,
    options: OomHookOptions,
    hook: Box<Hook>,
}

/// An allocator's hooks, the newest last.
#[derive(Default)]
pub(super) struct OomHooks {
    entries: RwLock<Vec<Arc<Entry>>>,
    next_id: AtomicU64,
    calls: Mutex<Calls>,
}

/// Calls of hooks under way. A hook that allocates on another thread and waits for it would else ask itself for ever: nobody can tell
/// whom a thread works for.
#[derive(Default)]
struct Calls {
    running: u32,
    /// Since no call was running.
    together: u32,
}

/// A call that may be made, ended when dropped.
struct Call<'a>(&'a OomHooks);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut calls = lock(&self.0.calls);
        calls.running -= 1;
        if calls.running == 0 {
            calls.together = 0;
        }
    }
}

impl fmt::Debug for OomHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OomHooks").finish_non_exhaustive()
    }
}

impl OomHooks {
    /// The hooks for a request, the newest first.
    fn for_request(&self, requested_bytes: u64) -> Vec<Arc<Entry>> {
        let entries = read(&self.entries);
        let asked =
            |entry: &&Arc<Entry>| requested_bytes >= entry.options.least_bytes && entry.options.attempt_limit > 0;
        entries.iter().rev().filter(asked).cloned().collect()
    }

    /// `None` when too many calls are under way.
    fn begin_call(&self) -> Option<Call<'_>> {
        let mut calls = lock(&self.calls);
        if calls.running >= CALLS_AT_ONCE || calls.together >= CALLS_TOGETHER {
            return None;
        }
        calls.running += 1;
        calls.together += 1;
        Some(Call(self))
    }
}

/// While it lives, the hook that [`CachingAllocator::on_oom`] was given is asked.
#[must_use = "the hook is asked only while this handle lives"]
pub struct OomHook {
    hooks: Arc<OomHooks>,
    id: u64,
}

impl fmt::Debug for OomHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OomHook").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Drop for OomHook {
    fn drop(&mut self) {
        let mut entries = write(&self.hooks.entries);
        let position = entries.iter().position(|entry| entry.id == self.id);
        let removed = position.map(|position| entries.remove(position));
        drop(entries);
        // Outside of the lock: what the hook holds may be anything.
        drop(removed);
    }
}

impl CachingAllocator {
    /// Asks `hook` when an allocation of this allocator, on any thread, runs out of memory, before the caller is told. It can free
    /// memory and answer [`OomResponse::Retry`]; the request is then tried once more.
    ///
    /// The hook runs on the thread of the request, with no lock of memtrack's held, so it may use the allocator: drop buffers, empty the
    /// cache, and allocate. What runs out of memory inside a hook fails plainly, without any hook. Threads that run out of memory at the
    /// same time ask at the same time. Of several hooks the newest is asked first, and the next one when it gives up.
    ///
    /// A hook that lets *another* thread allocate and waits for it is asked again by that thread, which nobody can tell from one that ran
    /// out by itself. It is bounded: at most 16 calls of an allocator's hooks run at once, and at most 256 follow on each other before
    /// there is a moment without any; a request that comes then fails plainly.
    ///
    /// An out of memory that a hook mends is none: no error is logged and no counter of them rises. Retries count as they come.
    ///
    /// A panic of the hook goes to the caller of the allocation. No further hook is asked, and the request counts, and is logged, as one
    /// that failed; only a [post-mortem](crate::post_mortem) is not written.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use memtrack::{Buffer, CachingAllocator, OomResponse, device::Simulated};
    ///
    /// let allocator = CachingAllocator::new(Arc::new(Simulated::with_capacity(100 << 20)));
    /// let spare = Arc::new(Mutex::new(vec![Buffer::<u8>::uninit(&allocator, 60 << 20)?]));
    /// let to_free = Arc::clone(&spare);
    /// let _hook = allocator.on_oom(move |_error| match to_free.lock().unwrap().pop() {
    ///     Some(_) => OomResponse::Retry,
    ///     None => OomResponse::GiveUp,
    /// });
    /// let buffer = Buffer::<u8>::uninit(&allocator, 80 << 20)?;
    /// assert!(spare.lock().unwrap().is_empty());
    /// assert_eq!(allocator.memory_stats().num_ooms, 0);
    /// # Ok::<(), memtrack::AllocationError>(())
    /// ```
    pub fn on_oom(&self, hook: impl Fn(&OutOfMemory) -> OomResponse + Send + Sync + 'static) -> OomHook {
        self.on_oom_with(OomHookOptions::default(), hook)
    }

    /// As [`on_oom`](Self::on_oom), for requests from a size on, or more than one try.
    pub fn on_oom_with(
        &self,
        options: OomHookOptions,
        hook: impl Fn(&OutOfMemory) -> OomResponse + Send + Sync + 'static,
    ) -> OomHook {
        let hooks = Arc::clone(&self.inner().oom_hooks);
        let id = hooks.next_id.fetch_add(1, Ordering::Relaxed);
        write(&hooks.entries).push(Arc::new(Entry { id, options, hook: Box::new(hook) }));
        OomHook { hooks, id }
    }
}

thread_local! {
    /// A hook runs on this thread.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Marks the thread while a hook runs on it.
struct Inside;

impl Inside {
    fn enter() -> Self {
        let _ = INSIDE.try_with(|inside| inside.set(true));
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|inside| inside.set(false));
    }
}

/// Whether a hook runs on this thread. `true` while the thread's locals are being destroyed: no hook is to run then.
pub(super) fn is_inside() -> bool {
    INSIDE.try_with(Cell::get).unwrap_or(true)
}

impl Inner {
    /// Makes a request by `attempt`, and once more each time a hook wants so. `attempt` is told whether an out of memory is to be counted;
    /// where it was not, `count` is called for the one that the caller gets, or would have got if a hook had not panicked. No lock
    /// may be held.
    pub(super) fn with_oom_hooks(
        &self,
        requested_bytes: u64,
        mut attempt: impl FnMut(bool) -> Result<Lease, AllocationError>,
        count: impl FnOnce(&OutOfMemory),
    ) -> Result<Lease, AllocationError> {
        let entries = if is_inside() { Vec::new() } else { self.oom_hooks.for_request(requested_bytes) };
        if entries.is_empty() {
            return attempt(true);
        }
        let mut asked_counts = vec![0; entries.len()];
        loop {
            let error = match attempt(false) {
                Err(AllocationError::OutOfMemory(error)) => error,
                outcome => return outcome,
            };
            let ask = |(entry, asked_count): (&Arc<Entry>, &mut u32)| {
                if *asked_count >= entry.options.attempt_limit {
                    return false;
                }
                let Some(_call) = self.oom_hooks.begin_call() else { return false };
                *asked_count += 1;
                let _inside = Inside::enter();
                (entry.hook)(&error) == OomResponse::Retry
            };
            // What a panic leaves behind in the hook is the hook's; here it goes on to the caller.
            let answer = catch_unwind(AssertUnwindSafe(|| entries.iter().zip(&mut asked_counts).any(ask)));
            match answer {
                Ok(true) => {}
                Ok(false) => {
                    count(&error);
                    return Err(AllocationError::OutOfMemory(error));
                }
                Err(panic) => {
                    count(&error);
                    events::log_out_of_memory(&error);
                    watch::tell(self, &error);
                    resume_unwind(panic);
                }
            }
        }
    }
}
