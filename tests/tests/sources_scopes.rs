//! Scopes over sources, in a program without an allocator of memtrack's.
#![expect(clippy::unwrap_used, reason = "a test whose fake source refuses can only stop")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use memtrack::device::Host;
use memtrack::scope::{OpenScope, Outcome, Scope, ScopeRecord};
use memtrack::source::{
    Exactness, MemorySource, PeakKind, SourceError, SourceReading, SourceRegistration, register_source,
};
use memtrack::{Buffer, CachingAllocator};
use memtrack_tests::sources::{Pool, turn};

fn close(scope: Scope) -> ScopeRecord {
    scope.close(Outcome::Ok)
}

fn scope(name: &'static str) -> Scope {
    memtrack::scope(name).unwrap()
}

#[test]
fn a_scope_has_the_sources_figures_in_place_of_an_allocators() {
    let _turn = turn();
    let pool = Arc::new(Pool::new("pool"));
    pool.change(1000);
    let _registered = register_source(pool.clone()).unwrap();
    let opened = scope("work");
    pool.change(5000);
    pool.change(-4500);
    let record = close(opened);
    assert!(!record.has_allocator);
    assert_eq!(record.device.as_str(), "pool");
    assert_eq!((record.before_bytes, record.after_bytes, record.peak_bytes), (1000, 1500, 6000));
    assert_eq!((record.own_delta_bytes, record.allocation_count, record.reserved_delta_bytes), (0, 0, 1000));
    let source = &record.sources[0];
    assert_eq!((source.before_bytes, source.after_bytes), (Some(1000), Some(1500)));
    assert_eq!((source.delta_bytes(), source.peak_delta_bytes()), (Some(500), Some(5000)));
    assert_eq!((source.reserved_before_bytes, source.reserved_after_bytes), (Some(1000), Some(2000)));
    assert_eq!((source.reserved_peak_bytes, source.device), (Some(6000), Some(0)));
    // Read between, with the mark reset after the first: the fake counts readings as retries.
    assert_eq!((source.retry_count, source.oom_count), (Some(1), None));
    assert_eq!((source.peak_kind, &source.failure), (PeakKind::Exact, &None));
}

#[test]
fn nested_peaks_are_each_scopes_own_although_the_mark_is_reset_at_each_boundary() {
    let _turn = turn();
    let pool = Arc::new(Pool::new("pool"));
    let _registered = register_source(pool.clone()).unwrap();
    let outer = scope("outer");
    pool.change(900);
    pool.change(-800);
    let middle = scope("middle");
    pool.change(500);
    pool.change(-500);
    let inner = scope("inner");
    pool.change(50);
    let [inner, middle, outer] = [inner, middle, outer].map(|scope| close(scope).sources.remove(0));
    assert_eq!([inner.peak_bytes, middle.peak_bytes, outer.peak_bytes], [Some(150), Some(600), Some(900)]);
    assert!([inner, middle, outer].iter().all(|source| source.peak_kind == PeakKind::Exact));
    // The highest moment in the innermost is that of those around it too.
    let around = [scope("outer"), scope("middle")];
    drop(scope("before"));
    let inner = scope("inner");
    pool.change(2000);
    pool.change(-2000);
    drop(close(inner));
    drop(scope("after"));
    let [outer, middle] = around;
    assert_eq!([middle, outer].map(|scope| close(scope).peak_bytes), [2150, 2150]);
}

#[test]
fn scopes_that_overlap_on_two_threads_share_the_mark_and_say_so() {
    let _turn = turn();
    let pool = Arc::new(Pool::new("pool"));
    let _registered = register_source(pool.clone()).unwrap();
    let first = scope("first");
    let inside = scope("inside, before the other thread");
    let inside = close(inside).sources.remove(0);
    let other = std::thread::scope(|threads| {
        let other = threads.spawn(|| {
            let other = scope("other");
            pool.change(700);
            pool.change(-700);
            close(other).sources.remove(0)
        });
        other.join().unwrap()
    });
    let first = close(first).sources.remove(0);
    assert_eq!((inside.peak_bytes, inside.peak_kind), (Some(0), PeakKind::Exact));
    assert_eq!((other.peak_bytes, other.peak_kind), (Some(700), PeakKind::Shared));
    assert_eq!((first.peak_bytes, first.peak_kind), (Some(700), PeakKind::Shared), "the other thread's");
}

