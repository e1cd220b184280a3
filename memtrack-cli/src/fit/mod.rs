//! `memtrack fit`: the smallest memory limit under which a recorded run completes.
//!
//! Here live what is run of a recording (`program`) with which settings (`candidate`), one run under one limit (`trial`), the search over
//! limits (`search`), both together for one recording and settings (`answer`), the threads that share the work (`jobs`), and what is
//! printed (`report`, `text`). How files are read and how operations are done lives elsewhere.

mod answer;
mod candidate;
mod jobs;
mod options;
mod program;
mod report;
mod search;
mod text;
mod trial;

use std::io::Write;

use memtrack::plain_text::shown;

pub use answer::{Answer, FitError, fit};
pub use candidate::{Candidate, NamedSettings, PolicyName};
pub use options::{Card, FitOptions};
pub use program::Program;
pub use report::{OnCard, PolicyReport, Report};
pub use search::{Found, Range, search};
pub use trial::{Cost, DEVICE_BYTES, Failure, LimitBy, LimitedDevice, Outcome, run_under};

use crate::command::{FAILED, reader_is_gone};

/// Every segment and every page of the allocator is a multiple of so many bytes, so limits between two multiples are all one.
pub const GRANULARITY_BYTES: u64 = 2 << 20;

/// Runs the command; the exit status.
pub fn run(options: &FitOptions, output: &mut dyn Write, errors: &mut dyn Write) -> u8 {
    let card = match options.card() {
        Ok(card) => card,
        Err(problem) => {
            let _ = writeln!(errors, "memtrack: {problem}");
            return FAILED;
        }
    };
    let reports = jobs::reports(options, card);
    let mut status = 0;
    for report in &reports {
        status = status.max(report.status());
        for problem in report.problems() {
            // Where standard error is closed or full, the status still says it.
            let _ = writeln!(errors, "memtrack: {}", shown(&problem));
        }
        let text = if options.json {
            serde_json::to_string(report).map(|line| line + "\n").unwrap_or_default()
        } else {
            text::text(report)
        };
        match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
            Ok(()) => {}
            // Nobody reads any more, as behind `head`. All is run already, and the status still speaks for every file.
            Err(error) if reader_is_gone(&error) => {}
            Err(error) => {
                let _ = writeln!(errors, "memtrack: cannot write the results: {error}");
                return FAILED;
            }
        }
    }
    status
}
