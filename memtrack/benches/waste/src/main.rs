//! Compares placement policies on traces: bytes reserved over bytes requested, and what moves.
//!
//!     cargo run --release -p memtrack-waste -- tests/fixtures/torch-2.11/traces

#![expect(clippy::expect_used, reason = "a model that is wrong stops and says why")]

#[cfg(test)]
mod allocator;
mod machine;
mod perturb;
mod policy;
mod synthetic;
mod trace;

use std::path::Path;
use std::process::ExitCode;

use machine::Machine;
use policy::Policy;
use policy::compact::{Compact, Donors, Fit, Rules, Views};
use policy::expandable::Expandable;
use policy::middle::Middle;
use trace::{Event, Trace};

/// The recorded workloads.
const RECORDED: [&str; 6] = ["bert_varlen", "gnn_sampled", "gpt2", "llama_lora", "prefetch_streams", "resnet50"];

/// What a policy did with a trace.
#[derive(Debug, Default, Clone)]
struct Outcome {
    ratio: f64,
    moving: u64,
    moving_late: u64,
    /// Allocations that only removed old mappings.
    tidying: u64,
    late: u64,
    moved_pages: u64,
    created: u64,
    waits: u64,
    aliases: u32,
    /// Behind blocks of the small pool at the end.
    small_mib: u64,
    growths: (u64, u64),
}

fn replay(trace: &Trace, policy: &mut dyn Policy, lag: u64) -> Outcome {
    let mut machine = Machine::new(lag);
    let count = trace.allocation_count();
    let mut blocks: Vec<(u64, u64, u8, u64)> = Vec::with_capacity(count);
    let (mut live_bytes, mut peak_bytes) = (0_u64, 0_u64);
    let mut outcome = Outcome::default();
    for event in &trace.events {
        machine.tick();
        match *event {
            Event::Allocate { bytes, stream, .. } => {
                let rounded = bytes.max(1).next_multiple_of(512);
                live_bytes += bytes;
                peak_bytes = peak_bytes.max(live_bytes);
                let before = machine.calls;
                let address = policy.allocate(&mut machine, rounded, stream, peak_bytes);
                machine.occupy(address, rounded, stream);
                let moved = machine.calls.moved > before.moved;
                outcome.tidying += u64::from(!moved && machine.calls.unmapped > before.unmapped);
                let late = blocks.len() >= count / 2;
                outcome.moving += u64::from(moved);
                outcome.moving_late += u64::from(moved && late);
                outcome.late += u64::from(late);
                blocks.push((address, rounded, stream, bytes));
            }
            Event::Free { block } => {
                let (address, rounded, stream, bytes) = blocks[block as usize];
                live_bytes -= bytes;
                machine.vacate(address, rounded, stream);
                policy.free(&mut machine, address, rounded, stream);
            }
            Event::Step => {}
        }
    }
    outcome.ratio = machine.reserved_peak_bytes as f64 / peak_bytes as f64;
    outcome.moved_pages = machine.calls.moved;
    outcome.created = machine.calls.created;
    outcome.waits = machine.calls.waits;
    outcome.growths = policy.growths();
    outcome.small_mib = policy.small_pages_bytes() >> 20;
    outcome.aliases = machine.most_slots_of_a_page;
    outcome
}

type Make = Box<dyn Fn() -> Box<dyn Policy>>;

