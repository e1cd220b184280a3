//! What the allocator says when memory runs short: a warning for a retry, an error for an out of memory, with all figures
//! and outside every lock.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;

use memtrack::device::{Device, Fault, Operation, Simulated, Stream};
use memtrack::{AllocationError, CachingAllocator, OutOfMemory, Refusal};
use memtrack_tests::listening::listen;
use tracing::Level;

const MIB: u64 = 1 << 20;

fn out_of_memory(outcome: Result<u64, AllocationError>) -> OutOfMemory {
    match outcome.unwrap_err() {
        AllocationError::OutOfMemory(error) => *error,
        error => panic!("{error}"),
    }
}

/// 100 MiB of which 60 are live on the default stream and 24 are cached on stream 3, 20 of them in one block.
fn nearly_full() -> (Arc<Simulated>, CachingAllocator) {
    let device = Arc::new(Simulated::with_capacity(100 * MIB));
    let allocator = CachingAllocator::new(device.clone());
    allocator.allocate_raw(60 * MIB, Stream::DEFAULT).unwrap();
    for bytes in [20 * MIB, 1000, 600_000, 600_000, 600_000] {
        let address = allocator.allocate_raw(bytes, Stream(3)).unwrap();
        allocator.free_raw(address).unwrap();
    }
    let kept = allocator.allocate_raw(MIB, Stream(3)).unwrap();
    let address = allocator.allocate_raw(1_000_000, Stream(3)).unwrap();
    allocator.free_raw(address).unwrap();
    allocator.free_raw(kept).unwrap();
    assert_eq!(allocator.memory_reserved(), 82 * MIB as i64);
    (device, allocator)
}

#[test]
fn a_retry_that_helps_is_one_warning_with_its_figures() {
    let (_, allocator) = nearly_full();
    let said = listen(
        || {},
        || {
            allocator.allocate_raw(30 * MIB, Stream(5)).unwrap();
        },
    );
    let [warning] = &said[..] else { panic!("{said:?}") };
    assert_eq!((warning.target.as_str(), warning.level), ("memtrack::alloc_retry", Level::WARN));
    assert_eq!(warning.fields["mem.device"], "simulated");
    assert_eq!(warning.fields["outcome"], "served");
    let numbers = ["stream", "requested_bytes", "segment_bytes", "returned_bytes"].map(|field| warning.number(field));
    assert_eq!(numbers, [5, 30 * MIB as i64, 30 * MIB as i64, 22 * MIB as i64]);
    assert!((0..60_000_000).contains(&warning.number("took_us")));
}

#[test]
fn an_out_of_memory_is_a_failed_retry_and_an_error_in_the_current_span() {
    let (device, allocator) = nearly_full();
    device.set_other_use(7 * MIB);
    let mut error = None;
    let said = listen(
        || {},
        || {
            tracing::info_span!("training").in_scope(|| {
                let _current = allocator.make_current();
                let _phase = memtrack::phase("forward");
                error = Some(out_of_memory(allocator.allocate_raw(50 * MIB + 1, Stream(3))));
            });
        },
    );
    let [warning, event] = &said[..] else { panic!("{said:?}") };
    assert_eq!((warning.level, warning.fields["outcome"].as_str()), (Level::WARN, "failed"));
    assert_eq!((event.target.as_str(), event.level), ("memtrack::oom", Level::ERROR));
    assert_eq!(event.span.as_deref(), Some("training"));
    assert_eq!((event.fields["mem.device"].as_str(), event.fields["mem.phase"].as_str()), ("simulated", "forward"));
    let expected = [
        ("stream", 3),
        ("requested_bytes", 50 * MIB as i64 + 1),
        ("segment_bytes", 52 * MIB as i64),
        ("allocated_bytes", 60 * MIB as i64),
        ("reserved_bytes", 60 * MIB as i64),
        ("largest_usable_block_bytes", 0),
        ("largest_free_block_bytes", 0),
        ("device_free_bytes", 33 * MIB as i64),
        ("device_total_bytes", 100 * MIB as i64),
        ("limit_bytes", 100 * MIB as i64),
        ("returned_bytes", 22 * MIB as i64),
    ];
    for (field, number) in expected {
        assert_eq!(event.number(field), number, "{field}");
    }

    let error = error.unwrap();
    assert_eq!((error.refused_by, error.phase, error.stream), (Refusal::Device, Some("forward"), Stream(3)));
    assert_eq!((error.requested_bytes, error.segment_bytes), (50 * MIB + 1, 52 * MIB));
    assert_eq!((error.device_free_bytes, error.limit_bytes), (Some(33 * MIB), None));
    assert_eq!(event.fields["message"], error.to_string());
    assert_eq!(
        error.to_string(),
        "out of memory on simulated: tried to allocate 50.00 MiB (52428801 bytes), which needs a segment of 52.00 MiB; \
         the device has no room. simulated has a total capacity of 100.00 MiB of which 33.00 MiB is free. Of 60.00 MiB \
         reserved, 60.00 MiB is allocated and 0 B is cached, the largest free block for this request being 0 B; 22.00 MiB of \
         cached memory was given back first, in vain (phase forward). Free buffers earlier or make the batch smaller"
    );
    assert_eq!(allocator.memory_stats().num_ooms, 1);
}

