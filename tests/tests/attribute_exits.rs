//! Every way out of a synchronous function leaves one record, taken after what the call owned is freed.
//!
//! The bug class: code that a macro puts behind the body is skipped by `return`, `?` and panics, so a call goes
//! unrecorded, or is recorded while its locals are still alive.
#![allow(clippy::needless_return, reason = "early returns are what is tested")]
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use memtrack::device::Simulated;
use memtrack::{Buffer, CachingAllocator, track_memory};
use memtrack_tests::futures::block_on;
use memtrack_tests::memory::{Bench, Probe, figures};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::Arc;

const MIB: i64 = 1 << 20;

fn take(allocator: &CachingAllocator, mebibytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, mebibytes << 20).unwrap()
}

fn panics<T>(call: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(call)).is_err()
}

/// Three ways to leave early with 32 MiB in a local: each is one record, and the local is gone when it is taken.
#[test]
fn early_exits() {
    #[track_memory(err)]
    fn g(allocator: &CachingAllocator) -> Result<u8, std::num::ParseIntError> {
        let _local = take(allocator, 32);
        let number = "x".parse::<u8>()?;
        Ok(number)
    }
    #[track_memory]
    fn h(allocator: &CachingAllocator, numbers: &[u8]) -> u8 {
        let _local = take(allocator, 32);
        loop {
            for number in numbers {
                match number {
                    0 => continue,
                    1..=9 => return *number,
                    _ => break,
                }
            }
        }
    }
    #[track_memory]
    fn p(allocator: &CachingAllocator) -> u8 {
        let _local = take(allocator, 32);
        panic!("on purpose");
    }
    let bench = Bench::with_allocator(CachingAllocator::new(Arc::new(Simulated::new())));
    assert!(g(&bench.allocator).is_err());
    assert_eq!(h(&bench.allocator, &[0, 0, 7]), 7);
    assert!(panics(|| p(&bench.allocator)));
    for (name, outcome) in [("g", "err"), ("h", "ok"), ("p", "panic")].iter() {
        assert_eq!(bench.call(name), ((*outcome).to_owned(), 0, 32 * MIB), "{}", name);
        let span = bench.spans.one(name);
        assert_eq!((span.number("mem.allocs"), span.number("mem.frees")), (1, 1), "{}", name);
    }
    assert_eq!(bench.spans.all().len(), 3, "one record for each call");
}

#[test]
fn every_return_of_a_function_frees_its_locals_first() {
    #[track_memory(name = "f")]
    fn f(bench: &Bench, way: u8, _argument: Probe) -> Option<usize> {
        let _outer = bench.probe("outer");
        if way == 0 {
            return None;
        }
        let inner = bench.probe("inner");
        let found = 'search: {
            for n in 0..3 {
                let _in_loop = bench.probe("in loop");
                if way == 1 {
                    return Some(n);
                }
                if way == 2 {
                    break 'search Some(n);
                }
            }
            None
        };
        // Leaves by `?` in the last case.
        Some(found? + inner.len())
    }
    for (way, value, lines) in [
        (0, None, &["drop outer", "drop argument"][..]),
        (1, Some(0), &["drop in loop", "drop inner", "drop outer", "drop argument"][..]),
        (2, Some(1024), &["drop in loop", "drop inner", "drop outer", "drop argument"][..]),
        (3, None, &["drop in loop", "drop in loop", "drop in loop", "drop inner", "drop outer", "drop argument"][..]),
    ]
    .iter()
    {
        let bench = Bench::new();
        assert_eq!(f(&bench, *way, bench.probe("argument")), *value);
        bench.assert_freed_inside(lines, -1024, "ok");
    }
}

#[test]
fn a_return_inside_a_closure_is_not_the_functions() {
    #[track_memory(err)]
    fn f(bench: &Bench) -> Result<usize, String> {
        let parse = |text: &str| -> Result<usize, String> {
            let _inside = bench.probe("closure");
            if text.is_empty() {
                return Err("empty".to_owned());
            }
            let number: usize = text.parse().map_err(|_| "no number".to_owned())?;
            Ok(number)
        };
        let bad = parse("").is_err() && parse("x").is_err();
        assert!(bad);
        parse("3")
    }
    let bench = Bench::new();
    assert_eq!(f(&bench), Ok(3));
    bench.assert_freed_inside(&["drop closure", "drop closure", "drop closure"], 0, "ok");
}

