//! The source and the spans of `#[track_memory]` functions, told of as they happen.

use memtrack::scope::{Outcome, ScopeRecord};
use memtrack::source::{Exactness, MemorySource, SourceError, SourceReading};
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::teller::tell;

/// A source each of whose readings is told when it is taken.
#[derive(Debug)]
pub(crate) struct Told<S>(pub(crate) S);

impl<S: MemorySource> MemorySource for Told<S> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn device(&self) -> Option<u32> {
        self.0.device()
    }

    fn exactness(&self) -> Exactness {
        self.0.exactness()
    }

    fn read(&self) -> Result<SourceReading, SourceError> {
        let reading = self.0.read()?;
        tell(&json!({
            "event": "reading",
            "current_bytes": reading.current_bytes,
            "peak_bytes": reading.peak_bytes,
            "reserved_bytes": reading.reserved_bytes,
            "reserved_peak_bytes": reading.reserved_peak_bytes,
            "retry_count": reading.retry_count,
            "oom_count": reading.oom_count,
        }));
        Ok(reading)
    }

    fn reset_peak(&self) -> Result<(), SourceError> {
        self.0.reset_peak()
    }
}

/// Tells of each span of a `#[track_memory]` function, which is made before its scope opens, and of its figures, which come when the
/// scope has closed.
#[derive(Debug)]
pub(crate) struct Spans;

/// The figures of a span, under the names that records have.
const FIELDS: [(&str, &str); 7] = [
    ("mem.before", "before_bytes"),
    ("mem.after", "after_bytes"),
    ("mem.delta", "delta_bytes"),
    ("mem.peak", "peak_bytes"),
    ("mem.peak_delta", "peak_delta_bytes"),
    ("mem.retries", "retry_count"),
    ("mem.ooms", "oom_count"),
];

fn is_measured(metadata: &Metadata<'_>) -> bool {
    metadata.fields().field("mem.after").is_some()
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        if is_measured(attributes.metadata()) {
            tell(&json!({ "event": "open", "scope": attributes.metadata().name() }));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id).filter(|span| is_measured(span.metadata())) else { return };
        let mut figures = Figures(Map::new());
        values.record(&mut figures);
        if !figures.0.is_empty() {
            tell(&json!({ "event": "record", "by": "span", "scope": span.name(), "figures": figures.0 }));
        }
    }
}

struct Figures(Map<String, Value>);

impl Visit for Figures {
    fn record_i64(&mut self, field: &Field, value: i64) {
        if let Some((_, name)) = FIELDS.iter().find(|(field_name, _)| *field_name == field.name()) {
            self.0.insert((*name).to_owned(), value.into());
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

/// Runs `work` in a scope of this name, and tells of its record.
pub(crate) fn in_scope<T>(name: &'static str, work: impl FnOnce() -> T) -> Result<T, String> {
    tell(&json!({ "event": "open", "scope": name }));
    let scope = memtrack::scope(name).ok_or("nothing is measured")?;
    let result = work();
    tell_record(&scope.close(Outcome::Ok));
    Ok(result)
}

/// Tells all that a record says of its source.
pub(crate) fn tell_record(record: &ScopeRecord) {
    let Some(source) = record.sources.first() else {
        return tell(&json!({ "event": "record", "by": "record", "scope": record.name, "failure": "no source" }));
    };
    let figures = json!({
        "before_bytes": source.before_bytes,
        "after_bytes": source.after_bytes,
        "peak_bytes": source.peak_bytes,
        "reserved_before_bytes": source.reserved_before_bytes,
        "reserved_after_bytes": source.reserved_after_bytes,
        "reserved_peak_bytes": source.reserved_peak_bytes,
        "retry_count": source.retry_count,
        "oom_count": source.oom_count,
    });
    let failure = source.failure.as_ref().map(ToString::to_string);
    let kind = source.peak_kind.as_str();
    tell(&json!({
        "event": "record", "by": "record", "scope": record.name, "peak_kind": kind, "failure": failure, "figures": figures
    }));
}
