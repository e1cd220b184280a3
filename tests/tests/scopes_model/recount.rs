//! The answers, each by going through the list.

use memtrack::scope::Outcome;

use super::figures::{Figures, Totals};
use super::log::{Cause, Entry, Log, Moment, ScopeId};

const OUTCOMES: [Outcome; 4] = [Outcome::Ok, Outcome::Err, Outcome::Panic, Outcome::Cancelled];

/// What is added up over a scope's devices.
#[derive(Debug, Default)]
struct Sums {
    live: i64,
    reserved: i64,
    own: i64,
}

impl Log {
    fn now(&self) -> Moment {
        self.entries.len()
    }

    /// The end of a scope's time, so far.
    fn end(&self, scope: ScopeId) -> Moment {
        self.scopes[scope].closed.map_or(self.now(), |(closed, _)| closed)
    }

    /// What a scope should say of some of its devices together; each is named so.
    pub(crate) fn figures(&self, scope: ScopeId, devices: &[usize], device_name: &str) -> Figures {
        let facts = &self.scopes[scope];
        let phase = devices.first().and_then(|device| facts.part(*device)).and_then(|part| part.phase);
        let mut figures = Figures {
            name: facts.name,
            device: vec![device_name; devices.len()].join(","),
            phase,
            outcome: facts.closed.map_or(Outcome::Ok, |(_, outcome)| outcome),
            before: 0,
            after: 0,
            peak: 0,
            counts: [0; 4],
            reserved_delta: 0,
            own_delta: 0,
            own_peak: 0,
            own_allocated: 0,
            exclusive: 0,
            own_counts: [0; 4],
            foreign: 0,
        };
        let mut sums = Sums::default();
        let mut reserved = vec![0; 1 + devices.iter().max().copied().unwrap_or(0)];
        for (moment, entry) in self.entries[..self.end(scope)].iter().enumerate() {
            if moment == facts.opened {
                (figures.before, figures.peak) = (sums.live, sums.live);
                figures.reserved_delta = -sums.reserved;
            }
            let Entry::Event { device, cause, context } = *entry else { continue };
            if !devices.contains(&device) {
                continue;
            }
            match cause {
                Cause::Allocated(block) => sums.live += self.blocks[block].size_bytes,
                Cause::Freed(block) => sums.live -= self.blocks[block].size_bytes,
                Cause::Reserved(level) => {
                    sums.reserved += level - reserved[device];
                    reserved[device] = level;
                }
                Cause::Retried(_) | Cause::OutOfMemory(_) => {}
            }
            if moment > facts.opened {
                figures.peak = figures.peak.max(sums.live);
                self.include(&mut figures, &mut sums.own, scope, (device, cause, context, moment));
            }
        }
        figures.after = sums.live;
        figures.reserved_delta += sums.reserved;
        figures.own_delta = sums.own;
        figures
    }

    /// One event in a scope's time.
    fn include(
        &self,
        figures: &mut Figures,
        own: &mut i64,
        scope: ScopeId,
        (device, cause, context, moment): (usize, Cause, Option<ScopeId>, Moment),
    ) {
        let inside = self.is_inside(context, scope, device, moment);
        match cause {
            Cause::Allocated(block) => {
                let block = &self.blocks[block];
                figures.counts[0] += 1;
                if inside {
                    *own += block.requested_bytes;
                    figures.own_peak = figures.own_peak.max(*own);
                    figures.own_allocated += block.requested_bytes;
                    figures.own_counts[0] += 1;
                    let mut within = self.open_around(context, device, moment).take_while(|of| *of != scope);
                    if within.all(|of| !self.scopes[of].is_function) {
                        figures.exclusive += block.requested_bytes;
                    }
                } else {
                    figures.foreign += block.size_bytes;
                }
            }
            Cause::Freed(block) => {
                let block = &self.blocks[block];
                figures.counts[1] += 1;
                if self.is_inside(block.owner, scope, device, moment) {
                    *own -= block.requested_bytes;
                    figures.own_counts[1] += 1;
                }
                figures.foreign += if inside { 0 } else { block.size_bytes };
            }
            Cause::Retried(count) => {
                figures.counts[2] += count;
                figures.own_counts[2] += if inside { count } else { 0 };
            }
            Cause::OutOfMemory(count) => {
                figures.counts[3] += count;
                figures.own_counts[3] += if inside { count } else { 0 };
            }
            Cause::Reserved(_) => {}
        }
    }

    /// Devices of a scope on which anything was allocated or freed in its time.
    pub(crate) fn changed_device_count(&self, scope: ScopeId) -> usize {
        let changed = |device: usize| {
            let figures = self.figures(scope, &[device], "");
            figures.counts[0] + figures.counts[1] > 0
        };
        self.scopes[scope].parts.iter().filter(|part| changed(part.device)).count()
    }

