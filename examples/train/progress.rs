//! What is shown while training: a bar where a person looks on, plain lines for files and pipes.

use std::io::{self, IsTerminal as _};

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over the steps of one epoch, gone when dropped.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar, if standard output is a terminal and `wanted`; else nothing.
    pub(crate) fn new(epoch: u64, steps: usize, wanted: bool) -> Self {
        if !wanted || !io::stdout().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::new(steps as u64).with_prefix(format!("epoch {epoch}"));
        match ProgressStyle::with_template("{prefix} [{bar:40}] step {pos}/{len}  loss {msg}") {
            Ok(style) => Self(bar.with_style(style)),
            Err(_) => Self(bar),
        }
    }

    /// One more step is done.
    pub(crate) fn step(&self, loss: f64) {
        self.0.set_message(format!("{loss:.3}"));
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
