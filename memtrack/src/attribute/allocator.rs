//! Which allocator an activation measures.

use super::site::Site;
use crate::CachingAllocator;
use crate::allocator::Inner;
use crate::allocators;
use crate::current::current_inner_or_warn;
use crate::scope::OpenScope;
use std::cell::LazyCell;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

/// What can stand for an allocator in `#[track_memory(device = …)]`.
#[diagnostic::on_unimplemented(
    message = "`device` needs an allocator, and this is `{Self}`",
    label = "not an allocator",
    note = "give a `CachingAllocator`, or a `&`, `&mut`, `Box`, `Rc`, `Arc`, `LazyLock` or `LazyCell` of one; what is behind \
            another pointer is named by `device = *pointer`"
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
    ($([$($parameters:tt)*] $pointer:ty;)*) => {$(
        impl<$($parameters)*> AsAllocator for $pointer
        where
            T: AsAllocator,
        {
            fn as_allocator(&self) -> &CachingAllocator {
                (**self).as_allocator()
            }
        }
    )*};
}

through_pointers! {
    [T: ?Sized] &T;
    [T: ?Sized] &mut T;
    [T: ?Sized] Box<T>;
    [T: ?Sized] Rc<T>;
    [T: ?Sized] Arc<T>;
    [T, F: FnOnce() -> T] LazyLock<T, F>;
    [T, F: FnOnce() -> T] LazyCell<T, F>;
}

/// What an activation measures.
#[derive(Debug)]
pub enum Measured {
    /// There is no allocator.
    Nothing,
    /// One allocator.
    One(Target),
    /// All of these together.
    Several(Vec<CachingAllocator>),
}

/// An allocator to be measured, without a handle of it: what is measured keeps the books, and not the cached memory.
#[derive(Debug)]
pub struct Target(Arc<Inner>);

impl Target {
    /// Opens the scope of a call.
    #[inline]
    pub(super) fn open(self, site: &'static Site, phase: Option<&'static str>) -> OpenScope {
        OpenScope::open_call(self.0, &site.call_site, phase)
    }
}

/// The allocator that the option `device` names.
pub fn allocator_of(device: &(impl AsAllocator + ?Sized)) -> Measured {
    Measured::One(Target(Arc::clone(device.as_allocator().inner())))
}

/// What can stand for several allocators in `#[track_memory(devices = …)]`.
#[diagnostic::on_unimplemented(
    message = "`devices` needs a list of allocators, and this is `{Self}`",
    label = "not a list of allocators",
    note = "give an array, a slice or a `Vec` of what `device` takes; a single allocator is named by `device = …`"
)]
pub trait AsAllocators {
    /// The allocators meant.
    fn as_allocators(&self) -> Vec<CachingAllocator>;
}

impl<T: AsAllocator> AsAllocators for [T] {
    fn as_allocators(&self) -> Vec<CachingAllocator> {
        self.iter().map(|device| device.as_allocator().clone()).collect()
    }
}

impl<T: AsAllocator, const N: usize> AsAllocators for [T; N] {
    fn as_allocators(&self) -> Vec<CachingAllocator> {
        self.as_slice().as_allocators()
    }
}

impl<T: AsAllocator> AsAllocators for Vec<T> {
    fn as_allocators(&self) -> Vec<CachingAllocator> {
        self.as_slice().as_allocators()
    }
}

impl<T: AsAllocators + ?Sized> AsAllocators for &T {
    fn as_allocators(&self) -> Vec<CachingAllocator> {
        (**self).as_allocators()
    }
}

/// The allocators that the option `devices` names; of an empty list nothing is measured.
pub fn allocators_of(devices: &(impl AsAllocators + ?Sized)) -> Measured {
    several(devices.as_allocators())
}

/// Every allocator that there is, for `devices(all)`.
pub fn all_allocators() -> Measured {
    several(allocators())
}

fn several(allocators: Vec<CachingAllocator>) -> Measured {
    if allocators.is_empty() { Measured::Nothing } else { Measured::Several(allocators) }
}

/// The current allocator. Without one, a warning says so once per process: silence would read as "nothing happened".
pub fn current_allocator() -> Measured {
    current_inner_or_warn().map_or(Measured::Nothing, |inner| Measured::One(Target(inner)))
}
