//! Captures of streams into graphs, and the calls that break one. The graphs themselves are handles and nothing more: what is
//! given to a captured stream is checked and forgotten, and memory cannot be taken in stream order there.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::thread::{self, ThreadId};

use crate::errors::{
    Answer, ILLEGAL_STATE, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, STREAM_CAPTURE_IMPLICIT,
    STREAM_CAPTURE_INVALIDATED, STREAM_CAPTURE_MERGE, STREAM_CAPTURE_UNMATCHED, STREAM_CAPTURE_UNSUPPORTED,
    STREAM_CAPTURE_WRONG_THREAD, SUCCESS,
};
use crate::state::{HandleKind, State, call, put};

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`: calls that might break a capture are forbidden to every thread.
pub(crate) const GLOBAL: u32 = 0;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: they are forbidden to nobody. 1, between the two, forbids them to the capturing thread.
const RELAXED: u32 = 2;

thread_local! {
    /// What this thread cares for: captures in global mode and its own (0), its own (1), or none (2).
    static THREAD_MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

pub(crate) struct Capture {
    origin: u64,
    mode: u32,
    /// `None` for one that a test has begun: it is every thread's and no one's.
    thread: Option<ThreadId>,
    is_broken: bool,
}

#[derive(Default)]
pub(crate) struct Captures {
    /// By its number, which is never given out again.
    underway: BTreeMap<u64, Capture>,
    last_id: u64,
    pub(crate) graphs: BTreeSet<u64>,
}

impl Captures {
    pub(crate) fn is_underway(&self, id: u64) -> bool {
        self.underway.contains_key(&id)
    }

    fn break_one(&mut self, id: u64) {
        if let Some(capture) = self.underway.get_mut(&id) {
            capture.is_broken = true;
        }
    }
}

impl State {
    pub(crate) fn reset_captures(&mut self) {
        self.captures.underway.clear();
        for stream in self.streams.values_mut() {
            stream.capture = None;
        }
        THREAD_MODE.set(GLOBAL);
    }

    fn capture_of(&self, key: u64) -> Option<u64> {
        self.streams.get(&key).and_then(|stream| stream.capture)
    }

    pub(crate) fn begin_capture(&mut self, key: u64, mode: u32, thread: Option<ThreadId>) -> Answer {
        if mode > RELAXED {
            return Err(INVALID_VALUE);
        }
        if key < HandleKind::Stream as u64 && thread.is_some() {
            return Err(STREAM_CAPTURE_UNSUPPORTED);
        }
        if self.capture_of(key).is_some() {
            return Err(ILLEGAL_STATE);
        }
        self.captures.last_id += 1;
        let id = self.captures.last_id;
        self.streams.get_mut(&key).ok_or(INVALID_HANDLE)?.capture = Some(id);
        self.captures.underway.insert(id, Capture { origin: key, mode, thread, is_broken: false });
        Ok(())
    }

    /// Ends the capture that a stream takes part in, for all streams that do; whether it came out whole.
    pub(crate) fn end_capture(&mut self, key: u64) -> Answer<bool> {
        let id = self.capture_of(key).ok_or(ILLEGAL_STATE)?;
        let capture = self.captures.underway.get(&id).ok_or(ILLEGAL_STATE)?;
        if capture.origin != key {
            return Err(STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != RELAXED && capture.thread.is_some_and(|thread| thread != thread::current().id()) {
            return Err(STREAM_CAPTURE_WRONG_THREAD);
        }
        let is_whole = !capture.is_broken;
        self.captures.underway.remove(&id);
        for stream in self.streams.values_mut() {
            if stream.capture == Some(id) {
                stream.capture = None;
            }
        }
        Ok(is_whole)
    }

    /// A stream that waits for an event out of a capture takes part in it from then on.
    pub(crate) fn join_capture(&mut self, key: u64, id: u64) -> Answer {
        if !self.captures.is_underway(id) {
            return Ok(());
        }
        match self.capture_of(key) {
            Some(own) if own != id => {
                self.captures.break_one(own);
                self.captures.break_one(id);
                Err(STREAM_CAPTURE_MERGE)
            }
            _ => {
                self.streams.get_mut(&key).ok_or(INVALID_HANDLE)?.capture = Some(id);
                Ok(())
            }
        }
    }

    /// Refuses a call on a captured stream, and breaks the capture.
    pub(crate) fn forbid_captured(&mut self, key: u64) -> Answer {
        let Some(id) = self.capture_of(key) else { return Ok(()) };
        self.captures.break_one(id);
        Err(STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Likewise for a call on a whole device.
    pub(crate) fn forbid_captured_device(&mut self, device: usize) -> Answer {
        let captured: Vec<u64> =
            self.streams.iter().filter(|(_, stream)| stream.device == device).map(|(key, _)| *key).collect();
        captured.into_iter().map(|key| self.forbid_captured(key)).fold(Ok(()), Answer::and)
    }

    /// Taking memory in stream order makes a node of the graph, which this driver has none of.
    pub(crate) fn check_uncaptured(&self, key: u64) -> Answer {
        if self.capture_of(key).is_some() { Err(NOT_SUPPORTED) } else { Ok(()) }
    }

    /// Calls that might get in the way of a capture are refused and break it, unless the thread has said that it knows.
    pub(crate) fn check_unsafe_call(&mut self) -> Answer {
        let (this_thread, mode) = (thread::current().id(), THREAD_MODE.get());
        let mut answer = Ok(());
        for capture in self.captures.underway.values_mut() {
            let is_own = capture.thread == Some(this_thread);
            let is_forbidden = match mode {
                GLOBAL => capture.mode == GLOBAL || (is_own && capture.mode != RELAXED),
                RELAXED => false,
                _ => is_own && capture.mode != RELAXED,
            };
            if is_forbidden {
                capture.is_broken = true;
                answer = Err(STREAM_CAPTURE_UNSUPPORTED);
            }
        }
        answer
    }

    /// The captures of streams that synchronize with the default stream, if that is what this key names.
    fn blocking_captures(&self, key: u64) -> Vec<u64> {
        let device = self.streams.get(&key).map(|stream| stream.device);
        let is_default = key < HandleKind::Stream as u64 && key % 16 == 1;
        let captured =
            self.streams.values().filter(|other| is_default && Some(other.device) == device && other.is_blocking);
        captured.filter_map(|other| other.capture).collect()
    }

    /// The default stream cannot be used while a stream that synchronizes with it is captured; trying breaks the capture.
    pub(crate) fn check_default_stream(&mut self, key: u64) -> Answer {
        let captures = self.blocking_captures(key);
        for id in &captures {
            self.captures.break_one(*id);
        }
        if captures.is_empty() { Ok(()) } else { Err(STREAM_CAPTURE_IMPLICIT) }
    }

    /// `CUstreamCaptureStatus`, and the number of an active capture.
    fn capture_status(&mut self, handle: u64) -> Answer<(u32, Option<u64>)> {
        let key = self.stream_key(handle)?;
        if !self.blocking_captures(key).is_empty() {
            return Err(STREAM_CAPTURE_IMPLICIT);
        }
        let Some(id) = self.capture_of(key) else { return Ok((0, None)) };
        let is_broken = self.captures.underway.get(&id).is_some_and(|capture| capture.is_broken);
        Ok(if is_broken { (2, None) } else { (1, Some(id)) })
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(stream: u64, mode: u32) -> u32 {
    call("cuStreamBeginCapture_v2", |state| {
        let key = state.stream_key(stream)?;
        state.begin_capture(key, mode, Some(thread::current().id()))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamEndCapture(stream: u64, graph: *mut u64) -> u32 {
    call("cuStreamEndCapture", |state| {
        let key = state.stream_key(stream)?;
        let is_whole = state.end_capture(key)?;
        if !is_whole {
            // SAFETY: the caller's place, as cuda.h asks.
            unsafe { put(graph, 0) }?;
            return Err(STREAM_CAPTURE_INVALIDATED);
        }
        let handle = HandleKind::Graph as u64 + 0x100 * state.captures.last_id;
        state.captures.graphs.insert(handle);
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(graph, handle) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(graph: u64) -> u32 {
    call("cuGraphDestroy", |state| if state.captures.graphs.remove(&graph) { Ok(()) } else { Err(INVALID_VALUE) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamIsCapturing(stream: u64, status: *mut u32) -> u32 {
    call("cuStreamIsCapturing", |state| {
        let (found, _) = state.capture_status(stream)?;
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(status, found) }
    })
}

/// Without graphs: the places for them must be null.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetCaptureInfo_v2(
    stream: u64,
    status: *mut u32,
    id: *mut u64,
    graph: *mut u64,
    dependencies: *mut u64,
    dependency_count: *mut usize,
) -> u32 {
    call("cuStreamGetCaptureInfo_v2", |state| {
        if !graph.is_null() || !dependencies.is_null() || !dependency_count.is_null() {
            return Err(NOT_SUPPORTED);
        }
        let (found, active) = state.capture_status(stream)?;
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(status, found) }?;
        match active {
            // SAFETY: not null, so the caller's place.
            Some(active) if !id.is_null() => unsafe { put(id, active) },
            _ => Ok(()),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut u32) -> u32 {
    call("cuThreadExchangeStreamCaptureMode", |_| {
        // SAFETY: null or the caller's mode, as cuda.h asks.
        let wanted = *unsafe { mode.as_ref() }.filter(|mode| **mode <= RELAXED).ok_or(INVALID_VALUE)?;
        // SAFETY: likewise.
        unsafe { put(mode, THREAD_MODE.replace(wanted)) }
    })
}

/// What `mock_set_capturing` does: a capture in global mode, of no thread's.
pub(crate) fn set_capturing(state: &mut State, device: usize, stream: u64, is_capturing: bool) -> u32 {
    let set = state.stream_key_on(device, stream).and_then(|key| match is_capturing {
        true => state.begin_capture(key, GLOBAL, None),
        false => state.end_capture(key).map(drop),
    });
    set.err().unwrap_or(SUCCESS)
}
