//! The events of the cached path, and how they are written down to be entered later.

use super::ring::Words;
use super::threads::ThreadNumber;
use super::{BlockEntry, Ledger, ScopeKey, SplitChange};
use crate::stats::PoolKind;

/// What can be put off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A block was handed out.
    Allocated { entry: BlockEntry, split: SplitChange, owner: Option<ScopeKey> },
    /// A block was given back and is free.
    Freed { entry: BlockEntry, split: SplitChange, owner: Option<ScopeKey>, context: Option<ScopeKey> },
    /// Nothing: a place in the order.
    Mark,
}

const ALLOCATED: u64 = 0;
const FREED: u64 = 1;
const MARK: u64 = 2;
const KIND_MASK: u64 = 3;
const LARGE_BIT: u64 = 1 << 2;
const OVERSIZE_BIT: u64 = 1 << 3;
const THREAD_SHIFT: u32 = 8;

impl Event {
    #[inline]
    pub(super) fn to_words(self) -> Words {
        let of = |kind, entry: &BlockEntry, split: SplitChange, owner, context| {
            let BlockEntry { pool, size_bytes, requested_bytes, oversize, thread } = *entry;
            let large = if pool == PoolKind::Large { LARGE_BIT } else { 0 };
            let oversize = if oversize { OVERSIZE_BIT } else { 0 };
            let flags = kind | large | oversize | (u64::from(thread.number()) << THREAD_SHIFT);
            [
                flags,
                size_bytes.cast_unsigned(),
                requested_bytes.cast_unsigned(),
                split.count.cast_unsigned(),
                split.bytes.cast_unsigned(),
                ScopeKey::to_word(owner),
                ScopeKey::to_word(context),
            ]
        };
        match self {
            Self::Allocated { entry, split, owner } => of(ALLOCATED, &entry, split, owner, None),
            Self::Freed { entry, split, owner, context } => of(FREED, &entry, split, owner, context),
            Self::Mark => [MARK, 0, 0, 0, 0, 0, 0],
        }
    }

    #[inline]
    pub(super) fn from_words([flags, size, requested, count, bytes, owner, context]: Words) -> Self {
        let entry = BlockEntry {
            pool: if flags & LARGE_BIT == 0 { PoolKind::Small } else { PoolKind::Large },
            size_bytes: size.cast_signed(),
            requested_bytes: requested.cast_signed(),
            oversize: flags & OVERSIZE_BIT != 0,
            thread: ThreadNumber::of_number((flags >> THREAD_SHIFT) as u8),
        };
        let split = SplitChange { count: count.cast_signed(), bytes: bytes.cast_signed() };
        match flags & KIND_MASK {
            ALLOCATED => Self::Allocated { entry, split, owner: ScopeKey::of_word(owner) },
            FREED => Self::Freed { entry, split, owner: ScopeKey::of_word(owner), context: ScopeKey::of_word(context) },
            _ => Self::Mark,
        }
    }

    /// The thread that did it.
    pub(super) fn thread(&self) -> Option<ThreadNumber> {
        match self {
            Self::Allocated { entry, .. } | Self::Freed { entry, .. } => Some(entry.thread),
            Self::Mark => None,
        }
    }
}

impl Ledger {
    /// Enters an event that was put off.
    #[inline]
    pub(super) fn enter(&mut self, event: &Event) {
        match event {
            Event::Allocated { entry, split, owner } => self.allocated(entry, *split, *owner),
            Event::Freed { entry, split, owner, context } => {
                self.freed(entry, *split, *owner, *context);
            }
            Event::Mark => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = Option<ScopeKey>> {
        let of = |(slot, generation): (u32, u32)| {
            NonZeroU32::new(generation).map(|generation| ScopeKey::new(slot, generation))
        };
        prop_oneof![Just(None), Just(Some(ScopeKey::NOBODY)), any::<(u32, u32)>().prop_map(of)]
    }

    proptest! {
        #[test]
        fn an_event_is_read_as_it_was_written(
            (large, size_bytes, requested_bytes, oversize) in any::<(bool, i64, i64, bool)>(),
            (thread, count, bytes, freed) in (0..64_u8, any::<i64>(), any::<i64>(), any::<bool>()),
            (owner, context) in (key(), key()),
        ) {
            let pool = if large { PoolKind::Large } else { PoolKind::Small };
            let entry =
                BlockEntry { pool, size_bytes, requested_bytes, oversize, thread: ThreadNumber::of_number(thread) };
            let split = SplitChange { count, bytes };
            let event = if freed {
                Event::Freed { entry, split, owner, context }
            } else {
                Event::Allocated { entry, split, owner }
            };
            prop_assert_eq!(Event::from_words(event.to_words()), event);
            prop_assert_eq!(Event::from_words(Event::Mark.to_words()), Event::Mark);
        }
    }
}
