//! The scope of one activation, on one device or on several.

use super::allocator::Measured;
use super::site::Site;
use crate::scope::{OpenScope, Outcome, ScopeRecord};

/// The open scope of an activation, until it is closed.
#[derive(Debug)]
pub(super) enum Opened {
    One(OpenScope),
}

/// What a scope said when it closed.
#[derive(Debug)]
pub(super) struct Closed {
    /// The figures of the device, or of all devices together.
    pub(super) record: ScopeRecord,
    /// With the option `devices`.
    pub(super) devices: Option<Devices>,
}

/// What several devices did.
#[derive(Debug)]
pub(super) struct Devices {
    /// How many of them allocated or freed.
    pub(super) changed_count: i64,
}

impl Opened {
    /// Opens a scope, if there is an allocator to measure.
    #[inline]
    pub(super) fn open(measured: Measured, site: &'static Site, phase: Option<&'static str>) -> Option<Self> {
        match measured {
            Measured::Nothing => None,
            Measured::One(allocator) => Some(Self::One(OpenScope::open(&allocator, site.name, phase))),
        }
    }

    /// Makes this thread's allocations belong to the scope.
    #[inline]
    pub(super) fn enter(&self) {
        match self {
            Self::One(scope) => scope.enter(),
        }
    }

    /// Ends what [`enter`](Self::enter) began. Closing does it as well.
    #[inline]
    pub(super) fn leave(&self) {
        match self {
            Self::One(scope) => scope.leave(),
        }
    }

    /// The allocators measured, by their numbers.
    pub(super) fn allocators(&self) -> impl Iterator<Item = u64> {
        match self {
            Self::One(scope) => std::iter::once(scope.allocator_id()),
        }
    }

    #[inline]
    pub(super) fn close(self, outcome: Outcome) -> Closed {
        match self {
            Self::One(scope) => Closed { record: scope.close(outcome), devices: None },
        }
    }
}
