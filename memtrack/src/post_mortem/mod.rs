//! What is written when memory runs out, before the program gets the error.
//!
//! With the environment variable `MEMTRACK_OOM_DUMP` set to a folder, or after [`configure`], the first out of memory of the process
//! leaves a folder `memtrack-oom-PID-NUMBER` there:
//!
//! - `report.txt`: the message, the findings with evidence and advice, the live bytes by line and scope;
//! - `report.json`: the same for programs;
//! - `events.jsonl`: the last events, an object a line, if the history was recorded;
//! - `snapshot.pickle`: for pytorch.org/memory_viz and PyTorch's tools;
//! - `driver.txt`: the driver's view, if one is attached.
//!
//! How often, how much and for how long it writes is bounded ([`PostMortemOptions`]). Nothing of it can fail the program: what goes wrong is
//! said in an event with the target `memtrack::post_mortem`, and the error that the program gets is that of its request. What
//! runs out of memory inside a hook ([`on_oom`](crate::CachingAllocator::on_oom)), on the hook's thread, writes nothing, and neither does a
//! request whose hook panics.
//!
//! Here live the options, the bounds and the files. Nothing here knows an allocator: it is handed what to write.

mod bounded;
mod error;
mod files;
mod material;
mod options;
mod writing;

pub use error::PostMortemError;
pub(crate) use material::{Material, Report};
pub(crate) use options::order;
pub use options::{PostMortemOptions, configure};
pub(crate) use writing::write;
