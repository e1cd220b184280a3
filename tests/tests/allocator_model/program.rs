//! Random programs: steps drawn so that the interesting sizes and states come up often.

use memtrack_tests::conformance::features::Features;
use memtrack_tests::conformance::step::Step;
use memtrack_tests::conformance::subject::Setup;

use crate::family::Family;
use crate::random::Random;

const MIB: u64 = 1 << 20;

/// Small enough that programs fill it.
const TOTAL_BYTES: u64 = 384 * MIB;

/// Handles whose order is not that of their indices: pools are walked in the order of handles.
const STREAMS: [u64; 4] = [0, u64::MAX, 0x7f00_1234_5670, 3];

/// Sizes at which a rule changes its answer.
const TURNING_POINTS: [u64; 24] = [
    0,
    512,
    1024,
    64 << 10,
    MIB / 2,
    MIB - 512,
    MIB,
    MIB + 512,
    2 * MIB,
    5 * MIB,
    9 * MIB,
    10 * MIB - 512,
    10 * MIB,
    12 * MIB,
    18 * MIB,
    19 * MIB,
    20 * MIB,
    21 * MIB,
    25 * MIB,
    31 * MIB,
    32 * MIB,
    40 * MIB,
    52 * MIB,
    64 * MIB,
];

/// A program with all that is needed to run it again.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) settings: &'static str,
    pub(crate) steps: Vec<Step>,
}

impl Program {
    pub(crate) fn setup(&self, torch_exact: bool) -> Setup {
        let settings = self.settings.to_owned();
        Setup { settings, total_bytes: TOTAL_BYTES, addresses: addresses().collect(), torch_exact }
    }

    pub(crate) fn needs(&self) -> Features {
        Features::needed(self.settings, &self.steps)
    }
}

/// Segment addresses that neither rise nor fall, so that a tie is decided by address and not by age.
fn addresses() -> impl Iterator<Item = u64> {
    (0..1024_u64).map(|n| (1 << 46) + ((n * 1_367) % 4096) * (1 << 33))
}

/// The family's program of that seed.
pub(crate) fn program(family: &Family, seed: u64) -> Program {
    let mut writer = Writer::new(family, seed);
    let settings = writer.random.pick(family.settings);
    let fraction = writer.random.pick(family.fractions);
    let mut steps = vec![Step::Fraction { fraction }];
    if family.full_card {
        steps.push(writer.other_use());
    }
    let count = writer.random.between(family.steps.0, family.steps.1);
    while (steps.len() as u64) < count {
        if family.full_card && writer.random.one_in(20) {
            steps.extend(writer.gap());
        }
        steps.extend(writer.step());
    }
    Program { settings, steps }
}

/// What a program being written has so far, as if every allocation succeeded.
struct Writer<'a> {
    family: &'a Family,
    random: Random,
    next_id: u64,
    live: Vec<u64>,
    pools: Vec<u64>,
    entered: Vec<u64>,
    next_pool: u64,
}

impl<'a> Writer<'a> {
    fn new(family: &'a Family, seed: u64) -> Self {
        let random = Random::new(seed);
        Self { family, random, next_id: 0, live: Vec::new(), pools: Vec::new(), entered: Vec::new(), next_pool: 1 }
    }

    fn stream(&mut self) -> u64 {
        self.random.pick(&STREAMS[..self.family.streams])
    }

    /// In a family that waits, other streams are those that nothing is allocated on, and those that something is.
    fn other_stream(&mut self) -> u64 {
        if self.family.waits { self.random.pick(&STREAMS[1..]) } else { self.stream() }
    }

    fn live(&mut self) -> Option<u64> {
        (!self.live.is_empty()).then(|| self.random.pick(&self.live))
    }

    fn size(&mut self) -> u64 {
        let random = &mut self.random;
        if self.family.waits && !random.one_in(5) {
            return random.between(MIB, 12 * MIB);
        }
        if self.family.full_card && !random.one_in(4) {
            return random.between(4 * MIB, 32 * MIB);
        }
        match random.weighted(&[6, 3, 2, 3, 1]) {
            0 => {
                let offset = random.pick(&[-513_i64, -512, -1, 0, 0, 0, 1, 512]);
                random.pick(&TURNING_POINTS).saturating_add_signed(offset).max(1)
            }
            1 => random.between(1, 4096),
            2 => random.between(1, MIB),
            3 => random.between(MIB, 12 * MIB),
            _ => random.between(12 * MIB, 80 * MIB),
        }
    }

