//! Functions and options that a macro builds from what it was given: each such part stands in an invisible group.
#![deny(warnings, clippy::all, clippy::pedantic)]
#![allow(clippy::unused_async, clippy::unnecessary_wraps, clippy::unwrap_used, reason = "the shapes are short")]
#![allow(clippy::needless_return, clippy::diverging_sub_expression, reason = "the shapes are odd")]

use memtrack::track_memory;
use memtrack_tests::futures::block_on;
use memtrack_tests::memory::host_allocator;
use memtrack_tests::spans::{Spans, Value};
use std::panic::catch_unwind;

/// A function whose body is a block that a macro was given.
macro_rules! with_body {
    ([$($option:ident)?] $($word:ident)?, $name:ident, $type:ty, $body:block) => {
        #[track_memory($($option)?)]
        $($word)? fn $name(_input: u32) -> $type $body
    };
    // Handed through a second macro, the block stands in two groups.
    (again $($rest:tt)*) => { with_body!($($rest)*); };
}

#[test]
fn bodies() {
    fn input() -> u32 {
        4
    }
    with_body!([], plain, u32, { 3 });
    with_body!([] async, later, u32, { 3 });
    with_body!([err], failing, Result<u32, String>, {
        if input() == 4 {
            return Err("four".to_owned());
        }
        Ok(3)
    });
    with_body!([err] async, failing_later, Result<u32, String>, { Err("later".to_owned())? });
    with_body!(again [], twice, u32, {
        let five = 5;
        five + 0_u32.pow(2)
    });
    assert_eq!((plain(1), block_on(later(1)), twice(1)), (3, 3, 5));
    assert_eq!((failing(1), block_on(failing_later(1))), (Err("four".to_owned()), Err("later".to_owned())));
}

#[test]
fn bodies_that_never_return() {
    with_body!([], never, !, { panic!("never") });
    with_body!([] async, never_later, !, { panic!("later") });
    assert_eq!(*catch_unwind(|| never(1)).unwrap_err().downcast_ref::<&str>().unwrap(), "never");
    assert_eq!(*catch_unwind(|| block_on(never_later(1))).unwrap_err().downcast_ref::<&str>().unwrap(), "later");
}

/// A function all of whose parts a macro was given.
macro_rules! with_parts {
    ($(#[$attribute:meta])* $visibility:vis, $name:ident, $pattern:pat, $input:ty, $output:ty, $value:expr) => {
        $(#[$attribute])*
        $visibility fn $name($pattern: $input) -> $output { $value }
    };
}

with_parts!(#[track_memory] pub(crate), sum, (left, right), (u32, u32), impl Iterator<Item = u32>, left..right);
with_parts!(#[track_memory(err)] #[track_caller], located, (), (), Result<u32, u32>, {
    return Ok(std::panic::Location::caller().line())
});

/// A whole function that a macro was given.
macro_rules! with_item {
    ($item:item) => {
        #[track_memory]
        $item
    };
}

with_item!(
    fn item() -> u32 {
        6
    }
);
with_item!(
    async fn item_later(&mut first: &mut u32) -> u32 {
        first
    }
);

struct Counter(u32);

macro_rules! with_receiver {
    ($type:ty, $body:block) => {
        #[track_memory]
        fn taken(self: $type) -> u32 $body
    };
}

impl Counter {
    with_receiver!(Box<Self>, { 7 });
}

#[test]
fn signatures_and_items() {
    assert_eq!(sum((0, 1)).count(), 1);
    assert_eq!(located(()), Ok(line!()));
    assert_eq!((item(), block_on(item_later(&mut 2))), (6, 2));
    let counter = Box::new(Counter(7));
    assert_eq!((counter.0, counter.taken()), (7, 7));
}

/// A function all of whose options a macro was given.
macro_rules! with_options {
    ($function:ident, $name:expr, $phase:literal, $target:path, $level:expr, $value:expr, $type:ty) => {
        #[track_memory(name = $name, phase = $phase, target = $target, level = $level, fields(first = $value, second = ?$value))]
        fn $function(_: $type) {}
    };
}

const TARGET: &str = "the target";

#[test]
fn options() {
    with_options!(f, "named", "loss", TARGET, "warn", 1 + 2, u8);
    with_options!(g, TARGET, "loss", self::TARGET, tracing::Level::WARN, 1 + 2, u8);
    let (spans, _installed) = Spans::install();
    let _current = host_allocator().make_current();
    f(1);
    g(1);
    let all = spans.all();
    assert_eq!((all[0].name, all[1].name), ("named", TARGET));
    for span in all {
        assert_eq!((span.target, span.level), (TARGET, tracing::Level::WARN));
        assert_eq!(span.text("mem.phase"), "loss");
        assert_eq!(span.value("first"), Some(Value::I64(3)));
        assert_eq!(span.text("second"), "3");
    }
}
