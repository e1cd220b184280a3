//! What an epoch says at its end: one event for itself, one for each phase, outside every lock.

use std::sync::Arc;

use memtrack::device::Simulated;
use memtrack::{Buffer, CachingAllocator};
use memtrack_tests::listening::listen;
use tracing::Level;

const MIB: i64 = 1 << 20;

#[test]
fn an_epoch_says_what_its_summary_holds() {
    let allocator = CachingAllocator::new(Arc::new(Simulated::new()));
    let asking = allocator.clone();
    let ask = move || {
        let _ = (asking.memory_stats(), asking.limit_bytes());
        asking.empty_cache().unwrap();
        // A subscriber that opens scopes of its own.
        drop(asking.epoch(99).finish());
    };
    let mut summary = None;
    let said = listen(
        || {},
        || {
            let _current = allocator.make_current();
            let epoch = memtrack::epoch(3);
            let _step = memtrack::step(8);
            let phase = memtrack::phase("forward");
            let kept = Buffer::<u8>::uninit(&allocator, 3 << 20).unwrap();
            drop(Buffer::<u8>::uninit(&allocator, 2 << 20).unwrap());
            drop(phase);
            drop(Buffer::<u8>::uninit(&allocator, 1 << 20).unwrap());
            summary = epoch.finish();
            drop(kept);
        },
    );
    let summary = summary.unwrap();
    let [epoch, forward, other] = &said[..] else { panic!("{said:?}") };
    assert_eq!((epoch.target.as_str(), epoch.level), ("memtrack::epoch", Level::INFO));
    assert_eq!((epoch.fields["message"].as_str(), epoch.fields["mem.device"].as_str()), ("epoch summary", "simulated"));
    assert_eq!(epoch.fields["peak_phase"], "forward");
    let expected = [
        ("epoch", 3),
        ("steps", 1),
        ("mem.before", 0),
        ("mem.after", 3 * MIB),
        ("mem.delta", 3 * MIB),
        ("mem.peak", 5 * MIB),
        ("peak_step", 8),
        ("mem.reserved", 22 * MIB),
        ("mem.cached", 19 * MIB),
        ("peak_reserved", 20 * MIB),
        ("largest_free_block", 17 * MIB),
        ("growth", 0),
        ("mem.retries", 0),
        ("mem.ooms", 0),
    ];
    for (field, number) in expected {
        assert_eq!(epoch.number(field), number, "{field}");
    }
    assert_eq!(epoch.number("duration_ms"), summary.lasted.as_millis() as i64);
    for (event, phase) in [forward, other].into_iter().zip(&summary.phases) {
        assert_eq!((event.target.as_str(), event.level), ("memtrack::phase", Level::INFO));
        assert_eq!(event.fields["mem.phase"], phase.name);
        let found = ["mem.delta", "mem.peak", "rise_median", "rise_max", "entered", "mem.allocs", "mem.frees"]
            .map(|field| event.number(field));
        let (entered, allocs, frees) =
            (phase.entered_count as i64, phase.allocation_count as i64, phase.free_count as i64);
        let (median, highest) = (phase.rise_median_bytes, phase.rise_max_bytes);
        assert_eq!(found, [phase.net_bytes, phase.peak_bytes, median, highest, entered, allocs, frees]);
        assert_eq!(event.number("device_allocs"), phase.device_allocation_count as i64);
        assert_eq!(event.number("rise_p95"), phase.rise_p95_bytes);
        assert_eq!(event.number("headroom"), summary.headroom_bytes(phase.peak_bytes));
        assert_eq!(event.number("allocated"), phase.allocated_bytes as i64);
        assert_eq!(event.number("inclusive_delta"), phase.inclusive_net_bytes);
        assert_eq!((event.number("mem.foreign"), event.number("other_threads")), (0, 0));
        assert_eq!(event.number("slow_path_us"), phase.slow_path.as_micros() as i64);
    }

    // The same with a subscriber that uses the allocator; on a thread of its own, so that a deadlock cannot hang the run.
    let (done, finished) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let said = listen(ask, || {
            drop(Buffer::<u8>::uninit(&allocator, 1000).unwrap());
            drop(allocator.epoch(4));
        });
        done.send(said.len()).unwrap();
    });
    // Events inside a subscriber's own callback are not delivered.
    assert_eq!(finished.recv_timeout(std::time::Duration::from_secs(20)), Ok(2));
}
