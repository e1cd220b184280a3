//! Who keeps memory: the line of each block, and the live blocks of a scope.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use memtrack::device::{Host, Simulated, Stream};
use memtrack::scope::{LiveBlock, LiveSite, OpenScope, Outcome, Scope};
use memtrack::{Buffer, CachingAllocator, Config, PoolOptions};

const STREAM: Stream = Stream::DEFAULT;

fn simulated() -> CachingAllocator {
    CachingAllocator::new(Arc::new(Simulated::new()))
}

#[track_caller]
fn take(allocator: &CachingAllocator, bytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, bytes).unwrap()
}

/// (file, line) of the only live block.
fn only_location(scope: &Scope) -> (&'static str, u32) {
    let blocks = scope.live_blocks();
    assert_eq!(blocks.len(), 1, "{blocks:?}");
    (blocks[0].location.file(), blocks[0].location.line())
}

#[test]
fn every_call_that_allocates_is_remembered_by_the_callers_line() {
    let allocator = CachingAllocator::new(Arc::new(Host::new()));
    let source = take(&allocator, 100);
    let scope = Scope::open(&allocator, "scope", None);
    // Each on one line, so that `line!` names it.
    #[rustfmt::skip]
    let calls: [(u32, &dyn Fn() -> Buffer<u8>); 7] = [
        (line!(), &|| Buffer::uninit(&allocator, 100).unwrap()),
        (line!(), &|| Buffer::uninit_on(&allocator, STREAM, 100).unwrap()),
        (line!(), &|| Buffer::zeros(&allocator, 100).unwrap()),
        (line!(), &|| Buffer::zeros_on(&allocator, STREAM, 100).unwrap()),
        (line!(), &|| Buffer::from_slice(&allocator, &[1; 100]).unwrap()),
        (line!(), &|| Buffer::from_slice_on(&allocator, STREAM, &[1; 100]).unwrap()),
        (line!(), &|| source.try_clone().unwrap()),
    ];
    for (line, call) in calls {
        // All of them get the same block from the cache.
        let kept = call();
        assert_eq!(only_location(&scope), (file!(), line));
        drop(kept);
        assert_eq!(scope.live_blocks(), []);
    }
    let (line, address) = (line!(), allocator.allocate_raw(100, STREAM).unwrap());
    assert_eq!(only_location(&scope), (file!(), line));
    allocator.free_raw(address).unwrap();
}

#[test]
fn blocks_from_wherever_they_come_have_their_line() {
    let settings =
        ["", "expandable_segments:True", "backend:cudaMallocAsync", "max_split_size_mb:20", "torch_exact:True"];
    for settings in settings {
        let config: Config = settings.parse().unwrap();
        let allocator = CachingAllocator::with_config(Arc::new(Simulated::new()), config).unwrap();
        let scope = Scope::open(&allocator, "scope", None);
        for round in 0..2 {
            // New segments in the first round, cached blocks in the second.
            for bytes in [100, 5 << 20, 50 << 20] {
                let (line, kept) = (line!(), take(&allocator, bytes));
                assert_eq!(only_location(&scope), (file!(), line), "{settings:?}, round {round}, {bytes} bytes");
                drop(kept);
            }
        }
        let (line, address) = (line!(), allocator.allocate_raw(100, STREAM).unwrap());
        assert_eq!(only_location(&scope), (file!(), line), "{settings:?}");
        allocator.free_raw(address).unwrap();
        assert_eq!(scope.live_blocks(), [], "{settings:?}");
    }
}

#[test]
fn blocks_of_a_private_pool_have_their_line() {
    let allocator = simulated();
    let pool = allocator.create_pool(PoolOptions::default());
    let scope = Scope::open(&allocator, "scope", None);
    let inside = pool.enter().unwrap();
    let (line, _kept) = (line!(), take(&allocator, 100));
    assert_eq!(only_location(&scope), (file!(), line));
    drop(inside);
}

#[test]
fn a_helper_that_tracks_its_caller_hands_the_line_on() {
    #[track_caller]
    fn helper(allocator: &CachingAllocator) -> Buffer<u8> {
        Buffer::uninit(allocator, 100).unwrap()
    }
    let allocator = simulated();
    let scope = Scope::open(&allocator, "scope", None);
    let (line, _kept) = (line!(), helper(&allocator));
    assert_eq!(only_location(&scope), (file!(), line));
}

