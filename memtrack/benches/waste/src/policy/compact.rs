//! Whole pages without live bytes serve where they are needed.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::Policy;
use super::middle::{Middle, MiddleSizes};
use super::space::{Space, State};
use crate::machine::{Machine, PAGE_BYTES, Page, Slot};

/// Which free blocks give up their pages first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Donors {
    Smallest,
    Largest,
    Oldest,
    Newest,
    /// The smallest that has all the pages, else the largest.
    Fitting,
}

/// Where the front of a fit is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    Best,
    First,
    /// The fit whose size class (an eighth of a power of two) is smallest, of these the lowest address.
    Class,
}

/// What becomes of a page's old mapping when it moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Views {
    /// It goes at once, and its stream is waited for.
    Wait,
    /// It goes at the first growth after its work is over.
    Sweep,
    /// It stays until another page is needed there.
    Replace,
    /// As [`Replace`](Self::Replace); and the page goes back to it, without a call, rather than to new addresses.
    Keep,
}

/// What can be varied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Pages are created, not moved, up to the peak and so many thousandths; `None`: holes give first, always.
    pub(crate) slack: Option<u64>,
    pub(crate) views: Views,
    pub(crate) donors: Donors,
    pub(crate) fit: Fit,
    /// Blocks up to this have spaces of their own.
    pub(crate) small_bytes: u64,
    /// Where larger ones go that are not large either.
    pub(crate) middle: Middle,
    /// Pages of small spaces move only when nothing else does.
    pub(crate) small_keeps: bool,
    /// Once pages must move, all that is missing moves: what may be created is kept for later.
    pub(crate) hoard: bool,
    /// What needs no call of the driver comes before creating.
    pub(crate) ready_first: bool,
    /// Slots whose old mapping is still in use count as so many pages more.
    pub(crate) busy_cost: usize,
    /// What would make pages be created beyond the limit comes last.
    pub(crate) forced_last: bool,
    /// Beyond the limit, streams are waited for if they have pages.
    pub(crate) wait: bool,
    /// Blocks from here on are whole pages.
    pub(crate) whole_bytes: u64,
    /// A block goes where one went after the same so many requests before, if that is free; 0: never.
    pub(crate) remembered: usize,
    /// Blocks that are thought to be short-lived are cut from the end of a free block, at most so many operations.
    pub(crate) short: u64,
    /// New mappings are made with so many thousandths of the live peak more than needed, if holes have them.
    pub(crate) batch: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            slack: Some(20),
            views: Views::Keep,
            donors: Donors::Oldest,
            fit: Fit::Best,
            small_bytes: 512 << 10,
            middle: Middle::default(),
            small_keeps: true,
            hoard: true,
            ready_first: false,
            busy_cost: 1000,
            remembered: 0,
            forced_last: true,
            wait: true,
            whole_bytes: u64::MAX,
            short: 0,
            batch: 0,
        }
    }
}

impl Rules {
    /// The rules before middle sizes had any.
    pub(crate) fn earlier() -> Self {
        Self { small_bytes: 64 << 10, middle: Middle::NONE, ..Self::default() }
    }
}

/// The policy.
#[derive(Debug)]
pub(crate) struct Compact {
    rules: Rules,
    spaces: BTreeMap<u64, Space>,
    /// By stream.
    middle_sizes: HashMap<u8, MiddleSizes>,
    /// What is mapped at each slot, owned or not.
    mapped: HashMap<Slot, Page>,
    /// Each page's owner: the slot at which it can be handed out.
    owner: Vec<Slot>,
    now: u64,
    /// By size: how many operations a block lived.
    lifetimes: HashMap<u64, u64>,
    born: HashMap<u64, u64>,
    /// The last requests, and where a block went after the same ones.
    recent: VecDeque<u64>,
    growths: u64,
    most_places: u64,
    /// Mappings to go.
    stale: Vec<(Slot, Page)>,
    places: HashMap<Vec<u64>, u64>,
}

#[derive(Debug, Clone)]
struct Target {
    start: u64,
    missing: Vec<Slot>,
    /// Of the missing, those whose own page is free elsewhere.
    ready: usize,
    /// Of the missing, those whose mapping must go first and is still used by work.
    busy: usize,
    /// Whole free pages within the range.
    inside: usize,
}

