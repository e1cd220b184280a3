//! The bug class: an allocator and its pools refer to each other, so a derived `Debug` never ends.

use std::sync::Arc;

use memtrack::device::{Simulated, Stream};
use memtrack::scope::{OpenScope, Scope};
use memtrack::{Buffer, CachingAllocator};

#[test]
fn everything_public_can_be_shown_once_memory_has_been_allocated() {
    let allocator = CachingAllocator::new(Arc::new(Simulated::new()));
    let buffer = Buffer::<f32>::uninit(&allocator, 1000).unwrap();
    let empty = Buffer::<f32>::uninit_on(&allocator, Stream(1), 0).unwrap();
    let current = allocator.make_current();
    let epoch = memtrack::epoch(1);
    let step = memtrack::step(1);
    let phase = memtrack::phase("forward");
    let open = OpenScope::open(&allocator, "open", None);
    let attached = open.attach();
    let scope = Scope::open(&allocator, "scope", None);
    let shown = [
        format!("{allocator:?}"),
        format!("{buffer:?} {empty:?}"),
        format!("{current:?}"),
        format!("{epoch:?} {step:?} {phase:?}"),
        format!("{attached:?} {open:?} {scope:?}"),
    ];
    for text in &shown {
        assert!(text.len() < 2000, "{text}");
    }
    assert!(shown[0].contains("simulated"), "{}", shown[0]);
    drop((scope, attached));
    drop((open, phase, step));
    let summary = epoch.finish().unwrap();
    assert!(format!("{summary:?}").contains("forward"));
    assert!(format!("{:#?}", allocator.memory_stats()).contains("allocated_bytes"));
}
