//! A scripted training run as the summary tells it, in the table and in JSON: every character.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;
use std::time::Duration;

use memtrack::device::Simulated;
use memtrack::scope::Scope;
use memtrack::{Buffer, CachingAllocator, EpochSummary};

/// So many MiB.
#[track_caller]
fn take(allocator: &CachingAllocator, mebibytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, mebibytes << 20).unwrap()
}

/// Weights, an empty epoch, and one of three steps: activations grow with the step, the optimizer keeps a state of its own, and
/// the second step is followed by an evaluation inside `train`.
fn trained() -> EpochSummary {
    let allocator = CachingAllocator::new(Arc::new(Simulated::with_capacity(1 << 30)));
    let _current = allocator.make_current();
    let weights = take(&allocator, 100);
    drop(allocator.epoch(1));
    let epoch = memtrack::epoch(2);
    let mut state = Vec::new();
    let train = memtrack::phase("train");
    for number in 0..3_usize {
        let _step = memtrack::step(number as u64);
        let batch = {
            let _phase = memtrack::phase("data");
            take(&allocator, 12)
        };
        let activations = {
            let _phase = memtrack::phase("forward");
            let _layers = Scope::open(&allocator, "layers", None);
            (0..4).map(|layer| take(&allocator, 30 + 10 * layer * number)).collect::<Vec<_>>()
        };
        let gradients = {
            let _phase = memtrack::phase("backward");
            let gradients = take(&allocator, 100);
            drop(activations);
            gradients
        };
        {
            let _phase = memtrack::phase("optimizer");
            if number == 0 {
                state.push(Buffer::<u8>::uninit(&allocator, 5_000_000).unwrap());
            }
            drop(gradients);
        }
        if number == 1 {
            let _phase = memtrack::phase("eval");
            drop(take(&allocator, 64));
        }
        drop(batch);
    }
    drop(train);
    let mut summary = epoch.finish().unwrap();
    summary.lasted = Duration::from_millis(3417);
    (summary.peak_earliest, summary.peak_latest) = (Duration::from_micros(1_234_400), Duration::from_millis(1312));
    for (index, phase) in summary.phases.iter_mut().enumerate() {
        phase.slow_path = Duration::from_micros(if phase.device_allocation_count > 0 { 100 + index as u64 } else { 0 });
    }
    drop((weights, state));
    summary
}

#[test]
fn the_table_of_a_training_run_reads_so() {
    assert_eq!(trained().to_string(), TABLE);
}

const TABLE: &str = "\
epoch 2  simulated (simulated device)  3 steps  3.42 s
    phase      entered          net        peak    headroom    rise p50    rise p95    rise max  allocs   allocated  hit %  retries  ooms
    train            1   -36.00 MiB  456.77 MiB  567.23 MiB  356.77 MiB  356.77 MiB  356.77 MiB       0         0 B      -        0     0
    data             3   +36.00 MiB  116.77 MiB  907.23 MiB   12.00 MiB   12.00 MiB   12.00 MiB       3   36.00 MiB   66.7        0     0
    forward          3  +540.00 MiB  356.77 MiB  667.23 MiB  180.00 MiB  240.00 MiB  240.00 MiB      12  540.00 MiB   58.3        0     0
    backward         3  -240.00 MiB  456.77 MiB  567.23 MiB  100.00 MiB  100.00 MiB  100.00 MiB       3  300.00 MiB    0.0        0     0
    optimizer        3  -295.23 MiB  216.77 MiB  807.23 MiB         0 B    4.77 MiB    4.77 MiB       1    4.77 MiB    100        0     0
    eval             1         +0 B  180.77 MiB  843.23 MiB   64.00 MiB   64.00 MiB   64.00 MiB       1   64.00 MiB    100        0     0
    other            -         +0 B  104.77 MiB  919.23 MiB           -           -           -       0         0 B      -        0     0
    total                 +4.77 MiB  adds up; epoch 1 ended 4.77 MiB lower
  nested    train: -36.00 MiB in 0 allocations by itself, +4.77 MiB in 20 allocations with the phases inside it
  peak      456.77 MiB in backward, step 2, between 1.234 and 1.312 s into the epoch, of 1.00 GiB allowed
  held by   forward 240.00 MiB, backward 100.00 MiB, other 100.00 MiB, data 12.00 MiB, optimizer 4.77 MiB
  of scopes layers (forward) 240.00 MiB in 4 blocks; backward 100.00 MiB in 1 block; outside scopes 100.00 MiB in 1 block; data 12.00 MiB in 1 block; optimizer 4.77 MiB in 1 block
  origins   by phase of the allocation (rows) and of the free (columns)
    phase          before   allocated   in train  in backward  in optimizer    in eval  still live
    data                -   36.00 MiB  36.00 MiB            -             -          -           -
    forward             -  540.00 MiB          -   540.00 MiB             -          -           -
    backward            -  300.00 MiB          -            -    300.00 MiB          -           -
    optimizer           -    4.77 MiB          -            -             -          -    4.77 MiB
    eval                -   64.00 MiB          -            -             -  64.00 MiB           -
    other      100.00 MiB           -          -            -             -          -  100.00 MiB
  growth    +4.77 MiB: tests/tests/summary_text.rs:48:28 in optimizer +4.77 MiB, +1 block
  slow path 0.31 ms in allocations that found no cached block: data 0.10 ms, forward 0.10 ms, backward 0.10 ms
  reserved  592.00 MiB, of it 487.23 MiB cached (largest free block 100.00 MiB, fragmentation 79.5 %); at the peak 592.00 MiB, of it 135.23 MiB cached (22.8 %)
  driver    no figures: simulated is a simulated device, which no GPU driver knows
  finding   idle-cache: 592.00 MiB is reserved and 104.77 MiB allocated: 462.00 MiB of the cache is in segments wholly free";

