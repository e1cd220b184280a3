//! The streams that use a block besides its own, and which of these uses a graph capture made.

use crate::device::Stream;

/// How a stream came to use a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Work was given to the stream.
    Work,
    /// The stream was capturing: the work is done only when the graph is replayed, so there is nothing to wait for now.
    Captured,
    /// While a pool was routed to. PyTorch takes it for a captured use and waits for nothing, which is wrong: the stream may be at work.
    /// Its numbers come out with a wait of our own.
    ExactlyAsPyTorch,
}

/// Each stream once.
#[derive(Debug, Default)]
pub(crate) struct StreamUses(Vec<(Stream, Use)>);

impl StreamUses {
    /// `captured`: the stream was capturing. `exact`: a pool was routed to, and PyTorch's numbers are wanted.
    pub(super) fn add(&mut self, stream: Stream, captured: bool, exact: bool) {
        let how = match (captured, exact) {
            (true, _) => Use::Captured,
            (false, true) => Use::ExactlyAsPyTorch,
            (false, false) => Use::Work,
        };
        match self.0.iter_mut().find(|(of, _)| *of == stream) {
            // Work that was really given must be waited for, except by PyTorch.
            Some((_, known)) if *known != Use::Work || how == Use::ExactlyAsPyTorch => *known = how,
            Some(_) => {}
            None => self.0.push((stream, how)),
        }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub(super) fn streams(&self) -> Vec<Stream> {
        self.0.iter().map(|(stream, _)| *stream).collect()
    }

    /// Those that an event is to be recorded on when the block was freed during a capture.
    pub(super) fn to_record(&self) -> Vec<Stream> {
        self.with(Use::Work)
    }

    /// Those that are to be waited for at once then.
    pub(super) fn to_wait_for(&self) -> Vec<Stream> {
        self.with(Use::ExactlyAsPyTorch)
    }

    /// All of them, if none was given work outside of captures.
    pub(super) fn only_captured(&self) -> Option<Vec<Stream>> {
        self.0.iter().map(|(stream, how)| (*how == Use::Captured).then_some(*stream)).collect()
    }

    fn with(&self, how: Use) -> Vec<Stream> {
        self.0.iter().filter(|(_, of)| *of == how).map(|(stream, _)| *stream).collect()
    }
}
