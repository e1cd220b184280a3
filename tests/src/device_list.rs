//! What every device does, as a list of checks that run on any of them: host, simulated, the mock driver, a GPU.

mod captures;
mod events;
mod graphs;
mod pinned;
mod segments;
mod stream_ordered;
pub mod subjects;
mod transfers;
mod virtual_memory;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use memtrack::device::{Device, Stream};

pub use graphs::CapturedOn;

/// What went wrong, in words.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Keeps a stream busy until the value it returns is dropped.
pub type Hold = Box<dyn Fn(Stream) -> Result<Box<dyn Any>, Failure>>;

/// A stream's graph capture that is underway. Dropped, it ends, whatever has become of it.
pub trait Capturing {
    /// Ends the capture; an error if something broke it.
    ///
    /// # Errors
    ///
    /// What the driver says.
    fn end(self: Box<Self>) -> Result<(), Failure>;

    /// Ends the capture; what was captured can be launched then.
    ///
    /// # Errors
    ///
    /// What the driver says.
    fn into_graph(self: Box<Self>) -> Result<Box<dyn Graph>, Failure>;
}

/// Captured work.
pub trait Graph {
    /// Gives the stream of the capture all of it, once more.
    ///
    /// # Errors
    ///
    /// What the driver says.
    fn launch(&self) -> Result<(), Failure>;
}

/// Begins a graph capture on a stream.
pub type BeginCapture = Box<dyn Fn(Stream) -> Result<Box<dyn Capturing>, Failure>>;

/// What a device can do beside the trait, as far as checks need it. A check whose control is missing is skipped, and said
/// to be.
#[derive(Default)]
pub struct Controls {
    /// Whether there are bytes behind its addresses.
    pub has_bytes: bool,
    /// A stream beside the default one.
    pub second_stream: Option<Stream>,
    /// And another one.
    pub third_stream: Option<Stream>,
    /// A stream the device does not know.
    pub unknown_stream: Option<Stream>,
    /// Keeps a stream busy.
    pub hold: Option<Hold>,
    /// Captures a stream, in the mode that forbids most.
    pub capture: Option<BeginCapture>,
    /// Whether one stream's work waits where it was told to wait for another's.
    pub orders_streams: bool,
    /// Sets how much memory other processes have. Where it is there, free bytes are exact: nobody else is around.
    pub set_other_use: Option<Box<dyn Fn(u64)>>,
}

impl fmt::Debug for Controls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controls").field("has_bytes", &self.has_bytes).finish_non_exhaustive()
    }
}

/// How a check went: it held, or it does not apply, for this reason.
enum Outcome {
    Held,
    Skipped(&'static str),
}

/// The error says what did not hold.
type Checked = Result<Outcome, Failure>;
type Check = fn(&Arc<dyn Device>, &Controls) -> Checked;

/// Ends a check that does not hold.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+).into());
        }
    };
}

/// Ends a check unless the value matches, and says what it was.
macro_rules! ensure_matches {
    ($value:expr, $pattern:pat $(if $guard:expr)?) => {
        match $value {
            $pattern $(if $guard)? => {}
            other => return Err(format!("{} is {other:?}", stringify!($value)).into()),
        }
    };
}

use {ensure, ensure_matches};

const CHECKS: &[&[(&str, Check)]] = &[
    segments::CHECKS,
    events::CHECKS,
    transfers::CHECKS,
    virtual_memory::CHECKS,
    stream_ordered::CHECKS,
    pinned::CHECKS,
    captures::CHECKS,
    graphs::CHECKS,
];

/// How the list went.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many held.
    pub held: usize,
    /// Those that do not apply.
    pub skipped: Vec<&'static str>,
    /// Those that do not hold.
    pub failed: Vec<&'static str>,
}

/// Runs every check and prints a line for each.
pub fn run_all(device: &Arc<dyn Device>, controls: &Controls) -> Report {
    run_all_telling(device, controls, &mut |line| println!("{line}"))
}

/// Runs every check and hands a line for each to `tell`.
pub fn run_all_telling(
    device: &Arc<dyn Device>,
    controls: &Controls,
    tell: &mut dyn FnMut(fmt::Arguments<'_>),
) -> Report {
    tell(format_args!("{}: {}, {} bytes", device.name(), device.model(), device.total_bytes()));
    let mut report = Report::default();
    for (name, check) in CHECKS.iter().copied().flatten() {
        match check(device, controls) {
            Ok(Outcome::Held) => {
                tell(format_args!("  ok    {name}"));
                report.held += 1;
            }
            Ok(Outcome::Skipped(reason)) => {
                tell(format_args!("  skip  {name}: {reason}"));
                report.skipped.push(name);
            }
            Err(error) => {
                tell(format_args!("  FAIL  {name}: {error}"));
                report.failed.push(name);
            }
        }
    }
    report
}