#[test]
fn the_json_line_of_a_training_run_reads_so() {
    let summary = trained();
    // Of this process.
    let line = summary.to_json().replace(&format!("\"process\":{}", std::process::id()), "\"process\":1");
    let line = line.replace(&format!("\"allocator\":{}", summary.allocator), "\"allocator\":1");
    assert_eq!(line.replace("},{", "},\n{").replace(",\"", ",\n\""), JSON);
}

const JSON: &str = r#"{"schema":"memtrack.run",
"version":1,
"kind":"epoch",
"process":1,
"epoch":2,
"device":"simulated",
"model":"simulated device",
"allocator":1,
"steps":3,
"lasted_ns":3417000000,
"before_bytes":104857600,
"after_bytes":109857792,
"limit_bytes":1073741824,
"retries":0,
"ooms":0,
"reserved_bytes":620756992,
"active_bytes":109857792,
"largest_free_block_bytes":104857600,
"phases":[{"name":"train",
"entered":1,
"net_bytes":-37748736,
"peak_bytes":478956544,
"rise_p50_bytes":374098944,
"rise_p95_bytes":374098944,
"rise_max_bytes":374098944,
"allocated_bytes":0,
"allocations":0,
"frees":3,
"device_allocations":0,
"retries":0,
"ooms":0,
"slow_path_ns":0,
"inclusive_net_bytes":5000192,
"inclusive_allocated_bytes":990661632,
"inclusive_allocations":20,
"foreign_bytes":0,
"other_threads":0},
{"name":"data",
"entered":3,
"net_bytes":37748736,
"peak_bytes":122440704,
"rise_p50_bytes":12582912,
"rise_p95_bytes":12582912,
"rise_max_bytes":12582912,
"allocated_bytes":37748736,
"allocations":3,
"frees":0,
"device_allocations":1,
"retries":0,
"ooms":0,
"slow_path_ns":101000,
"inclusive_net_bytes":37748736,
"inclusive_allocated_bytes":37748736,
"inclusive_allocations":3,
"foreign_bytes":0,
"other_threads":0},
{"name":"forward",
"entered":3,
"net_bytes":566231040,
"peak_bytes":374098944,
"rise_p50_bytes":188743680,
"rise_p95_bytes":251658240,
"rise_max_bytes":251658240,
"allocated_bytes":566231040,
"allocations":12,
"frees":0,
"device_allocations":5,
"retries":0,
"ooms":0,
"slow_path_ns":102000,
"inclusive_net_bytes":566231040,
"inclusive_allocated_bytes":566231040,
"inclusive_allocations":12,
"foreign_bytes":0,
"other_threads":0},
{"name":"backward",
"entered":3,
"net_bytes":-251658240,
"peak_bytes":478956544,
"rise_p50_bytes":104857600,
"rise_p95_bytes":104857600,
"rise_max_bytes":104857600,
"allocated_bytes":314572800,
"allocations":3,
"frees":12,
"device_allocations":3,
"retries":0,
"ooms":0,
"slow_path_ns":103000,
"inclusive_net_bytes":-251658240,
"inclusive_allocated_bytes":314572800,
"inclusive_allocations":3,
"foreign_bytes":0,
"other_threads":0},
{"name":"optimizer",
"entered":3,
"net_bytes":-309572608,
"peak_bytes":227298304,
"rise_p50_bytes":0,
"rise_p95_bytes":5000192,
"rise_max_bytes":5000192,
"allocated_bytes":5000192,
"allocations":1,
"frees":3,
"device_allocations":0,
"retries":0,
"ooms":0,
"slow_path_ns":0,
"inclusive_net_bytes":-309572608,
"inclusive_allocated_bytes":5000192,
"inclusive_allocations":1,
"foreign_bytes":0,
"other_threads":0},
{"name":"eval",
"entered":1,
"net_bytes":0,
"peak_bytes":189549568,
"rise_p50_bytes":67108864,
"rise_p95_bytes":67108864,
"rise_max_bytes":67108864,
"allocated_bytes":67108864,
"allocations":1,
"frees":1,
"device_allocations":0,
"retries":0,
"ooms":0,
"slow_path_ns":0,
"inclusive_net_bytes":0,
"inclusive_allocated_bytes":67108864,
"inclusive_allocations":1,
"foreign_bytes":0,
"other_threads":0},
{"name":"other",
"entered":0,
"net_bytes":0,
"peak_bytes":109857792,
"rise_p50_bytes":0,
"rise_p95_bytes":0,
"rise_max_bytes":0,
"allocated_bytes":0,
"allocations":0,
"frees":0,
"device_allocations":0,
"retries":0,
"ooms":0,
"slow_path_ns":0,
"inclusive_net_bytes":0,
"inclusive_allocated_bytes":0,
"inclusive_allocations":0,
"foreign_bytes":0,
"other_threads":0}],
"peak":{"bytes":478956544,
"phase":"backward",
"step":2,
"earliest_ns":1234400000,
"latest_ns":1312000000,
"reserved_bytes":620756992,
"cached_bytes":141800448,
"active_bytes":478956544,
"held":[{"phase":"forward",
"scope":"layers",
"bytes":251658240,
"blocks":4},
{"phase":"backward",
"scope":"backward",
"bytes":104857600,
"blocks":1},
{"phase":"other",
"bytes":104857600,
"blocks":1},
{"phase":"data",
"scope":"data",
"bytes":12582912,
"blocks":1},
{"phase":"optimizer",
"scope":"optimizer",
"bytes":5000192,
"blocks":1}]},
"origins":[{"phase":"data",
"before":{"bytes":0,
"blocks":0},
"allocated":{"bytes":37748736,
"blocks":3},
"freed":[{"phase":"train",
"bytes":37748736,
"blocks":3}],
"live":{"bytes":0,
"blocks":0}},
{"phase":"forward",
"before":{"bytes":0,
"blocks":0},
"allocated":{"bytes":566231040,
"blocks":12},
"freed":[{"phase":"backward",
"bytes":566231040,
"blocks":12}],
"live":{"bytes":0,
"blocks":0}},
{"phase":"backward",
"before":{"bytes":0,
"blocks":0},
"allocated":{"bytes":314572800,
"blocks":3},
"freed":[{"phase":"optimizer",
"bytes":314572800,
"blocks":3}],
"live":{"bytes":0,
"blocks":0}},
{"phase":"optimizer",
"before":{"bytes":0,
"blocks":0},
"allocated":{"bytes":5000192,
"blocks":1},
"freed":[],
"live":{"bytes":5000192,
"blocks":1}},
{"phase":"eval",
"before":{"bytes":0,
"blocks":0},
"allocated":{"bytes":67108864,
"blocks":1},
"freed":[{"phase":"eval",
"bytes":67108864,
"blocks":1}],
"live":{"bytes":0,
"blocks":0}},
{"phase":"other",
"before":{"bytes":104857600,
"blocks":1},
"allocated":{"bytes":0,
"blocks":0},
"freed":[],
"live":{"bytes":104857600,
"blocks":1}}],
"live":[{"phase":"other",
"file":"tests/tests/summary_text.rs",
"line":23,
"column":19,
"bytes":104857600,
"requested_bytes":104857600,
"blocks":1,
"oldest_steps":3,
"ages":[{"epochs":2,
"bytes":104857600,
"blocks":1}],
"grown_bytes":0,
"grown_blocks":0,
"grown_epochs":0},
{"phase":"optimizer",
"scope":"optimizer",
"file":"tests/tests/summary_text.rs",
"line":48,
"column":28,
"bytes":5000192,
"requested_bytes":5000000,
"blocks":1,
"oldest_steps":2,
"ages":[{"epochs":0,
"bytes":5000192,
"blocks":1}],
"grown_bytes":5000192,
"grown_blocks":1,
"grown_epochs":1}],
"growth":{"bytes":5000192,
"bytes_per_epoch":5000192,
"changes":1},
"driver":{"unavailable":"simulated is a simulated device, which no GPU driver knows"},
"findings":[{"code":"idle-cache",
"severity":"note",
"headline":"592.00 MiB is reserved and 104.77 MiB allocated: 462.00 MiB of the cache is in segments wholly free",
"numbers":{"reserved_bytes":620756992,
"allocated_bytes":109857792,
"returnable_bytes":484442112},
"evidence":[],
"advice":["nothing has to be done: the cache serves the next peak, and goes back by itself when memory runs short; for others on the device, emptying it frees up to 462.00 MiB"]}]}"#;

