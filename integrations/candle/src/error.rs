//! Why a run ended before its last step.

use std::io;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// Of candle, of the driver, or of a library below it.
    #[error("{0}")]
    Candle(#[from] candle_core::Error),
    /// Nobody reads what the program writes.
    #[error("standard output cannot be written: {0}")]
    Output(#[from] io::Error),
    /// What training came to.
    #[error("the loss of step {step} is {loss}: lower --learning-rate")]
    Diverged { step: usize, loss: f32 },
    /// What was asked for at build time and is missing.
    #[error("this program was built without the feature `cuda`: use --device cpu, or build it by README.md's recipe")]
    #[cfg(not(feature = "cuda"))]
    BuiltWithoutCuda,
}

impl RunError {
    /// Whether the GPU's memory did not suffice. candle wraps the driver's error in several of its own, so the text decides.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        let text = self.to_string();
        text.contains("CUDA_ERROR_OUT_OF_MEMORY") || text.contains("CUBLAS_STATUS_ALLOC_FAILED")
    }

    /// 3 when memory ran out, else 1.
    pub(crate) fn exit_status(&self) -> u8 {
        if self.is_out_of_memory() { 3 } else { 1 }
    }
}