/// The temporary of a last expression, in every form the body can take.
#[test]
fn temporaries_of_last_expressions() {
    #[track_memory(name = "f", err)]
    fn fallible(bench: &Bench) -> Result<usize, String> {
        Ok(bench.probe("temporary").len())
    }
    #[track_memory(name = "f")]
    #[track_caller]
    fn tracks_its_caller(bench: &Bench) -> usize {
        bench.probe("temporary").len()
    }
    #[track_memory(name = "f")]
    fn of_a_match(bench: &Bench) -> usize {
        match bench.probe("temporary").len() {
            1024 => 1024,
            _ => 0,
        }
    }
    #[track_memory(name = "f")]
    fn of_a_return(bench: &Bench) -> usize {
        return bench.probe("temporary").len();
    }
    let calls: [fn(&Bench) -> usize; 4] =
        [|bench| fallible(bench).unwrap(), tracks_its_caller, of_a_match, of_a_return];
    for call in calls.iter() {
        let bench = Bench::new();
        assert_eq!(call(&bench), 1024);
        bench.assert_freed_inside(&["drop temporary"], 0, "ok");
    }
}

#[test]
fn a_panic_frees_what_the_call_owns_wherever_it_comes_from() {
    #[track_memory]
    fn f(bench: &Bench, _: Probe, (_kept, _): (Probe, Probe), way: u8) -> usize {
        let _local = bench.probe("local");
        match way {
            0 => panic!("plain"),
            1 => "x".parse().unwrap(),
            2 => panic_any(7_u8),
            3 => [1, 2, 3][bench.probe("temporary").len()],
            _ => resume_unwind(Box::new("resumed")),
        }
    }
    for way in 0..5 {
        let bench = Bench::new();
        let (unnamed, pair) = (bench.probe("_"), (bench.probe("kept"), bench.probe("rest")));
        assert!(panics(|| f(&bench, unnamed, pair, way)));
        let mut lines = vec!["drop local", "drop kept", "drop rest", "drop _"];
        if way == 3 {
            lines.insert(0, "drop temporary");
        }
        bench.assert_freed_inside(&lines, -3072, "panic");
    }
}

#[test]
fn the_payload_of_a_panic_passes_through_unchanged() {
    #[track_memory]
    fn f(n: u8) {
        if n > 0 {
            panic_any(n);
        }
    }
    #[track_memory(err)]
    fn fallible(n: u8) -> Result<(), u8> {
        f(n);
        Ok(())
    }
    #[track_memory]
    async fn later(n: u8) {
        f(n);
    }
    let _bench = Bench::new();
    let calls: [fn(); 3] = [|| f(7), || assert!(fallible(7).is_ok()), || block_on(later(7))];
    for call in calls.iter() {
        assert_eq!(catch_unwind(call).unwrap_err().downcast_ref(), Some(&7_u8));
    }
}

#[test]
fn a_panic_that_the_body_catches_is_not_the_calls() {
    #[track_memory]
    fn outer(bench: &Bench) -> bool {
        let kept = bench.probe("kept");
        let caught = panics(|| inner(bench));
        caught && kept.len() == 1024
    }
    #[track_memory]
    fn inner(bench: &Bench) {
        let _local = bench.probe("local");
        panic!("on purpose");
    }
    let bench = Bench::new();
    assert!(outer(&bench));
    assert_eq!(bench.call("inner"), ("panic".to_owned(), 0, 1024));
    assert_eq!(bench.call("outer"), ("ok".to_owned(), 0, 2048));
}

#[test]
fn a_panic_through_nested_calls_is_every_ones() {
    #[track_memory]
    fn f(bench: &Bench, depth: u8, _argument: Probe) {
        let _local = bench.probe("local");
        if depth == 0 {
            panic!("on purpose");
        }
        f(bench, depth - 1, bench.probe("argument"));
    }
    let bench = Bench::new();
    let argument = bench.probe("argument");
    assert!(panics(|| f(&bench, 3, argument)));
    let spans = bench.spans.all();
    let found: Vec<_> = spans.iter().map(figures).collect();
    let expected: Vec<_> = (0..4).map(|depth| ("panic".to_owned(), -1024, 1024 + 2048 * (3 - depth))).collect();
    assert_eq!(found, expected);
}

/// Panics when it is dropped, having let go of memory first.
struct Bomb(Option<Probe>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0 = None;
        panic!("in a destructor");
    }
}

