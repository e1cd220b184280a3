//! A classifier of handwritten digits, trained with burn, with its memory seen through memtrack.
//!
//! - [`source`]: cubecl's figures of a GPU's memory, which burn takes from cubecl. The file to copy into a project of one's own.
//! - [`heap`]: the process's heap, from which burn's `ndarray` backend takes its memory.
//! - [`network`] and [`training`]: an ordinary model and an ordinary loop, whose functions carry `#[track_memory]`.

pub mod heap;
pub mod network;
#[cfg(feature = "cuda")]
pub mod source;
pub mod training;
