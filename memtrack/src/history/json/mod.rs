//! The JSON form: always written, read with the feature `json`.

#[cfg(feature = "json")]
mod reader;
#[cfg(not(feature = "json"))]
mod without;
mod writer;

#[cfg(feature = "json")]
pub(super) use reader::read;
#[cfg(not(feature = "json"))]
pub(super) use without::read;
pub(super) use writer::JsonWriter;
