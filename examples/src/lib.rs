//! What the training programs of memtrack share: the data they learn from.
//!
//! The programs themselves live in folders beside this one, `train/` first.

pub mod digits;
