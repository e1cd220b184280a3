//! What a peer's name says: the allocator's configuration, and whether a scope is open while steps are taken.

/// The kinds of allocator by the end of a peer's name, in the grammar of `MEMTRACK_ALLOC_CONF`.
const KINDS: [(&str, &str); 4] = [
    ("", "policy:torch"),
    ("_expandable", "policy:torch,expandable_segments:True"),
    ("_compact", "policy:compact"),
    ("_compact_slack0", "policy:compact,compact_slack_percent:0"),
];

/// How memtrack is set up for a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// In the grammar of `MEMTRACK_ALLOC_CONF`.
    pub configuration: &'static str,
    /// Whether each thread takes its steps in an open scope with a phase.
    pub has_scope: bool,
    /// Whether pages move.
    pub is_compact: bool,
}

impl Setup {
    /// What `name` means, such as `memtrack`, `buffers_compact` or `memtrack_no_scope`; `None` when it is no peer's name.
    pub fn of(name: &str) -> Option<Self> {
        let (name, has_scope) = match name.strip_suffix("_no_scope") {
            Some(name) => (name, false),
            None => (name, true),
        };
        let kind = name.strip_prefix("memtrack").or_else(|| name.strip_prefix("buffers"))?;
        let &(_, configuration) = KINDS.iter().find(|(end, _)| *end == kind)?;
        Some(Self { configuration, has_scope, is_compact: kind.starts_with("_compact") })
    }
}
