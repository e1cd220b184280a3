//! Growth against earlier epochs, live blocks by line and age, and leaks.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;

use memtrack::device::Simulated;
use memtrack::phase::{EpochSite, EpochSummary};
use memtrack::scope::Scope;
use memtrack::{Buffer, CachingAllocator};

const MIB: i64 = 1 << 20;

fn allocator() -> CachingAllocator {
    CachingAllocator::new(Arc::new(Simulated::with_capacity(12 << 30)))
}

#[track_caller]
fn take(allocator: &CachingAllocator, mebibytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, mebibytes << 20).unwrap()
}

fn site_of_line(summary: &EpochSummary, line: u32) -> Option<&EpochSite> {
    summary.live.iter().find(|site| site.location.line() == line)
}

/// Each step keeps its saved buffers, and one scalar for the running sum: the graph is kept with the loss.
#[test]
fn a_loss_kept_with_its_graph_is_named_by_its_line_and_suspected() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let (weights, weights_line) = (take(&allocator, 2048), line!());
    let mut history = Vec::new();
    let mut summaries = Vec::new();
    let (mut saved_line, mut scalar_line) = (0, 0);
    for number in 1..=4 {
        let epoch = memtrack::epoch(number);
        for step in 0..3 {
            let _step = memtrack::step(step);
            let _phase = memtrack::phase("forward");
            let forward = Scope::open(&allocator, "layer", None);
            let saved = take(&allocator, 24);
            saved_line = line!() - 1;
            let loss = Buffer::<f32>::uninit(&allocator, 1).unwrap();
            scalar_line = line!() - 1;
            history.push((saved, loss));
            drop(take(&allocator, 300));
            drop(forward);
        }
        summaries.push(epoch.finish().unwrap());
    }

    assert_eq!(summaries[0].growth, None);
    assert!(summaries[0].live.iter().all(|site| site.grown_epoch_count == 0 && site.grown_bytes == 0));
    for (index, summary) in summaries.iter().enumerate() {
        let epochs = index as u64 + 1;
        let (saved, scalar) = (site_of_line(summary, saved_line).unwrap(), site_of_line(summary, scalar_line).unwrap());
        assert_eq!((saved.phase, saved.scope), ("forward", Some("layer")));
        assert_eq!((saved.block_count, saved.size_bytes), (3 * epochs, (3 * epochs * 24) << 20));
        assert_eq!((scalar.requested_bytes, scalar.size_bytes), (12 * epochs, 512 * 3 * epochs));
        // Three of each epoch, the youngest first.
        let ages: Vec<_> = saved.ages.iter().map(|group| (group.age_epochs, group.block_count)).collect();
        assert_eq!(ages, (0..epochs).map(|age| (age, 3)).collect::<Vec<_>>());
        assert_eq!((saved.oldest_age_epochs(), saved.oldest_age_steps), (epochs - 1, 3 * epochs - 1));
        assert_eq!(saved.grown_epoch_count, epochs - 1);
        // From the second growth on.
        assert_eq!((saved.is_suspected(), scalar.is_suspected()), (epochs > 2, epochs > 2));
        let weights = site_of_line(summary, weights_line).unwrap();
        assert_eq!((weights.grown_epoch_count, weights.oldest_age_epochs()), (0, epochs));
        let live: u64 = summary.live.iter().map(|site| site.size_bytes).sum();
        assert_eq!(live as i64, summary.after_bytes, "the sites add up to what is allocated");
    }
    let last = summaries[3].growth.unwrap();
    assert_eq!((last.bytes, last.bytes_per_epoch, last.change_count), (72 * MIB + 1536, 72 * MIB + 1536, 3));

    let text = summaries[3].to_string();
    let expected = [
        format!(
            "  growth    +72.00 MiB, +72.00 MiB an epoch over the last 4: tests/tests/summary_growth.rs:{saved_line}:25 in \
             layer (forward) +72.00 MiB, +3 blocks; tests/tests/summary_growth.rs:{scalar_line}:24 in layer (forward) \
             +1.50 KiB, +3 blocks\n"
        ),
        format!(
            "  leak?     tests/tests/summary_growth.rs:{saved_line}:25 in layer (forward) grew at the last 3 ends of epochs: \
             288.00 MiB in 12 blocks, the oldest 3 epochs and 11 steps old\n"
        ),
    ];
    for line in expected {
        assert!(text.contains(&line), "{line}\n{text}");
    }
    assert_eq!(summaries[3].live.len(), 3, "the temporary is not live");
    drop(weights);
}

#[test]
fn what_is_replaced_each_epoch_is_no_leak_however_it_grows() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let mut cache = None;
    for number in 1..=5 {
        let epoch = memtrack::epoch(number);
        drop(cache.take());
        cache = Some(take(&allocator, number as usize));
        let summary = epoch.finish().unwrap();
        let [site] = &summary.live[..] else { panic!("{:?}", summary.live) };
        assert_eq!((site.grown_epoch_count, site.oldest_age_epochs()), (number - 1, 0));
        assert!(!site.is_suspected());
        assert!(!summary.to_string().contains("leak?"), "{summary}");
    }
    drop(cache);
}

#[test]
fn growth_that_stops_is_not_suspected_any_more_and_shrinking_is_no_growth() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let mut kept = Vec::new();
    let mut suspected = Vec::new();
    for number in 1..=6 {
        let epoch = memtrack::epoch(number);
        match number {
            1..=3 => kept.push(take(&allocator, 1)),
            4 => {}
            _ => drop(kept.pop()),
        }
        let summary = epoch.finish().unwrap();
        suspected.push(summary.live.iter().any(EpochSite::is_suspected));
        let growth = summary.growth.map(|growth| growth.bytes / MIB);
        assert_eq!(growth, [None, Some(1), Some(1), Some(0), Some(-1), Some(-1)][number as usize - 1]);
        let text = summary.to_string();
        assert_eq!(text.contains("  growth  "), growth.is_some_and(|growth| growth != 0), "{text}");
    }
    assert_eq!(suspected, [false, false, true, false, false, false]);
    drop(kept);
}

#[test]
fn the_slope_is_over_the_latest_epochs() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let mut kept = Vec::new();
    let mut last = None;
    for number in 0..40_u64 {
        let epoch = memtrack::epoch(number);
        kept.push(take(&allocator, if number < 20 { 8 } else { 2 }));
        last = epoch.finish().unwrap().growth;
    }
    let last = last.unwrap();
    assert_eq!((last.bytes, last.bytes_per_epoch, last.change_count), (2 * MIB, 2 * MIB, 15));
}

#[test]
fn blocks_of_all_threads_and_streams_are_seen_and_those_outside_scopes_too() {
    use memtrack::device::Stream;
    let allocator = allocator();
    let raw = allocator.allocate_raw(5 << 20, Stream(7)).unwrap();
    let kept = std::thread::scope(|threads| {
        let keep = || Buffer::<u8>::uninit_on(&allocator, Stream(3), 1 << 20).unwrap();
        threads.spawn(keep).join().unwrap()
    });
    let summary = allocator.epoch(1).finish().unwrap();
    let seen: Vec<_> = summary.live.iter().map(|site| (site.scope, site.phase, site.size_bytes >> 20)).collect();
    assert_eq!(seen, [(None, "other", 5), (None, "other", 1)]);
    assert_eq!(summary.live[0].oldest_age_epochs(), 1, "from before the epoch");
    allocator.free_raw(raw).unwrap();
    drop(kept);
}
