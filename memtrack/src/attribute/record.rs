//! A scope's figures on its span.

use crate::scope::{Outcome, ScopeRecord};
use tracing::Span;
use tracing::field::{Field, Value};

/// How many fields [`__scope_span!`](crate::__scope_span) declares before the user's.
const FIELD_COUNT: usize = 12;

/// The span of one activation. Its own fields come first, so that [`record`] knows them by their positions.
#[doc(hidden)]
#[macro_export]
macro_rules! __scope_span {
    (target: $target:expr, $level:expr, $name:expr, $phase:expr, $($fields:tt)*) => {
        $crate::__private::span!(
            target: $target,
            $level,
            $name,
            mem.device = $crate::__private::Empty,
            mem.phase = $phase,
            mem.before = $crate::__private::Empty,
            mem.after = $crate::__private::Empty,
            mem.delta = $crate::__private::Empty,
            mem.peak = $crate::__private::Empty,
            mem.peak_delta = $crate::__private::Empty,
            mem.allocs = $crate::__private::Empty,
            mem.frees = $crate::__private::Empty,
            mem.retries = $crate::__private::Empty,
            mem.ooms = $crate::__private::Empty,
            mem.outcome = $crate::__private::Empty,
            $($fields)*
        )
    };
    ($level:expr, $name:expr, $phase:expr, $($fields:tt)*) => {
        $crate::__scope_span!(target: ::core::module_path!(), $level, $name, $phase, $($fields)*)
    };
}

/// Records everything known at an activation's end, in one call: formatting layers append at each.
///
/// `scope` is none if nothing was measured; then only the outcome is recorded. `phase_given`: the span got its phase
/// when it was made. Nothing is recorded as `None`, which some layers would show.
pub(super) fn record(span: &Span, scope: Option<&ScopeRecord>, outcome: Outcome, phase_given: bool) {
    let Some(metadata) = span.metadata() else { return };
    let fields = metadata.fields();
    let mut declared = fields.iter();
    let Some(first) = declared.next() else { return };
    // By position and without a list on the heap; the span is of our own making, so there are enough.
    let mut next = Some(first.clone());
    let names: [Field; FIELD_COUNT] = std::array::from_fn(|_| {
        let name = next.take().unwrap_or_else(|| first.clone());
        next = declared.next();
        name
    });
    let outcome = outcome.as_str();
    let Some(scope) = scope else {
        let [.., outcome_name] = &names;
        span.record_all(&fields.value_set(&[(outcome_name, Some(&outcome as &dyn Value))]));
        return;
    };
    let device = scope.device.as_str();
    let (delta_bytes, peak_delta_bytes) = (scope.delta_bytes(), scope.peak_delta_bytes());
    let phase = scope.phase.as_ref().filter(|_| !phase_given);
    let values: [Option<&dyn Value>; FIELD_COUNT] = [
        Some(&device),
        phase.map(|phase| phase as &dyn Value),
        Some(&scope.before_bytes),
        Some(&scope.after_bytes),
        Some(&delta_bytes),
        Some(&scope.peak_bytes),
        Some(&peak_delta_bytes),
        Some(&scope.allocation_count),
        Some(&scope.free_count),
        Some(&scope.retry_count),
        Some(&scope.oom_count),
        Some(&outcome),
    ];
    let pairs: [_; FIELD_COUNT] = std::array::from_fn(|index| (&names[index], values[index]));
    span.record_all(&fields.value_set(&pairs));
}
