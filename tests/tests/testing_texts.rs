//! What a failed check says, word for word, and at which line.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;

use memtrack::device::Simulated;
use memtrack::scope::Scope;
use memtrack::testing;
use memtrack::{Buffer, CachingAllocator, track_memory};
use memtrack_tests::panics::{panicked, without_columns};

fn allocator() -> CachingAllocator {
    CachingAllocator::new(Arc::new(Simulated::new()))
}

#[track_caller]
fn take(allocator: &CachingAllocator, bytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, bytes).unwrap()
}

/// What a failed check of this file says, without columns.
#[track_caller]
fn text(check: impl FnOnce()) -> String {
    without_columns(&panicked(check).text, file!())
}

const FORWARD: u32 = line!() + 3;
#[track_memory(phase = "forward", device = allocator)]
fn forward(allocator: &CachingAllocator, bytes: usize) -> Buffer<u8> {
    take(allocator, bytes)
}

#[test]
fn memory_that_is_kept_is_listed_by_line_and_scope() {
    let allocator = allocator();
    let mut history = Vec::new();
    let mut lines = [0; 2];
    let text = text(|| {
        testing::on(&allocator)
            .expect(|| {
                history.extend((0..3).map(|_| forward(&allocator, 4096)));
                history.push(forward(&allocator, 512));
                lines[0] = line!() + 1;
                history.push(take(&allocator, 1 << 20));
                drop(take(&allocator, 9 << 20));
                let _inner = Scope::open(&allocator, "inner", None);
                lines[1] = line!() + 1;
                history.push(take(&allocator, 1));
            })
            .keeps_nothing();
    });
    let file = file!();
    let [large, one] = lines;
    let expected = format!(
        "\
memtrack: the work kept 1.01 MiB (1061377 bytes) of simulated memory and may keep nothing
  still live, by where it was allocated:
    1.00 MiB (1048576 bytes)  1 × 1048576 B         {file}:{large}
     12.50 KiB (12800 bytes)  3 × 4096 + 1 × 512 B  {file}:{FORWARD} in forward
                      1 byte  1 × 1 B               {file}:{one} in inner"
    );
    assert_eq!(text, expected);
}

#[test]
fn a_peak_is_explained_by_what_was_live_at_it() {
    let allocator = allocator();
    let mut lines = [0; 2];
    let text = text(|| {
        testing::on(&allocator)
            .expect(|| {
                lines[0] = line!() + 1;
                let weights = take(&allocator, 3000);
                drop(take(&allocator, 1500));
                lines[1] = line!() + 1;
                let activations = [take(&allocator, 1000), take(&allocator, 1000)];
                drop((weights, activations));
                drop(take(&allocator, 4999));
            })
            .peak_under("4 kB");
    });
    let file = file!();
    let [weights, activations] = lines;
    let expected = format!(
        "\
memtrack: the work used 4.88 KiB (5000 bytes) of simulated memory at its peak and must stay under 3.91 KiB (4000 bytes)
  live at the peak, by where it was allocated:
    2.93 KiB (3000 bytes)  1 × 3000 B  {file}:{weights}
               1000 bytes  1 × 1000 B  {file}:{activations}
               1000 bytes  1 × 1000 B  {file}:{activations}"
    );
    assert_eq!(text, expected);
}

#[test]
fn allocations_are_listed_though_they_are_freed() {
    let allocator = allocator();
    let mut line = 0;
    let text = text(|| {
        testing::on(&allocator)
            .expect(|| {
                for _ in 0..10 {
                    drop(forward(&allocator, 100));
                    line = line!() + 1;
                    drop(take(&allocator, 1024));
                }
            })
            .no_allocations();
    });
    let file = file!();
    let expected = format!(
        "\
memtrack: the work made 20 allocations of simulated memory and may make none
  allocated, freed or not, by where:
    10.00 KiB (10240 bytes)  10 × 1024 B  {file}:{line}
                 1000 bytes  10 × 100 B   {file}:{FORWARD} in forward"
    );
    assert_eq!(text, expected);
}

