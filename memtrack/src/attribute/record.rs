//! A scope's figures on its span.

use crate::scope::{Outcome, ScopeRecord};
use std::iter::repeat;
use tracing::Span;
use tracing::field::{FieldSet, Value};

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
    let outcome = outcome.as_str();
    let mut own: [Option<&dyn Value>; FIELD_COUNT] = [None; FIELD_COUNT];
    let Some(scope) = scope else {
        own[FIELD_COUNT - 1] = Some(&outcome);
        return record_first(span, fields, own);
    };
    let device = scope.device.as_str();
    let (delta_bytes, peak_delta_bytes) = (scope.delta_bytes(), scope.peak_delta_bytes());
    let phase = scope.phase.as_ref().filter(|_| !phase_given);
    own = [
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
    record_first(span, fields, own);
}

/// Records values of a span's first fields, and none of the others.
///
/// By position, as `tracing`'s own macros do for new spans: to name the fields costs more than all else here.
fn record_first(span: &Span, fields: &FieldSet, own: [Option<&dyn Value>; FIELD_COUNT]) {
    let mut few = [None; 2 * FIELD_COUNT];
    few[..FIELD_COUNT].copy_from_slice(&own);
    let many: Vec<_>;
    let values = match few.get(..fields.len()) {
        Some(values) => values,
        None => {
            many = own.into_iter().chain(repeat(None)).take(fields.len()).collect();
            &many
        }
    };
    span.record_all(&fields.value_set_all(values));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::__private::Level;
    use std::sync::mpsc::{Sender, channel};
    use tracing::span::{Id, Record};
    use tracing::{Subscriber, field::Field, field::Visit, subscriber};
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

    /// Sends the name of each field that is recorded.
    struct Names(Sender<&'static str>);

    impl<S: Subscriber> Layer<S> for Names {
        fn on_record(&self, _: &Id, record: &Record<'_>, _: Context<'_, S>) {
            record.record(&mut Sent(&self.0));
        }
    }

    struct Sent<'a>(&'a Sender<&'static str>);

    impl Visit for Sent<'_> {
        fn record_debug(&mut self, field: &Field, _: &dyn std::fmt::Debug) {
            let _ = self.0.send(field.name());
        }
    }

    #[test]
    fn the_outcome_goes_to_its_field_however_many_follow() {
        let (names, sent) = channel();
        subscriber::with_default(tracing_subscriber::registry().with(Names(names)), || {
            let none = crate::__scope_span!(Level::INFO, "none", tracing::field::Empty,);
            let few = crate::__scope_span!(Level::INFO, "few", tracing::field::Empty, a = 1, b = 2);
            let many = crate::__scope_span!(
                Level::INFO,
                "many",
                tracing::field::Empty,
                a = 1,
                b = 2,
                c = 3,
                d = 4,
                e = 5,
                f = 6,
                g = 7,
                h = 8,
                i = 9,
                j = 10,
                k = 11,
                l = 12,
                m = 13
            );
            for span in [none, few, many] {
                record(&span, None, Outcome::Err, false);
            }
        });
        assert_eq!(sent.into_iter().collect::<Vec<_>>(), ["mem.outcome"; 3]);
    }
}