#[test]
fn a_scope_entered_on_another_thread_is_around_what_is_opened_there() {
    let _turn = turn();
    let pool = Arc::new(Pool::new("pool"));
    let _registered = register_source(pool).unwrap();
    let outer = scope("outer");
    let handle = outer.handle();
    std::thread::scope(|threads| {
        threads.spawn(|| handle.in_scope(|| drop(scope("inner"))));
    });
    assert_eq!(close(outer).sources[0].peak_kind, PeakKind::Exact);
}

#[test]
fn a_source_without_a_peak_gives_the_highest_of_what_was_read() {
    let _turn = turn();
    let pool = Arc::new(Pool::without_peak("counter"));
    let _registered = register_source(pool.clone()).unwrap();
    let outer = scope("outer");
    pool.change(300);
    drop(scope("a boundary"));
    pool.change(600);
    pool.change(-900);
    let source = close(outer).sources.remove(0);
    assert_eq!((source.peak_bytes, source.peak_kind), (Some(300), PeakKind::AtBoundaries));
    assert_eq!(source.reserved_peak_bytes, Some(1000));
}

#[test]
fn somebody_elses_reset_is_told_in_every_scope_that_was_open() {
    let _turn = turn();
    let pool = Arc::new(Pool::new("pool"));
    pool.change(1000);
    let _registered = register_source(pool.clone()).unwrap();
    let outer = scope("outer");
    pool.change(-400);
    pool.reset_elsewhere();
    let inner = scope("inner");
    let inner = close(inner).sources.remove(0);
    let outer = close(outer).sources.remove(0);
    assert_eq!((inner.peak_kind, inner.peak_bytes), (PeakKind::Exact, Some(600)));
    assert_eq!((outer.peak_kind, outer.peak_bytes), (PeakKind::ResetElsewhere, Some(1000)));
}

#[test]
fn a_reading_that_fails_costs_the_scope_that_needed_it_and_no_other() {
    let _turn = turn();
    let pool = Arc::new(Pool::new("pool"));
    let _registered = register_source(pool.clone()).unwrap();
    let outer = scope("outer");
    pool.change(800);
    pool.change(-700);
    pool.fail_once(SourceError::new("not now"));
    let blind = scope("blind from its beginning");
    pool.change(10);
    let blind = close(blind);
    pool.change(-10);
    let cut = scope("blind at its end");
    pool.fail_once(SourceError::new("nor now"));
    let cut = close(cut);
    pool.fail_reset_once(SourceError::new("no reset"));
    let unset = close(scope("whose mark is older than it"));
    let outer = close(outer);
    assert_eq!(blind.sources[0].failure, Some(SourceError::new("not now")));
    assert_eq!((blind.sources[0].before_bytes, blind.sources[0].peak_bytes), (None, None));
    assert_eq!((blind.before_bytes, blind.peak_bytes, blind.has_allocator), (0, 0, false));
    assert_eq!(cut.sources[0].failure, Some(SourceError::new("nor now")));
    let cut = &cut.sources[0];
    assert_eq!((cut.before_bytes, cut.after_bytes, cut.peak_bytes), (Some(100), None, None));
    assert_eq!(unset.sources[0].failure, Some(SourceError::new("no reset")));
    let outer = &outer.sources[0];
    assert_eq!((outer.after_bytes, outer.peak_bytes, &outer.failure), (Some(100), Some(800), &None));
}

#[test]
fn a_replaced_pool_ends_the_figures_of_all_open_scopes_and_begins_anew() {
    let _turn = turn();
    let pool = Arc::new(Pool::new("pool"));
    let _registered = register_source(pool.clone()).unwrap();
    let outer = scope("outer");
    let replaced = SourceError::PoolReplaced { device: "cuda:0".to_owned() };
    pool.fail_once(replaced.clone());
    let inner = scope("inner");
    pool.change(7);
    assert_eq!(close(inner).sources[0].delta_bytes(), Some(7));
    assert_eq!(close(outer).sources[0].failure, Some(replaced));
}

