//! What tracing knows of an annotated function's spans, and the making of one.
//!
//! Not by tracing's `span!`: the names that it imports would hide arguments named `display` and `debug` from the values of
//! fields, and lints take what it does with its `static` for an effect of the function.

use tracing::callsite::{DefaultCallsite, Identifier};
use tracing::field::{Field, FieldSet, Value, ValueSet};
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
    if level > STATIC_MAX_LEVEL || level > LevelFilter::current() {
        return false;
    }
    let interest = callsite.interest();
    !interest.is_never()
        && (interest.is_always() || dispatcher::get_default(|default| default.enabled(callsite.metadata())))
}

/// A span with these values, each behind the place of its field among those described.
pub fn span<const N: usize>(callsite: &'static Callsite, values: [(usize, &dyn Value); N]) -> Span {
    with_values(callsite, values, Span::new)
}

/// The same in another span than the current one.
pub fn span_in<const N: usize>(
    callsite: &'static Callsite,
    parent: impl Into<Option<Id>>,
    values: [(usize, &dyn Value); N],
) -> Span {
    with_values(callsite, values, |metadata, values| Span::child_of(parent, metadata, values))
}

/// What stands for a span that nobody wants.
#[inline]
pub fn no_span(callsite: &'static Callsite) -> Span {
    Span::new_disabled(callsite.metadata())
}

fn with_values<const N: usize>(
    callsite: &'static Callsite,
    values: [(usize, &dyn Value); N],
    make: impl FnOnce(&'static Description, &ValueSet<'_>) -> Span,
) -> Span {
    let metadata = callsite.metadata();
    let fields = metadata.fields();
    let names: [Option<Field>; N] = values.map(|(place, _)| fields.iter().nth(place));
    let Some(first) = fields.iter().next() else { return make(metadata, &fields.value_set(&[])) };
    // Each place is one of a described field.
    let pairs: [_; N] = std::array::from_fn(|index| (names[index].as_ref().unwrap_or(&first), Some(values[index].1)));
    make(metadata, &fields.value_set(&pairs))
}
