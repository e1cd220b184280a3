//! The graphs of captures that are underway, as far as they say which work comes after which.

use std::collections::HashSet;

use super::{DeviceError, Stream};

/// A piece of work in the graph of a capture that is underway, by a number that is good until the capture ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GraphNode(pub u64);

/// Where a stream has come to in a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturePoint {
    /// The capture, as [`Device::capture_id`](super::Device::capture_id) numbers it.
    pub capture: u64,
    /// What the stream is given next comes after all of these; none if nothing has been captured for it yet.
    pub ends: Vec<GraphNode>,
}

/// What a stream's next work in a capture comes after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturePast {
    /// Where the stream is.
    pub point: CapturePoint,
    /// Work that the stream's next work comes after: the ends and what comes before them, up to where it was known.
    pub found: Vec<GraphNode>,
    /// Known work that the search ended at.
    pub met: HashSet<GraphNode>,
}

impl CapturePast {
    /// Searches from the ends backwards; `before` says what a node comes directly after. Each node is asked about once.
    pub(super) fn search(
        point: CapturePoint,
        known: &HashSet<GraphNode>,
        mut before: impl FnMut(GraphNode) -> Result<Vec<GraphNode>, DeviceError>,
    ) -> Result<Self, DeviceError> {
        let (mut seen, mut found, mut met) = (HashSet::new(), Vec::new(), HashSet::new());
        let mut open = point.ends.clone();
        while let Some(node) = open.pop() {
            if known.contains(&node) {
                met.insert(node);
            } else if seen.insert(node) {
                found.push(node);
                open.extend(before(node)?);
            }
        }
        Ok(Self { point, found, met })
    }
}

/// Looks into the graphs of captures that are underway.
///
/// The driver does not guard a graph that is being captured: as long as one of these calls lasts, no other thread may give work to
/// a stream of the same capture, nor end it.
///
/// # Safety
///
/// Reuse of memory within a capture relies on it: what is told of a graph is so. A node counts as past only when the graph orders it before the
/// point in question.
pub unsafe trait CaptureGraphs {
    /// Where a stream is in its capture; `None` when it takes part in none, or in a broken one.
    ///
    /// # Errors
    ///
    /// An unknown stream; a failure of the driver, also because the graph holds what the call cannot show.
    fn capture_point(&self, stream: Stream) -> Result<Option<CapturePoint>, DeviceError>;

    /// The same with what comes before, as far as it is not known yet. A call of the driver or two for each node found.
    ///
    /// # Errors
    ///
    /// As for [`capture_point`](Self::capture_point).
    fn capture_past(&self, stream: Stream, known: &HashSet<GraphNode>) -> Result<Option<CapturePast>, DeviceError>;
}
