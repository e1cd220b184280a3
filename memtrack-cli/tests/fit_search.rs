//! The search over limits against trying all of them, on random programs.
//!
//! The class of mistakes: a binary search alone calls a limit the smallest though a larger one fails, or stops at the peak without a limit
//! though expandable segments need more to run unhindered.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

use std::ops::Range;

use memtrack::Config;
use memtrack_cli::fit::{Answer, Candidate, GRANULARITY_BYTES, LimitBy, LimitedDevice, Program, fit};
use memtrack_cli::recording::Recording;
use memtrack_cli::replay::{Choices, Figures, Replayed, replay};

const MIB: u64 = 1 << 20;

/// Numbers that look random and are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Blocks of up to some 26 MiB on two streams, half of them given back in another order, some while another stream uses them.
fn random_trace(seed: u64) -> String {
    let mut random = Random(seed);
    let mut live: Vec<u64> = Vec::new();
    let mut text = String::new();
    for id in 0..40 {
        let bytes = match random.below(4) {
            0 => 1 + random.below(MIB),
            1 => MIB + random.below(9 * MIB),
            _ => 8 * MIB + random.below(18 * MIB),
        };
        text += &format!("a {id} {bytes} {}\n", random.below(5) / 4);
        live.push(id);
        while live.len() > 1 && random.below(9) < 5 {
            let id = live.swap_remove(random.below(live.len() as u64) as usize);
            text += &format!("f {id}\n");
            if !seed.is_multiple_of(3) || random.below(3) > 0 {
                text += &format!("c {id}\n");
            }
        }
    }
    text
}

fn candidates() -> Vec<Candidate> {
    let config = |text: &str| text.parse::<Config>().unwrap();
    vec![
        Candidate::new("default", config("torch_exact:True")),
        Candidate::new("expandable", config("torch_exact:True,expandable_segments:True")),
        Candidate::new("split", config("torch_exact:True,max_split_size_mb:21")),
        Candidate::new("compact", config("policy:compact")),
    ]
}

fn recording(seed: u64) -> Recording {
    Recording::parse("random.txt", random_trace(seed).as_bytes()).unwrap().remove(0)
}

fn requested_peak_bytes(seed: u64) -> u64 {
    Program::new(&recording(seed), false).requested_peak_bytes()
}

/// What `memtrack replay` says with this limit, or on a device that has no more.
fn replayed(recording: &Recording, candidate: &Candidate, by: LimitBy, limit_bytes: Option<u64>) -> Figures {
    let mut recording = recording.clone();
    let mut choices = Choices { config: Some(candidate.config.clone()), ..Choices::default() };
    match by {
        LimitBy::Card => recording.total_bytes = limit_bytes,
        LimitBy::Fraction => choices.limit_bytes = limit_bytes,
    }
    match replay(&recording, &choices).unwrap().0 {
        Replayed::Measured(figures) => figures,
        Replayed::Verified(_) => panic!("nothing to verify"),
    }
}

fn limited(by: LimitBy) -> LimitedDevice {
    // A card of each limit's size: it has the fewest addresses.
    LimitedDevice { by, card_bytes: Some(0) }
}

/// An answer with so many checks, and with which limits a replay finds memory for everything, by trying them all.
fn tried(seed: u64, candidate: &Candidate, by: LimitBy, checks: usize) -> (Answer, Vec<bool>) {
    let recording = recording(seed);
    let answer = fit(&Program::new(&recording, false), candidate, limited(by), checks, None).unwrap();
    let end = answer.unfelt_bytes / GRANULARITY_BYTES + 12;
    let completes = |limit| {
        let limit_bytes = Some(limit * GRANULARITY_BYTES);
        // Nothing can be measured of a device without memory.
        limit > 0 && replayed(&recording, candidate, by, limit_bytes).ooms == 0
    };
    (answer, (0..end).map(completes).collect())
}

fn each(seeds: Range<u64>, mut test: impl FnMut(u64, &Candidate, LimitBy)) {
    for seed in seeds {
        for candidate in candidates() {
            for by in [LimitBy::Card, LimitBy::Fraction] {
                test(seed, &candidate, by);
            }
        }
    }
}

#[test]
fn with_a_check_for_every_limit_the_answer_is_that_of_trying_all_of_them() {
    let mut gaps = 0;
    each(0..20, |seed, candidate, by| {
        let (answer, holds) = tried(seed, candidate, by, usize::MAX);
        let name = format!("{} by {by:?} with seed {seed}", candidate.name);
        let last_failing = holds.iter().rposition(|holds| !holds);
        assert_eq!(answer.found.answer, last_failing.map_or(0, |limit| limit as u64 + 1), "{name}");
        let first = holds.iter().position(|holds| *holds).unwrap() as u64;
        assert!(answer.found.smallest >= first && answer.found.is_complete, "{name}");
        gaps += usize::from(!answer.found.gaps.is_empty());
        // Either less is not requested, or the failure is named.
        let below = answer.limit_bytes().saturating_sub(GRANULARITY_BYTES);
        assert_eq!(answer.below.is_some(), below >= requested_peak_bytes(seed), "{name}");
    });
    assert!(gaps > 0, "no program has a limit that fails above one that completes, so this tests too little");
}

#[test]
fn with_fewer_checks_what_is_said_of_a_limit_is_still_true() {
    each(100..120, |seed, candidate, by| {
        let (answer, holds) = tried(seed, candidate, by, 6);
        let name = format!("{} by {by:?} with seed {seed}", candidate.name);
        let at = |limit: u64| holds[limit as usize];
        assert!(at(answer.found.answer) && at(answer.found.smallest), "{name}");
        assert!(answer.found.answer == 0 || !at(answer.found.answer - 1), "{name}");
        assert!(answer.found.gaps.iter().all(|gap| !at(*gap) && *gap > answer.found.smallest), "{name}");
        assert!(answer.found.gaps.iter().all(|gap| *gap < answer.found.answer), "{name}");
        // What is said of a limit that is not felt is true of the larger ones.
        assert!(holds[(answer.unfelt_bytes / GRANULARITY_BYTES) as usize..].iter().all(|holds| *holds), "{name}");
    });
}

#[test]
fn a_limit_that_is_not_felt_gives_the_run_without_one_and_a_fraction_below_it_does_not() {
    each(200..215, |seed, candidate, by| {
        let recording = recording(seed);
        let program = Program::new(&recording, false);
        let answer = fit(&program, candidate, limited(by), 0, None).unwrap();
        let figures = |limit_bytes| {
            let figures = replayed(&recording, candidate, by, limit_bytes);
            (figures.retries, figures.ooms, figures.reserved_peak_bytes)
        };
        let unlimited = figures(None);
        assert_eq!(unlimited, (0, 0, answer.unlimited_peak_bytes as i64));
        assert_eq!(figures(Some(answer.unfelt_bytes)), unlimited);
        // The compact policy may do without a retry; and with a split limit cached segments are given back before what counts as one.
        if by == LimitBy::Fraction && matches!(candidate.name.as_str(), "default" | "expandable") {
            assert!(figures(Some(answer.unfelt_bytes - GRANULARITY_BYTES)).0 > 0);
        }
    });
}
