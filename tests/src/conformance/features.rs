//! What a program needs of an allocator beyond allocating, freeing, streams and the limit.

use super::step::Step;

/// Needed, or supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// `expandable_segments:True`.
    pub expandable: bool,
    /// Settings applied at run time.
    pub settings: bool,
    /// Private pools.
    pub pools: bool,
    /// More than one thread.
    pub threads: bool,
}

impl Features {
    /// All of them.
    pub const ALL: Self = Self { expandable: true, settings: true, pools: true, threads: true };

    /// Whether all that is needed is here.
    pub fn cover(&self, needed: &Self) -> bool {
        (self.expandable || !needed.expandable)
            && (self.settings || !needed.settings)
            && (self.pools || !needed.pools)
            && (self.threads || !needed.threads)
    }

    /// What a program with these settings at its start needs.
    pub fn needed<'a>(settings: &str, steps: impl IntoIterator<Item = &'a Step>) -> Self {
        let mut needed = Self { expandable: settings.contains("expandable_segments:True"), ..Self::default() };
        for step in steps {
            match step {
                Step::Settings { text } => {
                    needed.settings = true;
                    needed.expandable |= text.contains("expandable_segments:True");
                }
                Step::CreatePool { .. } | Step::EnterPool { .. } => needed.pools = true,
                Step::Allocate { thread: 1.., .. } => needed.threads = true,
                _ => {}
            }
        }
        needed
    }
}
