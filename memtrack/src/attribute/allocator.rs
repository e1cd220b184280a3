//! Which allocator an activation measures.

use crate::CachingAllocator;
use crate::current::current_or_warn;
use std::rc::Rc;
use std::sync::Arc;

/// What can stand for an allocator in `#[track_memory(device = …)]`.
#[diagnostic::on_unimplemented(
    message = "`device` needs an allocator, and this is `{Self}`",
    label = "not an allocator",
    note = "give a `CachingAllocator`, a reference to one, or an `Arc`, `Rc` or `Box` of one"
)]
pub trait AsAllocator {
    /// The allocator meant.
    fn as_allocator(&self) -> &CachingAllocator;
}

impl AsAllocator for CachingAllocator {
    fn as_allocator(&self) -> &CachingAllocator {
        self
    }
}

/// Everything that leads to an allocator stands for it.
macro_rules! through_pointers {
    ($($pointer:ty),*) => {$(
        impl<T: AsAllocator + ?Sized> AsAllocator for $pointer {
            fn as_allocator(&self) -> &CachingAllocator {
                (**self).as_allocator()
            }
        }
    )*};
}

through_pointers!(&T, &mut T, Box<T>, Rc<T>, Arc<T>);

/// The allocator that the option `device` names.
pub fn allocator_of(device: &(impl AsAllocator + ?Sized)) -> Option<CachingAllocator> {
    Some(device.as_allocator().clone())
}

/// The current allocator. Without one, a warning says so once per process: silence would read as "nothing happened".
pub fn current_allocator() -> Option<CachingAllocator> {
    current_or_warn()
}
