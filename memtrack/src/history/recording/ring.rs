//! A list that forgets its oldest items, and that can be copied out while others go on adding to it.
//!
//! Items lie in chunks. Full chunks never change and are shared with copies, so a copy costs one count a chunk and the last
//! chunk's items, however long the list.

use std::collections::VecDeque;
use std::sync::Arc;

/// Items a chunk. A copy of the last one is 40 KB of events at most, some microseconds.
pub(super) const CHUNK: usize = 1024;

#[derive(Debug)]
pub(super) struct Ring<T> {
    /// Oldest first.
    full: VecDeque<Arc<Vec<T>>>,
    last: Vec<T>,
    /// Items ever added since the ring was last cleared.
    added: u64,
    /// Items before this number are forgotten, though their chunk may still be there.
    first: u64,
    /// At least 1.
    max_len: u64,
}

impl<T: Clone> Ring<T> {
    pub(super) fn new() -> Self {
        Self { full: VecDeque::new(), last: Vec::new(), added: 0, first: 0, max_len: u64::MAX }
    }

    /// Keeps no more than so many of the latest items from now on. What was forgotten stays so.
    pub(super) fn set_max_len(&mut self, max_len: usize) {
        self.first = self.first();
        self.max_len = max_len.max(1) as u64;
        self.drop_forgotten();
    }

    pub(super) fn clear(&mut self) {
        *self = Self { max_len: self.max_len, ..Self::new() };
    }

    /// Items ever added since the last clear.
    pub(super) fn added(&self) -> u64 {
        self.added
    }

    #[inline]
    pub(super) fn push(&mut self, item: T) {
        if self.last.len().is_multiple_of(CHUNK) {
            self.turn_over();
        }
        self.last.push(item);
        self.added += 1;
    }

    /// Makes room in the last chunk, which is full, or empty as it has no memory yet.
    #[cold]
    fn turn_over(&mut self) {
        let mut fresh = None;
        if !self.last.is_empty() {
            self.full.push_back(Arc::new(std::mem::take(&mut self.last)));
            fresh = self.drop_forgotten();
        }
        self.last = fresh.unwrap_or_else(|| Vec::with_capacity(CHUNK));
    }

    /// Lets go of chunks that hold forgotten items alone; one that no copy shares is returned, empty, for its memory.
    fn drop_forgotten(&mut self) -> Option<Vec<T>> {
        let mut spare = None;
        while let Some(oldest) = self.full.front() {
            let oldest_start = self.added - self.held_len() as u64;
            if oldest_start + oldest.len() as u64 > self.first() {
                break;
            }
            if let Some(mut items) = self.full.pop_front().and_then(Arc::into_inner) {
                items.clear();
                spare = Some(items);
            }
        }
        spare
    }

    /// The number of the oldest item that is kept.
    fn first(&self) -> u64 {
        self.first.max(self.added.saturating_sub(self.max_len))
    }

    /// A copy as of now.
    pub(super) fn copy(&self) -> Kept<T> {
        let kept_len = (self.added - self.first()) as usize;
        Kept { full: self.full.clone(), last: self.last.clone(), skipped: self.held_len() - kept_len, len: kept_len }
    }

    /// Items in all chunks. All full ones have the same number.
    fn held_len(&self) -> usize {
        self.full.len() * CHUNK + self.last.len()
    }
}

/// What a ring held.
#[derive(Debug, Clone)]
pub(super) struct Kept<T> {
    full: VecDeque<Arc<Vec<T>>>,
    last: Vec<T>,
    /// Forgotten items at the start of the first chunk.
    skipped: usize,
    len: usize,
}

impl<T> Kept<T> {
    pub(super) fn empty() -> Self {
        Self { full: VecDeque::new(), last: Vec::new(), skipped: 0, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.full.iter().flat_map(|chunk| chunk.iter()).chain(&self.last).skip(self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(ring: &Ring<u64>) -> Vec<u64> {
        let kept = ring.copy();
        let items: Vec<u64> = kept.iter().copied().collect();
        assert_eq!(items.len(), kept.len());
        items
    }

    #[test]
    fn the_latest_items_are_kept_in_order() {
        for max_len in [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 7, usize::MAX] {
            let mut ring = Ring::new();
            ring.set_max_len(max_len);
            for number in 0..5 * CHUNK as u64 {
                ring.push(number);
                if number % 511 == 0 || number < 3 {
                    let first = (number + 1).saturating_sub(max_len as u64);
                    assert_eq!(kept(&ring), (first..=number).collect::<Vec<_>>(), "{max_len}");
                }
            }
            let most = max_len.div_ceil(CHUNK).saturating_add(1).min(5);
            assert!(ring.full.len() <= most, "{max_len}: {} chunks", ring.full.len());
        }
    }

    #[test]
    fn a_copy_does_not_change_and_shares_full_chunks() {
        let mut ring = Ring::new();
        (0..2 * CHUNK as u64 + 5).for_each(|number| ring.push(number));
        let copy = ring.copy();
        assert_eq!(Arc::strong_count(&ring.full[0]), 2);
        (0..100).for_each(|number| ring.push(number));
        assert_eq!(copy.iter().copied().collect::<Vec<_>>(), (0..2 * CHUNK as u64 + 5).collect::<Vec<_>>());
    }

    #[test]
    fn what_a_smaller_limit_forgot_does_not_come_back() {
        let mut ring = Ring::new();
        (0..10).for_each(|number| ring.push(number));
        ring.set_max_len(3);
        assert_eq!(kept(&ring), [7, 8, 9]);
        ring.set_max_len(usize::MAX);
        ring.push(10);
        assert_eq!(kept(&ring), [7, 8, 9, 10]);
        ring.clear();
        assert_eq!((kept(&ring), ring.added()), (vec![], 0));
        ring.push(11);
        assert_eq!(kept(&ring), [11]);
    }

    #[test]
    fn a_full_ring_reuses_its_memory() {
        let mut ring = Ring::new();
        ring.set_max_len(CHUNK);
        (0..3 * CHUNK as u64).for_each(|number| ring.push(number));
        let before: Vec<*const u64> =
            ring.full.iter().map(|chunk| chunk.as_ptr()).chain([ring.last.as_ptr()]).collect();
        (0..6 * CHUNK as u64).for_each(|number| ring.push(number));
        assert!(before.contains(&ring.last.as_ptr()));
    }
}