#[test]
fn a_source_that_panics_has_failed_and_nothing_else() {
    let _turn = turn();
    let pool = Arc::new(Pool::new("pool"));
    let _registered = register_source(pool.clone()).unwrap();
    let opened = scope("work");
    pool.set_panics(true);
    let record = close(opened);
    let message = "the pool is on fire".to_owned();
    assert_eq!(record.sources[0].failure, Some(SourceError::Panicked { message }));
    pool.set_panics(false);
    assert_eq!(close(scope("afterwards")).sources[0].failure, None);
}

#[test]
fn registration_refuses_what_cannot_be_read_and_names_that_are_taken() {
    let _turn = turn();
    let pool = Arc::new(Pool::new("pool"));
    pool.fail_once(SourceError::new("no driver"));
    assert_eq!(register_source(pool.clone()).unwrap_err(), SourceError::new("no driver"));
    assert!(memtrack::scope("nothing is registered").is_none());
    let registered = register_source(pool.clone()).unwrap();
    let taken = register_source(Arc::new(Pool::new("pool"))).unwrap_err();
    assert_eq!(taken, SourceError::NameTaken { name: "pool".to_owned() });
    drop(registered);
    let _again = register_source(Arc::new(Pool::new("pool"))).unwrap();
}

#[test]
fn a_source_that_goes_or_comes_while_a_scope_is_open_gives_it_no_figures() {
    let _turn = turn();
    let (stays, goes) = (Arc::new(Pool::new("stays")), Arc::new(Pool::new("goes")));
    let stays = register_source(stays).unwrap();
    let goes = register_source(goes).unwrap();
    let opened = scope("work");
    drop(goes);
    let _late = register_source(Arc::new(Pool::new("late"))).unwrap();
    let record = close(opened);
    let told: Vec<_> = record.sources.iter().map(|source| (&*source.name, source.failure.clone())).collect();
    assert_eq!(told, [("stays", None), ("goes", Some(SourceError::Unregistered))]);
    let opened = scope("work");
    let unread = scope("nobody reads it");
    drop((stays, _late));
    assert!(memtrack::scope("nothing is registered").is_none());
    let record = close(opened);
    let told: Vec<_> = record.sources.iter().map(|source| (source.name.as_ref(), source.failure.clone())).collect();
    assert_eq!(told, [("stays", Some(SourceError::Unregistered)), ("late", Some(SourceError::Unregistered))]);
    assert!(!record.has_allocator && record.device.as_str() == "stays", "{record:?}");
    drop(unread);
}

#[test]
fn sources_of_one_mark_each_have_exact_peaks() {
    let _turn = turn();
    let pool = Arc::new(Pool::new("pool"));
    let registered: Vec<_> = ["first", "second", "third"]
        .map(|name| register_source(Arc::new(Alias::new(name, &pool, true))).unwrap())
        .into();
    let outer = scope("outer");
    pool.change(500);
    let inner = scope("inner");
    pool.change(1000);
    pool.change(-1000);
    let inner = close(inner);
    // Less than where the mark was last set back, which is no reset by somebody else.
    pool.change(-300);
    let after = close(scope("after"));
    let outer = close(outer);
    for (record, peak_bytes) in [(&inner, 1500), (&outer, 1500), (&after, 200)] {
        let told: Vec<_> = record.sources.iter().map(|source| (source.peak_bytes, source.peak_kind)).collect();
        assert_eq!(told, [(Some(peak_bytes), PeakKind::Exact); 3], "{}", record.name);
    }
    drop(registered);
    // Those that do not say so spoil each other's, which is what saying it is for.
    let _registered =
        ["first", "second"].map(|name| register_source(Arc::new(Alias::new(name, &pool, false))).unwrap());
    let opened = scope("work");
    pool.change(1000);
    pool.change(-1000);
    assert_eq!(close(opened).sources[1].peak_bytes, Some(200));
}

/// Another source over a pool's counter; `says_so` if it tells which.
#[derive(Debug)]
struct Alias {
    name: &'static str,
    pool: Arc<Pool>,
    says_so: bool,
}

impl Alias {
    fn new(name: &'static str, pool: &Arc<Pool>, says_so: bool) -> Self {
        Self { name, pool: Arc::clone(pool), says_so }
    }
}

