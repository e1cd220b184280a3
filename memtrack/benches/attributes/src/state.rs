//! What a program can be in while subjects are called.
//!
//! A state lasts as long as its process: a global subscriber cannot be taken back, and a thread's own costs more than users
//! pay.

use crate::Failure;
use crate::subjects::{ALLOCATOR, Library};
use fastrace::collector::{Config, Reporter, SpanContext, SpanRecord};
use std::fmt;
use std::io;
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Subscriber, subscriber};
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// One state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// memtrack is switched off, fastrace and hotpath are not initialised, `tracing` has no subscriber.
    Off,
    /// memtrack is switched off, and the `fmt` layer listens.
    OffText,
    /// memtrack is on, and the `fmt` layer listens to no level.
    LevelOff,
    /// memtrack is on, fastrace collects, hotpath measures; `tracing` has no subscriber.
    On,
    /// memtrack is on, and a registry without layers listens.
    Registry,
    /// memtrack is on, and the `fmt` layer writes a line to a sink as each span closes.
    Text,
    /// The same as JSON.
    Json,
}

/// All states, in the order of tables.
pub const STATES: [State; 7] =
    [State::Off, State::OffText, State::LevelOff, State::On, State::Registry, State::Text, State::Json];

impl State {
    /// The state's name in tables and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::OffText => "off, fmt",
            Self::LevelOff => "on, level off",
            Self::On => "on, no subscriber",
            Self::Registry => "on, registry",
            Self::Text => "on, fmt",
            Self::Json => "on, JSON",
        }
    }

    /// Whether functions of a library behave in this state as in no other.
    pub fn concerns(self, library: Library) -> bool {
        match library {
            Library::Plain | Library::Memtrack => true,
            Library::Tracing => self != Self::OffText,
            Library::Fastrace | Library::Hotpath => matches!(self, Self::Off | Self::On),
        }
    }

    /// Puts this process into the state, for as long as what it returns lives. Without `peers` fastrace and hotpath stay
    /// uninitialised in all states, and start no threads.
    ///
    /// # Errors
    ///
    /// If the process is in another state already.
    pub fn enter(self, peers: bool) -> Result<Entered, Failure> {
        let text = || tracing_subscriber::fmt().with_span_events(FmtSpan::CLOSE).with_writer(io::sink);
        match self {
            Self::Off | Self::On => {}
            Self::OffText | Self::Text => subscriber::set_global_default(text().finish())?,
            Self::LevelOff => subscriber::set_global_default(text().with_max_level(LevelFilter::OFF).finish())?,
            Self::Registry => subscriber::set_global_default(tracing_subscriber::registry())?,
            Self::Json => subscriber::set_global_default(text().json().finish())?,
        }
        memtrack::set_default(&ALLOCATOR);
        memtrack::set_enabled(!matches!(self, Self::Off | Self::OffText));
        if self != Self::On || !peers {
            return Ok(Entered { hotpath: None });
        }
        fastrace::set_reporter(Nowhere, Config::default().report_interval(Duration::from_millis(20)));
        let hotpath = hotpath::HotpathGuardBuilder::new("attributes").format(hotpath::Format::None).build();
        Ok(Entered { hotpath: Some(hotpath) })
    }

    /// Calls functions of a library in what it needs around them, which is little beside a thousand calls.
    pub fn call(self, library: Library, call: impl FnOnce()) {
        if self == Self::On && library == Library::Fastrace {
            let root = fastrace::Span::root("attributes", SpanContext::random());
            let _parent = root.set_local_parent();
            call();
        } else {
            call();
        }
    }
}

/// A state that this process is in.
#[must_use = "the state ends with it"]
pub struct Entered {
    #[expect(dead_code, reason = "hotpath measures while it lives")]
    hotpath: Option<hotpath::HotpathGuard>,
}

/// Takes fastrace's spans and forgets them.
struct Nowhere;

impl Reporter for Nowhere {
    fn report(&mut self, spans: Vec<SpanRecord>) {
        drop(spans);
    }
}

/// How many values a call of a function puts on spans. The process must not be in a state.
///
/// # Panics
///
/// Only where `tracing` itself does.
pub fn fields_recorded(call: fn(calls: u64)) -> usize {
    let (count, counted) = std::sync::mpsc::channel();
    memtrack::set_default(&ALLOCATOR);
    subscriber::with_default(tracing_subscriber::registry().with(Counting { count }), || call(1));
    counted.iter().sum()
}

struct Counting {
    count: std::sync::mpsc::Sender<usize>,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Counting {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let mut values = Values(0);
        attributes.record(&mut values);
        let _ = self.count.send(values.0);
    }

    fn on_record(&self, _: &Id, record: &Record<'_>, _: Context<'_, S>) {
        let mut values = Values(0);
        record.record(&mut values);
        let _ = self.count.send(values.0);
    }
}

struct Values(usize);

impl Visit for Values {
    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {
        self.0 += 1;
    }
}
