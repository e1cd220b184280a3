//! The free blocks of one pool of one stream, in the order of the best-fit rule.
//!
//! They stand in sorted runs of at most [`RUN_LEN`], with the last key of each run in a table of its own. Each search
//! halves two short arrays without a branch to mispredict, a change moves some bytes within one run, and nothing is
//! allocated or freed while a pool goes back and forth between the same few states, as in a training loop.

use super::block::BlockIndex;

/// Long enough that the table of runs is short, short enough that moving half a run costs little.
const RUN_LEN: usize = 32;

/// A free block. The order is that of the search: smallest first, ties to the lowest address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FreeBlock {
    pub(crate) size_bytes: u64,
    pub(crate) address: u64,
    pub(crate) index: BlockIndex,
}

/// Size and address as one number.
type Key = u128;

fn key(size_bytes: u64, address: u64) -> Key {
    (Key::from(size_bytes) << 64) | Key::from(address)
}

impl FreeBlock {
    fn key(&self) -> Key {
        key(self.size_bytes, self.address)
    }
}

/// Free blocks by (size, address). No two have the same address.
#[derive(Debug, Default)]
pub(crate) struct FreeSet {
    /// Sorted, each wholly before the next. None is empty, save a single one.
    runs: Vec<Vec<FreeBlock>>,
    /// The key of each run's last block.
    last_keys: Vec<Key>,
}

impl FreeSet {
    /// Where a key stands or would stand: the run, and the place in it. Past the end of the last run for a key after all.
    #[inline]
    fn position(&self, key: Key) -> Option<(usize, usize)> {
        let run = self.last_keys.partition_point(|last| *last < key).min(self.runs.len().checked_sub(1)?);
        Some((run, self.runs[run].partition_point(|block| block.key() < key)))
    }

    fn at(&self, (run, place): (usize, usize)) -> Option<FreeBlock> {
        self.runs.get(run)?.get(place).copied()
    }