#[test]
fn a_refusal_by_the_limit_says_so_and_names_a_fitting_block_of_another_stream() {
    let device = Arc::new(Simulated::with_capacity(1000 * MIB));
    let allocator = CachingAllocator::new(device);
    allocator.set_memory_fraction(0.05).unwrap();
    // The rest of the segment is free, but of stream 2, and the segment cannot be given back.
    allocator.allocate_raw(2 * MIB, Stream(2)).unwrap();
    allocator.allocate_raw(20 * MIB, Stream::DEFAULT).unwrap();
    let mut error = None;
    let said = listen(|| {}, || error = Some(out_of_memory(allocator.allocate_raw(12 * MIB, Stream::DEFAULT))));
    let [_, event] = &said[..] else { panic!("{said:?}") };
    assert_eq!(event.number("limit_bytes"), 50 * MIB as i64);
    assert_eq!(event.number("largest_free_block_bytes"), 18 * MIB as i64);
    assert_eq!(event.fields["mem.phase"], "other", "no phase is open");
    let error = error.unwrap();
    assert_eq!((error.refused_by, error.limit_bytes, error.returned_bytes), (Refusal::Limit, Some(50 * MIB), 0));
    assert_eq!((error.largest_usable_block_bytes, error.largest_free_block_bytes), (0, 18 * MIB));
    assert!(error.to_string().contains("for this request being 0 B (of all streams and pools 18.00 MiB)"), "{error}");
    assert!(error.to_string().contains("belongs to another stream or pool"), "{error}");
    assert!(error.to_string().contains("the memory fraction allows no more"), "{error}");
    assert!(error.to_string().contains("50.00 MiB allowed"), "{error}");
}

#[test]
fn a_subscriber_may_use_the_allocator_while_it_is_told() {
    let (device, allocator) = nearly_full();
    let (done, finished) = std::sync::mpsc::channel();
    // On a thread of its own: a deadlock must not hang the test run.
    std::thread::spawn(move || {
        let asking = allocator.clone();
        // Each of these takes one of the allocator's locks; the last takes all of them.
        let ask = move || {
            let _ = (asking.memory_stats(), asking.limit_bytes());
            asking.reset_peak_memory_stats();
            let small = asking.allocate_raw(1, Stream(77)).unwrap();
            asking.free_raw(small).unwrap();
            asking.empty_cache().unwrap();
        };
        let said = listen(ask, || {
            allocator.allocate_raw(30 * MIB, Stream(5)).unwrap();
            out_of_memory(allocator.allocate_raw(300 * MIB, Stream(5)));
        });
        done.send(said.len()).unwrap();
        drop(allocator);
        assert_eq!(device.used_bytes(), 0);
    });
    assert_eq!(finished.recv_timeout(std::time::Duration::from_secs(20)), Ok(3));
}

