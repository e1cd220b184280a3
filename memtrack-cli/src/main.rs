//! The command `memtrack`.

mod closed;

use std::io::{self, Write};
use std::process::ExitCode;

use memtrack_cli::command::{ClosedOutput, run};

fn main() -> ExitCode {
    let (mut open, mut closed) = (io::stdout(), ClosedOutput);
    let output: &mut dyn Write = if closed::standard_output_was_closed() { &mut closed } else { &mut open };
    ExitCode::from(run(std::env::args_os(), output, &mut io::stderr()))
}
