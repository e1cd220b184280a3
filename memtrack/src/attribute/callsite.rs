//! What tracing knows of an annotated function's spans, and the making of one.
//!
//! Not by tracing's `span!`: the names that it imports would hide arguments named `display` and `debug` from the values of
//! fields, and lints take what it does with its `static` for an effect of the function.

use tracing::callsite::{DefaultCallsite, Identifier};
use tracing::field::{FieldSet, Value, ValueSet};
use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};
use tracing::metadata::Kind;
use tracing::span::Id;
use tracing::{Callsite as _, Level, Metadata, Span, dispatcher};

/// Where the spans of one function are made.
pub type Callsite = DefaultCallsite;

/// What is the same of all of them.
pub type Description = Metadata<'static>;

/// The description that generated code places in a `static`, beside that of its call site.
#[expect(clippy::too_many_arguments, reason = "generated code gives them all at once")]
pub const fn description(
    name: &'static str,
    target: &'static str,
    level: Level,
    module_path: &'static str,
    file: &'static str,
    line: u32,
    fields: &'static [&'static str],
    callsite: &'static Callsite,
) -> Description {
    let fields = FieldSet::new(fields, Identifier(callsite));
    Metadata::new(name, target, level, Some(file), Some(line), Some(module_path), fields, Kind::SPAN)
}

/// Whether anyone wants the spans of this call site.
#[inline]
pub fn is_wanted(callsite: &'static Callsite, level: Level) -> bool {
    level <= STATIC_MAX_LEVEL && level <= LevelFilter::current() && is_of_interest(callsite)
}

#[inline(never)]
fn is_of_interest(callsite: &'static Callsite) -> bool {
    let interest = callsite.interest();
    !interest.is_never()
        && (interest.is_always() || dispatcher::get_default(|default| default.enabled(callsite.metadata())))
}

/// A span with these values, each behind the place of its field among those described.
#[inline(never)]
pub fn span(callsite: &'static Callsite, values: &[(usize, &dyn Value)]) -> Span {
    with_values(callsite, values, Span::new)
}

/// The same in another span than the current one.
pub fn span_in(callsite: &'static Callsite, parent: impl Into<Option<Id>>, values: &[(usize, &dyn Value)]) -> Span {
    with_values(callsite, values, |metadata, values| Span::child_of(parent, metadata, values))
}

fn with_values<'v>(
    callsite: &'static Callsite,
    placed: &[(usize, &'v (dyn Value + 'v))],
    make: impl FnOnce(&'static Description, &ValueSet<'_>) -> Span,
) -> Span {
    let metadata = callsite.metadata();
    with_places(metadata.fields(), |values| {
        for (place, value) in placed {
            if let Some(field) = values.get_mut(*place) {
                *field = Some(*value);
            }
        }
        make(metadata, &metadata.fields().value_set_all(values))
    })
}

/// Gives `fill` a place for the value of each field, none of which has one.
///
/// Values go by position, as in the code of tracing's own macros: naming the fields would take longer than all else here.
pub(super) fn with_places<'v, T>(fields: &FieldSet, fill: impl FnOnce(&mut [Option<&'v (dyn Value + 'v)>]) -> T) -> T {
    /// As many as nearly all spans have, without an allocation.
    const FEW: usize = 24;
    match fields.len() {
        count if count <= FEW => fill(&mut [None; FEW][..count]),
        count => fill(&mut vec![None; count]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};
    use tracing::field::Visit;
    use tracing::span::Attributes;
    use tracing::{Subscriber, subscriber};
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

    /// Sends the name of each field that a new span has a value for.
    struct Names(Sender<&'static str>);

    impl<S: Subscriber> Layer<S> for Names {
        fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
            attributes.record(&mut Sent(&self.0));
        }
    }

    struct Sent<'a>(&'a Sender<&'static str>);

    impl Visit for Sent<'_> {
        fn record_debug(&mut self, field: &tracing::field::Field, _: &dyn std::fmt::Debug) {
            let _ = self.0.send(field.name());
        }
    }

    #[test]
    fn values_go_to_their_fields_however_many_there_are() {
        macro_rules! callsite {
            ($names:expr) => {{
                static CALLSITE: Callsite = Callsite::new(&DESCRIPTION);
                static DESCRIPTION: Description =
                    description("test", "test", Level::ERROR, "test", "test", 1, $names, &CALLSITE);
                &CALLSITE
            }};
        }
        let (names, sent) = channel();
        subscriber::with_default(tracing_subscriber::registry().with(Names(names)), || {
            drop(span(callsite!(&["a", "b", "c"]), &[(0, &1), (2, &2)]));
            drop(span(callsite!(&[]), &[]));
            let many = callsite!(&[
                "f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8", "f9", "f10", "f11", "f12", "f13", "f14", "f15",
                "f16", "f17", "f18", "f19", "f20", "f21", "f22", "f23", "f24", "f25", "f26", "f27", "f28", "f29"
            ]);
            drop(span(many, &[(3, &1), (29, &2)]));
        });
        assert_eq!(sent.into_iter().collect::<Vec<_>>(), ["a", "c", "f3", "f29"]);
    }
}
