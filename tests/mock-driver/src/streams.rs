//! Streams: queues of work, done at once unless the stream is held, waits for an event, or runs a host function.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::captures::Captured;
use crate::errors::{Answer, ILLEGAL_ADDRESS, INVALID_HANDLE, INVALID_VALUE};
use crate::state::{Access, HandleKind, State, call, free_handle, put, tell_progress};
use crate::transfers::Transfer;

/// `CU_STREAM_NON_BLOCKING`
const NON_BLOCKING: u32 = 1;

/// The function of `cuLaunchHostFunc`.
pub(crate) type HostFunction = unsafe extern "C" fn(*mut c_void);

/// One piece of queued work.
#[derive(Clone)]
pub(crate) enum Work {
    Transfer(Transfer),
    /// Raises an event's count of finished recordings to this one.
    Record {
        finished: Arc<AtomicU64>,
        recording: u64,
    },
    /// Waits until the event's count is there.
    Wait {
        finished: Arc<AtomicU64>,
        recording: u64,
    },
    /// Frees memory that was freed in stream order.
    Free {
        address: u64,
    },
    Host {
        function: HostFunction,
        data: usize,
    },
}

pub(crate) struct Stream {
    pub(crate) device: usize,
    /// Held by a test: nothing queued is done.
    pub(crate) is_held: bool,
    /// The capture that it takes part in: work given to it goes into a graph.
    pub(crate) capture: Option<Captured>,
    /// It synchronizes with the default stream.
    pub(crate) is_blocking: bool,
    /// A host function is running.
    is_in_host_function: bool,
    queue: VecDeque<Work>,
    id: u64,
    priority: i32,
}

impl Stream {
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_held && !self.is_in_host_function && self.queue.is_empty()
    }

    /// The next piece of work, if it can be done now.
    fn next(&mut self) -> Option<Work> {
        if self.is_held || self.is_in_host_function {
            return None;
        }
        if let Some(Work::Wait { finished, recording }) = self.queue.front()
            && finished.load(Ordering::Acquire) < *recording
        {
            return None;
        }
        self.queue.pop_front()
    }
}

impl State {
    /// The key of the stream behind a handle: built-in streams are one per device, made when first used.
    pub(crate) fn stream_key(&mut self, handle: u64) -> Answer<u64> {
        let device = self.current_device()?;
        self.stream_key_on(device, handle)
    }

    pub(crate) fn stream_key_on(&mut self, device: usize, handle: u64) -> Answer<u64> {
        // 1 is the default stream by its other name; 2, the per-thread one, is a single stream here.
        let builtin = match handle {
            0 | 1 => 1,
            2 => 2,
            _ if self.streams.contains_key(&handle) => return Ok(handle),
            _ => return Err(INVALID_HANDLE),
        };
        let key = builtin + 16 * device as u64;
        if !self.streams.contains_key(&key) {
            self.add_stream(key, device, false, 0);
        }
        Ok(key)
    }

    fn add_stream(&mut self, key: u64, device: usize, is_blocking: bool, priority: i32) {
        let id = self.next_stream_id;
        self.next_stream_id += 1;
        let queue = VecDeque::new();
        let (is_held, is_in_host_function, capture) = (false, false, None);
        let stream = Stream { device, is_held, capture, is_blocking, is_in_host_function, queue, id, priority };
        self.streams.insert(key, stream);
    }

    /// Queues work and does what can be done.
    pub(crate) fn enqueue(&mut self, key: u64, work: Work) -> Answer {
        self.check_default_stream(key)?;
        let stream = self.streams.get_mut(&key).ok_or(INVALID_HANDLE)?;
        if stream.capture.is_some() {
            return self.capture_work(key, work);
        }
        stream.queue.push_back(work);
        self.pump();
        Ok(())
    }

    pub(crate) fn is_stream_idle(&self, key: u64) -> bool {
        self.streams.get(&key).is_none_or(Stream::is_idle)
    }

    pub(crate) fn is_device_idle(&self, device: usize) -> bool {
        self.streams.values().all(|stream| stream.device != device || stream.is_idle())
    }

    /// Does all the work that can be done now.
    pub(crate) fn pump(&mut self) {
        let mut has_moved = true;
        while has_moved {
            has_moved = false;
            let keys: Vec<u64> = self.streams.keys().copied().collect();
            for key in keys {
                while let Some(work) = self.streams.get_mut(&key).and_then(Stream::next) {
                    has_moved = true;
                    self.carry_out(key, work);
                }
            }
        }
        tell_progress();
    }

