//! `MEMTRACK_PRELOAD=cache`: memtrack's allocator in the driver's place.
//!
//! # What holds
//!
//! - **In stream order.** A block that was allocated and freed on one stream is given out on that stream again at once. One that is
//!   freed on another stream than its own goes back when the work is done that the freeing stream has been given until then. The
//!   per-thread default stream is another stream on each thread, also to the cache.
//! - **`cuMemAlloc`** gives memory that no stream has work on, from blocks of its own: it can be used on any stream at once.
//! - **`cuMemFree`** waits for the whole context, as the driver's does, and so a block that goes back by it has no work either. While a
//!   graph is being captured, which such a wait would break, the block is put aside until a later such free.
//! - **Captures.** Memory on a stream that is being captured is the graph's, and the driver's affair.
//! - **Primary contexts only.** In any other context, and for streams of one, the driver serves.
//! - **Out of memory** is returned when memtrack has given back all it could and asked again.
//! - **Streams that are destroyed** are waited for, since the driver gives their handles out again.
//!
//! A request of no bytes, pitched, managed and the program's own pools' memory, and whatever memtrack fails at, are the driver's.
//!
//! # What is different for the program
//!
//! `cuMemGetInfo` shows what is cached as used; the counters of the driver's pools stay at zero; `cuMemGetAddressRange` and
//! `cuIpcGetMemHandle` speak of the segment that a block lies in. Memory of primary contexts lasts until `cuDevicePrimaryCtxReset`,
//! because memtrack holds them; after a reset the driver serves that device.
//!
//! Here live who serves what (this file), the device that memtrack is given (`device`) with its streams (`streams`) and their captures
//! (`captures`), what could not be waited for (`deferred`), and the thread that has the epoch (`keeper`).

mod captures;
mod deferred;
mod device;
mod keeper;
mod streams;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use memtrack::device::{Cuda, Stream};
use memtrack::{AllocationError, CachingAllocator, OomHook, OomResponse};

use self::captures::Captures;
use self::deferred::Deferred;
use self::device::ServedDevice;
use self::keeper::Keeper;
use self::streams::IDLE;
use crate::books::DEVICE_COUNT;
use crate::real::{Answer, RELAXED, SUCCESS, UNKNOWN, real};
use crate::signals::unharmed;
use crate::{at_load, voice};

/// Errors of calls that a capture does not allow, `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` and its like.
const CAPTURE_ERRORS: std::ops::RangeInclusive<Answer> = 900..=909;

/// All blocks are allocated at a line of this file, which says a reader of memtrack's texts nothing.
pub(crate) const ALLOCATING_FILE: &str = file!();

/// An allocation that was not left to the driver.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Served {
    At { address: u64, device: usize, stream: u64 },
    OutOfMemory { device: usize, device_free_bytes: Option<u64> },
}

/// How the program frees.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Free {
    /// `cuMemFree`.
    Waiting,
    /// `cuMemFreeAsync`, on this stream.
    OnStream(u64),
}

/// One device whose memory is served.
#[derive(Debug)]
struct DeviceCache {
    device: Arc<ServedDevice>,
    allocator: CachingAllocator,
    keeper: Keeper,
    /// Freed by `cuMemFree` while the driver refused to wait.
    deferred: Arc<Deferred>,
    /// A post-mortem can be written by an allocation.
    dumps: bool,
    /// Gives these back when memory is short.
    _gives_deferred_back: OomHook,
}

/// All devices.
#[derive(Debug)]
pub(crate) struct Cache {
    /// The primary contexts of the devices that are served; 0 where none is.
    contexts: [AtomicU64; DEVICE_COUNT],
    /// No device at or above is served.
    end: AtomicUsize,
    /// `None` where the device cannot be served.
    devices: [OnceLock<Option<DeviceCache>>; DEVICE_COUNT],
    captures: Arc<Captures>,
    /// One device at a time is opened; contexts that are no primary ones.
    foreign: Mutex<Vec<u64>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Only whole insertions and removals happen under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn current_context() -> u64 {
    let mut context = 0;
    // SAFETY: a place for one handle.
    if unsafe { real().context_get_current(&raw mut context) } == SUCCESS { context } else { 0 }
}

/// Makes a context the thread's while the work is done, which is told whether it was before.
pub(crate) fn in_context<R>(context: u64, work: impl FnOnce(bool) -> R) -> R {
    let before = current_context();
    if before == context {
        return work(true);
    }
    // SAFETY: a context that memtrack holds. Where it is refused, so are the calls that follow.
    let _ = unsafe { real().context_set_current(context) };
    let result = work(false);
    // SAFETY: the context that was current, or none.
    let _ = unsafe { real().context_set_current(before) };
    result
}

/// Does work whose driver calls have nothing to do with captures under way, such as asking about an event, and break none then.
pub(crate) fn beside_captures<R>(work: impl FnOnce() -> R) -> R {
    let mut mode = RELAXED;
    // SAFETY: a place for the mode; it is put back below.
    let is_exchanged = unsafe { real().thread_exchange_capture_mode(&raw mut mode) } == SUCCESS;
    let result = work();
    if is_exchanged {
        // SAFETY: the mode that was in force.
        let _ = unsafe { real().thread_exchange_capture_mode(&raw mut mode) };
    }
    result
}

/// Whether work for the stream becomes a graph's, or may: what the driver does not say is left to it.
fn is_captured(stream: u64) -> bool {
    let mut status = 0;
    // SAFETY: the program's own stream, and a place for one number.
    let answer = unsafe { real().stream_is_capturing(stream, &raw mut status) };
    answer != SUCCESS || status != 0
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            contexts: std::array::from_fn(|_| AtomicU64::new(0)),
            end: AtomicUsize::new(0),
            devices: std::array::from_fn(|_| OnceLock::new()),
            captures: Arc::default(),
            foreign: Mutex::default(),
        }
    }
}

