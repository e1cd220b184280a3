//! `memtrack run`: a program that knows nothing of memtrack, with the preloaded library before its CUDA driver.
//!
//! The program takes this process's place, so its exit status, its signals and its terminal are its own, and what is printed at its end
//! comes from the library. Here live the options and the finding of the library (`library`).

#[cfg(target_os = "linux")]
mod library;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use memtrack::plain_text::shown;

use crate::command::FAILED;

/// Runs a program with its GPU memory counted, or served from memtrack's cache.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
The program need not know of memtrack. A library is put before its CUDA driver by LD_PRELOAD; it is looked for where \
MEMTRACK_PRELOAD_LIBRARY says, else beside this program, in ../lib of its folder and in deps. At the program's end the library \
prints a summary to standard error and writes the run file. docs/preload.md says what it sees, what it does not, and what the cache \
promises. Linux with an NVIDIA driver only.

Exit status: the program's; 2 when there is no library, 127 when there is no such program, 126 when it cannot be run.")]
pub struct RunOptions {
    /// Count the program's calls and change nothing; this is what is done without either option
    #[arg(long, conflicts_with = "cache")]
    pub observe: bool,

    /// Serve cuMemAlloc and cuMemAllocAsync from memtrack's caching allocator, as MEMTRACK_ALLOC_CONF configures it
    #[arg(long)]
    pub cache: bool,

    /// Write the run file there, in place of where MEMTRACK_RUN_FILE says; %p becomes the number of the process
    #[arg(long, value_name = "PATH")]
    pub run_file: Option<PathBuf>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub program: Vec<OsString>,
}

/// Runs `memtrack run`; comes back only when the program could not be started.
pub fn run(options: &RunOptions, errors: &mut dyn Write) -> u8 {
    let (status, problem) = start(options);
    // Where standard error is closed or full, the status still says it.
    let _ = writeln!(errors, "memtrack: {}", shown(&problem));
    status
}

#[cfg(target_os = "linux")]
fn start(options: &RunOptions) -> (u8, String) {
    use std::io::ErrorKind;
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    let preload = match library::find().and_then(|library| library::preload(&library, std::env::var_os("LD_PRELOAD"))) {
        Ok(preload) => preload,
        Err(problem) => return (FAILED, problem),
    };
    let Some((program, arguments)) = options.program.split_first() else {
        return (FAILED, "there is no program to run".to_owned());
    };
    let mut command = Command::new(program);
    command.args(arguments);
    command.env("LD_PRELOAD", preload).env("MEMTRACK_PRELOAD", if options.cache { "cache" } else { "observe" });
    if let Some(run_file) = &options.run_file {
        command.env(memtrack::run_file::ENVIRONMENT_VARIABLE, run_file);
    }
    let error = command.exec();
    let status = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
    (status, format!("{}: {error}", program.display()))
}

#[cfg(not(target_os = "linux"))]
fn start(_options: &RunOptions) -> (u8, String) {
    (FAILED, "`run` needs Linux: the library is put before the driver by its loader".to_owned())
}
