//! Reuse within a capture: when a block that several captured streams used is free again, told by the capture's graph.
//!
//! When the block is freed, the ends of these streams' work in the graph are noted. Once a stream's next work comes after all of
//! them, so does whatever it does with the block.

use std::collections::{HashMap, HashSet};

use super::stream_uses::StreamUses;
use crate::device::{CaptureGraphs, CapturePast, Device, GraphNode, Stream};

/// Where in a capture a freed block was used last.
#[derive(Debug)]
pub(super) struct LastUses {
    capture: u64,
    nodes: Vec<GraphNode>,
}

impl LastUses {
    /// Of a block that is just freed; `stream` is its own. `None` where the graph does not tell: a stream is not captured or in another
    /// capture, was given work outside of it, or nothing was captured yet. The block waits for the end of the capture then.
    pub(super) fn note(device: &dyn Device, stream: Stream, uses: &StreamUses) -> Option<Self> {
        let graphs = device.capture_graphs()?;
        let mut last_uses: Option<Self> = None;
        for stream in [stream].into_iter().chain(uses.only_captured()?) {
            let point = graphs.capture_point(stream).ok()??;
            let noted = last_uses.get_or_insert(Self { capture: point.capture, nodes: Vec::new() });
            if noted.capture != point.capture {
                return None;
            }
            noted.nodes.extend(point.ends);
        }
        last_uses.filter(|noted| !noted.nodes.is_empty())
    }
}

/// What a stream's next work in a capture comes after.
#[derive(Debug, Default)]
pub(super) struct Past {
    capture: u64,
    /// Where the stream was when this was found out.
    ends: Vec<GraphNode>,
    nodes: HashSet<GraphNode>,
}

impl Past {
    pub(super) fn has(&self, last_uses: &LastUses) -> bool {
        self.capture == last_uses.capture && last_uses.nodes.iter().all(|node| self.nodes.contains(node))
    }
}

/// The pasts of streams, kept so that a graph is gone through once and not at each allocation.
#[derive(Debug, Default)]
pub(super) struct Pasts(HashMap<Stream, Past>);

impl Pasts {
    /// What the stream's next work comes after now; `None` when it is not captured or the graph cannot be looked into.
    pub(super) fn advance(&mut self, graphs: &dyn CaptureGraphs, stream: Stream) -> Option<&Past> {
        let past = self.0.entry(stream).or_default();
        let mut now = graphs.capture_past(stream, &past.nodes).ok()??;
        let goes_on =
            |now: &CapturePast| past.capture == now.point.capture && past.ends.iter().all(|end| now.met.contains(end));
        // Somebody may have set the stream back, or it is another capture: what was known says nothing then.
        if !past.nodes.is_empty() && !goes_on(&now) {
            *past = Past::default();
            now = graphs.capture_past(stream, &past.nodes).ok()??;
        }
        past.capture = now.point.capture;
        past.ends = now.point.ends;
        past.nodes.extend(now.found);
        Some(past)
    }
}
