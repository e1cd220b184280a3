//! What the shapes in `tests/shapes` use, and what runs them and looks at what each call left behind.
//!
//! The program of this package, which compiles the shapes and prints the matrix, is in `main.rs`; nothing here knows how
//! a shape was compiled.

pub mod calls;
pub mod harness;

pub use memtrack;
pub use memtrack_tests::futures::{block_on, poll_once, yield_now};
pub use shape_macros::{emitted, measured};
pub use {async_trait, tokio, tracing};

use memtrack::CachingAllocator;
use memtrack_tests::memory::host_allocator;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

/// The allocator of a shape's `device = …`.
pub fn device() -> &'static CachingAllocator {
    static DEVICE: LazyLock<CachingAllocator> = LazyLock::new(host_allocator);
    &DEVICE
}

/// The same value, if it can be sent to another thread.
pub const fn send<T: Send>(value: T) -> T {
    value
}

/// The text of the panic that `call` ends with.
pub fn panic_of<T>(call: impl FnOnce() -> T) -> String {
    let Err(payload) = catch_unwind(AssertUnwindSafe(call)) else { return "no panic".to_owned() };
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "a payload that is no text".to_owned(),
    }
}

/// A type that implements nothing.
pub struct Opaque(pub u32);
