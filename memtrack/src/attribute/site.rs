//! The `static` description of an annotated function: what is known of it when the program is compiled.

use super::budget::OnExceed;
use crate::scope::CallSite;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// An annotated function, one for all instantiations of a generic one.
#[derive(Debug)]
pub struct Site {
    pub(super) call_site: CallSite,
    pub(super) options: Options,
    /// Calls of a function with the option `sample`.
    call_count: AtomicU64,
    /// Whether a snapshot was written, or tried to be.
    pub(super) has_dumped: AtomicBool,
}

impl Site {
    /// The description that generated code places in a `static`.
    pub const fn new(
        name: &'static str,
        module_path: &'static str,
        file: &'static str,
        line: u32,
        options: Options,
    ) -> Self {
        Self {
            call_site: CallSite::new(name, module_path, file, line),
            options,
            call_count: AtomicU64::new(0),
            has_dumped: AtomicBool::new(false),
        }
    }

    /// A call of a function with the option `sample` that is not measured.
    #[inline]
    pub fn passes_over(&'static self) {
        self.call_site.count_unmeasured();
    }

    /// For a call with the option `sample`: the rate if this call gets a span, 0 if not. The first of each `rate` calls
    /// does; a rate of 0 counts as 1.
    #[inline]
    pub fn samples(&self, rate: u64) -> u64 {
        let rate = rate.max(1);
        let number = self.call_count.fetch_add(1, Ordering::Relaxed);
        if number.is_multiple_of(rate) { rate } else { 0 }
    }
}

/// The options of one function that are constant.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub(super) max_delta_bytes: Option<i64>,
    pub(super) max_peak_bytes: Option<i64>,
    pub(super) max_allocation_count: Option<i64>,
    /// `leak_check`: the most that may stay.
    pub(super) leak_allowance_bytes: Option<i64>,
    pub(super) min_delta_bytes: Option<i64>,
    pub(super) on_exceed: OnExceed,
    pub(super) oom_event: bool,
    pub(super) oom_snapshot: bool,
    /// Whether the span declares `mem.sampled`.
    pub(super) is_sampled: bool,
    pub(super) has_device_columns: bool,
    pub(super) has_own_columns: bool,
}

/// A constant option is set by a method of its word.
macro_rules! setters {
    ($($name:ident($($value:ident: $ty:ty)?) $field:ident = $set:expr;)*) => {$(
        /// Sets the option of this name.
        pub const fn $name(mut self $(, $value: $ty)?) -> Self {
            self.$field = $set;
            self
        }
    )*};
}

impl Options {
    /// No option given.
    #[expect(clippy::new_without_default, reason = "`default` is not const")]
    pub const fn new() -> Self {
        Self {
            max_delta_bytes: None,
            max_peak_bytes: None,
            max_allocation_count: None,
            leak_allowance_bytes: None,
            min_delta_bytes: None,
            on_exceed: OnExceed::Event,
            oom_event: false,
            oom_snapshot: false,
            is_sampled: false,
            has_device_columns: true,
            has_own_columns: false,
        }
    }

    setters! {
        max_delta(bytes: i64) max_delta_bytes = Some(bytes);
        max_peak(bytes: i64) max_peak_bytes = Some(bytes);
        max_allocs(count: i64) max_allocation_count = Some(count);
        leak_check(bytes: i64) leak_allowance_bytes = Some(bytes);
        min_delta(bytes: i64) min_delta_bytes = Some(bytes);
        on_exceed(reaction: OnExceed) on_exceed = reaction;
        oom_event() oom_event = true;
        oom_snapshot() oom_snapshot = true;
        sampled() is_sampled = true;
        no_device_columns() has_device_columns = false;
        own_columns() has_own_columns = true;
    }

    pub(super) const fn has_budget(&self) -> bool {
        self.max_delta_bytes.is_some()
            || self.max_peak_bytes.is_some()
            || self.max_allocation_count.is_some()
            || self.leak_allowance_bytes.is_some()
    }

    /// The most that a call may leave allocated, by the strictest budget.
    #[inline]
    pub(super) fn allowed_bytes(&self) -> Option<i64> {
        match (self.max_delta_bytes, self.leak_allowance_bytes) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Whether nobody but a span wants to know how a call ended.
    pub(super) const fn tells_nobody(&self) -> bool {
        !self.has_budget() && !self.watches_oom()
    }

    pub(super) const fn watches_oom(&self) -> bool {
        self.oom_event || self.oom_snapshot
    }
}
