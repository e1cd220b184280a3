//! What keeps a shard for the blocks that it handed out, at no cost while it is in its allocator's list.
//!
//! Each block in the program's hands could count a handle of its shard, as it did; on a Xeon the two read-modify-writes were a fifth
//! of what a cached allocation with its free takes. Instead the blocks are counted under the shard's own lock, which is held then
//! anyway, and the shard holds itself from the first of them on. It lets go when two things are true: it is *abandoned*, that is in no
//! list any more, and no block is out.

use std::sync::Arc;

use super::shard::Shard;

/// A shard's hold on itself.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    /// Blocks in the program's hands.
    lent_count: u64,
    /// There whenever a block is out.
    shard: Option<Arc<Shard>>,
    is_abandoned: bool,
}

impl Keeper {
    /// A block goes to the program.
    #[inline]
    pub(super) fn lend(&mut self, shard: &Arc<Shard>) {
        self.lent_count += 1;
        if self.shard.is_none() {
            self.shard = Some(Arc::clone(shard));
        }
    }

    /// A block comes back from the program. What is returned is to be dropped once the shard's lock is let go: it may be all that keeps
    /// the shard.
    #[inline]
    #[must_use = "the shard's lock would go with it"]
    pub(super) fn take_back(&mut self) -> Option<Arc<Shard>> {
        self.lent_count = self.lent_count.saturating_sub(1);
        if self.is_abandoned { self.let_go() } else { None }
    }

    /// The shard is in no list any more. As for [`take_back`](Self::take_back).
    #[must_use = "the shard's lock would go with it"]
    pub(super) fn abandon(&mut self) -> Option<Arc<Shard>> {
        self.is_abandoned = true;
        self.let_go()
    }

    #[cold]
    fn let_go(&mut self) -> Option<Arc<Shard>> {
        if self.lent_count == 0 { self.shard.take() } else { None }
    }
}
