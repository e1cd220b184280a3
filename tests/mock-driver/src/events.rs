//! Events: a count of recordings, and of those that the streams have come to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::captures::Captured;
use crate::errors::{Answer, CAPTURED_EVENT, INVALID_HANDLE, NOT_READY};
use crate::state::{HandleKind, State, call, free_handle, put};
use crate::streams::Work;

#[derive(Default)]
pub(crate) struct Event {
    recordings: u64,
    /// The capture that its last recording was part of: it stands in a graph, and nobody can ask about it.
    capture: Option<Captured>,
    /// Shared with the work queued: it outlives an event that is destroyed meanwhile.
    finished: Arc<AtomicU64>,
}

impl Event {
    fn check_askable(&self) -> Answer {
        if self.capture.is_some() { Err(CAPTURED_EVENT) } else { Ok(()) }
    }

    fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire) >= self.recordings
    }
}

impl State {
    fn event(&mut self, handle: u64) -> Answer<&mut Event> {
        self.events.get_mut(&handle).ok_or(INVALID_HANDLE)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(event: *mut u64, _flags: u32) -> u32 {
    call("cuEventCreate", |state| {
        state.current_device()?;
        let handle = free_handle(&state.events, HandleKind::Event);
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(event, handle) }?;
        state.events.insert(handle, Event::default());
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: u64) -> u32 {
    call("cuEventDestroy_v2", |state| state.events.remove(&event).map(drop).ok_or(INVALID_HANDLE))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: u64, stream: u64) -> u32 {
    call("cuEventRecord", |state| {
        let key = state.stream_key(stream)?;
        let capture = state.streams.get(&key).and_then(|stream| stream.capture.clone());
        let event = state.event(event)?;
        let is_captured = capture.is_some();
        event.capture = capture;
        if is_captured {
            return Ok(());
        }
        event.recordings += 1;
        let work = Work::Record { finished: Arc::clone(&event.finished), recording: event.recordings };
        state.enqueue(key, work)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: u64) -> u32 {
    call("cuEventQuery", |state| {
        state.current_device()?;
        state.event(event)?.check_askable()?;
        state.check_unsafe_call()?;
        if state.event(event)?.is_finished() { Ok(()) } else { Err(NOT_READY) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: u64) -> u32 {
    call("cuEventSynchronize", |state| {
        state.current_device()?;
        state.event(event)?.check_askable()?;
        state.wait_until("cuEventSynchronize", |state| state.events.get(&event).is_none_or(Event::is_finished))?;
        state.trim_pools();
        state.current_device().map(drop)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: u64, event: u64, _flags: u32) -> u32 {
    call("cuStreamWaitEvent", |state| {
        let key = state.stream_key(stream)?;
        if let Some(capture) = state.event(event)?.capture.clone() {
            return state.join_capture(key, capture);
        }
        let event = state.event(event)?;
        let work = Work::Wait { finished: Arc::clone(&event.finished), recording: event.recordings };
        state.enqueue(key, work)
    })
}