const SPACE_BITS: u32 = 44;

impl Compact {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            spaces: BTreeMap::new(),
            middle_sizes: HashMap::new(),
            mapped: HashMap::new(),
            owner: Vec::new(),
            now: 0,
            lifetimes: HashMap::new(),
            born: HashMap::new(),
            recent: VecDeque::new(),
            stale: Vec::new(),
            growths: 0,
            most_places: 0,
            places: HashMap::new(),
        }
    }

    /// The space that serves a size now.
    fn base(&self, bytes: u64, stream: u8) -> u64 {
        let base = |is_small: bool| (1 + 2 * u64::from(stream) + u64::from(is_small)) << SPACE_BITS;
        let Rules { small_bytes, middle, .. } = self.rules;
        if bytes <= small_bytes || bytes > middle.up_to_bytes {
            return base(bytes <= small_bytes);
        }
        if middle.ends_first {
            let large = base(false);
            return base(!self.spaces.contains_key(&large) || self.find(large, bytes).is_none());
        }
        base(self.middle_sizes.get(&stream).is_some_and(|sizes| sizes.are_small(&middle)))
    }

    /// Pages come to these slots, which are in rising order.
    fn note_runs(&mut self, stream: u8, slots: &[Slot]) {
        if self.rules.middle.leaves_out_grown {
            let sizes = self.middle_sizes.entry(stream).or_default();
            slots.chunk_by(|slot, next| slot + 1 == *next).for_each(|_| sizes.freed(false));
        }
    }

    /// What the middle and the large sizes of a stream did, if this is one of them.
    fn sizes_like(&mut self, bytes: u64, stream: u8) -> Option<&mut MiddleSizes> {
        (bytes > self.rules.small_bytes).then(|| self.middle_sizes.entry(stream).or_default())
    }

    fn whole(&self, bytes: u64) -> u64 {
        if bytes >= self.rules.whole_bytes { bytes.next_multiple_of(PAGE_BYTES) } else { bytes }
    }

    fn is_small(base: u64) -> bool {
        (base >> SPACE_BITS).is_multiple_of(2)
    }

    fn find(&self, base: u64, bytes: u64) -> Option<u64> {
        let free = &self.spaces[&base].free;
        match self.rules.fit {
            Fit::Best => free.range((bytes, 0)..).next().map(|&(_, address)| address),
            Fit::First => free.range((bytes, 0)..).map(|&(_, address)| address).min(),
            Fit::Class => {
                let class = |bytes: u64| bytes >> (bytes.ilog2().saturating_sub(3));
                let (best, _) = *free.range((bytes, 0)..).next()?;
                let fits = free
                    .range((bytes, 0)..)
                    .take_while(|(bytes, _)| bytes.ilog2() == best.ilog2() && class(*bytes) == class(best));
                fits.map(|&(_, address)| address).min()
            }
        }
    }

    /// Whether the page lies wholly in a free block that a stream may use, outside a range.
    fn is_spare(&self, machine: &Machine, page: Page, stream: u8, except: (u64, u64)) -> bool {
        let slot = self.owner[page as usize];
        let address = slot * PAGE_BYTES;
        if address + PAGE_BYTES > except.0 && address < except.1 {
            return false;
        }
        let space = &self.spaces[&(address >> SPACE_BITS << SPACE_BITS)];
        let Some((start, block)) = space.containing(address) else { return false };
        block.state == State::Free
            && address + PAGE_BYTES <= start + block.bytes
            && (space.stream == stream || machine.is_usable(page, stream))
    }

    fn target(&self, machine: &Machine, base: u64, bytes: u64, start: u64, run: &[(u64, u64, State)]) -> Target {
        let (stream, end) = (self.spaces[&base].stream, start + bytes);
        let mut missing = Vec::new();
        let mut inside = 0;
        for &(address, size, state) in run {
            if state == State::Free && address < end && address + size > start {
                let (first, last) = Space::whole_slots(address, size);
                inside += last.saturating_sub(first) as usize;
            }
            if state == State::Hole && address < end && address + size > start {
                let first = address.max(start) / PAGE_BYTES;
                let last = (address + size).min(end).div_ceil(PAGE_BYTES);
                missing.extend(first..last);
            }
        }
        let is_ready = |slot: &&Slot| {
            self.rules.views == Views::Keep
                && self.mapped.get(slot).is_some_and(|&page| self.is_spare(machine, page, stream, (start, end)))
        };
        let ready = missing.iter().filter(is_ready).count();
        let is_busy = |slot: &&Slot| self.mapped.contains_key(slot) && !machine.is_idle(**slot) && !is_ready(slot);
        let busy = missing.iter().filter(is_busy).count();
        Target { start, missing, ready, busy, inside }
    }

    /// Where the block could be made, by any rule.
    fn targets(&self, machine: &Machine, base: u64, bytes: u64) -> Vec<Target> {
        let space = &self.spaces[&base];
        let mut targets = Vec::new();
        let mut run: Vec<(u64, u64, State)> = Vec::new();
        let mut finish = |run: &mut Vec<(u64, u64, State)>| {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { return };
            let (from, to) = (first.0, last.0 + last.1);
            if to - from >= bytes && run.iter().any(|block| block.2 == State::Hole) {
                let mut starts: Vec<u64> = Vec::new();
                for &(address, size, _) in run.iter() {
                    if address + bytes <= to {
                        starts.push(address);
                    }
                    if address + size >= from + bytes && address + size < (base + (1 << 43)) {
                        starts.push(address + size - bytes);
                    }
                }
                starts.sort_unstable();
                starts.dedup();
                for start in starts {
                    targets.push(self.target(machine, base, bytes, start, run));
                }
            }
            run.clear();
        };
        for (&address, block) in &space.blocks {
            match block.state {
                State::Live => finish(&mut run),
                state => run.push((address, block.bytes, state)),
            }
        }
        finish(&mut run);
        targets
    }

    /// Takes a page out of the free block that it lies in.
    fn disown(&mut self, page: Page) {
        let address = self.owner[page as usize] * PAGE_BYTES;
        let space = self.spaces.get_mut(&(address >> SPACE_BITS << SPACE_BITS)).expect("an owner's space");
        space.set(address, PAGE_BYTES, State::Hole, self.now);
    }

    fn own(&mut self, machine: &mut Machine, slot: Slot, page: Page) {
        if self.owner.len() <= page as usize {
            self.owner.resize(page as usize + 1, 0);
        }
        let address = slot * PAGE_BYTES;
        if self.mapped.get(&slot) != Some(&page) {
            if self.mapped.remove(&slot).is_some() {
                if !machine.is_idle(slot) {
                    machine.wait();
                }
                machine.unmap(slot);
            }
            let old = self.owner[page as usize];
            machine.map(slot, page);
            if self.rules.views == Views::Wait && old != 0 {
                if !machine.is_idle(old) {
                    machine.wait();
                }
                machine.unmap(old);
                self.mapped.remove(&old);
            }
            self.mapped.insert(slot, page);
        }
        let old = std::mem::replace(&mut self.owner[page as usize], slot);
        if self.rules.views == Views::Sweep && old != 0 && old != slot {
            self.stale.push((old, page));
        }
        let space = self.spaces.get_mut(&(address >> SPACE_BITS << SPACE_BITS)).expect("a slot's space");
        space.set(address, PAGE_BYTES, State::Free, self.now);
    }

    /// Pages that free blocks could give, in the order in which they should.
    fn spares(&self, machine: &Machine, stream: u8, except: (u64, u64), count: usize) -> Vec<Page> {
        let mut donors = Vec::new();
        for (&base, space) in &self.spaces {
            for &(bytes, address) in &space.free {
                let (first, last) = Space::whole_slots(address, bytes);
                if first < last && (address + bytes <= except.0 || address >= except.1) {
                    let since = space.blocks[&address].since;
                    let order = match self.rules.donors {
                        Donors::Smallest => bytes,
                        Donors::Largest => u64::MAX - bytes,
                        Donors::Oldest => since,
                        Donors::Newest => u64::MAX - since,
                        Donors::Fitting if last - first >= count as u64 => bytes,
                        Donors::Fitting => u64::MAX - bytes,
                    };
                    let kept = self.rules.small_keeps && Self::is_small(base);
                    donors.push((kept, space.stream != stream, order, address, first, last));
                }
            }
        }
        donors.sort_unstable();
        let slots = donors.into_iter().flat_map(|(.., first, last)| (first..last).rev());
        let pages = slots.map(|slot| self.mapped[&slot]);
        pages.filter(|&page| self.is_spare(machine, page, stream, (0, 0))).take(count).collect()
    }

    /// Whether another stream has whole free pages that its work may still use.
    fn has_busy(&self, machine: &Machine, stream: u8) -> bool {
        let others = self.spaces.values().filter(|space| space.stream != stream);
        let slots = others.flat_map(|space| space.free.iter()).flat_map(|&(bytes, address)| {
            let (first, last) = Space::whole_slots(address, bytes);
            first..last.max(first)
        });
        slots.map(|slot| self.mapped[&slot]).any(|page| !machine.is_usable(page, stream))
    }

    /// Puts pages behind addresses for the block; it begins where this says.
    fn grow(&mut self, machine: &mut Machine, base: u64, bytes: u64, live_peak_bytes: u64) -> u64 {
        let stream = self.spaces[&base].stream;
        let stale = std::mem::take(&mut self.stale);
        for (slot, page) in stale {
            // It may have been mapped anew or become the page's own again.
            if self.mapped.get(&slot) != Some(&page) || self.owner[page as usize] == slot {
                continue;
            }
            if machine.is_idle(slot) {
                machine.unmap(slot);
                self.mapped.remove(&slot);
            } else {
                self.stale.push((slot, page));
            }
        }
        let limit_bytes = self.rules.slack.map_or(0, |slack| live_peak_bytes + live_peak_bytes / 1000 * slack);
        let allowed = (limit_bytes.saturating_sub(machine.reserved_bytes) / PAGE_BYTES) as usize;
        let targets = self.targets(machine, base, bytes);
        self.growths += 1;
        self.most_places = self.most_places.max(targets.len() as u64);
        let views = self.rules.views == Views::Keep;
        let ready = |target: &Target| if views && self.rules.ready_first { target.ready } else { 0 };
        let creating = targets.iter().min_by_key(|target| {
            let lacking = target.missing.len() - ready(target);
            (lacking + self.rules.busy_cost * target.busy, target.missing.len(), target.start)
        });
        let creating = creating.expect("the hole at the end").clone();
        if creating.missing.len() - ready(&creating) <= allowed {
            self.note_runs(stream, &creating.missing);
            for slot in creating.missing {
                let except = (creating.start, creating.start + bytes);
                let page = self.mapped.get(&slot).copied().filter(|_| views && self.rules.ready_first);
                let page = match page.filter(|&page| self.is_spare(machine, page, stream, except)) {
                    Some(page) => {
                        self.disown(page);
                        page
                    }
                    None => machine.create(),
                };
                self.own(machine, slot, page);
            }
            return creating.start;
        }
        let busy_cost = self.rules.busy_cost;
        let mut spare = 0;
        if self.rules.forced_last {
            spare = self.spares(machine, stream, (0, 0), usize::MAX).len();
            let least = targets
                .iter()
                .map(|target| (target.missing.len() + target.inside).saturating_sub(spare + allowed))
                .min();
            if self.rules.wait && least.is_some_and(|least| least > 0) && self.has_busy(machine, stream) {
                machine.wait();
                spare = self.spares(machine, stream, (0, 0), usize::MAX).len();
            }
        }
        let cost = |target: &Target| {
            let forced = match self.rules.forced_last {
                true => (target.missing.len() + target.inside).saturating_sub(spare + allowed),
                false => 0,
            };
            (forced, target.missing.len() - if views { target.ready } else { 0 } + busy_cost * target.busy)
        };
        let target = targets.into_iter().min_by_key(|target| (cost(target), target.missing.len(), target.start));
        let Target { start, missing, .. } = target.expect("the hole at the end");
        let except = (start, start + bytes);
        let after_is_hole = missing.last().is_some_and(|&last| {
            let space = &self.spaces[&base];
            let (from, block) = space.containing(last * PAGE_BYTES).expect("a slot of this space");
            (from + block.bytes) / PAGE_BYTES > last + 1_000_000
        });
        let (mut ready, mut open) = (Vec::new(), Vec::new());
        for slot in missing {
            let page = self.mapped.get(&slot).copied().filter(|_| views);
            match page.filter(|&page| self.is_spare(machine, page, stream, except)) {
                Some(page) => {
                    self.disown(page);
                    self.own(machine, slot, page);
                    ready.push(slot);
                }
                None => open.push(slot),
            }
        }
        let hoarded = if self.rules.hoard { 0 } else { allowed.min(open.len()) };
        let wanted = open.len() - hoarded;
        let extra = if after_is_hole && wanted > 0 {
            (live_peak_bytes / 1000 * self.rules.batch / PAGE_BYTES) as usize
        } else {
            0
        };
        let spares = self.spares(machine, stream, except, wanted + extra);
        let created = open.len() - spares.len().min(wanted);
        let last = open.last().copied();
        for at in 0..spares.len().saturating_sub(wanted) as u64 {
            open.push(last.expect("something is missing") + 1 + at);
        }
        self.note_runs(stream, &ready);
        self.note_runs(stream, &open[..created]);
        self.note_runs(stream, &open[created..]);
        let mut spares = spares.into_iter();
        for (at, slot) in open.into_iter().enumerate() {
            let page = if at < created { machine.create() } else { spares.next().expect("counted") };
            if at >= created {
                self.disown(page);
            }
            self.own(machine, slot, page);
        }
        start
    }
}