    #[inline]
    pub(crate) fn insert(&mut self, block: FreeBlock) {
        let key = block.key();
        let Some((mut run, mut place)) = self.position(key) else {
            self.runs.push(Vec::with_capacity(RUN_LEN));
            self.runs[0].push(block);
            self.last_keys.push(key);
            return;
        };
        if self.runs[run].len() == RUN_LEN {
            self.halve(run);
            let half = self.runs[run].len();
            if place > half {
                (run, place) = (run + 1, place - half);
            }
        }
        let blocks = &mut self.runs[run];
        blocks.insert(place, block);
        if place + 1 == blocks.len() {
            self.last_keys[run] = key;
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, block: &FreeBlock) {
        if let Some(position) = self.position(block.key())
            && self.at(position) == Some(*block)
        {
            self.remove_at(position);
        }
    }

    #[inline]
    fn remove_at(&mut self, (run, place): (usize, usize)) {
        let blocks = &mut self.runs[run];
        blocks.remove(place);
        if let Some(last) = blocks.last()
            && place == blocks.len()
        {
            self.last_keys[run] = last.key();
        }
        if blocks.len() < RUN_LEN / 4 && self.runs.len() > 1 {
            self.join(run);
        }
    }

    /// Moves the later half of a full run into a run of its own.
    #[cold]
    fn halve(&mut self, run: usize) {
        let blocks = &mut self.runs[run];
        let mut later = Vec::with_capacity(RUN_LEN);
        later.extend(blocks.drain(RUN_LEN / 2..));
        let last_key = blocks.last().map_or(0, FreeBlock::key);
        self.runs.insert(run + 1, later);
        self.last_keys.insert(run, last_key);
    }

    /// Makes one run of a short one and its neighbour, when they fit: always, when the short one is empty.
    fn join(&mut self, run: usize) {
        let first = if run + 1 < self.runs.len() { run } else { run - 1 };
        if self.runs[first].len() + self.runs[first + 1].len() <= RUN_LEN {
            let later = self.runs.remove(first + 1);
            let joined = &mut self.runs[first];
            joined.extend(later);
            self.last_keys.remove(first + 1);
            self.last_keys[first] = joined.last().map_or(0, FreeBlock::key);
        }
    }

    /// The smallest block of at least this size; of several, the one at the lowest address.
    pub(crate) fn best_fit(&self, size_bytes: u64) -> Option<FreeBlock> {
        self.at(self.position(key(size_bytes, 0))?)
    }

    /// Takes the best fit out, if it may serve.
    #[inline]
    pub(crate) fn take_best_fit(
        &mut self,
        size_bytes: u64,
        may_serve: impl FnOnce(&FreeBlock) -> bool,
    ) -> Option<FreeBlock> {
        let position = self.position(key(size_bytes, 0))?;
        let found = self.at(position).filter(may_serve)?;
        self.remove_at(position);
        Some(found)
    }

    /// The block before `block` in the order, present or not.
    pub(crate) fn before(&self, block: &FreeBlock) -> Option<FreeBlock> {
        let (run, place) = self.position(block.key())?;
        match place.checked_sub(1) {
            Some(place) => self.at((run, place)),
            None => self.runs[run.checked_sub(1)?].last().copied(),
        }
    }

    /// The last block in the order: the largest.
    pub(crate) fn largest(&self) -> Option<FreeBlock> {
        self.runs.last()?.last().copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = FreeBlock> {
        self.runs.iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Xorshift: the same numbers in every run.
    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state >> 16
    }

    fn check(set: &FreeSet, model: &BTreeMap<(u64, u64), FreeBlock>) {
        assert!(set.iter().eq(model.values().copied()), "in order of size, then address");
        assert_eq!(set.largest(), model.values().next_back().copied());
        assert_eq!(set.runs.len(), set.last_keys.len());
        for (run, last_key) in set.runs.iter().zip(&set.last_keys) {
            assert!(run.len() <= RUN_LEN);
            assert!(run.last().map(FreeBlock::key) == Some(*last_key) || model.is_empty());
        }
    }

    #[test]
    fn the_order_is_that_of_an_ordered_map_while_the_set_grows_and_shrinks() {
        let mut state = 88_172_645_463_325_252;
        let (mut set, mut model) = (FreeSet::default(), BTreeMap::new());
        for turn in 0..40_000_u64 {
            // Few sizes for many blocks, so that ties are common; mostly shrinking, then mostly growing.
            let (size_bytes, address) = (512 * (1 + random(&mut state) % 20), 512 * (random(&mut state) % 500));
            let block = FreeBlock { size_bytes, address, index: turn as BlockIndex };
            let grows = random(&mut state) % 4 < if turn % 8000 >= 4000 { 3 } else { 1 };
            if grows {
                if let std::collections::btree_map::Entry::Vacant(entry) = model.entry((size_bytes, address)) {
                    entry.insert(block);
                    set.insert(block);
                }
            } else {
                let expected = model.range((size_bytes, 0)..).next().map(|(_, found)| *found);
                assert_eq!(set.best_fit(size_bytes), expected);
                let before = model.range(..(size_bytes, address)).next_back().map(|(_, found)| *found);
                assert_eq!(set.before(&block), before);
                let limit_bytes = size_bytes + 1024;
                let taken = set.take_best_fit(size_bytes, |found| found.size_bytes < limit_bytes);
                assert_eq!(taken, expected.filter(|found| found.size_bytes < limit_bytes));
                if let Some(taken) = taken {
                    model.remove(&(taken.size_bytes, taken.address));
                }
                if let Some(any) = model.range((size_bytes, address)..).next().map(|(_, found)| *found) {
                    set.remove(&any);
                    model.remove(&(any.size_bytes, any.address));
                }
            }
            if turn % 97 == 0 {
                check(&set, &model);
            }
        }
        assert!(model.len() > 4 * RUN_LEN);
        while let (Some(first), Some(last)) = (set.best_fit(0), set.largest()) {
            let end = if model.len() % 3 == 0 { first } else { last };
            set.remove(&end);
            model.remove(&(end.size_bytes, end.address));
            check(&set, &model);
        }
        assert!(model.is_empty());
    }

    #[test]
    fn an_absent_block_is_not_removed() {
        let mut set = FreeSet::default();
        let block = FreeBlock { size_bytes: 512, address: 1024, index: 7 };
        set.remove(&block);
        set.insert(block);
        set.remove(&FreeBlock { address: 512, ..block });
        set.remove(&FreeBlock { size_bytes: 1024, ..block });
        assert_eq!(set.iter().collect::<Vec<_>>(), [block]);
    }
}
