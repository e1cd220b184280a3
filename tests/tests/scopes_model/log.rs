//! Everything that happened, as one list.

use memtrack::scope::Outcome;

pub(crate) type ScopeId = usize;
pub(crate) type BlockId = usize;

/// A place in the list.
pub(crate) type Moment = usize;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Cause {
    Allocated(BlockId),
    Freed(BlockId),
    /// So often.
    Retried(i64),
    OutOfMemory(i64),
    /// So many bytes are reserved now.
    Reserved(i64),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Entry {
    Event {
        device: usize,
        cause: Cause,
        /// The scope that the thread was in on this device.
        context: Option<ScopeId>,
    },
    Opened(ScopeId),
    Closed(ScopeId),
    PeaksReset(usize),
    CallSitesReset(usize),
    Unmeasured(usize),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub(crate) device: usize,
    pub(crate) requested_bytes: i64,
    /// As the allocator rounded it, or more where it gave a larger block undivided.
    pub(crate) size_bytes: i64,
    pub(crate) owner: Option<ScopeId>,
}

/// A device's part of a scope.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) device: usize,
    pub(crate) parent: Option<ScopeId>,
    pub(crate) phase: Option<&'static str>,
}

#[derive(Debug, Clone)]
pub(crate) struct ScopeFacts {
    pub(crate) name: &'static str,
    pub(crate) site: Option<usize>,
    /// Steps are none.
    pub(crate) is_function: bool,
    pub(crate) parts: Vec<Part>,
    pub(crate) opened: Moment,
    pub(crate) closed: Option<(Moment, Outcome)>,
}

impl ScopeFacts {
    pub(crate) fn part(&self, device: usize) -> Option<&Part> {
        self.parts.iter().find(|part| part.device == device)
    }

    pub(crate) fn is_open_at(&self, moment: Moment) -> bool {
        self.opened < moment && self.closed.is_none_or(|(closed, _)| moment < closed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) entries: Vec<Entry>,
    pub(crate) scopes: Vec<ScopeFacts>,
    pub(crate) blocks: Vec<Block>,
}

impl Log {
    pub(crate) fn event(&mut self, device: usize, cause: Cause, context: Option<ScopeId>) {
        self.entries.push(Entry::Event { device, cause, context });
    }

    pub(crate) fn open(&mut self, facts: ScopeFacts) -> ScopeId {
        let id = self.scopes.len();
        self.scopes.push(ScopeFacts { opened: self.entries.len(), ..facts });
        self.entries.push(Entry::Opened(id));
        id
    }

    pub(crate) fn close(&mut self, scope: ScopeId, outcome: Outcome) {
        self.scopes[scope].closed = Some((self.entries.len(), outcome));
        self.entries.push(Entry::Closed(scope));
    }

    /// The scopes around a context, itself included, that were open at a moment; the innermost first.
    pub(crate) fn open_around(
        &self,
        context: Option<ScopeId>,
        device: usize,
        moment: Moment,
    ) -> impl Iterator<Item = ScopeId> {
        let mut next = context;
        std::iter::from_fn(move || {
            let scope = next?;
            next = self.scopes[scope].part(device).and_then(|part| part.parent);
            Some(scope)
        })
        .filter(move |scope| self.scopes[*scope].is_open_at(moment))
    }

    pub(crate) fn is_inside(&self, context: Option<ScopeId>, outer: ScopeId, device: usize, moment: Moment) -> bool {
        self.open_around(context, device, moment).any(|scope| scope == outer)
    }
}