#[test]
fn the_json_line_is_json_whatever_the_names_are() {
    let allocator = CachingAllocator::new(Arc::new(Simulated::with_capacity(1 << 30)));
    let _current = allocator.make_current();
    let name = "quoted \"name\"\\ with\nbreaks\t\u{1}and ünïcode";
    let epoch = memtrack::epoch(u64::MAX);
    let phase = memtrack::phase(name);
    let kept = take(&allocator, 1);
    drop(phase);
    let line = epoch.finish().unwrap().to_json();
    assert!(!line.contains('\n'));
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value["phases"][0]["name"], name);
    assert_eq!((value["epoch"].as_u64(), value["live"][0]["bytes"].as_u64()), (Some(u64::MAX), Some(1 << 20)));
    drop(kept);
}

/// What the rows and lines say where names are not as one would have them.
#[test]
fn names_cannot_make_rows_steer_the_terminal_or_be_mistaken_for_the_row_other() {
    const LONG: &str =
        "a name so long that the table would be as wide as it is and nobody could read the figures behind it any more";
    const NAMES: [&str; 6] = ["two\nrows", "\x1b[2Jred", "", "left\u{202e}right", "前向", LONG];
    let allocator = CachingAllocator::new(Arc::new(Simulated::with_capacity(1 << 30)));
    let _current = allocator.make_current();
    let epoch = memtrack::epoch(1);
    let outside = take(&allocator, 2);
    let mut kept = Vec::new();
    for name in NAMES.into_iter().chain(["other"]) {
        let _phase = memtrack::phase(name);
        let _scope = Scope::open(&allocator, "scope\x1b\n", None);
        kept.push(take(&allocator, 4));
        drop(take(&allocator, 2));
    }
    let summary = epoch.finish().unwrap();
    let text = summary.to_string();
    assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
    assert!(!text.contains('\u{202e}'), "{text:?}");
    for shown in [r"    two\nrows  ", r"    \u{1b}[2Jred  ", "    \"\"  ", r"    left\u{202e}right  ", "    前向  "] {
        assert_eq!(text.matches(shown).count(), 2, "{shown} in the rows and in the origins:\n{text}");
    }
    assert!(text.contains("    a name so long that the table …") && !text.contains(LONG), "{text}");

    // A phase that is named as the row of what is outside phases has a row of its own.
    let row = |name: &str| summary.phases.iter().find(|phase| phase.name == name).unwrap();
    assert_eq!((row("other (phase)").entered_count, row("other (phase)").net_bytes), (1, 4 << 20));
    assert_eq!((row("other").entered_count, row("other").net_bytes), (0, 2 << 20));
    assert!(summary.adds_up());

    // Every row of the table has its figures in the same columns.
    let rows: Vec<&str> = text.lines().skip(1).take(NAMES.len() + 3).collect();
    let ends: Vec<usize> = rows.iter().map(|row| memtrack::plain_text::columns(row)).collect();
    assert!(ends.iter().all(|end| *end == ends[0]), "{rows:#?}");
    drop((outside, kept));
}
