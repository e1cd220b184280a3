//! Where the events of the allocator and its scopes go.

use std::env::{self, VarError};
use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::options::LogFormat;

/// Why `RUST_LOG` filters nothing.
#[derive(Debug, thiserror::Error)]
#[error(
    "RUST_LOG {problem}; write a level (error, warn, info, debug, trace, off), or targets with levels separated by \
     commas, as `info` or `warn,memtrack::alloc=debug`"
)]
pub(crate) struct LogFilterError {
    problem: String,
}

/// Starts writing events to standard error, at the level that `RUST_LOG` names, `info` without it. A tracked function
/// gives one event when it ends, with what it did to memory. Events that standard error does not take are lost: a log
/// that nobody reads any more is no reason to stop training.
///
/// # Errors
///
/// When `RUST_LOG` is malformed and `format` makes use of it.
pub(crate) fn start(format: LogFormat) -> Result<(), LogFilterError> {
    if format == LogFormat::Off {
        return Ok(());
    }
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter(env::var("RUST_LOG"))?)
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        // Those are told on standard error too, with a panic where that is closed or full.
        .log_internal_errors(false);
    match format {
        LogFormat::Json => subscriber.json().init(),
        _ => subscriber.init(),
    }
    Ok(())
}

fn filter(variable: Result<String, VarError>) -> Result<EnvFilter, LogFilterError> {
    let refused = |text: &str, error: ParseError| LogFilterError { problem: format!("is {text:?}: {error}") };
    match variable {
        Ok(text) if !text.trim().is_empty() => EnvFilter::builder().parse(&text).map_err(|error| refused(&text, error)),
        Ok(_) | Err(VarError::NotPresent) => Ok(EnvFilter::new("info")),
        Err(VarError::NotUnicode(text)) => {
            Err(LogFilterError { problem: format!("is {}, which is not Unicode text", text.to_string_lossy()) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_value_the_level_is_info() {
        for variable in [Err(VarError::NotPresent), Ok(String::new()), Ok(" ".to_owned())] {
            assert_eq!(filter(variable).unwrap().to_string(), "info");
        }
    }

    #[test]
    fn a_malformed_value_is_refused_with_its_text_and_an_accepted_form() {
        assert_eq!(filter(Ok("memtrack::alloc=debug".to_owned())).unwrap().to_string(), "memtrack::alloc=debug");
        for text in ["memtrack=loud", "info,memtrack=7", "=", "a=b=c", "memtrack[{=debug"] {
            let error = filter(Ok(text.to_owned())).unwrap_err().to_string();
            assert!(error.starts_with(&format!("RUST_LOG is {text:?}: ")), "{error}");
            assert!(error.contains("`warn,memtrack::alloc=debug`"), "{error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_value_that_is_not_unicode_is_refused() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt as _;
        let error = filter(Err(VarError::NotUnicode(OsStr::from_bytes(b"inf\xff").to_owned()))).unwrap_err();
        assert!(error.to_string().contains("not Unicode"), "{error}");
    }
}
