//! Random programs. Picks are taken modulo what there is to pick from when the step is run, so that any part of a program is
//! a program.

use memtrack::scope::Outcome;
use proptest::prelude::*;

/// Threads, and at most so many devices.
pub(crate) const THREAD_COUNT: usize = 4;
pub(crate) const PHASES: [&str; 3] = ["forward", "backward", "optimizer"];

#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) device_count: usize,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Open {
        thread: usize,
        opening: Opening,
    },
    /// Closes a scope; one that belongs to no thread is closed by this one.
    Close {
        pick: usize,
        thread: usize,
        outcome: Outcome,
    },
    /// From here on the thread works in a scope that belongs to no thread.
    Attach {
        thread: usize,
        pick: usize,
    },
    /// It stops working in one of those.
    Detach {
        thread: usize,
        pick: usize,
    },
    Allocate {
        thread: usize,
        device: usize,
        bytes: usize,
    },
    Free {
        thread: usize,
        pick: usize,
    },
    ResetPeaks {
        device: usize,
    },
    ResetAccumulated {
        device: usize,
    },
    ResetCallSites {
        device: usize,
    },
    CountUnmeasured {
        site: usize,
    },
    /// Compares the totals of call sites, and the public peak.
    Compare {
        device: usize,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Opening {
    pub(crate) kind: Kind,
    pub(crate) phase: Option<usize>,
    pub(crate) over: Over,
    /// The scope belongs to the thread.
    pub(crate) bound: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    Site(usize),
    /// By the functions `memtrack::phase` and `memtrack::step`, whose guards belong to a thread.
    PhaseGuard(usize),
    StepGuard(u64),
}

/// Which devices.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Over {
    One(usize),
    All,
    /// The last before the first, and one of them twice.
    Reversed,
    /// All but one.
    Without(usize),
}

impl Over {
    /// The devices as they are given; `None` for a scope on one.
    pub(crate) fn list(self, count: usize) -> Option<Vec<usize>> {
        match self {
            Self::One(_) => None,
            Self::All => Some((0..count).collect()),
            Self::Reversed => Some((0..count).rev().chain([count - 1]).collect()),
            Self::Without(device) => Some((0..count).filter(|of| *of != device % count).collect()),
        }
    }
}

fn pick() -> impl Strategy<Value = usize> {
    0..1000_usize
}

/// The first more often, so that its scopes see something.
fn device() -> impl Strategy<Value = usize> {
    prop_oneof![2 => Just(0), 1 => pick()]
}

fn opening() -> impl Strategy<Value = Opening> {
    let kind = prop_oneof![
        3 => Just(Kind::Plain),
        // Mostly one, so that recursion is frequent.
        9 => (0..8_usize).prop_map(|site| Kind::Site([0, 0, 0, 0, 0, 1, 1, 2][site])),
        1 => (0..PHASES.len()).prop_map(Kind::PhaseGuard),
        1 => (0..9_u64).prop_map(Kind::StepGuard),
    ];
    let phase = prop_oneof![3 => Just(None), 1 => (0..PHASES.len()).prop_map(Some)];
    let over = prop_oneof![
        6 => device().prop_map(Over::One),
        2 => Just(Over::All),
        1 => Just(Over::Reversed),
        1 => pick().prop_map(Over::Without),
    ];
    (kind, phase, over, prop::bool::weighted(0.75)).prop_map(|(kind, phase, over, bound)| Opening {
        kind,
        phase,
        over,
        bound,
    })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop::sample::select(vec![Outcome::Ok, Outcome::Err, Outcome::Panic, Outcome::Cancelled])
}

/// Mostly small, sometimes so large that the cache must be given back, or that the device is too small.
fn bytes() -> impl Strategy<Value = usize> {
    prop_oneof![12 => 1..5000_usize, 1 => (1..50_usize).prop_map(|mebibytes| (mebibytes << 20) + 1)]
}

fn step() -> impl Strategy<Value = Step> {
    // One does most of the work, so that scopes nest and calls recurse; the others are in its way.
    let thread = || prop_oneof![2 => Just(0), 1 => 0..THREAD_COUNT];
    prop_oneof![
        9 => (thread(), opening()).prop_map(|(thread, opening)| Step::Open { thread, opening }),
        5 => (pick(), thread(), outcome()).prop_map(|(pick, thread, outcome)| Step::Close { pick, thread, outcome }),
        3 => (thread(), pick()).prop_map(|(thread, pick)| Step::Attach { thread, pick }),
        2 => (thread(), pick()).prop_map(|(thread, pick)| Step::Detach { thread, pick }),
        14 => (thread(), device(), bytes()).prop_map(|(thread, device, bytes)| Step::Allocate { thread, device, bytes }),
        10 => (thread(), pick()).prop_map(|(thread, pick)| Step::Free { thread, pick }),
        1 => pick().prop_map(|device| Step::ResetPeaks { device }),
        1 => pick().prop_map(|device| Step::ResetAccumulated { device }),
        1 => pick().prop_map(|device| Step::ResetCallSites { device }),
        1 => (0..3_usize).prop_map(|site| Step::CountUnmeasured { site }),
        2 => pick().prop_map(|device| Step::Compare { device }),
    ]
}

pub(crate) fn program() -> impl Strategy<Value = Program> {
    (1..=3_usize, prop::collection::vec(step(), 1..60))
        .prop_map(|(device_count, steps)| Program { device_count, steps })
}
