//! `memtrack smi`: the memory of every GPU and process, as the driver and as memtrack count it.
//!
//! Here live the looking ([`Machine`], [`Look`]), the sum of a device's parts ([`Account`]), and the three ways to print a look:
//! as text, as JSON, and as `nvidia-smi`'s queries print. `memtrack check` looks in the same way. What the figures mean lives in
//! the library.

mod account;
mod csv;
mod json;
mod look;
mod namespaces;
mod options;
mod text;

use std::io::{self, IsTerminal as _, Write};
use std::thread;

pub use account::{Account, Line, Source};
pub use csv::{AppField, GpuField};
pub use look::{DeviceLook, Look, LookError, Machine, ProcessLook};
pub(crate) use options::seconds;
pub use options::{Format, LookOptions, SmiOptions};

use memtrack::plain_text::shown;

use crate::command::{FAILED, reader_is_gone};

/// There is no driver to ask, or no such device: nothing can be told.
pub const UNKNOWN: u8 = 3;

/// The top left corner, and nothing below it.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Runs `memtrack smi`; its exit status.
pub fn run(options: &SmiOptions, output: &mut dyn Write, errors: &mut dyn Write) -> u8 {
    let machine = match Machine::open(&options.look) {
        Ok(machine) => machine,
        Err(error) => return without_machine(options, &error, output, errors),
    };
    let redraws = options.watch.is_some() && !options.is_for_programs() && io::stdout().is_terminal();
    let mut former: Option<Look> = None;
    let mut left = options.count.unwrap_or(if options.watch.is_some() { u64::MAX } else { 1 });
    while left > 0 {
        let look = match machine.look() {
            Ok(look) => look,
            Err(error) => return without_machine(options, &error, output, errors),
        };
        let mut shown = if redraws { CLEAR.to_owned() } else { String::new() };
        if former.is_some() && !options.is_for_programs() && !redraws {
            shown.push('\n');
        }
        shown += &render(options, &look, former.as_ref());
        match output.write_all(shown.as_bytes()).and_then(|()| output.flush()) {
            Ok(()) => {}
            // Nobody reads any more, as behind `head`: that is the end of watching.
            Err(error) if reader_is_gone(&error) => return 0,
            Err(error) => {
                let _ = writeln!(errors, "memtrack: cannot write the figures: {error}");
                return FAILED;
            }
        }
        former = Some(look);
        left -= 1;
        if let (Some(every), 1..) = (options.watch, left) {
            thread::sleep(every);
        }
    }
    0
}

fn render(options: &SmiOptions, look: &Look, former: Option<&Look>) -> String {
    if options.json {
        return json::look(look).to_string() + "\n";
    }
    let is_first = former.is_none();
    match (&options.query_gpu[..], &options.query_compute_apps[..]) {
        ([], []) => text::look(look, former),
        ([], fields) => csv::apps(look, fields, options.format, is_first),
        (fields, _) => csv::gpus(look, fields, options.format, is_first),
    }
}

fn without_machine(options: &SmiOptions, error: &LookError, output: &mut dyn Write, errors: &mut dyn Write) -> u8 {
    let written = match options.json {
        true => writeln!(output, "{}", json::without_devices(error)).and_then(|()| output.flush()),
        false => Ok(()),
    };
    // Where standard error is closed or full, the status still says it.
    let _ = writeln!(errors, "memtrack: {}", shown(&error.to_string()));
    match written {
        Err(error) if !reader_is_gone(&error) => {
            let _ = writeln!(errors, "memtrack: cannot write the figures: {error}");
            FAILED
        }
        _ => UNKNOWN,
    }
}
