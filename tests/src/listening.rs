//! What memtrack says through `tracing` while something runs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Where it belongs.
    pub target: String,
    /// How important it is.
    pub level: Level,
    /// The span it came in.
    pub span: Option<String>,
    /// Its fields as text, strings without quotes.
    pub fields: BTreeMap<String, String>,
}

impl Said {
    /// A field as a number.
    ///
    /// # Panics
    ///
    /// When there is no such field, or it is no number.
    pub fn number(&self, field: &str) -> i64 {
        match self.fields.get(field).map(|text| text.parse()) {
            Some(Ok(number)) => number,
            _ => panic!("no number `{field}` in {self:?}"),
        }
    }
}

struct Fields<'a>(&'a mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let former = self.0.insert(field.name().to_owned(), format!("{value:?}"));
        assert_eq!(former, None, "`{}` is recorded twice", field.name());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_u64(&mut self, field: &Field, _value: u64) {
        panic!("`{}` is unsigned, which exporters turn into text", field.name());
    }
}

struct Listener<A> {
    said: Arc<Mutex<Vec<Said>>>,
    on_event: A,
}

impl<A: Fn() + 'static, S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for Listener<A> {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = BTreeMap::new();
        event.record(&mut Fields(&mut fields));
        let (target, level) = (event.metadata().target().to_owned(), *event.metadata().level());
        let span = context.event_span(event).map(|span| span.name().to_owned());
        let said = Said { target, level, span, fields };
        self.said.lock().unwrap_or_else(PoisonError::into_inner).push(said);
        (self.on_event)();
    }
}

/// Runs `work` and returns memtrack's events on this thread meanwhile; `on_event` runs inside each of them, as code in a
/// subscriber does.
///
/// # Panics
///
/// When an event records a field twice or as an unsigned number.
pub fn listen(on_event: impl Fn() + Send + Sync + 'static, work: impl FnOnce()) -> Vec<Said> {
    let said = Arc::new(Mutex::new(Vec::new()));
    let listener = Listener { said: Arc::clone(&said), on_event };
    tracing::subscriber::with_default(Registry::default().with(listener), work);
    let said = std::mem::take(&mut *said.lock().unwrap_or_else(PoisonError::into_inner));
    said.into_iter().filter(|said| said.target.starts_with("memtrack")).collect()
}
