//! Where, how often and how much is written.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use crate::sync::lock;
use crate::units::MIB;

/// The folder that post-mortems go to.
const FOLDER_VARIABLE: &str = "MEMTRACK_OOM_DUMP";
/// A clock counts no further than some centuries.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Where post-mortems go and what bounds them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostMortemOptions {
    /// The folder; each post-mortem makes one of its own in it.
    pub folder: PathBuf,
    /// So many are written in the process, counted from the call of [`configure`]. 1 unless said.
    pub count_limit: u64,
    /// Bytes of all files of one post-mortem together. 256 MiB unless said. A snapshot that is larger is written without its
    /// events, and left out if that is too large still.
    pub size_limit_bytes: u64,
    /// How long the program may wait for it. Ten seconds unless said.
    pub time_limit: Duration,
    /// Of the recorded events so many are written, the last ones. 10,000 unless said.
    pub event_limit: usize,
}

impl PostMortemOptions {
    /// Into this folder, with the usual bounds.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            count_limit: 1,
            size_limit_bytes: 256 * MIB,
            time_limit: Duration::from_secs(10),
            event_limit: 10_000,
        }
    }

    /// How many are written.
    pub fn count_limit(mut self, count: u64) -> Self {
        self.count_limit = count;
        self
    }

    /// The most bytes of one.
    pub fn size_limit_bytes(mut self, bytes: u64) -> Self {
        self.size_limit_bytes = bytes;
        self
    }

    /// The longest wait for one; a year at most.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit.min(LONGEST_WAIT);
        self
    }

    /// The most events of one.
    pub fn event_limit(mut self, count: usize) -> Self {
        self.event_limit = count;
        self
    }
}

#[derive(Debug)]
struct State {
    /// `None`: as the environment says.
    options: Option<PostMortemOptions>,
    written_count: u64,
}

static STATE: Mutex<State> = Mutex::new(State { options: None, written_count: 0 });

/// Sets where post-mortems go, in place of what the environment says; `None` goes back to that. The count begins anew.
pub fn configure(options: Option<PostMortemOptions>) {
    *lock(&STATE) = State { options, written_count: 0 };
}

/// One post-mortem that is to be written, if one is; it is counted.
pub(crate) fn order() -> Option<PostMortemOptions> {
    let mut state = lock(&STATE);
    let options = match &state.options {
        Some(options) => options.clone(),
        None => {
            let folder = std::env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty())?;
            PostMortemOptions::new(folder)
        }
    };
    if state.written_count >= options.count_limit {
        return None;
    }
    state.written_count += 1;
    Some(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn the_longest_wait_is_one_that_a_clock_counts() {
        let options = PostMortemOptions::new("folder").time_limit(Duration::MAX);
        assert!(Instant::now().checked_add(options.time_limit).is_some());
    }
}
