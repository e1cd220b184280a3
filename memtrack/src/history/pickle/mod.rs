//! The pickle form: a writer whose files Python and the page both read, and a reader that runs nothing.

mod opcode;
mod reader;
mod writer;

pub(super) use reader::read;
pub(super) use writer::PickleWriter;
