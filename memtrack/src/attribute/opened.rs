//! The scope of one activation, on one device or on several.

use super::allocator::Measured;
use super::site::Site;
use crate::ledger::ScopeKey;
use crate::scope::{LiveSite, OpenDevicesScope, OpenScope, Outcome, ScopeRecord};
use crate::units::signed;

/// The open scope of an activation, until it is closed.
#[derive(Debug)]
pub(super) enum Opened {
    One(OpenScope),
    // Boxed: rare, and a call on one device should not move its size.
    Several(Box<OpenDevicesScope>),
}

/// What a scope said when it closed.
#[derive(Debug)]
pub(super) struct Closed {
    /// The figures of the device, or of all devices together.
    pub(super) record: ScopeRecord,
    /// With the option `devices`.
    pub(super) devices: Option<Devices>,
    /// Who keeps memory, where a budget does not allow so much of it.
    pub(super) kept: Vec<LiveSite>,
}

/// What several devices did.
#[derive(Debug)]
pub(super) struct Devices {
    /// How many of them allocated or freed.
    pub(super) changed_count: i64,
    /// One by one.
    pub(super) records: Vec<ScopeRecord>,
}

impl Opened {
    /// Opens a scope, if there is an allocator to measure.
    #[inline]
    pub(super) fn open(measured: Measured, site: &'static Site, phase: Option<&'static str>) -> Option<Self> {
        match measured {
            Measured::Nothing => None,
            Measured::One(target) => Some(Self::One(target.open(site, phase))),
            Measured::Several(allocators) => {
                Some(Self::Several(Box::new(OpenDevicesScope::open_site(&allocators, &site.call_site, phase))))
            }
        }
    }

    /// Makes this thread's allocations belong to the scope.
    #[inline]
    pub(super) fn enter(&self) {
        match self {
            Self::One(scope) => scope.enter(),
            Self::Several(scope) => scope.enter(),
        }
    }

    /// Ends what [`enter`](Self::enter) began. Closing does it as well.
    #[inline]
    pub(super) fn leave(&self) {
        match self {
            Self::One(scope) => scope.leave(),
            Self::Several(scope) => scope.leave(),
        }
    }

    /// Calls `each` with the number of each allocator measured and the scope on it.
    pub(super) fn each_part(&self, each: impl FnMut((u64, ScopeKey))) {
        match self {
            Self::One(scope) => std::iter::once(scope.part()).for_each(each),
            Self::Several(scope) => scope.parts().for_each(each),
        }
    }

    /// Closes the scope. `allowed_bytes`: what a budget lets it keep; who keeps more is found out before it is too late.
    #[inline]
    pub(super) fn close(self, outcome: Outcome, allowed_bytes: Option<i64>) -> Closed {
        let kept = allowed_bytes.map_or_else(Vec::new, |allowed_bytes| self.kept_above(allowed_bytes));
        match self {
            Self::One(scope) => Closed { record: scope.close(outcome), devices: None, kept },
            Self::Several(scope) => {
                let closed = scope.close(outcome);
                let changed_count = signed(closed.changed_device_count as u64);
                let devices = Some(Devices { changed_count, records: closed.devices });
                Closed { record: closed.combined, devices, kept }
            }
        }
    }

    #[inline(never)]
    fn kept_above(&self, allowed_bytes: i64) -> Vec<LiveSite> {
        let live_bytes = match self {
            Self::One(scope) => scope.own_live_bytes(),
            Self::Several(scope) => scope.own_live_bytes(),
        };
        if live_bytes <= allowed_bytes {
            return Vec::new();
        }
        let blocks = match self {
            Self::One(scope) => scope.live_blocks(),
            Self::Several(scope) => scope.live_blocks(),
        };
        LiveSite::group(&blocks)
    }
}

impl Devices {
    /// Says what each device did that did anything, inside the call's span.
    pub(super) fn log(&self) {
        let changed = self.records.iter().filter(|record| record.allocation_count > 0 || record.free_count > 0);
        for record in changed {
            tracing::info!(
                target: "memtrack::devices",
                {
                    mem.device = record.device.as_str(),
                    mem.phase = record.phase.unwrap_or("other"),
                    function = record.name,
                    mem.before = record.before_bytes,
                    mem.after = record.after_bytes,
                    mem.delta = record.delta_bytes(),
                    mem.peak = record.peak_bytes,
                    mem.peak_delta = record.peak_delta_bytes(),
                    mem.allocs = record.allocation_count,
                    mem.frees = record.free_count,
                    mem.retries = record.retry_count,
                    mem.ooms = record.oom_count,
                    mem.self.delta = record.own_delta_bytes,
                    mem.self.peak = record.own_peak_bytes,
                },
                "{} on {}", record.name, record.device
            );
        }
    }
}
