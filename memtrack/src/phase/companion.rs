//! What is kept with an allocator from epoch to epoch.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};

use super::driver_view::Attached;
use super::findings::Watched;
use super::growth::Ends;
use super::sampling::Sampling;
use crate::allocator::{CachingAllocator, Inner};
use crate::sync::lock;

#[derive(Debug, Default)]
pub(super) struct Companion {
    pub(super) view: OnceLock<Attached>,
    /// How the epochs before ended.
    pub(super) ends: Mutex<Ends>,
    pub(super) sampling: Sampling,
    pub(super) watched: Watched,
    /// The eras that began with an epoch, ascending; the others began with a step.
    epoch_eras: Mutex<Vec<u32>>,
}

/// An allocator's.
pub(super) fn of(allocator: &CachingAllocator) -> &Companion {
    of_inner(allocator.inner())
}

pub(super) fn of_inner(inner: &Arc<Inner>) -> &Companion {
    match inner.companion.get_or_init(|| Box::new(Companion::default())).downcast_ref() {
        Some(companion) => companion,
        None => unreachable!("nothing else is kept with an allocator"),
    }
}

/// How old a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Age {
    /// Epochs begun since.
    pub(super) epochs: u64,
    /// Steps begun since.
    pub(super) steps: u64,
}

/// Tells the age of blocks now.
#[derive(Debug)]
pub(super) struct Calendar {
    epoch_eras: Vec<u32>,
    era: u32,
}

impl Calendar {
    pub(super) fn age(&self, born: u32) -> Age {
        let epochs = (self.epoch_eras.len() - self.epoch_eras.partition_point(|era| *era <= born)) as u64;
        Age { epochs, steps: u64::from(self.era.saturating_sub(born)).saturating_sub(epochs) }
    }
}

impl Companion {
    pub(super) fn begin_epoch(&self, inner: &Inner) {
        // Under the lock, so that the eras come in order.
        let mut eras = lock(&self.epoch_eras);
        eras.push(begin_era(inner));
    }

    pub(super) fn calendar(&self, inner: &Inner) -> Calendar {
        let epoch_eras = lock(&self.epoch_eras).clone();
        Calendar { epoch_eras, era: inner.era.load(Ordering::Relaxed) }
    }
}

/// Blocks that are allocated from now on are younger than those before.
pub(super) fn begin_era(inner: &Inner) -> u32 {
    // After 2^32 steps ages stop to grow.
    let next = |era: u32| Some(era.saturating_add(1));
    inner.era.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).map_or(u32::MAX, |era| era.saturating_add(1))
}