/// Each with the rules that it changes one of.
fn variants(chosen: Rules) -> Vec<(String, Make)> {
    let mut all: Vec<(String, Make)> = Vec::new();
    all.push(("expandable".into(), Box::new(|| Box::new(Expandable::default()))));
    let mut add = |name: String, rules: Rules| {
        all.push((name, Box::new(move || Box::new(Compact::new(rules)))));
    };
    let naive = Rules {
        slack: None,
        views: Views::Wait,
        small_bytes: 1 << 20,
        middle: Middle::NONE,
        hoard: false,
        busy_cost: 0,
        forced_last: false,
        wait: false,
        donors: Donors::Smallest,
        ..chosen
    };
    add("naive".into(), naive);
    add("naive, views kept".into(), Rules { views: Views::Keep, ..naive });
    add("chosen".into(), chosen);
    for slack in [0, 3, 5, 6, 8, 10, 15, 25, 30, 50] {
        add(format!("slack {slack}"), Rules { slack: Some(slack), ..chosen });
    }
    for (label, views) in [("waited for", Views::Wait), ("swept", Views::Sweep), ("replaced", Views::Replace)] {
        add(format!("old mappings {label}"), Rules { views, ..chosen });
        add(format!("old mappings {label}, slack 0"), Rules { views, slack: Some(0), ..chosen });
    }
    add("no hoard".into(), Rules { hoard: false, ..chosen });
    add("busy slots cost nothing".into(), Rules { busy_cost: 0, ..chosen });
    add("ready pages first".into(), Rules { ready_first: true, ..chosen });
    add("forced not last, no wait".into(), Rules { forced_last: false, wait: false, ..chosen });
    add("no wait".into(), Rules { wait: false, ..chosen });
    add("small pages give too".into(), Rules { small_keeps: false, ..chosen });
    for small_kib in [0, 16, 64, 256, 512, 1024, 2048] {
        let rules = Rules { small_bytes: small_kib << 10, middle: Middle::NONE, ..chosen };
        add(format!("small up to {small_kib} KiB"), rules);
        add(format!("small up to {small_kib} KiB, slack 6"), Rules { slack: Some(6), ..rules });
    }
    let mut add_middle = |name: &str, small_kib: u64, middle: Middle| {
        let rules = Rules { small_bytes: small_kib << 10, middle, ..chosen };
        add(format!("middle {name}"), rules);
        add(format!("middle {name}, slack 6"), Rules { slack: Some(6), ..rules });
    };
    let middle = Middle::default();
    for small_kib in [64, 256, 384, 768] {
        add_middle(&format!("from {small_kib} KiB"), small_kib, middle);
    }
    for slower in [4, 16, 32, 128] {
        add_middle(&format!("{slower} times slower"), 512, Middle { slower_times: Some(slower), ..middle });
    }
    for freed_per_live in [0.0, 0.25, 1.0, 2.0, 8.0, 32.0] {
        add_middle(&format!("freed {freed_per_live} of live"), 512, Middle { freed_per_live, ..middle });
    }
    for freed_per_live in [0.25, 0.5, 2.0, 8.0, 32.0] {
        let name = format!("freed {freed_per_live} of live, how long is not asked");
        add_middle(&name, 512, Middle { freed_per_live, slower_times: None, ..middle });
    }
    for slower in [32, 64, 128, 256] {
        let rules = Middle { slower_times: Some(slower), leaves_out_grown: true, ..middle };
        add_middle(&format!("{slower} times slower, large ones in new memory do not count"), 512, rules);
    }
    for small_kib in [64, 256, 512] {
        add_middle(&format!("from {small_kib} KiB, ends first"), small_kib, Middle { ends_first: true, ..middle });
    }
    for donors in [Donors::Smallest, Donors::Largest, Donors::Newest, Donors::Fitting] {
        add(format!("donors {donors:?}"), Rules { donors, ..chosen });
    }
    for fit in [Fit::First, Fit::Class] {
        add(format!("fit {fit:?}"), Rules { fit, ..chosen });
    }
    for short in [5, 300, 3000] {
        add(format!("lifetime up to {short}"), Rules { short, ..chosen });
    }
    for batch in [10, 100] {
        add(format!("batch {batch}"), Rules { batch, ..chosen });
    }
    for remembered in [1, 3, 8] {
        add(format!("place after {remembered}"), Rules { remembered, ..chosen });
    }
    for mib in [16, 64] {
        add(format!("whole pages from {mib} MiB"), Rules { whole_bytes: mib << 20, ..chosen });
    }
    all
}

/// Over several traces.
#[derive(Debug, Default)]
struct Summary {
    log_sum: f64,
    worst: f64,
    late_percent: Vec<f64>,
    moved_pages: u64,
    waits: u64,
    aliases: u32,
    above_torch: u32,
}

