//! The list of the process's allocators. It is one for the process, so this is one test.

use std::sync::Arc;

use memtrack::device::Simulated;
use memtrack::{Buffer, CachingAllocator};

#[test]
fn an_allocator_is_listed_while_it_has_a_handle() {
    let new = || CachingAllocator::new(Arc::new(Simulated::new()));
    assert!(memtrack::allocators().is_empty());
    let (first, second) = (new(), new());
    let listed = |expected: &[&CachingAllocator]| {
        let all = memtrack::allocators();
        all.len() == expected.len() && all.iter().zip(expected).all(|(found, expected)| found.is_same(expected))
    };
    assert!(listed(&[&first, &second]));
    let buffer = Buffer::<u8>::uninit(&first, 1000).expect("the device has room");
    drop(first);
    assert!(listed(&[&second]), "a buffer is no handle, and the list is none");
    let third = new();
    assert!(listed(&[&second, &third]));
    drop((buffer, second));
    assert!(listed(&[&third]));
    drop(third);
    assert!(memtrack::allocators().is_empty());
}