/// PyTorch reports an out of memory here, and the same call succeeds a moment later.
#[test]
fn a_block_that_was_waited_for_serves_the_request() {
    let device = Arc::new(Simulated::with_capacity(1000 * MIB));
    let allocator = CachingAllocator::new(device.clone());
    allocator.set_memory_fraction(0.11).unwrap();
    // One segment of 100 MiB, cut into 60 and 40.
    let whole = allocator.allocate_raw(100 * MIB, Stream::DEFAULT).unwrap();
    allocator.free_raw(whole).unwrap();
    let used_elsewhere = allocator.allocate_raw(60 * MIB, Stream::DEFAULT).unwrap();
    allocator.allocate_raw(40 * MIB, Stream::DEFAULT).unwrap();
    device.set_busy(Stream(1));
    allocator.record_stream_raw(used_elsewhere, Stream(1)).unwrap();
    allocator.free_raw(used_elsewhere).unwrap();
    let mut address = 0;
    let said = listen(|| {}, || address = allocator.allocate_raw(50 * MIB, Stream::DEFAULT).unwrap());
    assert_eq!(address, used_elsewhere);
    let [warning] = &said[..] else { panic!("{said:?}") };
    assert_eq!((warning.fields["outcome"].as_str(), warning.number("returned_bytes")), ("served", 0));
    let stats = allocator.memory_stats();
    assert_eq!((stats.num_alloc_retries, stats.num_ooms, stats.num_device_alloc), (1, 0, 1));
    device.synchronize().unwrap();
}

/// What oversize segments and the garbage collector gave back on the way counts as given back too.
#[test]
fn everything_given_back_on_the_way_to_an_out_of_memory_is_counted() {
    for config in ["max_split_size_mb:20", "garbage_collection_threshold:0.1,per_process_memory_fraction:0.9"] {
        let device = Arc::new(Simulated::with_capacity(100 * MIB));
        let allocator = CachingAllocator::with_config(device, config.parse().unwrap()).unwrap();
        let blocks = [30, 30, 30].map(|size| allocator.allocate_raw(size * MIB, Stream::DEFAULT).unwrap());
        for block in blocks {
            allocator.free_raw(block).unwrap();
        }
        let mut error = None;
        let said = listen(|| {}, || error = Some(out_of_memory(allocator.allocate_raw(200 * MIB, Stream::DEFAULT))));
        assert_eq!(error.unwrap().returned_bytes, 90 * MIB, "{config}");
        assert_eq!(said[0].number("returned_bytes"), 90 * MIB as i64, "{config}");
    }
}

/// What is counted is logged, also when the device fails otherwise at the last attempt.
#[test]
fn a_retry_that_ends_in_a_failure_of_the_device_is_logged_as_it_is_counted() {
    let device = Arc::new(Simulated::with_capacity(100 * MIB));
    let allocator = CachingAllocator::new(device.clone());
    let cached = allocator.allocate_raw(60 * MIB, Stream::DEFAULT).unwrap();
    allocator.free_raw(cached).unwrap();
    device.inject(Fault::Driver { operation: Operation::Allocate, nth: 1 });
    let said = listen(
        || {},
        || {
            let refused = allocator.allocate_raw(80 * MIB, Stream::DEFAULT);
            assert!(matches!(refused, Err(AllocationError::Device(_))), "{refused:?}");
        },
    );
    let [warning] = &said[..] else { panic!("{said:?}") };
    assert_eq!((warning.fields["outcome"].as_str(), warning.number("returned_bytes")), ("failed", 60 * MIB as i64));
    let stats = allocator.memory_stats();
    assert_eq!((stats.num_alloc_retries, stats.num_ooms), (1, 0));
}

struct PanickingLayer;

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for PanickingLayer {
    fn on_event(&self, _event: &tracing::Event<'_>, _context: tracing_subscriber::layer::Context<'_, S>) {
        panic!("a layer's own mistake");
    }
}

#[test]
fn a_subscriber_that_panics_at_a_retry_loses_no_block() {
    use tracing_subscriber::layer::SubscriberExt as _;

    let device = Arc::new(Simulated::with_capacity(100 * MIB));
    let allocator = CachingAllocator::new(device);
    let cached = allocator.allocate_raw(60 * MIB, Stream::DEFAULT).unwrap();
    allocator.free_raw(cached).unwrap();
    let panicked = std::panic::catch_unwind(|| {
        tracing::subscriber::with_default(tracing_subscriber::registry().with(PanickingLayer), || {
            allocator.allocate_raw(80 * MIB, Stream::DEFAULT)
        })
    });
    assert!(panicked.is_err(), "the retry was logged");
    assert_eq!(allocator.memory_stats().allocation.all.current, 0);
    allocator.empty_cache().unwrap();
    assert_eq!(allocator.memory_reserved(), 0);
}
