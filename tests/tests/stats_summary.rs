//! The table of `memory_summary` against those that PyTorch printed, character for character.
//!
//! The files are described in `fixtures/torch-2.11/summaries/README.md`.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::path::Path;
use std::sync::Arc;

use memtrack::device::{Host, Stream};
use memtrack::{CachingAllocator, MemoryStats, PoolStatistic, Statistic};
use serde_json::Value;

fn statistic(stats: &Value, name: &str) -> Statistic {
    let figure = |metric| stats[format!("{name}.{metric}")].as_i64().unwrap();
    let mut statistic = Statistic::default();
    statistic.current = figure("current");
    statistic.peak = figure("peak");
    statistic.allocated = figure("allocated");
    statistic.freed = figure("freed");
    statistic
}

fn array(stats: &Value, name: &str) -> PoolStatistic {
    let mut array = PoolStatistic::default();
    array.all = statistic(stats, &format!("{name}.all"));
    array.small_pool = statistic(stats, &format!("{name}.small_pool"));
    array.large_pool = statistic(stats, &format!("{name}.large_pool"));
    array
}

fn statistics(value: &Value) -> MemoryStats {
    let single = |name: &str| value[name].as_i64().unwrap();
    let mut stats = MemoryStats::default();
    stats.allocation = array(value, "allocation");
    stats.segment = array(value, "segment");
    stats.active = array(value, "active");
    stats.inactive_split = array(value, "inactive_split");
    stats.allocated_bytes = array(value, "allocated_bytes");
    stats.reserved_bytes = array(value, "reserved_bytes");
    stats.active_bytes = array(value, "active_bytes");
    stats.inactive_split_bytes = array(value, "inactive_split_bytes");
    stats.requested_bytes = array(value, "requested_bytes");
    stats.oversize_allocations = statistic(value, "oversize_allocations");
    stats.oversize_segments = statistic(value, "oversize_segments");
    stats.num_alloc_retries = single("num_alloc_retries");
    stats.num_ooms = single("num_ooms");
    stats.num_sync_all_streams = single("num_sync_all_streams");
    stats.num_device_alloc = single("num_device_alloc");
    stats.num_device_free = single("num_device_free");
    stats.max_split_size = single("max_split_size");
    stats
}

fn fixture(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/torch-2.11/summaries");
    serde_json::from_str(&std::fs::read_to_string(folder.join(name)).unwrap()).unwrap()
}

#[test]
fn the_tables_are_those_that_pytorch_printed() {
    let mut compared = 0;
    for name in ["training-default.json", "training-expandable.json", "edge-sizes.json", "expandable-edge.json"] {
        let fixture = fixture(name);
        let stats = statistics(&fixture["stats"]);
        assert_eq!(serde_json::to_value(stats.to_map()).unwrap(), fixture["stats"], "{name} is read whole");
        for (field, abbreviated) in [("summary", false), ("abbreviated", true)] {
            if let Some(expected) = fixture.get(field) {
                assert_eq!(stats.torch_memory_summary(0, abbreviated), expected.as_str().unwrap(), "{name}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 6);
}

#[test]
fn memtracks_own_form_differs_in_the_title_alone() {
    let allocator = CachingAllocator::new(Arc::new(Host::with_capacity(64 << 20)));
    let address = allocator.allocate_raw(3 << 20, Stream::DEFAULT).unwrap();
    for abbreviated in [false, true] {
        let own = allocator.memory_summary(abbreviated);
        let torchs = allocator.memory_stats().torch_memory_summary(0, abbreviated);
        let differing: Vec<(&str, &str)> =
            own.lines().zip(torchs.lines()).filter(|(own, torch)| own != torch).collect();
        assert_eq!(differing.len(), 1);
        assert!(differing[0].0.contains(" memtrack memory summary, device host "));
        assert_eq!(own.lines().count(), torchs.lines().count());
        assert!(own.lines().all(|line| line.len() == 77));
        assert!(own.contains("| Allocated memory      |   3072 KiB |   3072 KiB |   3072 KiB |      0 B   |\n"));
    }
    allocator.free_raw(address).unwrap();
}
