//! Where GPU memory went, why it ran out, and why nvidia-smi shows another number.

pub mod device;
pub mod units;
