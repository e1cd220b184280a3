//! Whether standard output was closed when the program began, as by `>&-`.
//!
//! Rust's own start opens `/dev/null` in the place of a closed stream, so that no file that is opened later gets its number. After that
//! every write seems to go well. So it has to be asked before, by a function that the loader calls first.

use std::sync::atomic::{AtomicBool, Ordering};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Always false where it cannot be asked: elsewhere than on Linux and macOS.
pub(crate) fn standard_output_was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
mod before_main {
    use std::ffi::c_int;
    use std::sync::atomic::Ordering;

    const STANDARD_OUTPUT: c_int = 1;
    const F_GETFD: c_int = 1;

    // SAFETY: this is its declaration in C; every program on these systems has it.
    unsafe extern "C" {
        fn fcntl(descriptor: c_int, command: c_int, ...) -> c_int;
    }

    // SAFETY: the loader calls what stands in this section, with arguments that a C function may leave alone, once and before `main`.
    // `look` needs nothing that Rust's start makes ready.
    #[used]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
    #[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__mod_init_func"))]
    static LOOK: extern "C" fn() = look;

    extern "C" fn look() {
        // SAFETY: the call takes no further argument and changes nothing.
        let is_closed = unsafe { fcntl(STANDARD_OUTPUT, F_GETFD) } == -1;
        super::WAS_CLOSED.store(is_closed, Ordering::Relaxed);
    }
}
