//! Captures of streams into graphs ([`crate::graphs`]), and the calls that break one. Memory cannot be taken in stream order
//! there.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::thread::{self, ThreadId};

use crate::errors::{
    Answer, ILLEGAL_STATE, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, STREAM_CAPTURE_IMPLICIT,
    STREAM_CAPTURE_INVALIDATED, STREAM_CAPTURE_ISOLATION, STREAM_CAPTURE_MERGE, STREAM_CAPTURE_UNJOINED,
    STREAM_CAPTURE_UNMATCHED, STREAM_CAPTURE_UNSUPPORTED, STREAM_CAPTURE_WRONG_THREAD, SUCCESS,
};
use crate::graphs::Graph;
use crate::state::{HandleKind, State, call, put};
use crate::streams::Work;

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
    graph: Graph,
}

/// Where in a capture a stream or an event is: what comes next comes after these nodes.
#[derive(Clone)]
pub(crate) struct Captured {
    pub(crate) id: u64,
    pub(crate) after: Vec<u64>,
}

#[derive(Default)]
pub(crate) struct Captures {
    /// By its number, which is never given out again.
    underway: BTreeMap<u64, Capture>,
    last_id: u64,
}

impl Captures {
    pub(crate) fn is_underway(&self, id: u64) -> bool {
        self.underway.contains_key(&id)
    }

    pub(crate) fn graphs_underway(&self) -> impl Iterator<Item = &Graph> {
        self.underway.values().map(|capture| &capture.graph)
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

    /// The device's streams go with their context, and captures with their streams.
    pub(crate) fn drop_captures_on(&mut self, device: usize) {
        for stream in self.streams.values_mut().filter(|stream| stream.device == device) {
            if let Some(captured) = stream.capture.take() {
                self.captures.underway.remove(&captured.id);
            }
        }
    }

    fn capture_of(&self, key: u64) -> Option<u64> {
        self.streams.get(&key).and_then(|stream| stream.capture.as_ref()).map(|captured| captured.id)
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
        self.streams.get_mut(&key).ok_or(INVALID_HANDLE)?.capture = Some(Captured { id, after: Vec::new() });
        let graph = Graph::default();
        self.captures.underway.insert(id, Capture { origin: key, mode, thread, is_broken: false, graph });
        Ok(())
    }

    /// Ends the capture that a stream takes part in, for all streams that do; the graph, if it came out whole.
    pub(crate) fn end_capture(&mut self, key: u64) -> Answer<Graph> {
        let id = self.capture_of(key).ok_or(ILLEGAL_STATE)?;
        let capture = self.captures.underway.get(&id).ok_or(ILLEGAL_STATE)?;
        if capture.origin != key {
            return Err(STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != RELAXED && capture.thread.is_some_and(|thread| thread != thread::current().id()) {
            return Err(STREAM_CAPTURE_WRONG_THREAD);
        }
        let Capture { is_broken, graph, .. } = self.captures.underway.remove(&id).ok_or(ILLEGAL_STATE)?;
        let mut ends = Vec::new();
        let mut joined = Vec::new();
        for (of, stream) in &mut self.streams {
            if let Some(captured) = stream.capture.take_if(|captured| captured.id == id) {
                if *of == key { &mut joined } else { &mut ends }.extend(captured.after);
            }
        }
        let joined = graph.up_to(&joined);
        if is_broken {
            Err(STREAM_CAPTURE_INVALIDATED)
        } else if ends.iter().any(|end| !joined.contains(end)) {
            Err(STREAM_CAPTURE_UNJOINED)
        } else {
            Ok(graph)
        }
    }

    /// A stream that waits for an event out of a capture takes part in it from then on.
    pub(crate) fn join_capture(&mut self, key: u64, event: Captured) -> Answer {
        if !self.captures.is_underway(event.id) {
            return Ok(());
        }
        match &mut self.streams.get_mut(&key).ok_or(INVALID_HANDLE)?.capture {
            Some(own) if own.id != event.id => {
                let own = own.id;
                self.captures.break_one(own);
                self.captures.break_one(event.id);
                Err(STREAM_CAPTURE_MERGE)
            }
            Some(own) => {
                own.after.extend(event.after);
                own.after.sort_unstable();
                own.after.dedup();
                Ok(())
            }
            capture => {
                *capture = Some(event);
                Ok(())
            }
        }
    }

    /// Puts work that was given to a captured stream into its graph.
    pub(crate) fn capture_work(&mut self, key: u64, work: Work) -> Answer {
        let captured = self.streams.get_mut(&key).and_then(|stream| stream.capture.as_mut()).ok_or(ILLEGAL_STATE)?;
        let Some(capture) = self.captures.underway.get_mut(&captured.id) else { return Err(ILLEGAL_STATE) };
        match work {
            Work::Transfer(_) | Work::Host { .. } => {
                let after = std::mem::take(&mut captured.after);
                captured.after = vec![self.graphs.add_node(&mut capture.graph, work, after)];
                Ok(())
            }
            // A graph cannot wait for what is not in it.
            Work::Wait { recording: 0, .. } => Ok(()),
            Work::Wait { .. } => {
                capture.is_broken = true;
                Err(STREAM_CAPTURE_ISOLATION)
            }
            Work::Record { .. } | Work::Free { .. } => Err(NOT_SUPPORTED),
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
        captured.filter_map(|other| other.capture.as_ref()).map(|captured| captured.id).collect()
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
        let id = state.capture_of(key).unwrap_or_default();
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(graph, 0) }?;
        let whole = state.end_capture(key)?;
        let handle = graph_handle(id);
        state.graphs.whole.insert(handle, whole);
        // SAFETY: likewise.
        unsafe { put(graph, handle) }
    })
}

fn graph_handle(capture: u64) -> u64 {
    HandleKind::Graph as u64 + 0x100 * capture
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamIsCapturing(stream: u64, status: *mut u32) -> u32 {
    call("cuStreamIsCapturing", |state| {
        let (found, _) = state.capture_status(stream)?;
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(status, found) }
    })
}

/// The places for all but the status may be null. The nodes are good until the stream's next call.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamGetCaptureInfo_v2(
    stream: u64,
    status: *mut u32,
    id: *mut u64,
    graph: *mut u64,
    dependencies: *mut *const u64,
    dependency_count: *mut usize,
) -> u32 {
    /// # Safety
    ///
    /// `place` is null or a place for a `T`.
    unsafe fn put_if_wanted<T>(place: *mut T, value: T) -> Answer {
        // SAFETY: not null, so the caller's place.
        if place.is_null() { Ok(()) } else { unsafe { put(place, value) } }
    }
    call("cuStreamGetCaptureInfo_v2", |state| {
        let (found, active) = state.capture_status(stream)?;
        // SAFETY: the caller's place, as cuda.h asks.
        unsafe { put(status, found) }?;
        let Some(active) = active else { return Ok(()) };
        let key = state.stream_key(stream)?;
        let after = state.streams.get(&key).and_then(|stream| stream.capture.as_ref()).map(|captured| &captured.after);
        let (nodes, count) = after.map_or((std::ptr::null(), 0), |after| (after.as_ptr(), after.len()));
        // SAFETY: null or the caller's places, as cuda.h asks.
        unsafe {
            put_if_wanted(id, active)?;
            put_if_wanted(graph, graph_handle(active))?;
            put_if_wanted(dependencies, nodes)?;
            put_if_wanted(dependency_count, count)
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