impl MemorySource for Alias {
    fn name(&self) -> &str {
        self.name
    }
    fn exactness(&self) -> Exactness {
        self.pool.exactness()
    }
    fn read(&self) -> Result<SourceReading, SourceError> {
        self.pool.read()
    }
    fn mark(&self) -> Option<u64> {
        self.says_so.then_some(Arc::as_ptr(&self.pool) as u64)
    }
    fn reset_peak(&self) -> Result<(), SourceError> {
        self.pool.reset_peak()
    }
}

#[test]
fn the_name_of_a_dropped_registration_is_free_at_once_with_many_threads() {
    let _turn = turn();
    std::thread::scope(|threads| {
        for name in ["a", "b", "c", "d"] {
            threads.spawn(move || {
                for _ in 0..200_000 {
                    let registered = register_source(Arc::new(Pool::new(name)));
                    drop(registered.unwrap_or_else(|error| panic!("{name}: {error}")));
                }
            });
        }
    });
    assert!(memtrack::scope("nothing is registered").is_none());
}

#[test]
fn a_source_may_end_registrations_while_it_is_read() {
    /// Owns a registration, and drops it when it is read for the second time, or with itself.
    #[derive(Debug)]
    struct Owner(Mutex<Option<SourceRegistration>>, Pool, AtomicBool);
    impl MemorySource for Owner {
        fn name(&self) -> &str {
            "owner"
        }
        fn exactness(&self) -> Exactness {
            Exactness::ExactProcessWide
        }
        fn read(&self) -> Result<SourceReading, SourceError> {
            if self.2.load(Ordering::Relaxed) {
                drop(self.0.lock().unwrap().take());
            }
            self.1.read()
        }
    }
    let _turn = turn();
    let owned = || register_source(Arc::new(Pool::new("owned"))).unwrap();
    let owner = Arc::new(Owner(Mutex::new(Some(owned())), Pool::new("inner"), AtomicBool::new(false)));
    let registered = register_source(owner.clone()).unwrap();
    let opened = scope("work");
    owner.2.store(true, Ordering::Relaxed);
    let record = close(opened);
    assert_eq!(record.sources[0].failure, None, "it was read with the others, and left after");
    assert_eq!(close(scope("later")).sources.len(), 1);
    drop(registered);
    drop(owner);
    // One that is refused goes with what it owns.
    let pool = Pool::new("inner");
    pool.fail_once(SourceError::new("broken"));
    assert!(register_source(Arc::new(Owner(Mutex::new(Some(owned())), pool, AtomicBool::new(false)))).is_err());
    assert!(memtrack::scope("nothing is registered").is_none());
}

#[test]
fn with_an_allocator_the_record_keeps_its_figures_and_has_the_sources_beside_them() {
    let _turn = turn();
    let allocator = CachingAllocator::new(Arc::new(Host::new()));
    let pool = Arc::new(Pool::new("pool"));
    let _registered = register_source(pool.clone()).unwrap();
    assert_eq!(memtrack::allocators().len(), 1, "what stands in for an allocator is none");
    let outer = OpenScope::open(&allocator, "outer", None);
    let attached = outer.attach();
    let inner = Scope::open(&allocator, "inner", None);
    let buffer = Buffer::<u8>::zeros(&allocator, 1000).unwrap();
    pool.change(77);
    let inner = close(inner);
    drop(attached);
    let outer = outer.close(Outcome::Ok);
    assert!(inner.has_allocator && outer.has_allocator);
    assert_eq!((inner.device.as_str(), inner.delta_bytes(), inner.own_delta_bytes), ("host", 1024, 1000));
    assert_eq!(outer.sources[0].delta_bytes(), Some(77));
    assert_eq!(outer.sources[0].peak_kind, PeakKind::Exact);
    drop(buffer);
}

#[test]
fn a_scope_whose_record_nobody_reads_costs_one_look_at_its_beginning_alone() {
    let _turn = turn();
    let pool = Arc::new(Pool::new("pool"));
    let _registered = register_source(pool.clone()).unwrap();
    let before = pool.read_count();
    drop(scope("unread"));
    assert_eq!(pool.read_count() - before, 2, "one at the end of a window, one after the reset");
}