impl Cache {
    /// The device whose primary context this is.
    fn device_of(&self, context: u64) -> Option<(usize, &DeviceCache)> {
        if context == 0 {
            return None;
        }
        let end = self.end.load(Ordering::Acquire);
        let known = self.contexts[..end].iter().position(|known| known.load(Ordering::Acquire) == context);
        let index = match known {
            Some(index) => index,
            None => self.open(context)?,
        };
        Some((index, self.devices[index].get()?.as_ref()?))
    }

    /// Opens the device of the thread's context, if it is its primary one.
    #[cold]
    fn open(&self, context: u64) -> Option<usize> {
        let mut foreign = lock(&self.foreign);
        if foreign.contains(&context) {
            return None;
        }
        let mut number = 0;
        // SAFETY: a place for one number.
        if unsafe { real().context_get_device(&raw mut number) } != SUCCESS {
            return None;
        }
        let index = usize::try_from(number).ok().filter(|index| *index < DEVICE_COUNT)?;
        if !is_primary(context, number) {
            foreign.push(context);
            return None;
        }
        let opened = self.devices[index].get_or_init(|| match DeviceCache::open(index, context, &self.captures) {
            Ok(opened) => {
                self.contexts[index].store(context, Ordering::Release);
                self.end.fetch_max(index + 1, Ordering::Release);
                Some(opened)
            }
            Err(error) => {
                let error = memtrack::plain_text::shown(&error);
                voice::say(&format!("cuda:{index} is not cached, and the driver serves it: {error}"));
                None
            }
        });
        // One that was opened and has no context was reset since.
        let is_served = opened.is_some() && self.contexts[index].load(Ordering::Acquire) == context;
        if !is_served {
            foreign.push(context);
        }
        is_served.then_some(index)
    }

    /// Memory for the stream with this handle, or for any stream; `None` when the driver is to serve.
    pub(crate) fn serve(&self, bytes: u64, stream: Option<u64>) -> Option<Served> {
        let (device, cache) = self.device_of(current_context())?;
        let stream = match stream {
            None => IDLE,
            Some(handle) if is_captured(handle) => return None,
            Some(handle) => cache.device.streams().name(handle)?,
        };
        let allocate = || match cache.dumps {
            // What is written then is written here.
            true => unharmed(|| cache.allocator.allocate_raw(bytes, Stream(stream))),
            false => cache.allocator.allocate_raw(bytes, Stream(stream)),
        };
        let outcome = if self.captures.any() { beside_captures(allocate) } else { allocate() };
        match outcome {
            Ok(address) => Some(Served::At { address, device, stream }),
            Err(AllocationError::OutOfMemory(error)) => {
                voice::out_of_memory(&error);
                Some(Served::OutOfMemory { device, device_free_bytes: error.device_free_bytes })
            }
            Err(AllocationError::TooLarge { .. }) => Some(Served::OutOfMemory { device, device_free_bytes: None }),
            Err(_) => None,
        }
    }

    /// Whether memory of the cache's own begins here: an address that the program has no business to free.
    pub(crate) fn is_segment(&self, address: u64) -> bool {
        self.served().any(|cache| cache.device.is_segment(address))
    }

    /// What is known of captures under way.
    pub(crate) fn captures(&self) -> &Captures {
        &self.captures
    }

    /// Takes a block back that was served for the stream of this name.
    pub(crate) fn free(&self, device: usize, address: u64, stream: u64, free: Free) -> Answer {
        let Some(cache) = self.devices.get(device).and_then(|opened| opened.get()?.as_ref()) else { return UNKNOWN };
        let is_capturing = self.captures.any();
        if !is_capturing && current_context() != cache.device.context() {
            // Work of the other context's, on another device perhaps, can be on this memory too.
            // SAFETY: no arguments. Where it is refused there is no context, or one that is broken.
            let _ = unsafe { real().context_synchronize() };
        }
        in_context(cache.device.context(), |is_current| match free {
            Free::Waiting if is_capturing => {
                cache.deferred.put(vec![address]);
                SUCCESS
            }
            Free::Waiting => cache.free_waiting(address),
            // A built-in stream of the other context's, which was waited for.
            Free::OnStream(0..=2) if !is_current => cache.free_waiting(address),
            // The driver says what it thinks of such a free; the memory is not the graph's.
            // SAFETY: the program's own arguments.
            Free::OnStream(handle) if is_captured(handle) => unsafe { real().mem_free_async(address, handle) },
            Free::OnStream(handle) if is_capturing => beside_captures(|| cache.free_on_stream(address, stream, handle)),
            Free::OnStream(handle) => cache.free_on_stream(address, stream, handle),
        })
    }

