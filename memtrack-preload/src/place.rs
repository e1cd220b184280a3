//! Where this copy of the code is: in the preloaded library, or compiled into a program by `memtrack-hook`.
//!
//! A process can have both, and then each call is to be counted once. The library's copy counts: it sees the calls of those that open
//! the driver when they run, and a program's own copy passes its calls on to it.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU8;

use libloading::os::unix::{Library, RTLD_LAZY};

use crate::process::{Mode, set_mode};

/// Under this name programs get the library from the loader, where it is there.
const LIBRARY: &str = "libcuda.so";
/// Do not load what is not loaded (`RTLD_NOLOAD`).
const NO_LOAD: i32 = libc::RTLD_NOLOAD;

/// Each copy has its own, by whose address it is known. Nothing is ever in it; an atomic is not merged with others.
static OWN: AtomicU8 = AtomicU8::new(0);

/// Where this copy is.
#[derive(Debug)]
pub(crate) enum Place {
    /// In the library.
    Library,
    /// In a program that has the library too.
    BesideLibrary(Library),
    /// In a program, alone.
    Program,
}

impl Place {
    /// Found out once, at the first question: the library is there from the start, or has come before the first call.
    pub(crate) fn own() -> &'static Self {
        static OWN_PLACE: OnceLock<Place> = OnceLock::new();
        OWN_PLACE.get_or_init(|| {
            type Here = extern "C" fn() -> *const AtomicU8;
            // SAFETY: nothing is loaded that is not loaded already.
            let Ok(library) = (unsafe { Library::open(Some(LIBRARY), RTLD_LAZY | NO_LOAD) }) else {
                return Self::Program;
            };
            // SAFETY: the function below, in whichever copy; the driver's own library has none of that name.
            let here = unsafe { library.get::<Here>(b"memtrack_preload_here\0") }.ok().map(|here| here());
            match here {
                None => Self::Program,
                Some(here) if here == &raw const OWN => Self::Library,
                Some(_) => Self::BesideLibrary(library),
            }
        })
    }
}

/// Which copy answers under this name.
#[unsafe(no_mangle)]
extern "C" fn memtrack_preload_here() -> *const AtomicU8 {
    &raw const OWN
}

/// For a program that has the library: [`set_mode`] by [`Mode::number`]. 0 when it is done, 1 when it is too late, 2 when there is no
/// such mode.
#[unsafe(no_mangle)]
extern "C" fn memtrack_preload_mode(number: u32) -> u32 {
    match Mode::from_number(number).map(set_mode) {
        Some(Ok(())) => 0,
        Some(Err(_)) => 1,
        None => 2,
    }
}