#[test]
fn a_panic_in_the_destructor_of_what_the_call_owns_is_the_calls() {
    #[track_memory(name = "f")]
    fn local(bench: &Bench, _argument: Probe) -> usize {
        let _first = bench.probe("first");
        let _bomb = Bomb(Some(bench.probe("bomb")));
        1
    }
    #[track_memory(name = "f")]
    fn argument(bench: &Bench, _argument: Probe, _bomb: Bomb) -> usize {
        let _first = bench.probe("first");
        1
    }
    let bench = Bench::new();
    let kept = bench.probe("argument");
    assert!(panics(|| local(&bench, kept)));
    bench.assert_freed_inside(&["drop bomb", "drop first", "drop argument"], -1024, "panic");

    let bench = Bench::new();
    let (kept, bomb) = (bench.probe("argument"), Bomb(Some(bench.probe("bomb"))));
    assert!(panics(|| argument(&bench, kept, bomb)));
    bench.assert_freed_inside(&["drop first", "drop bomb", "drop argument"], -2048, "panic");
}

/// Calls a measured function when it is dropped, which may panic and is caught.
struct Cleans<'a> {
    bench: &'a Bench,
    panics: bool,
}

#[track_memory]
fn cleanup(bench: &Bench, argument: Probe, fails: bool) {
    let _local = bench.probe("local");
    assert!(!fails || argument.is_empty(), "in a destructor");
}

impl Drop for Cleans<'_> {
    fn drop(&mut self) {
        let argument = self.bench.probe("argument");
        assert_eq!(panics(|| cleanup(self.bench, argument, self.panics)), self.panics);
    }
}

#[test]
fn calls_of_a_destructor_have_outcomes_of_their_own() {
    #[track_memory]
    fn f(bench: &Bench, inner_panics: bool, outer_panics: bool) {
        let _cleans = Cleans { bench, panics: inner_panics };
        assert!(!outer_panics, "on purpose");
    }
    for (inner_panics, outer_panics, inner, outer) in
        [(false, false, "ok", "ok"), (true, false, "panic", "ok"), (false, true, "ok", "panic")].iter()
    {
        let bench = Bench::new();
        assert_eq!(panics(|| f(&bench, *inner_panics, *outer_panics)), *outer_panics);
        assert_eq!(bench.call("cleanup"), ((*inner).to_owned(), -1024, 1024));
        assert_eq!(bench.call("f"), ((*outer).to_owned(), 0, 2048));
        let journal = bench.spans.journal();
        let expected = ["new f", "enter f", "new cleanup", "enter cleanup", "drop local", "drop argument"];
        assert_eq!(journal[..6], expected);
        let expected = ["record cleanup", "exit cleanup", "close cleanup", "record f", "exit f", "close f"];
        assert_eq!(journal[6..], expected);
    }
}

/// A panic during a panic, caught in time, loses no record and frees everything.
#[test]
fn a_panic_inside_a_destructor_while_unwinding_is_recorded_once() {
    #[track_memory]
    fn f(bench: &Bench) {
        let _cleans = Cleans { bench, panics: true };
        panic!("on purpose");
    }
    let bench = Bench::new();
    let payload = catch_unwind(AssertUnwindSafe(|| f(&bench))).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&"on purpose"));
    let (_, delta_bytes, peak_delta_bytes) = bench.call("cleanup");
    assert_eq!((delta_bytes, peak_delta_bytes), (-1024, 1024));
    assert_eq!(bench.call("f"), ("panic".to_owned(), 0, 2048));
}

/// What is evaluated before the body can panic too: then there was no call to measure, and nothing stays behind.
#[test]
fn a_panic_while_fields_or_the_device_are_evaluated_leaves_nothing_open() {
    #[track_memory(fields(n = fail(bench)))]
    fn in_fields(bench: &Bench, _argument: Probe) {}
    #[track_memory(device = { fail(bench); &bench.allocator })]
    fn in_device(bench: &Bench, _argument: Probe) {}
    #[track_memory]
    fn after() {}
    fn fail(bench: &Bench) -> i64 {
        let _local = bench.probe("local");
        panic!("on purpose")
    }
    let bench = Bench::new();
    let (first, second) = (bench.probe("argument"), bench.probe("argument"));
    assert!(panics(|| in_fields(&bench, first)));
    assert!(panics(|| in_device(&bench, second)));
    after();
    let expected = [
        ["drop local", "drop argument"].to_vec(),
        ["new in_device", "drop local", "close in_device", "drop argument"].to_vec(),
        ["new after", "enter after", "record after", "exit after", "close after"].to_vec(),
    ]
    .concat();
    assert_eq!(bench.spans.journal(), expected);
    assert_eq!(bench.spans.one("after").parent, None);
    assert_eq!(bench.call("after"), ("ok".to_owned(), 0, 0));
}
