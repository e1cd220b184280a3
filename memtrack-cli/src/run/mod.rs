//! `memtrack run`: a program that knows nothing of memtrack, with the preloaded library before its CUDA driver.
//!
//! The program takes this process's place, so its exit status, its signals and its terminal are its own, and what is printed at its end
//! comes from the library. Here live the options, the finding of the library (`library`), and what is handed on of the start (`inherited`).

#[cfg(target_os = "linux")]
mod inherited;
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
    /// Count the program's calls and change nothing; without either option it is done unless MEMTRACK_PRELOAD says otherwise
    #[arg(long, conflicts_with = "cache")]
    pub observe: bool,

    /// Serve cuMemAlloc and cuMemAllocAsync from memtrack's caching allocator, as MEMTRACK_ALLOC_CONF configures it
    #[arg(long)]
    pub cache: bool,

    /// Write the run file there, in place of where MEMTRACK_RUN_FILE says; %p becomes the number of the process
    #[arg(long, value_name = "PATH")]
    pub run_file: Option<PathBuf>,

    /// Publish figures once a second while the program runs, which `memtrack smi` and `memtrack check` show; into FOLDER, or into the
    /// one that they look into by themselves
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    pub publish: Option<PathBuf>,

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

/// Says what the library does.
#[cfg(target_os = "linux")]
const MODE: &str = "MEMTRACK_PRELOAD";

/// Passes a path on, meant from here: the program can change its folder. `0` and `1` are no paths.
#[cfg(target_os = "linux")]
fn set_path(command: &mut std::process::Command, variable: &str, path: Option<&std::path::Path>) {
    let Some(path) = path else { return };
    let is_path = !matches!(path.to_str(), Some("" | "0" | "1"));
    let absolute = if is_path { std::path::absolute(path).ok() } else { None };
    command.env(variable, absolute.as_deref().unwrap_or(path));
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
    command.env("LD_PRELOAD", preload);
    let is_said = std::env::var_os(MODE).is_some_and(|mode| !mode.is_empty());
    match (options.cache, options.observe || !is_said) {
        (true, _) => command.env(MODE, "cache"),
        (false, true) => command.env(MODE, "observe"),
        (false, false) => &mut command,
    };
    set_path(&mut command, memtrack::run_file::ENVIRONMENT_VARIABLE, options.run_file.as_deref());
    set_path(&mut command, memtrack::publish::ENVIRONMENT_VARIABLE, options.publish.as_deref());
    inherited::pass_on(&mut command);
    let error = command.exec();
    let status = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
    (status, format!("{}: {error}", program.display()))
}

#[cfg(not(target_os = "linux"))]
fn start(_options: &RunOptions) -> (u8, String) {
    (FAILED, "`run` needs Linux: the library is put before the driver by its loader".to_owned())
}
