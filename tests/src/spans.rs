//! A tracing subscriber, or a layer of one, that remembers everything.

mod layer;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, Interest, set_default};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};
use tracing_core::span::Current;

/// A field's value, with the type it arrived in.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// By `record_i64`.
    I64(i64),
    /// By `record_u64`.
    U64(u64),
    /// By `record_bool`.
    Bool(bool),
    /// By `record_str`.
    Str(String),
    /// By `record_debug`.
    Debug(String),
}

/// One span.
#[derive(Debug, Clone)]
pub struct SpanLog {
    /// Its name.
    pub name: &'static str,
    /// Its target.
    pub target: &'static str,
    /// Its level.
    pub level: Level,
    /// The names of its fields, as declared.
    pub declared: Vec<&'static str>,
    /// The values given when it was made.
    pub at_creation: BTreeMap<&'static str, Value>,
    /// The values of each later `record`.
    pub records: Vec<BTreeMap<&'static str, Value>>,
    /// The index of the span it was made in, or of the parent that was named.
    pub parent: Option<usize>,
    /// The indices of the spans it follows from.
    pub follows: Vec<usize>,
    metadata: &'static Metadata<'static>,
    handles: usize,
}

impl SpanLog {
    /// A field's value, wherever it was given. Panics if it was given more than once.
    ///
    /// # Panics
    ///
    /// Panics if the field was given more than once.
    pub fn value(&self, field: &str) -> Option<Value> {
        let given = std::iter::once(&self.at_creation).chain(&self.records);
        let mut values = given.filter_map(|values| values.get(field));
        let value = values.next().cloned();
        assert!(values.next().is_none(), "{field} of {} was recorded more than once", self.name);
        value
    }

    /// A field's value as a number.
    ///
    /// # Panics
    ///
    /// Panics if there is none, or it is no `i64`.
    pub fn number(&self, field: &str) -> i64 {
        match self.value(field) {
            Some(Value::I64(number)) => number,
            other => panic!("{field} of {} is {other:?}", self.name),
        }
    }

    /// A field's value as text, empty if it has none.
    ///
    /// # Panics
    ///
    /// Panics if it is no text.
    pub fn text(&self, field: &str) -> String {
        match self.value(field) {
            None => String::new(),
            Some(Value::Str(text) | Value::Debug(text)) => text,
            other => panic!("{field} of {} is {other:?}", self.name),
        }
    }
}

/// One event.
#[derive(Debug, Clone)]
pub struct EventLog {
    /// Its target.
    pub target: &'static str,
    /// Its level.
    pub level: Level,
    /// Its fields but the message.
    pub fields: BTreeMap<&'static str, Value>,
    /// The name of the span it came in.
    pub span: Option<&'static str>,
}

#[derive(Debug, Default)]
struct Log {
    spans: Vec<SpanLog>,
    journal: Vec<String>,
    events: Vec<String>,
    all_events: Vec<EventLog>,
    entered: Vec<usize>,
    /// As a layer: the open spans by the registry's numbers.
    ids: BTreeMap<u64, usize>,
}

impl Log {
    /// A new span's index.
    fn begin(&mut self, metadata: &'static Metadata<'static>, values: Values, parent: Option<usize>) -> usize {
        self.spans.push(SpanLog {
            name: metadata.name(),
            target: metadata.target(),
            level: *metadata.level(),
            declared: metadata.fields().iter().map(|field| field.name()).collect(),
            at_creation: values.0,
            records: Vec::new(),
            parent,
            follows: Vec::new(),
            metadata,
            handles: 1,
        });
        let index = self.spans.len() - 1;
        self.note("new", index);
        index
    }

    fn note(&mut self, what: &str, index: usize) {
        self.journal.push(format!("{what} {}", self.spans[index].name));
    }
}

/// Keeps tracing's cache of interests right in a process whose threads have different subscribers.
///
/// While only one subscriber exists, tracing asks the one of the thread that meets a callsite first, and a thread without
/// any answers for all. So two are kept, used by nobody, who want to be asked each time.
pub fn keep_interests_right() {
    static KEPT: Once = Once::new();
    KEPT.call_once(|| [Spans::default(), Spans::default()].map(Dispatch::new).into_iter().for_each(std::mem::forget));
}

/// The subscriber, or layer; clones share one memory.
#[derive(Debug, Clone, Default)]
pub struct Spans {
    log: Arc<Mutex<Log>>,
    most_verbose: Option<Level>,
}

impl Spans {
    /// A recorder installed on this thread while the guard lives.
    pub fn install() -> (Self, DefaultGuard) {
        let spans = Self::default();
        let guard = spans.install_here();
        (spans, guard)
    }

