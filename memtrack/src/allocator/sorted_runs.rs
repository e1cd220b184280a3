//! Free blocks in the order of the best-fit rule, however many: sorted runs of at most [`RUN_LEN`], with the last key of each run
//! in a table of its own.
//!
//! Each search halves two short arrays without a branch to mispredict, a change moves some bytes within one run, and nothing is
//! allocated or freed while a pool goes back and forth between the same few states, as in a training loop.

use super::free_set::{FreeBlock, Key, key};

/// Long enough that the table of runs is short, short enough that moving half a run costs little.
const RUN_LEN: usize = 32;

/// Where a block stands, until something is changed.
#[derive(Debug, Clone, Copy)]
struct Place {
    run: usize,
    place: usize,
}

/// Free blocks by (size, address). No two have the same address.
#[derive(Debug, Default)]
pub(super) struct SortedRuns {
    /// Sorted, each wholly before the next. None is empty, save a single one.
    runs: Vec<Vec<FreeBlock>>,
    /// The key of each run's last block.
    last_keys: Vec<Key>,
}

impl SortedRuns {
    /// Where a key stands or would stand; past the end of the last run for a key after all.
    #[inline]
    fn position(&self, key: Key) -> Option<Place> {
        let run = self.last_keys.partition_point(|last| *last < key).min(self.runs.len().checked_sub(1)?);
        Some(Place { run, place: self.runs[run].partition_point(|block| block.key() < key) })
    }

    #[inline]
    fn at(&self, position: Place) -> Option<FreeBlock> {
        self.runs.get(position.run)?.get(position.place).copied()
    }

    #[inline]
    pub(super) fn insert(&mut self, block: FreeBlock) {
        let key = block.key();
        let Some(Place { mut run, mut place }) = self.position(key) else {
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
    fn find(&self, block: &FreeBlock) -> Option<Place> {
        self.position(block.key()).filter(|position| self.at(*position) == Some(*block))
    }

    #[inline]
    fn remove_at(&mut self, Place { run, place }: Place) {
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

    #[inline]
    pub(super) fn remove(&mut self, block: &FreeBlock) {
        if let Some(place) = self.find(block) {
            self.remove_at(place);
        }
    }

    /// The smallest block of at least this size; of several, the one at the lowest address.
    #[inline]
    pub(super) fn best_fit(&self, size_bytes: u64) -> Option<FreeBlock> {
        self.at(self.position(key(size_bytes, 0))?)
    }

    /// What stands behind a block that is here.
    pub(super) fn after(&self, block: &FreeBlock) -> Option<FreeBlock> {
        let Place { run, place } = self.position(block.key())?;
        let next = if place + 1 < self.runs[run].len() {
            Place { run, place: place + 1 }
        } else {
            Place { run: run + 1, place: 0 }
        };
        self.at(next)
    }

    /// The last block before a key.
    pub(super) fn last_below(&self, key: Key) -> Option<FreeBlock> {
        let Place { run, place } = self.position(key)?;
        match place.checked_sub(1) {
            Some(place) => self.at(Place { run, place }),
            None => self.runs[run.checked_sub(1)?].last().copied(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = FreeBlock> {
        self.runs.iter().flatten().copied()
    }
}