impl Summary {
    fn add(&mut self, outcome: &Outcome, torch_ratio: f64) {
        self.above_torch += u32::from(outcome.ratio > torch_ratio);
        self.log_sum += outcome.ratio.ln();
        self.worst = self.worst.max(outcome.ratio);
        self.late_percent.push(100.0 * outcome.moving_late as f64 / outcome.late as f64);
        self.moved_pages += outcome.moved_pages;
        self.waits += outcome.waits;
        self.aliases = self.aliases.max(outcome.aliases);
    }

    fn text(&self) -> String {
        let count = self.late_percent.len();
        let above = self.late_percent.iter().filter(|&&percent| percent >= 0.1).count();
        let most = self.late_percent.iter().copied().fold(0.0, f64::max);
        let mean = self.late_percent.iter().sum::<f64>() / count as f64;
        format!(
            "{:.4} {:.4} late {mean:.3}% max {most:.3}% {above:2}/{count} pages {:6} waits {:5} aliases {:3} above {:2}",
            (self.log_sum / count as f64).exp(),
            self.worst,
            self.moved_pages,
            self.waits,
            self.aliases,
            self.above_torch
        )
    }
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(folder) = args.next() else {
        eprintln!("the folder of the traces is missing");
        return ExitCode::FAILURE;
    };
    let only: Vec<String> = args.collect();
    let lag = std::env::var("LAG").ok().and_then(|lag| lag.parse().ok()).unwrap_or(100);
    let each = only.iter().any(|word| word == "each");
    let mut traces = Vec::new();
    for name in RECORDED {
        match Trace::read(&Path::new(&folder).join(format!("{name}.expand.txt.gz"))) {
            Ok(trace) => traces.push(trace),
            Err(error) => {
                eprintln!("{name}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    let recorded = traces.len();
    traces.extend(perturb::all(&traces));
    let of_training = traces.len();
    traces.extend(synthetic::all());
    traces.push(synthetic::replaced(1));
    let torch: Vec<f64> = traces
        .iter()
        .map(|trace| match trace.torch_reserved_bytes {
            0 => replay(trace, &mut Expandable::default(), lag).ratio,
            bytes => bytes as f64 / trace.requested_peak_bytes() as f64,
        })
        .collect();
    let part: Option<usize> = std::env::var("HALF").ok().and_then(|half| half.parse().ok());
    let rules = match std::env::var("RULES").as_deref() {
        Ok("earlier") => Rules::earlier(),
        _ => Rules::default(),
    };
    for (at, (name, make)) in variants(rules).into_iter().enumerate() {
        if part.is_some_and(|part| at % 2 != part) {
            continue;
        }
        if !only.iter().all(|word| word == "each" || name.contains(word.as_str())) {
            continue;
        }
        let [mut real, mut other, mut both, mut middle] = std::array::from_fn(|_| Summary::default());
        if each {
            println!("{name}");
        }
        for (at, trace) in traces.iter().enumerate() {
            let outcome = replay(trace, make().as_mut(), lag);
            if each {
                println!(
                    "  {:40} {:.4} torch {:.4} moving {:5} late {:4}/{:6} {:.3}% tidying {} pages {:6} created {} waits {:5} aliases {:3} small {} MiB growths {} places {}",
                    trace.name,
                    outcome.ratio,
                    torch[at],
                    outcome.moving,
                    outcome.moving_late,
                    outcome.late,
                    100.0 * outcome.moving_late as f64 / outcome.late as f64,
                    outcome.tidying,
                    outcome.moved_pages,
                    outcome.created,
                    outcome.waits,
                    outcome.aliases,
                    outcome.small_mib,
                    outcome.growths.0,
                    outcome.growths.1
                );
            }
            let summary = match at {
                at if at < recorded => &mut real,
                at if at >= of_training => &mut middle,
                _ if trace.name.contains(" and ") => &mut both,
                _ => &mut other,
            };
            // A mean with what no rule here is good at would say little.
            if trace.name.starts_with("replaced") {
                continue;
            }
            summary.add(&outcome, torch[at]);
        }
        println!("{name:50} | {} | {} | {} | {}", real.text(), other.text(), both.text(), middle.text());
    }
    ExitCode::SUCCESS
}
