//! The backtrace of a panic in a measured function: few frames of memtrack's, and the user's line.

use memtrack::track_memory;
use memtrack_tests::futures::{block_on, yield_now};
use memtrack_tests::memory::host_allocator;
use memtrack_tests::spans::Spans;
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Once;

thread_local! {
    static PANIC: RefCell<Option<Panic>> = const { RefCell::new(None) };
    static IS_EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// What a panic hook sees.
struct Panic {
    line: u32,
    /// The functions on the stack, innermost first, with those that were inlined.
    stack: Vec<String>,
}

fn install_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_EXPECTED.replace(false) {
                return usual(panic);
            }
            let line = panic.location().map_or(0, Location::line);
            let backtrace = Backtrace::force_capture().to_string();
            // A line with each function, and mostly one with its place behind.
            let stack = backtrace.lines().map(str::trim).filter(|line| !line.starts_with("at ")).map(str::to_owned);
            PANIC.set(Some(Panic { line, stack: stack.collect() }));
        }));
    });
}

/// The panic that `call` ends with, while it is measured.
fn panic_of<T>(call: impl FnOnce() -> T) -> Panic {
    install_hook();
    let (_spans, _installed) = Spans::install();
    let _current = host_allocator().make_current();
    IS_EXPECTED.set(true);
    assert!(catch_unwind(AssertUnwindSafe(call)).is_err(), "no panic");
    PANIC.take().unwrap_or_else(|| panic!("the hook was not called"))
}

/// Compares the panics of the same function with and without the attribute.
#[track_caller]
fn compare(line: u32, most: usize, plain: &Panic, tracked: &Panic) {
    assert_eq!(tracked.line, line);
    let added = tracked.stack.len() - plain.stack.len();
    assert!(
        added <= most,
        "{added} frames more:\n{}\nwhere these were:\n{}",
        tracked.stack.join("\n"),
        plain.stack.join("\n")
    );
}

#[test]
fn a_synchronous_function_adds_no_frame() {
    fn plain(x: u32) -> u32 {
        assert!(x > 1, "small");
        x
    }
    #[track_memory]
    fn tracked(x: u32) -> u32 {
        assert!(x > 1, "small");
        x
    }
    let line = line!() - 3;
    compare(line, 0, &panic_of(|| plain(1)), &panic_of(|| tracked(1)));
}

#[test]
fn a_closure_adds_one_frame() {
    struct S(u32);
    impl S {
        fn plain(self, x: Option<u32>) -> Result<u32, String> {
            Ok(self.0 + x.unwrap_or_else(|| panic!("none")))
        }
        #[track_memory(err)]
        fn tracked(self, x: Option<u32>) -> Result<u32, String> {
            Ok(self.0 + x.unwrap_or_else(|| panic!("none")))
        }
    }
    let line = line!() - 3;
    compare(line, 1, &panic_of(|| S(1).plain(None)), &panic_of(|| S(1).tracked(None)));
}

/// Two of the future around the body, and one of the body, which is a future of its own.
#[test]
fn an_asynchronous_function_adds_few_frames() {
    async fn plain(x: u32) -> u32 {
        yield_now().await;
        assert!(x > 1, "small");
        x
    }
    #[track_memory]
    async fn tracked(x: u32) -> u32 {
        yield_now().await;
        assert!(x > 1, "small");
        x
    }
    let line = line!() - 3;
    compare(line, 3, &panic_of(|| block_on(plain(1))), &panic_of(|| block_on(tracked(1))));
}
