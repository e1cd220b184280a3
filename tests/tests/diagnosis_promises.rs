//! Random programs run out of memory, are run again up to there, and what was advised is done: where it says that it is enough now, it is.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::collections::{BTreeMap, HashMap};

use memtrack::device::Stream;
use memtrack::diagnosis::{Finding, FindingCode};
use memtrack::{AllocationError, OutOfMemory};
use memtrack_tests::scenarios::{MIB, Scenario, figure};

/// Xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[derive(Clone, Copy)]
enum Step {
    Take { name: usize, bytes: u64, stream: Stream },
    Free { name: usize },
}

struct Program {
    device: u64,
    outside: u64,
    fraction: f64,
    settings: &'static str,
    /// The settings come in force after so many steps.
    settings_at: usize,
    steps: Vec<Step>,
}

/// Run up to the failure: the blocks that are live by address, and the request that failed.
struct Failed {
    scenario: Scenario,
    live: Vec<(u64, Stream)>,
    bytes: u64,
    stream: Stream,
    /// In force.
    settings: &'static str,
    error: Box<OutOfMemory>,
}

impl Program {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let settings = [
            "",
            "",
            "",
            "expandable_segments:True",
            "expandable_segments:True,max_split_size_mb:32",
            "max_split_size_mb:40",
            "max_split_size_mb:100",
            "large_segment_size_mb:40",
            "garbage_collection_threshold:0.7",
        ];
        let settings = settings[random.below(settings.len() as u64) as usize];
        let device = if random.below(8) == 0 { 1 + random.below(40) } else { 100 + random.below(40) * 25 };
        let outside = if random.below(4) == 0 { random.below(device.min(100)) } else { 0 };
        let fraction = if random.below(3) == 0 { 0.3 + 0.01 * random.below(60) as f64 } else { 1.0 };
        let settings_at = if random.below(2) == 0 { 0 } else { random.below(60) as usize };
        let (kind, stream_count) = (random.below(3), 1 + random.below(3));
        let (mut steps, mut live) = (Vec::new(), Vec::new());
        for name in 0..200 {
            if !live.is_empty() && random.below(100) < 43 {
                let at = random.below(live.len() as u64) as usize;
                steps.push(Step::Free { name: live.swap_remove(at) });
                continue;
            }
            let bytes = match (kind, random.below(10)) {
                (0, 0..5) => 1 + random.below(900 << 10),
                (1, _) => (1 + random.below(40)) * MIB,
                (_, 0..2) => 512 * (1 + random.below(100)),
                (_, 2..5) => 1 + random.below(12 * MIB),
                (_, 5..8) => 10 * MIB + random.below(40 * MIB),
                _ => (20 + random.below(150)) * MIB,
            };
            steps.push(Step::Take { name, bytes, stream: Stream(random.below(stream_count)) });
            live.push(name);
        }
        Self { device, outside, fraction, settings, settings_at, steps }
    }

    fn run(&self) -> Option<Failed> {
        let mut settings = "";
        let scenario = Scenario::with_outside(self.device, self.outside, settings);
        scenario.allocator.set_memory_fraction(self.fraction).unwrap();
        let mut held = HashMap::new();
        for (at, step) in self.steps.iter().enumerate() {
            if at == self.settings_at {
                settings = self.settings;
                scenario.allocator.apply_settings(settings).unwrap();
            }
            match *step {
                Step::Free { name } => scenario.free(held.remove(&name).map(|(address, _)| address)),
                Step::Take { name, bytes, stream } => match scenario.allocator.allocate_raw(bytes, stream) {
                    Ok(address) => drop(held.insert(name, (address, stream))),
                    Err(AllocationError::OutOfMemory(error)) => {
                        let live = held.into_values().collect();
                        return Some(Failed { scenario, live, bytes, stream, settings, error });
                    }
                    Err(error) => panic!("{error}"),
                },
            }
        }
        None
    }
}

impl Failed {
    fn again(&self) -> Result<u64, AllocationError> {
        self.scenario.allocator.allocate_raw(self.bytes, self.stream)
    }

    fn free(&self, mut of: impl FnMut(Stream) -> bool) {
        self.scenario.free(self.live.iter().filter(|(_, stream)| of(*stream)).map(|(address, _)| *address));
    }
}

/// The number after these words.
fn number_after(text: &str, words: &str) -> Option<f64> {
    let rest = &text[text.find(words)? + words.len()..];
    let end = rest.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(rest.len());
    rest[..end].trim_end_matches('.').parse().ok()
}