    fn step(&mut self) -> Option<Step> {
        let settings = if self.family.later_settings.is_empty() { 0 } else { 6 };
        let pools = if self.family.pools { 12 } else { 0 };
        let weights: [u64; 13] = if self.family.waits {
            [40, 20, 30, 8, 1, 0, 0, 1, 0, 0, 0, settings, pools]
        } else {
            // A fraction of 1 takes the limit away, and with it the counting of searches for the garbage collector.
            [40, 30, 6, 2, 1, 1, 1, 1, 2, 1, 1, settings, pools]
        };
        Some(match self.random.weighted(&weights) {
            0 => self.allocate(),
            1 => {
                let at = self.random.next() as usize;
                if self.live.is_empty() {
                    return None;
                }
                let at = at % self.live.len();
                Step::Free { id: self.live.swap_remove(at) }
            }
            2 => Step::RecordStream { id: self.live()?, stream: self.other_stream() },
            3 => Step::Busy { stream: self.other_stream() },
            4 => Step::Idle { stream: self.other_stream() },
            5 => Step::CompleteEvents { count: self.random.between(1, 4) as usize },
            6 => Step::Synchronize,
            7 => Step::EmptyCache,
            8 if self.random.one_in(2) => Step::ResetPeak,
            8 => Step::ResetAccumulated,
            9 if self.random.one_in(2) => Step::Fraction { fraction: 1.0 },
            9 => Step::Fraction { fraction: self.random.between(0, 1001) as f64 / 1000.0 },
            10 => self.other_use(),
            11 => Step::Settings { text: self.random.pick(self.family.later_settings).to_owned() },
            _ => return self.pool_step(),
        })
    }

    /// Leaves pages without memory before a free block, then asks for more than both.
    fn gap(&mut self) -> Vec<Step> {
        let stream = self.stream();
        let first = self.next_id;
        self.next_id += 3;
        self.live.push(first + 2);
        let sizes = [self.random.between(10, 50), self.random.between(10, 30), self.random.between(40, 120)];
        let allocate = |at: u64| Step::Allocate { id: first + at, bytes: sizes[at as usize] * MIB, stream, thread: 0 };
        let free = |at| Step::Free { id: first + at };
        vec![Step::Idle { stream }, allocate(0), allocate(1), free(0), Step::EmptyCache, free(1), allocate(2)]
    }

    fn other_use(&mut self) -> Step {
        let (least, most) = if self.family.full_card { (240, 340) } else { (0, 200) };
        Step::OtherUse { bytes: self.random.between(least, most) * MIB }
    }

    fn allocate(&mut self) -> Step {
        let (id, bytes, stream) = (self.next_id, self.size(), self.stream());
        let thread = self.random.between(0, self.family.threads as u64) as usize;
        self.next_id += 1;
        self.live.push(id);
        Step::Allocate { id, bytes, stream, thread }
    }

    fn pool_step(&mut self) -> Option<Step> {
        Some(match self.random.weighted(&[3, 5, 5, 2]) {
            0 if self.pools.len() < 3 => {
                let pool = self.next_pool;
                self.next_pool += 1;
                self.pools.push(pool);
                Step::CreatePool { pool, use_on_oom: self.random.one_in(2), no_split: self.random.one_in(4) }
            }
            1 if !self.pools.is_empty() => {
                // One that is entered already is refused.
                let pool = self.random.pick(&self.pools);
                let thread = self.random.between(0, self.family.threads as u64) as usize;
                if !self.entered.contains(&pool) {
                    self.entered.push(pool);
                }
                Step::EnterPool { pool, thread }
            }
            2 => Step::LeavePool { pool: self.entered.pop()? },
            3 if self.entered.is_empty() && !self.pools.is_empty() => {
                let at = self.random.next() as usize % self.pools.len();
                Step::DeletePool { pool: self.pools.swap_remove(at) }
            }
            _ => return None,
        })
    }
}
