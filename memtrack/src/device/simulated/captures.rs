//! Which streams take part in which capture, and the graphs of these: pieces of work without content, each after others.

use std::collections::{HashMap, HashSet};

use super::Simulated;
use super::faults::Operation;
use crate::device::{CaptureGraphs, CapturePast, CapturePoint, DeviceError, GraphNode, Stream};

/// Nodes have rising numbers, given out once.
#[derive(Debug, Default)]
pub(super) struct Captures {
    streams: HashMap<Stream, CapturePoint>,
    /// What each node comes directly after.
    nodes: HashMap<GraphNode, Vec<GraphNode>>,
    next_node: u64,
}

impl Captures {
    pub(super) fn id(&self, stream: Stream) -> Option<u64> {
        self.streams.get(&stream).map(|point| point.capture)
    }

    fn set(&mut self, stream: Stream, capture: Option<u64>) {
        match capture {
            // It stays where it is in its capture.
            Some(_) if self.id(stream) == capture => {}
            Some(capture) => drop(self.streams.insert(stream, CapturePoint { capture, ends: Vec::new() })),
            None => drop(self.streams.remove(&stream)),
        }
        if self.streams.is_empty() {
            self.nodes.clear();
        }
    }

    fn add_work(&mut self, stream: Stream) {
        let Some(point) = self.streams.get_mut(&stream) else { return };
        self.next_node += 1;
        let node = GraphNode(self.next_node);
        self.nodes.insert(node, std::mem::replace(&mut point.ends, vec![node]));
    }

    fn join(&mut self, stream: Stream, other: Stream) {
        let Some(of) = self.streams.get(&other).cloned() else { return };
        match self.streams.get_mut(&stream).filter(|own| own.capture == of.capture) {
            Some(own) => {
                own.ends.extend(of.ends);
                own.ends.sort_unstable();
                own.ends.dedup();
            }
            None => drop(self.streams.insert(stream, of)),
        }
    }
}

impl Simulated {
    /// Makes a stream take part in the graph capture of this number, or with `None` in none any more. Several streams may take
    /// part in one.
    pub fn set_capture(&self, stream: Stream, capture: Option<u64>) {
        self.state().captures.set(stream, capture);
    }

    /// Gives a captured stream a piece of work, after what it was given before and what it [joined](Self::join_capture). Nothing on
    /// a stream that is not captured.
    pub fn capture_work(&self, stream: Stream) {
        self.state().captures.add_work(stream);
    }

    /// Lets a stream wait for what another, captured one was given: it takes part in the same capture from now on, and what it is given
    /// next comes after that. Nothing if the other is not captured.
    pub fn join_capture(&self, stream: Stream, other: Stream) {
        self.state().captures.join(stream, other);
    }
}

// SAFETY: the graph is what it was told, and there is no memory behind any address.
unsafe impl CaptureGraphs for Simulated {
    fn capture_point(&self, stream: Stream) -> Result<Option<CapturePoint>, DeviceError> {
        self.run_script(Operation::CapturePoint, 0)?;
        Ok(self.state().captures.streams.get(&stream).cloned())
    }

    fn capture_past(&self, stream: Stream, known: &HashSet<GraphNode>) -> Result<Option<CapturePast>, DeviceError> {
        let Some(point) = self.capture_point(stream)? else { return Ok(None) };
        let state = self.state();
        let before = |node| Ok(state.captures.nodes.get(&node).cloned().unwrap_or_default());
        CapturePast::search(point, known, before).map(Some)
    }
}