/// Does what a line advises to a program that has failed anew; what kind of promise it was, and whether it held.
fn done(program: &Program, finding: &Finding, line: &str) -> Option<(&'static str, bool)> {
    let failed = program.run().unwrap();
    // The last of two of the same name counts.
    let apply = |setting: &str| {
        let all = [failed.settings, setting].into_iter().filter(|setting| !setting.is_empty()).collect::<Vec<_>>();
        failed.scenario.allocator.apply_settings(&all.join(",")).unwrap();
    };
    if line.contains("enough at this moment") {
        let fraction = number_after(line, "the memory fraction to at least ").unwrap();
        failed.scenario.allocator.set_memory_fraction(fraction).unwrap();
        return Some(("fraction", failed.again().is_ok()));
    }
    if line.contains("such a segment fits now") {
        let least = number_after(line, "set large_segment_size_mb to ").unwrap();
        let mib = number_after(line, "anything up to ").unwrap_or(least);
        apply(&format!("large_segment_size_mb:{mib}"));
        return Some(("segment", failed.again().is_ok()));
    }
    if let Some(mib) = number_after(line, "set max_split_size_mb to ") {
        apply(&format!("max_split_size_mb:{mib}"));
        return Some(("split limit", failed.again().is_ok()));
    }
    if let Some(mib) = number_after(line, "set max_non_split_rounding_mb to ") {
        apply(&format!("max_non_split_rounding_mb:{mib}"));
        return Some(("split rounding", failed.again().is_ok()));
    }
    if line.contains("whose segment fits into what is left now") {
        let mib = number_after(line, "ask for ").filter(|_| line.contains("MiB"))?;
        let smaller = failed.scenario.ask(mib as u64, failed.stream);
        return Some(("smaller request", smaller.is_ok()));
    }
    if line.contains("whole segments go back to the device and serve every stream") {
        let stream = Stream(figure(finding, "largest_stream") as u64);
        failed.free(|of| of == stream);
        return Some(("other stream", failed.again().is_ok()));
    }
    if line.contains("free at least ") {
        failed.free(|_| true);
        return Some(("free", failed.again().is_ok()));
    }
    if line.contains("freeing cannot make room") && !line.contains("only a free block") {
        failed.free(|_| true);
        return Some(("no freeing", failed.again().is_err()));
    }
    None
}

#[test]
fn what_is_promised_holds_and_what_needs_a_new_run_is_no_promise() {
    let mut held: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 1..=8000 {
        let program = Program::new(seed);
        let Some(failed) = program.run() else { continue };
        let said = || format!("seed {seed}, `{}`: {:#}", program.settings, failed.error);
        let (text, first) = (failed.error.to_string(), failed.error.findings()[0].code());
        let sentences = [
            (". Enough is cached, but in pieces", FindingCode::Fragmentation),
            (". No freeing can help", FindingCode::RequestNeverFits),
            (". Raise the memory fraction", FindingCode::LimitRefuses),
            (" belongs to another stream or pool", FindingCode::IdleCacheOfAnotherStream),
            (". There is room for the request but not for its segment", FindingCode::SegmentTooLarge),
        ];
        for (_, code) in sentences.into_iter().filter(|(sentence, _)| text.contains(sentence)) {
            let also_says = code == FindingCode::IdleCacheOfAnotherStream && first == FindingCode::LimitRefuses;
            assert!(first == code || also_says, "{}", said());
        }
        for finding in failed.error.findings() {
            assert_ne!(finding.code(), FindingCode::FreedMeanwhile, "nobody else is here, {}", said());
            for line in &finding.advice {
                let is_of_start = line.contains("before the program starts") || line.contains("from the start");
                assert!(!is_of_start || line.contains(" may "), "{line}: {}", said());
                let needs_start = line.contains("expandable_segments:True") || line.contains("max_split_size_mb:");
                assert!(!needs_start || is_of_start, "{line}: {}", said());
                if let Some((kind, holds)) = done(&program, finding, line) {
                    assert!(holds, "{line}: {}", said());
                    *held.entry(kind).or_default() += 1;
                }
            }
        }
    }
    for kind in [
        "fraction",
        "segment",
        "split limit",
        "split rounding",
        "smaller request",
        "other stream",
        "free",
        "no freeing",
    ] {
        assert!(held.get(kind).is_some_and(|count| *count >= 5), "{kind}: {held:?}");
    }
}
