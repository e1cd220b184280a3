//! Where nothing can be measured, a check says so instead of passing. A process of its own: no allocator is the default.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use memtrack::device::Simulated;
use memtrack::{Buffer, CachingAllocator, testing};
use memtrack_tests::panics::panicked;

fn allocator() -> CachingAllocator {
    CachingAllocator::new(Arc::new(Simulated::new()))
}

#[test]
fn without_an_allocator_or_with_measuring_off_the_work_is_not_even_begun() {
    let allocator = allocator();
    let none = "memtrack: nothing can be measured: no allocator is current; call memtrack::set_default(&allocator) once, or \
                make_current() on this thread, or name one by memtrack::testing::on(&allocator)";
    let (line, panicked_at) = (line!(), panicked(|| drop(testing::expect(|| unreachable!()))));
    assert_eq!((panicked_at.text.as_str(), panicked_at.file.as_str(), panicked_at.line), (none, file!(), line));
    assert_eq!(panicked(|| testing::assert_keeps_nothing(|| unreachable!())).text, none);
    assert_eq!(panicked(|| drop(testing::expect_async(async {}))).text, none);

    let current = allocator.make_current();
    testing::assert_keeps_nothing(|| ());
    memtrack::set_enabled(false);
    let off = "memtrack: nothing can be measured: measuring is switched off; call memtrack::set_enabled(true)";
    assert_eq!(panicked(|| testing::assert_keeps_nothing(|| unreachable!())).text, off);
    let by_name = testing::on(&allocator).expect(|| drop(Buffer::<u8>::uninit(&allocator, 10)));
    assert_eq!(by_name.allocation_count(), 1, "what is named is measured all the same");
    memtrack::set_enabled(true);
    drop(current);
    assert_eq!(panicked(|| testing::assert_no_allocations(|| unreachable!())).text, none);
}

/// Measures in the destructor of a thread local.
struct AtThreadEnd(CachingAllocator, Sender<Option<String>>);

impl Drop for AtThreadEnd {
    fn drop(&mut self) {
        let text = std::panic::catch_unwind(|| drop(testing::on(&self.0).expect(|| ()))).err();
        let text = text.map(|text| text.downcast_ref::<&str>().map_or("other", |text| text).to_owned());
        self.1.send(text).unwrap();
    }
}

thread_local! {
    static FIRST: RefCell<Option<AtThreadEnd>> = const { RefCell::new(None) };
    static SECOND: RefCell<Option<AtThreadEnd>> = const { RefCell::new(None) };
}

/// Thread locals are destroyed in an order that is not promised, so one is made before memtrack's and one after.
#[test]
fn a_thread_that_is_ending_says_so() {
    let (sender, receiver) = channel();
    let allocator = allocator();
    std::thread::spawn(move || {
        FIRST.set(Some(AtThreadEnd(allocator.clone(), sender.clone())));
        testing::on(&allocator).expect(|| ()).keeps_nothing();
        SECOND.set(Some(AtThreadEnd(allocator, sender)));
    })
    .join()
    .unwrap();
    let texts: Vec<_> = receiver.iter().collect();
    assert_eq!(texts.len(), 2);
    let ending = "memtrack: nothing can be measured: this thread is ending".to_owned();
    assert!(texts.iter().flatten().all(|text| *text == ending), "{texts:?}");
    assert!(texts.contains(&Some(ending)), "{texts:?}");
}
