//! Graph captures: whether a stream takes part in one and where it is in its graph, and memory calls in spite of one.

use std::collections::HashSet;
use std::ptr;

use cudarc::driver::sys;

use super::Cuda;
use super::driver::Driver;
use crate::device::{CaptureGraphs, CapturePast, CapturePoint, DeviceError, GraphNode, Stream};

/// The second version of `cuStreamGetCaptureInfo`. Every driver from 11.3 on has it, but no one set of bindings has a version
/// that all of them have.
pub(super) type CaptureInfo = unsafe extern "C" fn(
    stream: sys::CUstream,
    status: *mut u32,
    id: *mut u64,
    graph: *mut sys::CUgraph,
    dependencies: *mut *const sys::CUgraphNode,
    dependency_count: *mut usize,
) -> sys::CUresult;

/// The first version of `cuGraphNodeGetDependencies`, likewise. It refuses nodes whose edges say more than before and after.
pub(super) type NodeDependencies = unsafe extern "C" fn(
    node: sys::CUgraphNode,
    dependencies: *mut sys::CUgraphNode,
    dependency_count: *mut usize,
) -> sys::CUresult;

/// `CU_STREAM_CAPTURE_STATUS_NONE`
const NOT_CAPTURED: u32 = 0;
/// `CU_STREAM_CAPTURE_STATUS_ACTIVE`
const CAPTURED: u32 = 1;

/// What a stream has to do with graph captures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Capture {
    /// Nothing.
    No,
    /// It takes part in the capture with this number.
    Of(u64),
    /// It takes part in a capture that a forbidden call has broken and that was not ended yet.
    Broken,
    /// It is the default stream, and one that synchronizes with it is captured: the driver refuses work on it.
    Blocked,
}

/// Lets the calling thread make calls that a capture in its strictest mode forbids to every thread of the process, until this
/// is dropped.
struct Relaxed {
    mode_before: sys::CUstreamCaptureMode,
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        // SAFETY: a place for one mode, which holds the thread's own. The driver refuses it only when it is going down, and
        // the caller has an answer already.
        let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut self.mode_before) };
    }
}

impl Driver {
    /// Runs calls that have nothing to do with a capture, though one in its strictest mode forbids them to every thread of
    /// the process and is broken by them. The thread's mode is as before afterwards, whatever the calls answer.
    ///
    /// Whether anybody captures is not asked: that costs as much as the two exchanges, which set a variable of the thread's.
    /// The calls in question take from two to hundreds of µs.
    pub(super) fn outside_captures<R>(
        &self,
        calls: impl FnOnce(&Self) -> Result<R, DeviceError>,
    ) -> Result<R, DeviceError> {
        self.bind()?;
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: a place for one mode, which holds one.
        let answer = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
        self.check("cuThreadExchangeStreamCaptureMode", answer)?;
        let _relaxed = Relaxed { mode_before: mode };
        calls(self)
    }

    /// # Safety
    ///
    /// `stream` is alive in this context.
    pub(super) unsafe fn capture(&self, stream: sys::CUstream) -> Result<Capture, DeviceError> {
        use ptr::null_mut;
        self.bind()?;
        let (mut status, mut id) = (NOT_CAPTURED, 0);
        // SAFETY: as promised by the caller; places for a status and a number, and none for the rest, which may be left out.
        let answer =
            unsafe { (self.capture_info)(stream, &raw mut status, &raw mut id, null_mut(), null_mut(), null_mut()) };
        if answer == sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT {
            // Asking does not break the other stream's capture.
            return Ok(Capture::Blocked);
        }
        self.check("cuStreamGetCaptureInfo", answer)?;
        Ok(match status {
            NOT_CAPTURED => Capture::No,
            CAPTURED => Capture::Of(id),
            _ => Capture::Broken,
        })
    }
    /// # Safety
    ///
    /// `stream` is alive in this context, and no other thread works on its capture meanwhile.
    unsafe fn capture_point(&self, stream: sys::CUstream) -> Result<Option<CapturePoint>, DeviceError> {
        self.bind()?;
        let (mut status, mut id) = (NOT_CAPTURED, 0);
        let (mut nodes, mut count) = (ptr::null(), 0);
        // SAFETY: as promised by the caller; places for all that is wanted, and none for the graph, which may be left out.
        let answer = unsafe {
            (self.capture_info)(stream, &raw mut status, &raw mut id, ptr::null_mut(), &raw mut nodes, &raw mut count)
        };
        self.check("cuStreamGetCaptureInfo", answer)?;
        if status != CAPTURED {
            return Ok(None);
        }
        let ends = match count {
            0 => Vec::new(),
            // SAFETY: the driver gave so many nodes, which stay until the next call on the stream: nobody makes one meanwhile.
            _ => unsafe { std::slice::from_raw_parts(nodes, count) }.iter().map(GraphNode::of).collect(),
        };
        Ok(Some(CapturePoint { capture: id, ends }))
    }

    /// # Safety
    ///
    /// The node is one of a capture that is underway in this context, and no other thread works on that meanwhile.
    unsafe fn nodes_before(&self, node: GraphNode) -> Result<Vec<GraphNode>, DeviceError> {
        let handle = ptr::with_exposed_provenance_mut::<sys::CUgraphNode_st>(node.0 as usize);
        let mut count = 0;
        // SAFETY: as promised by the caller; without places for nodes it says how many there are.
        let answer = unsafe { (self.node_dependencies)(handle, ptr::null_mut(), &raw mut count) };
        self.check("cuGraphNodeGetDependencies", answer)?;
        let mut nodes = vec![ptr::null_mut(); count];
        if count > 0 {
            // SAFETY: as promised by the caller; places for as many nodes as it said.
            let answer = unsafe { (self.node_dependencies)(handle, nodes.as_mut_ptr(), &raw mut count) };
            self.check("cuGraphNodeGetDependencies", answer)?;
        }
        nodes.truncate(count);
        Ok(nodes.iter().map(GraphNode::of).collect())
    }
}

impl GraphNode {
    fn of(node: &sys::CUgraphNode) -> Self {
        Self(node.expose_provenance() as u64)
    }
}

// SAFETY: the answers are the driver's own: the dependencies of nodes, walked backwards from where the stream stands.
unsafe impl CaptureGraphs for Cuda {
    fn capture_point(&self, stream: Stream) -> Result<Option<CapturePoint>, DeviceError> {
        let stream = self.stream_handle(stream)?;
        // SAFETY: a registered stream, which the table keeps alive; the capture is left alone as the trait asks.
        unsafe { self.driver.capture_point(stream) }
    }

    fn capture_past(&self, stream: Stream, known: &HashSet<GraphNode>) -> Result<Option<CapturePast>, DeviceError> {
        let Some(point) = self.capture_point(stream)? else { return Ok(None) };
        // SAFETY: nodes of the capture that the stream was just said to take part in, which is left alone as the trait asks.
        CapturePast::search(point, known, |node| unsafe { self.driver.nodes_before(node) }).map(Some)
    }
}
