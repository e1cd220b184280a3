//! Who is told of each allocation made inside a scope: what tests find out beyond a scope's sums.
//!
//! Here live the [`Observer`], which counts, and the table of the scopes that somebody observes. While there is no observer,
//! which is always so but in tests, the allocator and the scopes look at one number and pass by. What is done with the counts is the
//! business of `testing`.
//!
//! An observer counts per *site*, which is a line, a scope and a size, so what it keeps is bounded by the program's text and not
//! by how often it allocates. What was live at the peak is exact: a site's live count is copied before it changes for the
//! first time since the latest peak, and a new peak makes all copies void at once, by its number.
//!
//! Its locks are taken last, under the lock of the shard whose block is handed out or given back; nothing is called under them.

mod table;

use std::collections::HashMap;
use std::panic::Location;
use std::sync::{Arc, Mutex};

pub(crate) use table::{Observation, any_observer, observed, opened};

use crate::sync::lock;

/// What allocations have in common that are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Site {
    /// The program's line.
    pub(crate) location: &'static Location<'static>,
    /// The innermost scope, none for the observed one itself.
    pub(crate) scope: Option<&'static str>,
    /// Of each block, as asked for.
    pub(crate) requested_bytes: u64,
}

/// So many blocks of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SiteCount {
    pub(crate) site: Site,
    pub(crate) count: u64,
}

#[derive(Debug, Default)]
struct Tally {
    made_count: u64,
    live_count: u64,
    /// The live count at the peak of the number below; where that is not the latest, the count has not changed since.
    count_at_peak: u64,
    peak_number: u64,
}

impl Tally {
    /// The live count, about to be changed; `peak_number` is of the latest peak.
    fn live_count_mut(&mut self, peak_number: u64) -> &mut u64 {
        if self.peak_number != peak_number {
            self.peak_number = peak_number;
            self.count_at_peak = self.live_count;
        }
        &mut self.live_count
    }

    fn count_at(&self, peak_number: u64) -> u64 {
        if self.peak_number == peak_number { self.count_at_peak } else { self.live_count }
    }
}

#[derive(Debug, Default)]
struct Log {
    /// Allocations do not count any more, frees of what was allocated before do.
    has_ended: bool,
    allocation_count: u64,
    live_bytes: u64,
    peak_bytes: u64,
    /// How often the live bytes were higher than ever before.
    peak_number: u64,
    sites: HashMap<Site, Tally>,
}

impl Log {
    fn allocated(&mut self, site: Site) {
        if self.has_ended {
            return;
        }
        let tally = self.sites.entry(site).or_default();
        tally.made_count += 1;
        *tally.live_count_mut(self.peak_number) += 1;
        self.allocation_count += 1;
        self.live_bytes = self.live_bytes.saturating_add(site.requested_bytes);
        if self.live_bytes > self.peak_bytes {
            self.peak_bytes = self.live_bytes;
            self.peak_number += 1;
        }
    }

    fn freed(&mut self, site: &Site) {
        // What was allocated after the end, or under another observer, is not known here.
        let Some(tally) = self.sites.get_mut(site).filter(|tally| tally.live_count > 0) else { return };
        *tally.live_count_mut(self.peak_number) -= 1;
        self.live_bytes = self.live_bytes.saturating_sub(site.requested_bytes);
    }

    fn counts(&self, count: impl Fn(&Tally) -> u64) -> Vec<SiteCount> {
        let counts = self.sites.iter().map(|(site, tally)| SiteCount { site: *site, count: count(tally) });
        counts.filter(|counted| counted.count > 0).collect()
    }
}

/// Counts what is allocated inside one scope. All bytes are as asked for.
#[derive(Debug)]
pub(crate) struct Observer {
    /// That of a scope around, which counts the same allocations.
    around: Option<Arc<Observer>>,
    log: Mutex<Log>,
}

impl Observer {
    /// Observes a scope that is opened inside `around`.
    fn new(around: Option<Arc<Observed>>) -> Arc<Self> {
        let around = around.map(|observed| Arc::clone(&observed.observer));
        Arc::new(Self { around, log: Mutex::default() })
    }

    /// The outermost of the observers around, which goes on the longest.
    fn outermost(&self) -> &Self {
        let mut outermost = self;
        while let Some(around) = &outermost.around {
            outermost = around;
        }
        outermost
    }

    fn each(&self, tell: impl Fn(&mut Log)) {
        let mut next = Some(self);
        while let Some(observer) = next {
            tell(&mut lock(&observer.log));
            next = observer.around.as_deref();
        }
    }

    /// From now on only frees count.
    fn end(&self) {
        lock(&self.log).has_ended = true;
    }

    /// Allocations made.
    pub(crate) fn allocation_count(&self) -> u64 {
        lock(&self.log).allocation_count
    }

    /// The most bytes that were live at once.
    pub(crate) fn peak_bytes(&self) -> u64 {
        lock(&self.log).peak_bytes
    }

    /// What was allocated, freed or not. In no order, as are the other lists.
    pub(crate) fn made(&self) -> Vec<SiteCount> {
        lock(&self.log).counts(|tally| tally.made_count)
    }

    /// What is live now.
    pub(crate) fn live(&self) -> Vec<SiteCount> {
        lock(&self.log).counts(|tally| tally.live_count)
    }