impl Policy for Compact {
    fn allocate(&mut self, machine: &mut Machine, bytes: u64, stream: u8, live_peak_bytes: u64) -> u64 {
        self.now += 1;
        let base = self.base(bytes, stream);
        let requested = bytes;
        let bytes = self.whole(bytes);
        self.spaces.entry(base).or_insert_with(|| Space::new(base, 1 << 43, stream));
        let mut remembered = None;
        if self.rules.remembered > 0 {
            self.recent.push_back(bytes);
            if self.recent.len() > self.rules.remembered {
                self.recent.pop_front();
            }
            let key: Vec<u64> = self.recent.iter().copied().collect();
            remembered = self.places.get(&key).copied().filter(|&address| {
                let found = self.spaces[&base].containing(address);
                found.is_some_and(|(start, block)| block.state == State::Free && address + bytes <= start + block.bytes)
            });
        }
        let address = match remembered.or_else(|| self.find(base, bytes)) {
            Some(address) => address,
            None => self.grow(machine, base, bytes, live_peak_bytes),
        };
        let is_middle = requested <= self.rules.middle.up_to_bytes;
        if let Some(sizes) = self.sizes_like(requested, stream) {
            sizes.allocated(is_middle);
        }
        let now = self.now;
        let mut address = address;
        if self.rules.remembered > 0 {
            self.places.insert(self.recent.iter().copied().collect(), address);
        }
        if self.rules.short > 0 {
            if self.lifetimes.get(&bytes).is_some_and(|&lived| lived <= self.rules.short) {
                let (start, block) = self.spaces[&base].containing(address).expect("found above");
                address = start + block.bytes - bytes;
            }
            self.born.insert(address, now);
        }
        self.spaces.get_mut(&base).expect("made above").set(address, bytes, State::Live, now);
        address
    }

    fn free(&mut self, _: &mut Machine, address: u64, bytes: u64, stream: u8) {
        self.now += 1;
        let now = self.now;
        let is_middle = bytes <= self.rules.middle.up_to_bytes;
        if let Some(sizes) = self.sizes_like(bytes, stream) {
            sizes.freed(is_middle);
        }
        let bytes = self.whole(bytes);
        if let Some(born) = self.born.remove(&address) {
            self.lifetimes.insert(bytes, now - born);
        }
        let space = self.spaces.get_mut(&(address >> SPACE_BITS << SPACE_BITS)).expect("the block's space");
        space.set(address, bytes, State::Free, now);
    }

    fn growths(&self) -> (u64, u64) {
        (self.growths, self.most_places)
    }

    fn small_pages_bytes(&self) -> u64 {
        let small = self.spaces.iter().filter(|(base, _)| Self::is_small(**base));
        let blocks = small.flat_map(|(_, space)| space.blocks.values());
        blocks.filter(|block| block.state != State::Hole).map(|block| block.bytes).sum()
    }
}
