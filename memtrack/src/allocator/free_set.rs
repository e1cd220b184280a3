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

/// Where a block stands, until the set is changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position {
    run: usize,
    place: usize,
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
    /// Where a key stands or would stand; past the end of the last run for a key after all.
    #[inline]
    fn position(&self, key: Key) -> Option<Position> {
        let run = self.last_keys.partition_point(|last| *last < key).min(self.runs.len().checked_sub(1)?);
        Some(Position { run, place: self.runs[run].partition_point(|block| block.key() < key) })
    }

    #[inline]
    fn at(&self, position: Position) -> Option<FreeBlock> {
        self.runs.get(position.run)?.get(position.place).copied()
    }

    #[inline]
    pub(crate) fn insert(&mut self, block: FreeBlock) {
        let key = block.key();
        let Some(Position { mut run, mut place }) = self.position(key) else {
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
        if let Some(position) = self.find(block) {
            self.remove_at(position);
        }
    }

    #[inline]
    fn find(&self, block: &FreeBlock) -> Option<Position> {
        self.position(block.key()).filter(|position| self.at(*position) == Some(*block))
    }

    #[inline]
    pub(crate) fn remove_at(&mut self, Position { run, place }: Position) {
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

    /// Puts a block into the set and takes another out, which costs least when both stand at the same place: what is left
    /// of a block, or what it grew to, often does.
    #[inline]
    pub(crate) fn replace(&mut self, block: &FreeBlock, by: FreeBlock) {
        match self.find(block) {
            Some(position) => self.replace_at(position, by),
            None => self.insert(by),
        }
    }

    /// As [`replace`](Self::replace), for the block at a position.
    #[inline]
    pub(crate) fn replace_at(&mut self, position: Position, by: FreeBlock) {
        let Position { run, place } = position;
        let key = by.key();
        let blocks = &mut self.runs[run];
        let before = match place.checked_sub(1) {
            Some(place) => Some(blocks[place].key()),
            None => run.checked_sub(1).map(|run| self.last_keys[run]),
        };
        let is_last = place + 1 == blocks.len();
        let fits_before_next = if is_last { run + 1 == self.last_keys.len() } else { key < blocks[place + 1].key() };
        if fits_before_next && before.is_none_or(|before| before < key) {
            blocks[place] = by;
            if is_last {
                self.last_keys[run] = key;
            }
        } else {
            self.remove_at(position);
            self.insert(by);
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
    #[cold]
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
    #[inline]
    pub(crate) fn best_fit(&self, size_bytes: u64) -> Option<(Position, FreeBlock)> {
        let position = self.position(key(size_bytes, 0))?;
        self.at(position).map(|found| (position, found))
    }

    /// What stands behind a position, until the set is changed.
    pub(crate) fn after(&self, Position { run, place }: Position) -> Option<(Position, FreeBlock)> {
        let position = if place + 1 < self.runs.get(run)?.len() {
            Position { run, place: place + 1 }
        } else {
            Position { run: run + 1, place: 0 }
        };
        self.at(position).map(|found| (position, found))
    }

    /// All blocks of at least this size, in order.
    pub(crate) fn iter_from(&self, size_bytes: u64) -> impl Iterator<Item = FreeBlock> {
        let first = self.best_fit(size_bytes);
        std::iter::successors(first, |(position, _)| self.after(*position)).map(|(_, block)| block)
    }

    /// The block before `block` in the order, present or not.
    pub(crate) fn before(&self, block: &FreeBlock) -> Option<FreeBlock> {
        let Position { run, place } = self.position(block.key())?;
        match place.checked_sub(1) {
            Some(place) => self.at(Position { run, place }),
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
            let grows = random(&mut state) % 8 < if turn % 8000 >= 4000 { 7 } else { 2 };
            if grows {
                if let std::collections::btree_map::Entry::Vacant(entry) = model.entry((size_bytes, address)) {
                    entry.insert(block);
                    set.insert(block);
                }
            } else {
                let expected = model.range((size_bytes, 0)..).next().map(|(_, found)| *found);
                assert_eq!(set.best_fit(size_bytes).map(|(_, found)| found), expected);
                if turn % 97 == 0 {
                    let expected = model.range((size_bytes, 0)..).map(|(_, found)| *found);
                    assert!(set.iter_from(size_bytes).eq(expected), "in order, without the smaller ones");
                }
                let before = model.range(..(size_bytes, address)).next_back().map(|(_, found)| *found);
                assert_eq!(set.before(&block), before);
                let after = set.best_fit(size_bytes).and_then(|(position, _)| set.after(position));
                let expected = model.range((size_bytes, 0)..).nth(1).map(|(_, found)| *found);
                assert_eq!(after.map(|(_, found)| found), expected);
                if let Some((position, found)) = set.best_fit(size_bytes) {
                    model.remove(&(found.size_bytes, found.address));
                    // What is left of it, as when a block is split.
                    let rest = FreeBlock { size_bytes: found.size_bytes / 2, address: found.address + 256, ..found };
                    if turn % 2 == 0 && !model.contains_key(&(rest.size_bytes, rest.address)) {
                        set.replace_at(position, rest);
                        model.insert((rest.size_bytes, rest.address), rest);
                    } else {
                        set.remove_at(position);
                    }
                }
                if let Some(any) = model.range((size_bytes, address)..).next().map(|(_, found)| *found) {
                    model.remove(&(any.size_bytes, any.address));
                    // What it grows to, as when a block is merged.
                    let grown = FreeBlock { size_bytes: any.size_bytes + 16, ..any };
                    if turn % 3 == 0 && !model.contains_key(&(grown.size_bytes, grown.address)) {
                        set.replace(&any, grown);
                        model.insert((grown.size_bytes, grown.address), grown);
                    } else {
                        set.remove(&any);
                    }
                }
            }
            if turn % 97 == 0 {
                check(&set, &model);
            }
        }
        assert!(set.runs.len() > 4, "many runs");
        while let (Some((_, first)), Some(last)) = (set.best_fit(0), set.largest()) {
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
