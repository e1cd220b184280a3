//! `libmemtrack_preload.so`: counts, or serves, the GPU memory of programs that know nothing of memtrack.
//!
//! ```text
//! LD_PRELOAD=/path/to/libmemtrack_preload.so MEMTRACK_PRELOAD=observe ./train
//! ```
//!
//! Under `LD_PRELOAD` it stands before the driver's library, both for programs that link `libcuda.so.1` and for those that open
//! `libcuda.so` when they run. It takes these calls and leaves all others to the driver: `cuMemAlloc_v2`, `cuMemAllocPitch_v2`,
//! `cuMemAllocManaged`, `cuMemFree_v2`, and with and without `_ptsz` `cuMemAllocAsync`, `cuMemAllocFromPoolAsync` and
//! `cuMemFreeAsync`; and those that end a context or a stream, for their memory ends or changes hands with them.
//!
//! `MEMTRACK_PRELOAD` says what it does with them:
//!
//! - `observe`, also when the variable is not set: counts each, and passes it on. Live bytes, their exact peak, and calls that
//!   succeeded and failed, by device and function.
//! - `cache`: counts each likewise, and serves `cuMemAlloc` and `cuMemAllocAsync` on primary contexts from memtrack's caching
//!   allocator, configured by `MEMTRACK_ALLOC_CONF`. `cache` in this crate's sources says what holds then.
//! - `off`: passes all on.
//!
//! A process that made such a call prints a summary to standard error when it ends, and writes a line for each device to the file that
//! `MEMTRACK_RUN_FILE` names. While it runs, `MEMTRACK_PUBLISH` has it publish its figures
//! once a second, for `memtrack smi`. A process that ends by `_exit`, `quick_exit`, a signal or `exec` does neither. A forked child is left alone
//! where its parent made a call before, and counts for itself where it did not.
//!
//! `memtrack-hook` (the crate beside this one) has the same functions compiled into a program. Where a process has both, the library's count (`place`).
//!
//! # What it does not see
//!
//! Functions that a program fetches through `cuGetProcAddress`, as the CUDA runtime (and so cuBLAS and PyTorch) does, and libraries
//! that open `libcuda.so.1` by that very name: `cuGetProcAddress` is left alone, because what it hands out depends on versions and
//! flags that are the driver's to judge. What such libraries take shows as the difference between the driver's figures and these.
//! Neither seen are `cuMemCreate` (virtual memory), arrays, and the functions of programs older than CUDA 3.2 (`cuMemAlloc` without
//! `_v2`).
//!
//! # Where it runs
//!
//! Linux with glibc and 64-bit addresses; elsewhere the library is empty. The loader needs `libcuda.so.1` for it: on a machine without
//! a driver a program under this `LD_PRELOAD` does not start, so set the variable for the program alone and not for a shell.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod apart;
mod at_exit;
mod at_load;
mod books;
mod cache;
mod interpose;
mod live_blocks;
mod live_figures;
mod place;
mod process;
mod real;
mod report;
mod signals;
mod standard_error;
mod voice;

pub use interpose::is_in_the_drivers_place;
pub use process::{Mode, TooLate, chosen_mode, set_mode};
