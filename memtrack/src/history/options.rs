//! What is recorded: the options of `torch.cuda.memory._record_memory_history`, under its names.

use std::str::FromStr;

use super::action::{TraceAction, UnknownAction};

/// Whether a history is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Enabled {
    /// `state`: only what live blocks need for a snapshot; of the events, just the latest is kept.
    State,
    /// `all`: every event, up to [`HistoryOptions::max_entries`]. The default, as in PyTorch.
    #[default]
    All,
}

/// For what call sites are recorded. Each level includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum ContextLevel {
    /// Nothing.
    None,
    /// `state`: blocks and segments that are live.
    State,
    /// `alloc`: also the events. A free shows where its block was allocated.
    Alloc,
    /// `all`: also where each free was asked for. The default, as in PyTorch.
    #[default]
    All,
}

/// Which frames of a call site are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Stacks {
    /// `application`: only functions whose source is the program's own, as PyTorch's `python` shows only Python's. Frames of
    /// the standard library and of crates from a registry or a git checkout are left out.
    Application,
    /// `all`: every frame from the caller of memtrack up to `main` or the thread's start. The default, as in PyTorch.
    #[default]
    All,
}

/// A word that an option does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidOption {
    /// For `enabled`.
    #[error("expected state to be `state`, `all` or none at all, found `{found}`")]
    Enabled {
        /// As given.
        found: String,
    },
    /// For `context`.
    #[error("expected context to be `state`, `alloc`, `all` or `none`, found `{found}`")]
    Context {
        /// As given.
        found: String,
    },
    /// For `stacks`.
    #[error("expected stacks to be `application` (or `python`, which means the same) or `all`, found `{found}`")]
    Stacks {
        /// As given.
        found: String,
    },
    /// For `skip_actions`.
    #[error(transparent)]
    Action(#[from] UnknownAction),
}

impl FromStr for Enabled {
    type Err = InvalidOption;

    fn from_str(text: &str) -> Result<Self, InvalidOption> {
        match text {
            "state" => Ok(Self::State),
            "all" => Ok(Self::All),
            _ => Err(InvalidOption::Enabled { found: text.to_owned() }),
        }
    }
}

impl Enabled {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::All => "all",
        }
    }
}

impl FromStr for ContextLevel {
    type Err = InvalidOption;

    fn from_str(text: &str) -> Result<Self, InvalidOption> {
        match text {
            "none" => Ok(Self::None),
            "state" => Ok(Self::State),
            "alloc" => Ok(Self::Alloc),
            "all" => Ok(Self::All),
            _ => Err(InvalidOption::Context { found: text.to_owned() }),
        }
    }
}

impl FromStr for Stacks {
    type Err = InvalidOption;

    fn from_str(text: &str) -> Result<Self, InvalidOption> {
        match text {
            "application" | "python" => Ok(Self::Application),
            "all" => Ok(Self::All),
            _ => Err(InvalidOption::Stacks { found: text.to_owned() }),
        }
    }
}

/// The arguments of `_record_memory_history`, with the defaults of PyTorch 2.11.
///
/// `device` is the allocator that is told, and `compile_context` has no counterpart here: entries say `N/A`, as PyTorch's
/// do outside a compiled region. Call sites need the feature `backtrace`; without it none are recorded at any level.
///
/// ```
/// use memtrack::history::{ContextLevel, HistoryOptions, TraceAction};
///
/// let options = HistoryOptions::new()
///     .max_entries(100_000)
///     .context(ContextLevel::Alloc)
///     .skip_actions([TraceAction::FreeRequested]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryOptions {
    pub(super) enabled: Enabled,
    pub(super) context: ContextLevel,
    pub(super) stacks: Stacks,
    pub(super) max_entries: usize,
    pub(super) clear_history: bool,
    /// Bits of [`TraceAction::bit`].
    pub(super) skip: u16,
}

impl Default for HistoryOptions {
    fn default() -> Self {
        Self {
            enabled: Enabled::All,
            context: ContextLevel::All,
            stacks: Stacks::All,
            max_entries: usize::MAX,
            clear_history: false,
            skip: 0,
        }
    }
}

impl HistoryOptions {
    /// PyTorch's defaults: everything, without a limit of entries. An entry takes 40 bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// `enabled`: state or all. Recording is switched off by passing no options at all.
    #[must_use]
    pub fn enabled(self, enabled: Enabled) -> Self {
        Self { enabled, ..self }
    }

    /// `context`: for what call sites are recorded.
    #[must_use]
    pub fn context(self, context: ContextLevel) -> Self {
        Self { context, ..self }
    }

    /// `stacks`: which frames of call sites are shown.
    #[must_use]
    pub fn stacks(self, stacks: Stacks) -> Self {
        Self { stacks, ..self }
    }

    /// `max_entries`: how many events are kept before the oldest are overwritten; 0 means 1, as in PyTorch.
    #[must_use]
    pub fn max_entries(self, max_entries: usize) -> Self {
        Self { max_entries: max_entries.max(1), ..self }
    }

    /// `clear_history`: forget what was recorded so far. Without it a change of options keeps it.
    #[must_use]
    pub fn clear_history(self, clear_history: bool) -> Self {
        Self { clear_history, ..self }
    }

    /// `skip_actions`: events that are not kept. A trace without some of its events cannot be replayed, so
    /// [`Snapshot::check_consistency`](super::Snapshot::check_consistency) may fail on it.
    #[must_use]
    pub fn skip_actions(self, actions: impl IntoIterator<Item = TraceAction>) -> Self {
        Self { skip: actions.into_iter().fold(0, |bits, action| bits | action.bit()), ..self }
    }

    /// As [`skip_actions`](Self::skip_actions), by name.
    ///
    /// # Errors
    ///
    /// [`InvalidOption::Action`] for the first unknown name.
    pub fn skip_action_names<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidOption> {
        let actions: Result<Vec<TraceAction>, UnknownAction> = names.into_iter().map(str::parse).collect();
        Ok(self.skip_actions(actions?))
    }

    /// How many entries the ring keeps.
    pub(super) fn ring_entries(&self) -> usize {
        match self.enabled {
            Enabled::State => 1,
            Enabled::All => self.max_entries,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_options_are_read_and_others_refused() {
        assert_eq!("state".parse(), Ok(Enabled::State));
        assert_eq!("alloc".parse(), Ok(ContextLevel::Alloc));
        assert_eq!("python".parse(), Ok(Stacks::Application));
        let error = "on".parse::<Enabled>().unwrap_err().to_string();
        assert_eq!(error, "expected state to be `state`, `all` or none at all, found `on`");
        assert!("All".parse::<ContextLevel>().unwrap_err().to_string().contains("found `All`"));
        assert!("rust".parse::<Stacks>().is_err());
    }

    #[test]
    fn skipped_actions_can_be_named() {
        let by_name = HistoryOptions::new().skip_action_names(["alloc", "oom"]).unwrap();
        assert_eq!(by_name, HistoryOptions::new().skip_actions([TraceAction::Alloc, TraceAction::Oom]));
        let error = HistoryOptions::new().skip_action_names(["alloc", "malloc"]).unwrap_err().to_string();
        assert!(error.starts_with("Unknown TraceEntry action: malloc"), "{error}");
    }

    #[test]
    fn a_ring_holds_at_least_one_entry() {
        assert_eq!(HistoryOptions::new().max_entries(0).ring_entries(), 1);
        assert_eq!(HistoryOptions::new().enabled(Enabled::State).max_entries(9).ring_entries(), 1);
        assert_eq!(HistoryOptions::new().ring_entries(), usize::MAX);
    }
}
