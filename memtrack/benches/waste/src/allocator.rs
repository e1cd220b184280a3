//! The allocator itself on traces, on streams whose work is always over: what it reserves where blocks of middle size outlive the
//! large ones around them, and that it does what the model does.

use std::path::Path;
use std::sync::Arc;

use memtrack::device::{Simulated, Stream};
use memtrack::{CachingAllocator, Config};

use crate::machine::PAGE_BYTES;
use crate::policy::compact::{Compact, Rules};
use crate::replay;
use crate::synthetic::{Kept, amid_large, conv_net, paged_cache};
use crate::trace::{Event, Trace};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// What the allocator reserved at most.
fn reserved_bytes(trace: &Trace, config: &str) -> u64 {
    let config: Config = config.parse().expect("a configuration");
    let device = Arc::new(Simulated::with_capacity(1 << 40));
    let allocator = CachingAllocator::with_config(device, config).expect("an allocator");
    let mut addresses = Vec::new();
    for event in &trace.events {
        match *event {
            Event::Allocate { bytes, stream, .. } => {
                addresses.push(allocator.allocate_raw(bytes, Stream(u64::from(stream))).expect("memory"));
            }
            Event::Free { block } => allocator.free_raw(addresses[block as usize]).expect("a block"),
            Event::Step => {}
        }
    }
    allocator.memory_stats().reserved_bytes.all.peak as u64
}

#[track_caller]
fn little_is_wasted(trace: &Trace) {
    let requested = trace.requested_peak_bytes();
    assert!(requested >= 300 * MIB, "{}: {requested} bytes are too few for pages not to matter", trace.name);
    let expandable = reserved_bytes(trace, "expandable_segments:True");
    for config in ["policy:compact", "policy:compact,compact_slack_percent:0"] {
        let reserved = reserved_bytes(trace, config);
        println!("{} {config}: {reserved} of {requested}, expandable segments {expandable}", trace.name);
        assert!(reserved as f64 <= 1.05 * requested as f64, "{}: {reserved} of {requested}", trace.name);
        // The first block of middle size, of which nothing is known, may cost a page.
        assert!(reserved <= expandable + PAGE_BYTES, "{}: {reserved}, expandable segments {expandable}", trace.name);
    }
}

#[test]
fn parameters_of_100_kib_keep_no_pages_of_7_mib_blocks_that_went() {
    little_is_wasted(&amid_large(7 * MIB, 100 * KIB, 40 * MIB));
}

#[test]
fn parameters_of_512_kib_keep_no_pages_of_3_mib_blocks_that_went() {
    little_is_wasted(&amid_large(3 * MIB, 512 * KIB, 30 * MIB));
}

#[test]
fn parameters_of_900_kib_keep_no_pages_of_5_mib_blocks_that_went() {
    little_is_wasted(&amid_large(5 * MIB, 900 * KIB, 30 * MIB));
}

#[test]
fn a_cache_in_pages_of_128_or_256_kib_stands_beside_prefills_of_any_length() {
    for kib in [128, 256] {
        little_is_wasted(&paged_cache(kib * KIB, 1));
    }
}

#[test]
fn a_cache_in_pages_of_512_kib_stands_beside_prefills_of_any_length() {
    little_is_wasted(&paged_cache(512 * KIB, 1));
}

#[test]
fn a_cache_in_pages_of_1_mib_stands_beside_prefills_of_any_length() {
    for seed in [1, 2] {
        little_is_wasted(&paged_cache(MIB, seed));
    }
}

#[test]
fn optimizer_state_made_in_the_backward_pass_keeps_no_pages_of_smaller_images() {
    for seed in [4, 6] {
        little_is_wasted(&conv_net(Kept::LazyState, 64, 100, 4, seed));
    }
    little_is_wasted(&conv_net(Kept::LazyState, 128, 100, 2, 4));
}

#[test]
fn gradients_that_are_kept_keep_no_pages_of_smaller_images() {
    for seed in [4, 6] {
        little_is_wasted(&conv_net(Kept::Gradients, 64, 100, 4, seed));
    }
    little_is_wasted(&conv_net(Kept::Gradients, 128, 100, 2, 4));
}

/// The pages that the model creates where work is over at once.
fn modelled_pages(trace: &Trace, slack: u64) -> u64 {
    replay(trace, &mut Compact::new(Rules { slack: Some(slack), ..Rules::default() }), 0).created
}

#[track_caller]
fn the_model_creates_as_many_pages(trace: &Trace) {
    for (slack, percent) in [(20, "2"), (6, "0")] {
        let reserved = reserved_bytes(trace, &format!("policy:compact,compact_slack_percent:{percent}"));
        assert_eq!(reserved / PAGE_BYTES, modelled_pages(trace, slack), "{}, slack {percent} %", trace.name);
    }
}

#[test]
fn the_model_creates_as_many_pages_for_the_recorded_workloads() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/fixtures/torch-2.11/traces");
    for name in crate::RECORDED {
        let trace = Trace::read(&folder.join(format!("{name}.expand.txt.gz"))).expect("a recording");
        the_model_creates_as_many_pages(&trace);
    }
}

#[test]
fn the_model_creates_as_many_pages_where_middle_sizes_matter() {
    the_model_creates_as_many_pages(&amid_large(5 * MIB, 900 * KIB, 30 * MIB));
    the_model_creates_as_many_pages(&paged_cache(MIB, 1));
    the_model_creates_as_many_pages(&conv_net(Kept::LazyState, 96, 60, 4, 7));
    the_model_creates_as_many_pages(&conv_net(Kept::Gradients, 128, 100, 2, 5));
}
