//! memtrack switched off at run time. A process of its own: the switch is the process's.

use memtrack::{track_memory, track_memory_block};
use memtrack_tests::futures::{block_on, yield_now};
use memtrack_tests::memory::host_allocator;
use memtrack_tests::spans::Spans;

#[track_memory(phase = "p", device = { *seen += 1; host_allocator() }, fields(n = { *seen += 1; 1_i64 }))]
fn f(seen: &mut u32) -> u32 {
    *seen
}

#[track_memory(phase = "p", device = { *seen += 1; host_allocator() }, fields(n = { *seen += 1; 1_i64 }))]
async fn g(seen: &mut u32) -> u32 {
    yield_now().await;
    *seen
}

fn h(seen: &mut u32) -> u32 {
    track_memory_block!(
        "h",
        phase = "p",
        device = {
            *seen += 1;
            host_allocator()
        },
        { *seen }
    )
}

#[track_memory]
async fn switches_off() {
    yield_now().await;
    memtrack::set_enabled(false);
    yield_now().await;
}

#[test]
fn nothing_happens_while_switched_off() {
    let (spans, _installed) = Spans::install();
    let _current = host_allocator().make_current();
    memtrack::set_enabled(false);
    assert_eq!((f(&mut 0), block_on(g(&mut 0)), h(&mut 0)), (0, 0, 0), "neither fields nor the device are evaluated");
    assert!(spans.journal().is_empty());
    memtrack::set_enabled(true);
    assert_eq!((f(&mut 0), block_on(g(&mut 0)), h(&mut 0)), (2, 2, 1));
    block_on(switches_off());
    f(&mut 0);
    let names: Vec<_> = spans.all().iter().map(|span| (span.name, span.text("mem.outcome"))).collect();
    let ok = || "ok".to_owned();
    assert_eq!(
        names,
        [("f", ok()), ("g", ok()), ("h", ok()), ("switches_off", ok())],
        "what was open is measured to its end"
    );
}
