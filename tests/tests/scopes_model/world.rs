//! One program, run by memtrack and written into the list.

use std::sync::Arc;

use memtrack::device::Simulated;
use memtrack::scope::{CallSite, DevicesScope, OpenDevicesScope, OpenScope, Outcome, Scope};
use memtrack::{Buffer, CachingAllocator};

use super::crew::{Crew, Done, Guard, Open};
use super::figures::{Figures, Totals};
use super::log::{Block, BlockId, Cause, Entry, Log, Part, ScopeFacts, ScopeId};
use super::program::{Kind, Opening, PHASES, Program, Step, THREAD_COUNT};

/// Small enough for the cache to be in the way.
const DEVICE_BYTES: u64 = 64 << 20;

/// What a thread is in: the scopes that belong to it, and inside them those that it is attached to.
#[derive(Debug, Clone, Default)]
struct Entered {
    bound: Vec<ScopeId>,
    attached: Vec<ScopeId>,
}

/// Where an open scope is.
enum Place {
    Bound(usize),
    Free(Arc<Open>),
}

struct World<'crew> {
    crew: &'crew mut Crew,
    sites: &'static [CallSite; 3],
    allocators: Vec<CachingAllocator>,
    log: Log,
    entered: [Entered; THREAD_COUNT],
    open: Vec<(ScopeId, Place)>,
    blocks: Vec<(BlockId, Buffer<u8>)>,
}

/// Runs a program to its end, where all scopes are closed and all blocks freed.
pub(crate) fn run(program: &Program, crew: &mut Crew, sites: &'static [CallSite; 3]) -> Result<(), String> {
    log_of(program, crew, sites).map(drop)
}

/// As [`run`]; the list of what happened.
pub(crate) fn log_of(program: &Program, crew: &mut Crew, sites: &'static [CallSite; 3]) -> Result<Log, String> {
    crew.clear(THREAD_COUNT);
    let allocators = (0..program.device_count)
        .map(|_| CachingAllocator::new(Arc::new(Simulated::with_capacity(DEVICE_BYTES))))
        .collect();
    let mut world = World {
        crew,
        sites,
        allocators,
        log: Log::default(),
        entered: Default::default(),
        open: Vec::new(),
        blocks: Vec::new(),
    };
    for step in &program.steps {
        world.step(step)?;
    }
    world.finish()?;
    Ok(world.log)
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}\n   found {found:?}\nexpected {expected:?}")) }
}