    /// Before a stream is destroyed.
    pub(crate) fn before_stream_is_destroyed(&self, handle: u64) {
        for cache in self.served() {
            cache.device.forget_stream(handle);
        }
    }

    /// Another context than a primary one is gone, and its handle can become a primary one's.
    pub(crate) fn context_destroyed(&self, context: u64) {
        lock(&self.foreign).retain(|known| *known != context);
        self.captures.ended_in(context);
    }

    /// The device's memory is gone with its context; from here on the driver serves it.
    pub(crate) fn primary_context_reset(&self, device: usize) {
        if let Some(context) = self.contexts.get(device) {
            context.store(0, Ordering::Release);
        }
        if let Some(Some(cache)) = self.devices.get(device).and_then(OnceLock::get) {
            cache.device.context_is_gone();
        }
        self.captures.ended_on(device);
    }

    /// Ends the epoch of each device; the summaries. `is_within` says that this thread is in the middle of a call.
    pub(crate) fn end(&self, is_within: bool) -> Vec<String> {
        self.served().filter_map(|cache| cache.keeper.end(is_within)).collect()
    }

    /// Whether the device's memory is the cache's, or was before its context was reset.
    pub(crate) fn has_served(&self, device: usize) -> bool {
        self.devices.get(device).is_some_and(|opened| matches!(opened.get(), Some(Some(_))))
    }

    fn served(&self) -> impl Iterator<Item = &DeviceCache> {
        self.devices.iter().filter_map(|opened| opened.get()?.as_ref())
    }
}

/// Whether the context is the device's primary one, which exists then.
fn is_primary(context: u64, device: i32) -> bool {
    let (mut flags, mut is_active, mut primary) = (0, 0, 0);
    // SAFETY: places for two numbers.
    let told = unsafe { real().primary_context_state(device, &raw mut flags, &raw mut is_active) };
    if told != SUCCESS || is_active == 0 {
        return false;
    }
    // SAFETY: a place for one handle.
    if unsafe { real().primary_context_retain(&raw mut primary, device) } != SUCCESS {
        return false;
    }
    // SAFETY: it was retained here.
    let _ = unsafe { real().primary_context_release(device) };
    primary == context
}

impl DeviceCache {
    fn open(index: usize, context: u64, captures: &Arc<Captures>) -> Result<Self, String> {
        let cuda = Cuda::new(index).map_err(|error| error.to_string())?;
        let device = Arc::new(ServedDevice::new(cuda, context));
        let allocator = at_load::allocator(Arc::<ServedDevice>::clone(&device)).map_err(|error| error.to_string())?;
        let keeper = Keeper::start(&allocator, Arc::clone(&device));
        let deferred = Arc::<Deferred>::default();
        let hook = {
            let (of_hook, deferred, captures) = (allocator.clone(), Arc::clone(&deferred), Arc::clone(captures));
            allocator.on_oom(move |error| {
                // A wait would break a capture.
                if captures.any() {
                    return OomResponse::GiveUp;
                }
                match deferred.give_back(&of_hook) {
                    0 => OomResponse::GiveUp,
                    count => {
                        voice::deferred_freed(error.requested_bytes, count);
                        OomResponse::Retry
                    }
                }
            })
        };
        Ok(Self { device, allocator, keeper, deferred, dumps: at_load::dumps(), _gives_deferred_back: hook })
    }

    fn give_back(&self, address: u64) -> Answer {
        match self.allocator.free_raw(address) {
            Ok(()) => SUCCESS,
            Err(_) => UNKNOWN,
        }
    }

    fn free_on_stream(&self, address: u64, stream: u64, handle: u64) -> Answer {
        match self.device.streams().name(handle) {
            Some(name) if name == stream => self.give_back(address),
            // Its work up to here is waited for by an event that is recorded by the free itself.
            Some(name) if self.allocator.record_stream_raw(address, Stream(name)).is_ok() => self.give_back(address),
            _ => {
                // Of another context's, or one that no event can be recorded on.
                // SAFETY: the program's own stream. Where it is refused its work is none that is still to be done.
                let _ = unsafe { real().stream_synchronize(handle) };
                self.free_waiting(address)
            }
        }
    }

    fn free_waiting(&self, address: u64) -> Answer {
        // Taken out before the wait: what is put in after it is not covered by it.
        let deferred = self.deferred.take();
        // SAFETY: no arguments.
        let answer = unsafe { real().context_synchronize() };
        if answer == SUCCESS {
            for address in deferred {
                self.give_back(address);
            }
            return self.give_back(address);
        }
        self.deferred.put(deferred);
        if !CAPTURE_ERRORS.contains(&answer) {
            return answer;
        }
        self.deferred.put(vec![address]);
        SUCCESS
    }
}
