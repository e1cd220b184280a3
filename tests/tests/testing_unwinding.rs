//! A check that fails while the thread unwinds. A process of its own: its subscriber is for one thread.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;

use memtrack::device::Simulated;
use memtrack::{Buffer, CachingAllocator, testing};
use memtrack_tests::listening::listen;
use memtrack_tests::panics::panicked;

struct ChecksInDrop(CachingAllocator);

impl Drop for ChecksInDrop {
    fn drop(&mut self) {
        let work = || Buffer::<u8>::uninit(&self.0, 10).unwrap();
        let value = testing::on(&self.0).expect(work).keeps_nothing().no_allocations().into_value();
        assert_eq!(value.len(), 10);
    }
}

#[test]
fn it_is_logged_and_the_first_panic_goes_on() {
    let allocator = CachingAllocator::new(Arc::new(Simulated::new()));
    let said = listen(
        || (),
        || {
            let panicked = panicked(|| {
                let _checks = ChecksInDrop(allocator.clone());
                panic!("the first");
            });
            assert_eq!(panicked.text, "the first");
        },
    );
    let first_lines: Vec<_> =
        said.iter().map(|said| (said.target.as_str(), said.fields["message"].lines().next().unwrap())).collect();
    assert_eq!(
        first_lines,
        [
            ("memtrack::testing", "memtrack: the work kept 10 bytes of simulated memory and may keep nothing"),
            ("memtrack::testing", "memtrack: the work made 1 allocation of simulated memory and may make none"),
        ]
    );
}
