//! What an epoch's summary says of sources: every character of the table, and the JSON.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;
use std::time::Duration;

use memtrack::EpochSummary;
use memtrack::device::Simulated;
use memtrack::source::{SourceError, register_source};
use memtrack::{Buffer, CachingAllocator};
use memtrack_tests::sources::{Pool, turn};
use memtrack_tests::spans::Spans;

const MIB: i64 = 1 << 20;

/// Two steps with activations that the backward phase frees; `eval` is inside `train`. Its last reading fails.
fn trained(pool: &Pool) -> EpochSummary {
    pool.change(100 * MIB);
    let epoch = memtrack::epoch(3);
    let train = memtrack::phase("train");
    for number in 0..2 {
        let _step = memtrack::step(number);
        let forward = memtrack::phase("forward");
        pool.change(80 * MIB);
        pool.change(-20 * MIB);
        drop(forward);
        let backward = memtrack::phase("backward");
        pool.change(-50 * MIB);
        drop(backward);
    }
    let eval = memtrack::phase("eval");
    pool.change(MIB);
    pool.fail_once(SourceError::new("the driver is busy"));
    drop(eval);
    drop(train);
    let mut summary = epoch.finish().unwrap();
    summary.lasted = Duration::from_millis(3417);
    summary
}

#[test]
fn without_an_allocator_the_summary_is_the_sources() {
    let _turn = turn();
    let (spans, _installed) = Spans::install();
    let pool = Arc::new(Pool::new("cuda:0 pool"));
    let _registered = register_source(pool.clone()).unwrap();
    let summary = trained(&pool);
    assert_eq!(summary.to_string(), TABLE);
    assert!(!summary.has_allocator);
    assert_eq!(
        (summary.device.as_str(), summary.peak_bytes, summary.net_bytes()),
        ("cuda:0 pool", 190 * MIB, 21 * MIB)
    );
    assert_eq!(spans.events_of("memtrack::phase").len(), 0);
    let told: Vec<_> = spans.events_of("memtrack::source").into_iter().filter(|event| event.fields.len() > 2).collect();
    assert_eq!(told.len(), 5, "the source, and its four phases: {told:?}");
    let epochs = spans.events_of("memtrack::epoch");
    assert_eq!(epochs.len(), 1);
    let text = format!("{:?}", epochs[0].fields);
    assert!(text.contains("\"mem.peak\": I64(199229440)") && text.contains("cuda:0 pool"), "{text}");
    // What a source does not tell is left out, and nothing is made up of what it tells.
    let names: Vec<_> = epochs[0].fields.keys().copied().collect();
    let unknown = ["mem.cached", "peak_phase", "largest_free_block", "growth"];
    assert!(unknown.iter().all(|name| !names.contains(name)), "{names:?}");
    assert!(["mem.reserved", "peak_reserved", "mem.retries"].iter().all(|name| names.contains(name)), "{names:?}");
}

const TABLE: &str = "\
epoch 3  cuda:0 pool  2 steps  3.42 s
  source    cuda:0 pool: exact, of the whole process; peaks by high-water mark
    phase     entered      before       after          net        peak   rise max    reserved
    forward         2  100.00 MiB  170.00 MiB  +120.00 MiB  190.00 MiB  80.00 MiB  190.00 MiB
    backward        2  160.00 MiB  120.00 MiB  -100.00 MiB  170.00 MiB        0 B  170.00 MiB
    eval            1           -           -            -           -          -           -  1 time not read
    train           1  100.00 MiB  121.00 MiB   +21.00 MiB  190.00 MiB  90.00 MiB  190.00 MiB
    epoch           1  100.00 MiB  121.00 MiB   +21.00 MiB  190.00 MiB  90.00 MiB  190.00 MiB";

#[test]
fn the_json_has_the_sources() {
    let _turn = turn();
    let pool = Arc::new(Pool::new("cuda:0 pool"));
    let _registered = register_source(pool.clone()).unwrap();
    let line: serde_json::Value = serde_json::from_str(&trained(&pool).to_json()).unwrap();
    assert_eq!((&line["device"], &line["has_allocator"]), (&"cuda:0 pool".into(), &false.into()));
    let source = &line["sources"][0];
    let texts = ["name", "exactness", "peak_kind"].map(|key| source[key].as_str().unwrap());
    assert_eq!(texts, ["cuda:0 pool", "exact, of the whole process", "exact"]);
    let bytes = ["before_bytes", "after_bytes", "peak_bytes"].map(|key| source[key].as_i64().unwrap() / MIB);
    assert_eq!(bytes, [100, 121, 190]);
    assert!(source.get("ooms").is_none(), "what is not counted has no key");
    let phases: Vec<_> =
        source["phases"].as_array().unwrap().iter().map(|phase| phase["name"].as_str().unwrap()).collect();
    assert_eq!(phases, ["forward", "backward", "eval", "train"]);
    assert_eq!(
        (&source["phases"][2]["failures"], &source["phases"][2]["peak_bytes"]),
        (&1.into(), &serde_json::Value::Null)
    );
}

#[test]
fn beside_an_allocator_the_table_has_a_section_for_each_source() {
    let _turn = turn();
    let allocator = CachingAllocator::new(Arc::new(Simulated::with_capacity(1 << 30)));
    let _current = allocator.make_current();
    let (pool, counter) = (Arc::new(Pool::new("pool")), Arc::new(Pool::without_peak("counter")));
    let _first = register_source(pool.clone()).unwrap();
    let second = register_source(counter).unwrap();
    let epoch = memtrack::epoch(1);
    let _buffer = Buffer::<u8>::uninit(&allocator, 1 << 20).unwrap();
    pool.change(MIB);
    drop(second);
    let summary = epoch.finish().unwrap();
    assert!(summary.has_allocator);
    assert_eq!((summary.device.as_str(), summary.peak_bytes, summary.sources.len()), ("simulated", MIB, 2));
    let text = summary.to_string();
    let (table, sections) = text.split_once("\n  source    ").unwrap();
    assert!(table.contains("  peak      1.00 MiB in other"), "{table}");
    assert_eq!(sections, SECTIONS);
}

const SECTIONS: &str = "\
pool: exact, of the whole process; peaks by high-water mark
    phase  entered  before     after        net      peak  rise max  reserved
    epoch        1     0 B  1.00 MiB  +1.00 MiB  1.00 MiB  1.00 MiB  1.00 MiB
  source    counter: exact, of the whole process; peaks are lower bounds: read where scopes begin and end
    phase  entered  before  after  net  peak  rise max  reserved
    epoch        1     0 B      -    -     -         -         -
    not known: the source was unregistered before the scope ended";
