//! Counts, or serves, the GPU memory of a program that it is compiled into: what `libmemtrack_preload.so` does under `LD_PRELOAD`,
//! without the environment. The program's calls stay as they are.
//!
//! A program that is *linked* with the driver's library, as candle's are, needs one line in its `main.rs`:
//!
//! ```
//! use memtrack_hook as _;
//! # fn main() {}
//! ```
//!
//! With it the driver's memory functions in the binary are memtrack's, which stand before the driver's for the program and for all
//! shared libraries that it links.
//!
//! A program that *opens* the driver's library when it runs, as burn's do and cudarc's with its usual features, calls [`load()`] before
//! its first CUDA call:
//!
//! ```no_run
//! if let Err(error) = memtrack_hook::load() {
//!     eprintln!("GPU memory is not counted: {error}");
//! }
//! ```
//!
//! What is done with the calls, what is seen of them and what is not, is as with the preloaded library: `docs/preload.md` in
//! memtrack's repository. `MEMTRACK_PRELOAD`, `MEMTRACK_RUN_FILE`, `MEMTRACK_PUBLISH` and `MEMTRACK_ALLOC_CONF` mean the same, and
//! [`mode`] says what the first of these says.
//!
//! Where a process has both the functions of its own and the library, by `LD_PRELOAD` or by [`load()`], the library counts, and the
//! program's functions pass their calls on to it: each call is counted once.
//!
//! On other systems than 64-bit Linux nothing is counted, and [`load()`] says so.

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod find;
mod load;

pub use load::{LoadError, load, load_from};

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use memtrack_preload as counting;

/// What is done with the program's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// They are passed on.
    Off,
    /// They are counted and passed on.
    Observe,
    /// They are counted, and served by memtrack's caching allocator.
    Cache,
}

/// The first call was made, and what is done with calls is settled; or the driver is open and its calls do not come here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the program has called the driver, or has opened it without memtrack: say what is to be done with its calls before the first CUDA \
     call"
)]
pub struct TooLate;

/// Says what is done with the program's calls, in place of what the environment variable `MEMTRACK_PRELOAD` says. Before the first
/// call, and before or after [`load()`].
///
/// # Errors
///
/// [`TooLate`] when the first call was made, and when the program has opened the driver without the library: its calls are not seen.
pub fn mode(mode: Mode) -> Result<(), TooLate> {
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    {
        let mode = match mode {
            Mode::Off => counting::Mode::Off,
            Mode::Observe => counting::Mode::Observe,
            Mode::Cache => counting::Mode::Cache,
        };
        // Kept for a library that is loaded later, too.
        counting::set_mode(mode).map_err(|_| TooLate)?;
        match load::loaded() {
            Some(library) => load::pass_on(&library, mode),
            None if load::is_missed() => Err(TooLate),
            None => Ok(()),
        }
    }
    #[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
    {
        let _ = mode;
        Ok(())
    }
}