#[test]
fn live_blocks_are_those_of_the_scope_and_of_the_scopes_inside_it() {
    let allocator = simulated();
    let outer = Scope::open(&allocator, "outer", None);
    let of_outer = take(&allocator, 1000);
    let inner = Scope::open(&allocator, "inner", None);
    let of_inner = take(&allocator, 2000);
    drop(take(&allocator, 50));
    inner.close(Outcome::Ok);
    let sibling = Scope::open(&allocator, "sibling", None);
    let of_sibling = take(&allocator, 3000);
    let elsewhere = std::thread::scope(|threads| threads.spawn(|| take(&allocator, 4000)).join().unwrap());

    let seen = |blocks: &[LiveBlock]| -> Vec<(u64, u64, &str)> {
        blocks.iter().map(|block| (block.requested_bytes, block.size_bytes, block.scope)).collect()
    };
    assert_eq!(seen(&sibling.live_blocks()), [(3000, 3072, "sibling")]);
    let blocks = outer.live_blocks();
    assert_eq!(seen(&blocks), [(1000, 1024, "outer"), (2000, 2048, "inner"), (3000, 3072, "sibling")]);
    let addresses: Vec<u64> = blocks.iter().map(|block| block.address).collect();
    assert_eq!(addresses, [of_outer.address(), of_inner.address(), of_sibling.address()]);
    sibling.close(Outcome::Ok);
    drop(of_outer);
    assert_eq!(seen(&outer.live_blocks()), [(2000, 2048, "inner"), (3000, 3072, "sibling")]);
    let sum: u64 = outer.live_blocks().iter().map(|block| block.requested_bytes).sum();
    assert_eq!(outer.close(Outcome::Ok).own_delta_bytes, sum as i64);
    drop((of_inner, of_sibling, elsewhere));
}

#[test]
fn a_block_that_only_waits_for_a_stream_is_not_kept() {
    let device = Arc::new(Simulated::new());
    let allocator = CachingAllocator::new(device.clone());
    let side = Stream(7);
    let scope = Scope::open(&allocator, "scope", None);
    let buffer = take(&allocator, 1000);
    buffer.record_stream(side).unwrap();
    assert_eq!(scope.live_blocks().len(), 1);
    device.set_busy(side);
    drop(buffer);
    assert_eq!(scope.live_blocks(), []);
    assert_eq!(allocator.memory_stats().active_bytes.all.current, 1024);
    device.set_idle(side);
}

#[test]
fn blocks_of_epochs_and_open_scopes_are_named_by_them() {
    let allocator = simulated();
    let outer = Scope::open(&allocator, "outer", None);
    let epoch = allocator.epoch(3);
    let of_epoch = take(&allocator, 100);
    let open = OpenScope::open(&allocator, "task", None);
    let of_task = {
        let _attached = open.attach();
        take(&allocator, 200)
    };
    let names: Vec<_> = outer.live_blocks().iter().map(|block| block.scope).collect();
    assert_eq!(names, ["epoch", "task"]);
    assert_eq!(open.live_blocks().len(), 1);
    drop((epoch, of_epoch, of_task));
}

#[test]
fn sites_are_grouped_by_line_and_scope_and_sorted_by_bytes() {
    fn in_scope(allocator: &CachingAllocator, name: &'static str) -> Buffer<u8> {
        let _scope = Scope::open(allocator, name, None);
        take_here(allocator)
    }
    fn take_here(allocator: &CachingAllocator) -> Buffer<u8> {
        Buffer::uninit(allocator, 700).unwrap()
    }
    let allocator = simulated();
    let scope = Scope::open(&allocator, "outer", None);
    let kept: Vec<_> = (0..3).map(|_| in_scope(&allocator, "forward")).collect();
    let one = in_scope(&allocator, "backward");
    let (line, large) = (line!(), Buffer::<u8>::uninit(&allocator, 1 << 20).unwrap());
    let sites = LiveSite::group(&scope.live_blocks());
    let figures: Vec<_> =
        sites.iter().map(|site| (site.requested_bytes, site.size_bytes, site.block_count, site.scope)).collect();
    assert_eq!(figures, [(1 << 20, 1 << 20, 1, "outer"), (2100, 3072, 3, "forward"), (700, 1024, 1, "backward")]);
    let column = sites[0].location.column();
    let expected = format!("1.00 MiB in 1 block, allocated at {}:{line}:{column} in outer", file!());
    assert_eq!(sites[0].to_string(), expected);
    assert!(sites[1].to_string().starts_with("2.05 KiB in 3 blocks, allocated at "), "{}", sites[1]);
    drop((kept, one, large));
}

/// Growing takes the locks in the other direction than a naive walk would.
#[test]
fn live_blocks_can_be_asked_for_while_other_threads_allocate_and_grow() {
    let allocator = simulated();
    let scope = Scope::open(&allocator, "scope", None);
    let here: &'static Location<'static> = Location::caller();
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for stream in 1..4 {
            let (handle, allocator, done) = (scope.handle(), &allocator, &done);
            threads.spawn(move || {
                handle.in_scope(|| {
                    let mut round = 0_u32;
                    while !done.load(Ordering::Relaxed) {
                        let bytes = 1 << (9 + round % 16);
                        let kept = Buffer::<u8>::uninit_on(allocator, Stream(stream), bytes).unwrap();
                        let _inner = Scope::open(allocator, "inner", None);
                        drop((Buffer::<u8>::uninit(allocator, 512).unwrap(), kept));
                        if round.is_multiple_of(64) {
                            allocator.empty_cache().unwrap();
                        }
                        round += 1;
                    }
                });
            });
        }
        for _ in 0..300 {
            for block in scope.live_blocks() {
                assert!(["scope", "inner"].contains(&block.scope), "{block:?}");
                assert_eq!(block.location.file(), here.file());
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(scope.live_blocks(), []);
}