    /// The highest allocated bytes of a device since its public peak was reset.
    pub(crate) fn public_peak(&self, of: usize) -> i64 {
        let (mut live, mut peak) = (0, 0);
        for entry in &self.entries {
            match *entry {
                Entry::PeaksReset(device) if device == of => peak = live,
                Entry::Event { device, cause: Cause::Allocated(block), .. } if device == of => {
                    live += self.blocks[block].size_bytes;
                    peak = peak.max(live);
                }
                Entry::Event { device, cause: Cause::Freed(block), .. } if device == of => {
                    live -= self.blocks[block].size_bytes;
                }
                _ => {}
            }
        }
        peak
    }

    /// When the totals of a device's call sites began.
    fn totals_began(&self, device: usize) -> Moment {
        let is_reset = |entry: &Entry| matches!(entry, Entry::CallSitesReset(of) if *of == device);
        self.entries.iter().rposition(is_reset).unwrap_or(0)
    }

    /// The totals of a device's call sites and of what is outside all, those with the most inclusive bytes first; equal ones by
    /// name.
    pub(crate) fn call_sites(&self, device: usize, names: &[&'static str]) -> Vec<Totals> {
        let mut all: Vec<_> =
            names.iter().enumerate().filter_map(|(site, name)| self.totals(device, site, name)).collect();
        all.sort_by_key(|totals| (-totals.inclusive, totals.name));
        all.push(self.outside(device));
        all
    }

    fn totals(&self, device: usize, site: usize, name: &'static str) -> Option<Totals> {
        let began = self.totals_began(device);
        let calls: Vec<ScopeId> = (0..self.scopes.len())
            .filter(|scope| self.scopes[*scope].site == Some(site) && self.scopes[*scope].part(device).is_some())
            .collect();
        if calls.is_empty() {
            return None;
        }
        let mut totals = Totals { name, ..Totals::default() };
        for call in calls.into_iter().filter(|call| self.end(*call) > began) {
            let facts = &self.scopes[call];
            let parent = facts.part(device).and_then(|part| part.parent);
            let mut around = self.open_around(parent, device, began.max(facts.opened));
            totals.calls[0] += 1;
            totals.calls[1] += u64::from(around.all(|of| self.scopes[of].site != Some(site)));
            match facts.closed {
                None => totals.calls[2] += 1,
                Some((_, outcome)) => {
                    totals.ended[OUTCOMES.iter().position(|of| *of == outcome).unwrap()] += 1;
                }
            }
            let figures = self.figures(call, &[device], "");
            totals.own_peak = totals.own_peak.max(figures.own_peak);
            totals.peak_delta = totals.peak_delta.max(figures.peak - figures.before);
        }
        let unmeasured = |entry: &&Entry| matches!(entry, Entry::Unmeasured(of) if *of == site);
        totals.calls[3] = self.entries[began..].iter().filter(unmeasured).count() as u64;
        self.count_events(&mut totals, device, |sites| sites.contains(&site), |sites| sites.first() == Some(&site));
        (totals.calls[0] + totals.calls[3] > 0).then_some(totals)
    }

    fn outside(&self, device: usize) -> Totals {
        let mut totals = Totals { name: "outside of tracked functions", ..Totals::default() };
        self.count_events(&mut totals, device, <[usize]>::is_empty, <[usize]>::is_empty);
        // Not kept.
        totals.net = 0;
        totals
    }

    /// Counts the events since the totals began of which this is true of the sites around, the innermost first.
    fn count_events(
        &self,
        totals: &mut Totals,
        of: usize,
        is_inclusive: impl Fn(&[usize]) -> bool,
        is_exclusive: impl Fn(&[usize]) -> bool,
    ) {
        let began = self.totals_began(of);
        for (moment, entry) in self.entries.iter().enumerate().skip(began) {
            let Entry::Event { device, cause, context } = *entry else { continue };
            if device != of {
                continue;
            }
            let sites = |context| -> Vec<usize> {
                self.open_around(context, device, moment).filter_map(|scope| self.scopes[scope].site).collect()
            };
            let here = sites(context);
            match cause {
                Cause::Allocated(block) => {
                    let bytes = self.blocks[block].requested_bytes;
                    if is_inclusive(&here) {
                        totals.inclusive += bytes;
                        totals.net += bytes;
                        totals.counts[0] += 1;
                    }
                    totals.exclusive += if is_exclusive(&here) { bytes } else { 0 };
                }
                Cause::Freed(block) => {
                    let block = &self.blocks[block];
                    totals.net -= if is_inclusive(&sites(block.owner)) { block.requested_bytes } else { 0 };
                }
                Cause::Retried(count) => totals.counts[1] += if is_inclusive(&here) { count } else { 0 },
                Cause::OutOfMemory(count) => totals.counts[2] += if is_inclusive(&here) { count } else { 0 },
                Cause::Reserved(_) => {}
            }
        }
    }
}