    /// What was live when the peak was reached for the first time.
    pub(crate) fn live_at_peak(&self) -> Vec<SiteCount> {
        let log = lock(&self.log);
        log.counts(|tally| tally.count_at(log.peak_number))
    }
}

/// A scope whose allocations somebody watches: the observed one itself, or one inside it.
#[derive(Debug)]
pub(crate) struct Observed {
    observer: Arc<Observer>,
    scope: Option<&'static str>,
}

impl Observed {
    /// The scope that the observer is of.
    fn by(observer: &Arc<Observer>) -> Arc<Self> {
        Arc::new(Self { observer: Arc::clone(observer), scope: None })
    }

    /// A scope opened inside this one.
    fn inside(&self, scope: &'static str) -> Arc<Self> {
        Arc::new(Self { observer: Arc::clone(&self.observer), scope: Some(scope) })
    }

    fn site(&self, location: &'static Location<'static>, requested_bytes: u64) -> Site {
        Site { location, scope: self.scope, requested_bytes }
    }

    /// A block was handed out inside the scope.
    pub(crate) fn allocated(&self, location: &'static Location<'static>, requested_bytes: u64) {
        let site = self.site(location, requested_bytes);
        self.observer.each(|log| log.allocated(site));
    }

    /// A block that was handed out inside the scope was given back, wherever.
    pub(crate) fn freed(&self, location: &'static Location<'static>, requested_bytes: u64) {
        let site = self.site(location, requested_bytes);
        self.observer.each(|log| log.freed(&site));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Every allocation and free that ever was, and a copy of what was live at each new peak.
    #[derive(Debug, Default)]
    struct Plain {
        live: Vec<Site>,
        live_at_peak: Vec<Site>,
        made: Vec<Site>,
        peak_bytes: u64,
    }

    impl Plain {
        fn allocated(&mut self, site: Site) {
            self.live.push(site);
            self.made.push(site);
            let live_bytes = self.live.iter().map(|site| site.requested_bytes).sum();
            if live_bytes > self.peak_bytes {
                self.peak_bytes = live_bytes;
                self.live_at_peak = self.live.clone();
            }
        }
    }

    type Key = (u32, u32, Option<&'static str>, u64);
    type Counts = BTreeMap<Key, u64>;

    fn key(site: &Site) -> Key {
        (site.location.line(), site.location.column(), site.scope, site.requested_bytes)
    }

    fn counted(counts: Vec<SiteCount>) -> Counts {
        counts.into_iter().map(|SiteCount { site, count }| (key(&site), count)).collect()
    }

    fn count(sites: &[Site]) -> Counts {
        let mut counts = Counts::new();
        sites.iter().for_each(|site| *counts.entry(key(site)).or_default() += 1);
        counts
    }

    proptest! {
        #[test]
        fn sums_and_the_live_sites_at_the_peak_are_those_of_a_plain_list(
            steps in prop::collection::vec((any::<bool>(), 0..6_usize, 0..100_usize), 1..400)
        ) {
            let observer = Observer::new(None);
            let outer = Observed::by(&observer);
            let scopes = [Arc::clone(&outer), outer.inside("inner")];
            let lines = [Location::caller(), Location::caller()];
            let mut plain = Plain::default();
            let mut held: Vec<(Arc<Observed>, Site)> = Vec::new();
            for (allocates, which, pick) in steps {
                if allocates || held.is_empty() {
                    let (observed, location) = (&scopes[which % 2], lines[which / 2 % 2]);
                    let site = observed.site(location, (pick % 3) as u64);
                    observed.allocated(location, site.requested_bytes);
                    plain.allocated(site);
                    held.push((Arc::clone(observed), site));
                } else {
                    let at = pick % held.len();
                    let (observed, site) = held.swap_remove(at);
                    observed.freed(site.location, site.requested_bytes);
                    plain.live.swap_remove(at);
                }
                prop_assert_eq!(observer.peak_bytes(), plain.peak_bytes);
                prop_assert_eq!(counted(observer.live()), count(&plain.live));
                prop_assert_eq!(counted(observer.live_at_peak()), count(&plain.live_at_peak));
            }
            prop_assert_eq!(counted(observer.made()), count(&plain.made));
            prop_assert_eq!(observer.allocation_count(), plain.made.len() as u64);
        }
    }

    #[test]
    fn an_observer_around_counts_the_same_and_goes_on_when_the_inner_one_ends() {
        let here = Location::caller();
        let outer = Observer::new(None);
        let around = Observed::by(&outer);
        let inner = Observer::new(Some(Arc::clone(&around)));
        let observed = Observed::by(&inner);
        around.allocated(here, 100);
        observed.allocated(here, 10);
        inner.end();
        observed.allocated(here, 1);
        observed.freed(here, 10);
        around.freed(here, 100);
        assert_eq!((inner.peak_bytes(), inner.allocation_count(), inner.live()), (10, 1, Vec::new()));
        assert_eq!((outer.peak_bytes(), outer.allocation_count()), (111, 3));
        assert_eq!(outer.live().iter().map(|counted| counted.site.requested_bytes).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_free_of_what_an_ended_observer_did_not_see_allocated_changes_nothing() {
        let here = Location::caller();
        let observer = Observer::new(None);
        let observed = Observed::by(&observer);
        observer.end();
        observed.allocated(here, 10);
        observed.freed(here, 10);
        assert_eq!((observer.live(), observer.made()), (Vec::new(), Vec::new()));
    }
}
