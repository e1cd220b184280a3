//! The whole program, from the arguments to the exit status.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::Parser as _;
use memtrack::plain_text::shown;

use crate::options::{Command, Options, ReplayOptions};
use crate::replay::replay_file;

/// Wrong usage, a file without a result, or a result that cannot be written.
pub(crate) const FAILED: u8 = 2;

/// Runs the program. Results go to `output`, errors to `errors`.
pub fn run(arguments: impl IntoIterator<Item = OsString>, output: &mut dyn Write, errors: &mut dyn Write) -> u8 {
    let options = match Options::try_parse_from(arguments) {
        Ok(options) => options,
        Err(told) => {
            // Wrong usage, or the help that was asked for.
            let target: &mut dyn Write = if told.use_stderr() { &mut *errors } else { &mut *output };
            let written = write!(target, "{}", told.render()).and_then(|()| target.flush());
            return match written {
                _ if told.use_stderr() => FAILED,
                Err(error) if !reader_is_gone(&error) => {
                    let _ = writeln!(errors, "memtrack: cannot write the help: {error}");
                    FAILED
                }
                _ => 0,
            };
        }
    };
    match options.command {
        Command::Replay(options) => replay(&options, output, errors),
        Command::Fit(options) => crate::fit::run(&options, output, errors),
        Command::Smi(options) => crate::smi::run(&options, output, errors),
        Command::Check(options) => crate::check::run(&options, output, errors),
        Command::Diff(options) => crate::diff::run(&options, output, errors),
        Command::Run(options) => crate::run::run(&options, errors),
    }
}

fn replay(options: &ReplayOptions, output: &mut dyn Write, errors: &mut dyn Write) -> u8 {
    let choices = options.choices();
    let mut status = 0;
    let mut is_read = true;
    for file in &options.files {
        let report = replay_file(file, &choices);
        status = status.max(report.status());
        if let Some(error) = &report.error {
            // Where standard error is closed or full, the status still says it.
            let _ = writeln!(errors, "memtrack: {}: {}", shown(&report.file), shown(error));
        }
        if !is_read {
            continue;
        }
        let line = if options.json { serde_json::to_string(&report).ok() } else { report.line() };
        let Some(line) = line else { continue };
        // Each as it comes, since a file can take a while.
        match writeln!(output, "{line}").and_then(|()| output.flush()) {
            Ok(()) => {}
            // Nobody reads any more, as behind `head`: that is no mistake. The status still speaks for every file.
            Err(error) if reader_is_gone(&error) => is_read = false,
            Err(error) => {
                let _ = writeln!(errors, "memtrack: cannot write the results: {error}");
                return FAILED;
            }
        }
    }
    status
}

/// Standard output where it was closed when the program began: nothing can be written, and each try says so.
#[derive(Debug)]
pub struct ClosedOutput;

impl Write for ClosedOutput {
    fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        Err(io::Error::other("standard output is closed"))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn reader_is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}