impl World<'_> {
    fn step(&mut self, step: &Step) -> Result<(), String> {
        let device_of = |pick: usize| pick % self.allocators.len();
        match *step {
            Step::Open { thread, ref opening } => self.open(thread, opening),
            Step::Close { pick, thread, outcome } if !self.open.is_empty() => {
                return self.close(pick % self.open.len(), thread, outcome);
            }
            Step::Attach { thread, pick } => {
                let free: Vec<_> = self.open.iter().filter(|(_, place)| matches!(place, Place::Free(_))).collect();
                if let Some((scope, _)) = free.get(pick % free.len().max(1)) {
                    self.entered[thread].attached.push(*scope);
                }
            }
            Step::Detach { thread, pick } => {
                let attached = &mut self.entered[thread].attached;
                if !attached.is_empty() {
                    attached.remove(pick % attached.len());
                }
            }
            Step::Allocate { thread, device, bytes } => self.allocate(thread, device_of(device), bytes),
            Step::Free { thread, pick } if !self.blocks.is_empty() => self.free(thread, pick % self.blocks.len()),
            Step::ResetPeaks { device } => {
                self.allocators[device_of(device)].reset_peak_memory_stats();
                self.log.entries.push(Entry::PeaksReset(device_of(device)));
            }
            Step::ResetAccumulated { device } => self.allocators[device_of(device)].reset_accumulated_memory_stats(),
            Step::ResetCallSites { device } => {
                self.allocators[device_of(device)].reset_call_sites();
                self.log.entries.push(Entry::CallSitesReset(device_of(device)));
            }
            Step::CountUnmeasured { site } => {
                self.sites[site].count_unmeasured();
                self.log.entries.push(Entry::Unmeasured(site));
            }
            Step::Compare { device } => return self.compare(device_of(device)),
            Step::Close { .. } | Step::Free { .. } => {}
        }
        Ok(())
    }

    /// The scope that a thread is in on a device.
    fn context(&self, thread: usize, device: usize) -> Option<ScopeId> {
        let Entered { bound, attached } = &self.entered[thread];
        let is_on_device = |scope: &&ScopeId| self.log.scopes[**scope].part(device).is_some();
        attached.iter().rev().chain(bound.iter().rev()).find(is_on_device).copied()
    }

    fn attached(&self, thread: usize) -> Vec<Arc<Open>> {
        let place = |scope: &ScopeId| self.open.iter().find(|(of, _)| of == scope).map(|(_, place)| place);
        let of = |scope: &ScopeId| match place(scope) {
            Some(Place::Free(open)) => Arc::clone(open),
            _ => unreachable!("only what belongs to no thread is attached, until it closes"),
        };
        self.entered[thread].attached.iter().map(of).collect()
    }

    fn open(&mut self, thread: usize, opening: &Opening) {
        let Opening { mut kind, mut phase, over, bound } = *opening;
        let is_bound = self.crew.has_guards() && (bound || matches!(kind, Kind::PhaseGuard(_) | Kind::StepGuard(_)));
        let mut list = over.list(self.allocators.len());
        match kind {
            Kind::PhaseGuard(number) => (phase, list) = (Some(number), None),
            Kind::StepGuard(_) => (phase, list) = (None, None),
            Kind::Plain | Kind::Site(_) => {}
        }
        if !is_bound && !matches!(kind, Kind::Site(_)) {
            kind = Kind::Plain;
        }
        let device = match over {
            super::program::Over::One(pick) => pick % self.allocators.len(),
            _ => 0,
        };
        let devices = list.clone().unwrap_or_else(|| vec![device]);
        let phase = phase.map(|phase| PHASES[phase]);
        let facts = self.facts(thread, kind, phase, &devices);
        let name = facts.name;
        let id = self.log.open(facts);

        let of = |device: &usize| self.allocators[*device].clone();
        let (allocator, several) = (of(&device), list.map(|list| list.iter().map(of).collect::<Vec<_>>()));
        let site = match kind {
            Kind::Site(site) => Some(&self.sites[site]),
            Kind::Plain | Kind::PhaseGuard(_) | Kind::StepGuard(_) => None,
        };
        let attached = self.attached(thread);
        let done = self.crew.run(thread, attached, move |guards| {
            if !is_bound {
                return Done::Opened(match (several, site) {
                    (None, None) => Open::One(OpenScope::open(&allocator, name, phase)),
                    (None, Some(site)) => Open::One(OpenScope::open_site(&allocator, site, phase)),
                    (Some(all), None) => Open::Several(OpenDevicesScope::open(&all, name, phase)),
                    (Some(all), Some(site)) => Open::Several(OpenDevicesScope::open_site(&all, site, phase)),
                });
            }
            let _current = allocator.make_current();
            let guard = match (kind, several, site) {
                (Kind::PhaseGuard(_), ..) => Guard::Phase(memtrack::phase(name)),
                (Kind::StepGuard(number), ..) => Guard::Step(memtrack::step(number)),
                (_, None, None) => Guard::One(Scope::open(&allocator, name, phase)),
                (_, None, Some(site)) => Guard::One(Scope::open_site(&allocator, site, phase)),
                (_, Some(all), None) => Guard::Several(DevicesScope::open(&all, name, phase)),
                (_, Some(all), Some(site)) => Guard::Several(DevicesScope::open_site(&all, site, phase)),
            };
            guards.insert(id, guard);
            Done::Nothing
        });
        let place = match done {
            Done::Opened(open) => Place::Free(Arc::new(open)),
            _ => {
                self.entered[thread].bound.push(id);
                Place::Bound(thread)
            }
        };
        if !is_bound && bound {
            self.entered[thread].attached.push(id);
        }
        self.open.push((id, place));
    }

    /// What is to be known of a scope that a thread opens.
    fn facts(&self, thread: usize, kind: Kind, phase: Option<&'static str>, devices: &[usize]) -> ScopeFacts {
        let mut parts: Vec<Part> = Vec::new();
        for device in devices {
            if parts.iter().all(|part| part.device != *device) {
                let parent = self.context(thread, *device);
                let around = parent.and_then(|parent| self.log.scopes[parent].part(*device));
                let phase = phase.or(around.and_then(|part| part.phase));
                parts.push(Part { device: *device, parent, phase });
            }
        }
        let (name, site) = match kind {
            Kind::Plain => ("plain", None),
            Kind::Site(site) => (self.sites[site].name(), Some(site)),
            Kind::PhaseGuard(number) => (PHASES[number], None),
            Kind::StepGuard(_) => ("step", None),
        };
        let is_function = !matches!(kind, Kind::StepGuard(_));
        ScopeFacts { name, site, is_function, parts, opened: 0, closed: None }
    }

    fn close(&mut self, at: usize, thread: usize, outcome: Outcome) -> Result<(), String> {
        let (id, place) = self.open.remove(at);
        for entered in &mut self.entered {
            entered.attached.retain(|scope| *scope != id);
            entered.bound.retain(|scope| *scope != id);
        }
        // The guards of phases and steps end well.
        let is_guard = matches!(place, Place::Bound(_)) && self.is_phase_or_step(id);
        let outcome = if is_guard { Outcome::Ok } else { outcome };
        self.log.close(id, outcome);
        let done = match place {
            Place::Bound(thread) => {
                self.crew.run(thread, Vec::new(), move |guards| guards.remove(&id).unwrap().close(outcome))
            }
            Place::Free(open) => {
                let open = Arc::into_inner(open).ok_or("a scope is still attached")?;
                self.crew.run(thread, Vec::new(), move |_| open.close(outcome))
            }
        };
        self.compare_record(id, &done)
    }

    fn is_phase_or_step(&self, scope: ScopeId) -> bool {
        let ScopeFacts { name, .. } = self.log.scopes[scope];
        PHASES.contains(&name) || name == "step"
    }

    fn compare_record(&self, scope: ScopeId, done: &Done) -> Result<(), String> {
        let devices: Vec<usize> = self.log.scopes[scope].parts.iter().map(|part| part.device).collect();
        match done {
            Done::Closed(record) => {
                equal("record", &Figures::from(record), &self.log.figures(scope, &devices, "simulated"))
            }
            Done::SeveralClosed(record) => {
                for (device, record) in devices.iter().zip(&record.devices) {
                    let expected = self.log.figures(scope, &[*device], "simulated");
                    equal("record of one of several", &Figures::from(record), &expected)?;
                }
                let expected = self.log.figures(scope, &devices, "simulated");
                equal("record of several", &Figures::from(&record.combined), &expected)?;
                let counts = (record.devices.len(), record.changed_device_count);
                equal("devices", &counts, &(devices.len(), self.log.changed_device_count(scope)))
            }
            _ => Err("the scope gave no record".to_owned()),
        }
    }

    fn allocate(&mut self, thread: usize, device: usize, bytes: usize) {
        let context = self.context(thread, device);
        let allocator = self.allocators[device].clone();
        let failures = |stats: memtrack::MemoryStats| (stats.num_alloc_retries, stats.num_ooms);
        let (retries, ooms) = failures(allocator.memory_stats());
        let allocated_before = allocator.memory_allocated();
        let attached = self.attached(thread);
        let done = self.crew.run(thread, attached, move |_| Done::Allocated(Buffer::uninit(&allocator, bytes).ok()));
        let (retries_now, ooms_now) = failures(self.allocators[device].memory_stats());
        self.log.event(device, Cause::Retried(retries_now - retries), context);
        self.log.event(device, Cause::OutOfMemory(ooms_now - ooms), context);
        if let Done::Allocated(Some(buffer)) = done {
            let block = self.log.blocks.len();
            let size_bytes = self.allocators[device].memory_allocated() - allocated_before;
            self.log.blocks.push(Block { device, requested_bytes: bytes as i64, size_bytes, owner: context });
            self.log.event(device, Cause::Allocated(block), context);
            self.blocks.push((block, buffer));
        }
        let reserved = self.allocators[device].memory_reserved();
        self.log.event(device, Cause::Reserved(reserved), context);
    }

    fn free(&mut self, thread: usize, at: usize) {
        let (block, buffer) = self.blocks.swap_remove(at);
        let device = self.log.blocks[block].device;
        let context = self.context(thread, device);
        let attached = self.attached(thread);
        self.crew.run(thread, attached, move |_| {
            drop(buffer);
            Done::Nothing
        });
        self.log.event(device, Cause::Freed(block), context);
    }

    /// Compares what can be asked while scopes are open.
    fn compare(&self, device: usize) -> Result<(), String> {
        let names = self.sites.each_ref().map(CallSite::name);
        let found: Vec<Totals> = self.allocators[device].call_sites().iter().map(Totals::from).collect();
        equal("call sites", &found, &self.log.call_sites(device, &names))?;
        equal("public peak", &self.allocators[device].max_memory_allocated(), &self.log.public_peak(device))
    }

    fn finish(&mut self) -> Result<(), String> {
        while !self.open.is_empty() {
            self.close(self.open.len() / 2, 0, Outcome::Ok)?;
        }
        while !self.blocks.is_empty() {
            self.free(0, 0);
        }
        (0..self.allocators.len()).try_for_each(|device| self.compare(device))
    }
}