    /// A recorder that lets only spans of `level` and above pass, installed on this thread while the guard lives.
    pub fn install_filtered(level: Level) -> (Self, DefaultGuard) {
        let spans = Self { most_verbose: Some(level), ..Self::default() };
        let guard = spans.install_here();
        (spans, guard)
    }

    /// Installs this recorder on this thread too.
    pub fn install_here(&self) -> DefaultGuard {
        keep_interests_right();
        set_default(self.clone())
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_event(&self, event: &Event<'_>) {
        let mut values = Values::default();
        event.record(&mut values);
        let mut log = self.log();
        if let Some(Value::Debug(message) | Value::Str(message)) = values.0.remove("message") {
            log.events.push(message);
        }
        let metadata = event.metadata();
        let span = log.entered.last().map(|entered| log.spans[*entered].name);
        let event = EventLog { target: metadata.target(), level: *metadata.level(), fields: values.0, span };
        log.all_events.push(event);
    }

    /// Adds a line to the journal.
    pub fn note(&self, line: impl Into<String>) {
        self.log().journal.push(line.into());
    }

    /// What happened, in order: `new NAME`, `enter NAME`, `record NAME`, `exit NAME`, `close NAME`, and the notes.
    pub fn journal(&self) -> Vec<String> {
        self.log().journal.clone()
    }

    /// All spans, in the order they were made.
    pub fn all(&self) -> Vec<SpanLog> {
        self.log().spans.clone()
    }

    /// The messages of all events.
    pub fn events(&self) -> Vec<String> {
        self.log().events.clone()
    }

    /// All events of a target.
    pub fn events_of(&self, target: &str) -> Vec<EventLog> {
        self.log().all_events.iter().filter(|event| event.target == target).cloned().collect()
    }

    /// The one span of this name.
    ///
    /// # Panics
    ///
    /// Panics if there is none, or more than one.
    pub fn one(&self, name: &str) -> SpanLog {
        let mut found: Vec<SpanLog> = self.all().into_iter().filter(|span| span.name == name).collect();
        assert_eq!(found.len(), 1, "spans named {name}");
        found.remove(0)
    }
}

fn index(id: &Id) -> usize {
    usize::try_from(id.into_u64()).unwrap_or(usize::MAX) - 1
}

#[derive(Default)]
struct Values(BTreeMap<&'static str, Value>);

impl Values {
    fn insert(&mut self, field: &Field, value: Value) {
        let former = self.0.insert(field.name(), value);
        assert!(former.is_none(), "`{}` comes twice in one call", field.name());
    }
}

impl Visit for Values {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, Value::I64(value));
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, Value::U64(value));
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, Value::Bool(value));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, Value::Str(value.to_owned()));
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert(field, Value::Debug(format!("{value:?}")));
    }
}

impl Subscriber for Spans {
    // Always asked again: several recorders with different levels live in one process.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.most_verbose.is_none_or(|level| *metadata.level() <= level)
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let metadata = attributes.metadata();
        let mut values = Values::default();
        attributes.record(&mut values);
        let mut log = self.log();
        let parent = match attributes.parent() {
            Some(parent) => Some(index(parent)),
            None if attributes.is_root() => None,
            None => log.entered.last().copied(),
        };
        log.begin(metadata, values, parent);
        Id::from_u64(log.spans.len() as u64)
    }

    fn record(&self, id: &Id, record: &Record<'_>) {
        let mut values = Values::default();
        record.record(&mut values);
        let mut log = self.log();
        log.spans[index(id)].records.push(values.0);
        log.note("record", index(id));
    }

    fn record_follows_from(&self, id: &Id, follows: &Id) {
        self.log().spans[index(id)].follows.push(index(follows));
    }

    fn event(&self, event: &Event<'_>) {
        self.keep_event(event);
    }

    fn enter(&self, id: &Id) {
        let mut log = self.log();
        log.note("enter", index(id));
        log.entered.push(index(id));
    }

    fn exit(&self, id: &Id) {
        let mut log = self.log();
        log.note("exit", index(id));
        log.entered.retain(|entered| *entered != index(id));
    }

    fn current_span(&self) -> Current {
        let log = self.log();
        match log.entered.last() {
            Some(&index) => Current::new(Id::from_u64(index as u64 + 1), log.spans[index].metadata),
            None => Current::none(),
        }
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.log().spans[index(id)].handles += 1;
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut log = self.log();
        let span = &mut log.spans[index(&id)];
        span.handles -= 1;
        let closed = span.handles == 0;
        if closed {
            log.note("close", index(&id));
        }
        closed
    }
}
