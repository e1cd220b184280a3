//! Where the events of the allocator and its scopes go.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::options::LogFormat;

/// Starts writing events to standard error, at the level that `RUST_LOG` names, `info` without it. A tracked function
/// gives one event when it ends, with what it did to memory.
pub(crate) fn start(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr);
    match format {
        LogFormat::Plain => subscriber.init(),
        LogFormat::Json => subscriber.json().init(),
        LogFormat::Off => {}
    }
}
