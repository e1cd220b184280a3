//! No allocator is current. A process of its own: the warning comes once per process.

use memtrack::track_memory;
use memtrack_tests::futures::block_on;
use memtrack_tests::spans::{Spans, Value};

#[track_memory(phase = "p", err)]
fn f() -> Result<(), ()> {
    Err(())
}

#[track_memory]
async fn g() {}

#[test]
fn only_the_outcome_is_recorded_and_one_warning_says_what_to_do() {
    let (spans, _installed) = Spans::install();
    let _ = f();
    block_on(g());
    let _ = f();
    let all = spans.all();
    assert_eq!(all.len(), 3);
    for (span, outcome) in all.iter().zip(["err", "ok", "err"]) {
        assert_eq!(span.records.len(), 1);
        let recorded: Vec<_> = span.records[0].iter().map(|(name, value)| (*name, value.clone())).collect();
        assert_eq!(recorded, [("mem.outcome", Value::Str(outcome.to_owned()))]);
    }
    assert_eq!(spans.events().len(), 1, "{:?}", spans.events());
    assert!(spans.events()[0].contains("set_default"), "{:?}", spans.events());
}