#[test]
fn ten_places_are_listed_and_the_rest_is_summed() {
    let allocator = allocator();
    let kept = std::cell::RefCell::new(Vec::new());
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let line = line!() + 4;
    let keep = |count: usize| {
        for (number, name) in names.iter().enumerate().take(count) {
            let _scope = Scope::open(&allocator, name, None);
            kept.borrow_mut().push(take(&allocator, 100 - number));
        }
    };
    let file = file!();
    let rows = |count: usize| -> String {
        let row = |number: usize| {
            let bytes = 100 - number;
            format!(
                "\n    {:>9}  {:<9}  {file}:{line} in {}",
                format!("{bytes} bytes"),
                format!("1 × {bytes} B"),
                names[number]
            )
        };
        (0..count).map(row).collect()
    };
    for (count, rest) in
        [(10, ""), (11, "\n    and 1 more place with 90 bytes"), (12, "\n    and 2 more places with 179 bytes")]
    {
        let text = text(|| drop(testing::on(&allocator).expect(|| keep(count)).keeps_nothing()));
        let listed = text.split_once("allocated:").unwrap().1;
        assert_eq!(listed, format!("{}{rest}", rows(10)), "{count} places");
    }
}

#[test]
fn three_sizes_of_a_line_are_listed_and_the_rest_is_counted() {
    let allocator = allocator();
    let text = text(|| {
        let keep = || {
            (1..=5).flat_map(|size| (0..size).map(move |_| size)).map(|size| take(&allocator, size)).collect::<Vec<_>>()
        };
        testing::on(&allocator).expect(keep).keeps_at_most("10 B");
    });
    let mut lines = text.lines();
    assert_eq!(
        lines.next().unwrap(),
        "memtrack: the work kept 55 bytes of simulated memory and may keep at most 10 bytes"
    );
    let row = lines.nth(1).unwrap();
    assert!(row.starts_with("    55 bytes  5 × 5 + 4 × 4 + 3 × 3 B and 3 of other sizes  "), "{row}");
}

#[test]
fn a_panic_is_raised_at_the_line_of_the_check() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let at = |check: &dyn Fn()| {
        let panicked = panicked(check);
        assert_eq!(panicked.file, file!());
        panicked.line
    };
    let work = || take(&allocator, 10);
    // Each on one line, so that `line!` names it.
    #[rustfmt::skip]
    let checks: [(u32, &dyn Fn()); 12] = [
        (line!(), &|| drop(testing::expect(work).keeps_nothing())),
        (line!(), &|| drop(testing::expect(work).keeps_at_most(9))),
        (line!(), &|| drop(testing::expect(work).keeps_at_most("9 bytes"))),
        (line!(), &|| drop(testing::expect(work).peak_under(10))),
        (line!(), &|| drop(testing::expect(work).peak_at_most(9))),
        (line!(), &|| drop(testing::expect(work).peak_at_most(-9))),
        (line!(), &|| drop(testing::expect(work).no_allocations())),
        (line!(), &|| drop(testing::expect(work).allocations_at_most(0))),
        (line!(), &|| drop(testing::assert_keeps_nothing(work))),
        (line!(), &|| drop(testing::assert_peak_under(10, work))),
        (line!(), &|| drop(testing::assert_peak_under("ten", work))),
        (line!(), &|| drop(testing::assert_no_allocations(work))),
    ];
    for (line, check) in checks {
        assert_eq!(at(check), line);
    }
}

#[test]
fn a_panic_in_the_work_goes_through_and_leaves_the_thread_as_it_was() {
    let allocator = allocator();
    let work = || {
        testing::on(&allocator)
            .expect(|| -> () {
                let _held = take(&allocator, 100);
                panic!("of the work")
            })
            .no_allocations();
    };
    assert_eq!(text(work), "of the work");
    let after = testing::on(&allocator).expect(|| take(&allocator, 10));
    assert_eq!((after.peak_bytes(), after.allocation_count()), (10, 1));
}