    fn carry_out(&mut self, key: u64, work: Work) {
        match work {
            Work::Transfer(transfer) => {
                if transfer.carry_out(self).is_err()
                    && let Some(device) = self.streams.get(&key).map(|stream| stream.device)
                {
                    // The memory went away under queued work: the context is broken, as on a GPU.
                    self.devices[device].fault = Some(ILLEGAL_ADDRESS);
                }
            }
            Work::Record { finished, recording } => {
                finished.fetch_max(recording, Ordering::Release);
            }
            Work::Wait { .. } => {}
            Work::Free { address } => drop(self.allocations.remove(&address)),
            Work::Host { function, data } => self.start_host_function(key, function, data),
        }
    }

    /// Host functions run on a thread of their own, without the lock: they may take as long as they like.
    fn start_host_function(&mut self, key: u64, function: HostFunction, data: usize) {
        if let Some(stream) = self.streams.get_mut(&key) {
            stream.is_in_host_function = true;
        }
        std::thread::spawn(move || {
            // SAFETY: who launched the function keeps it and its data callable until it has run, as cuda.h asks.
            unsafe { function(std::ptr::with_exposed_provenance_mut(data)) };
            let mut access = Access::new();
            if let Some(stream) = access.streams.get_mut(&key) {
                stream.is_in_host_function = false;
            }
            access.pump();
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(stream: *mut u64, flags: u32) -> u32 {
    call("cuStreamCreate", |state| {
        let device = state.current_device()?;
        let handle = free_handle(&state.streams, HandleKind::Stream);
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(stream, handle) }?;
        state.add_stream(handle, device, flags & NON_BLOCKING == 0, 0);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreateWithPriority(stream: *mut u64, flags: u32, priority: i32) -> u32 {
    call("cuStreamCreateWithPriority", |state| {
        let device = state.current_device()?;
        let handle = free_handle(&state.streams, HandleKind::Stream);
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(stream, handle) }?;
        state.add_stream(handle, device, flags & NON_BLOCKING == 0, priority);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: u64) -> u32 {
    call("cuStreamDestroy_v2", |state| {
        state.current_device()?;
        if stream < HandleKind::Stream as u64 {
            return Err(INVALID_HANDLE);
        }
        // A destroyed stream still does its work; nobody could let go of a held one any more.
        state.streams.get_mut(&stream).ok_or(INVALID_HANDLE)?.is_held = false;
        state.pump();
        state.wait_until("cuStreamDestroy_v2", |state| state.is_stream_idle(stream))?;
        state.streams.remove(&stream);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: u64) -> u32 {
    call("cuStreamSynchronize", |state| {
        let key = state.stream_key(stream)?;
        state.forbid_captured(key)?;
        state.wait_until("cuStreamSynchronize", |state| state.is_stream_idle(key))?;
        state.trim_pools();
        state.current_device().map(drop)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: u64) -> u32 {
    call("cuStreamQuery", |state| {
        let key = state.stream_key(stream)?;
        state.forbid_captured(key)?;
        if state.is_stream_idle(key) { Ok(()) } else { Err(crate::errors::NOT_READY) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> u32 {
    call("cuCtxSynchronize", |state| {
        let device = state.current_device()?;
        state.forbid_captured_device(device)?;
        state.wait_until("cuCtxSynchronize", |state| state.is_device_idle(device))?;
        state.trim_pools();
        state.current_device().map(drop)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetId(stream: u64, id: *mut u64) -> u32 {
    call("cuStreamGetId", |state| {
        let key = state.stream_key(stream)?;
        let found = state.streams.get(&key).ok_or(INVALID_HANDLE)?.id;
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(id, found) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetPriority(stream: u64, priority: *mut i32) -> u32 {
    call("cuStreamGetPriority", |state| {
        let key = state.stream_key(stream)?;
        let found = state.streams.get(&key).ok_or(INVALID_HANDLE)?.priority;
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(priority, found) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) -> u32 {
    call("cuCtxGetStreamPriorityRange", |state| {
        state.current_device()?;
        // SAFETY: the caller's places, as cuda.h asks.
        unsafe { put(least, 0) }?;
        // SAFETY: likewise.
        unsafe { put(greatest, -5) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchHostFunc(stream: u64, function: Option<HostFunction>, data: *mut c_void) -> u32 {
    call("cuLaunchHostFunc", |state| {
        let key = state.stream_key(stream)?;
        let function = function.ok_or(INVALID_VALUE)?;
        state.enqueue(key, Work::Host { function, data: data.expose_provenance() })
    })
}
