//! The command `memtrack`.

use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    let status = memtrack_cli::command::run(std::env::args_os(), &mut io::stdout(), &mut io::stderr());
    ExitCode::from(status)
}
