//! `shim/allocator.cpp`, called. Exceptions end there: what comes here is a status, with a text.

#![allow(unsafe_code, reason = "C++ is called")]

use crate::error::TorchError;
use crate::statistics::{Backend, Figures};

/// What is asked of PyTorch, so that tests can answer in its place.
pub(crate) trait Allocator: Send + Sync + std::fmt::Debug {
    fn backend(&self) -> Result<Backend, TorchError>;
    fn read(&self, ordinal: usize) -> Result<Figures, TorchError>;
    fn reset_peak(&self, ordinal: usize) -> Result<(), TorchError>;
}

/// libtorch's, of this process.
#[derive(Debug)]
pub(crate) struct Libtorch;

#[cfg(not(feature = "doc-only"))]
pub(crate) use linked::{empty_cache, initialize};

#[cfg(not(feature = "doc-only"))]
mod linked {
    use std::ffi::{CStr, c_char};

    // Its build script links libtorch.
    use torch_sys as _;

    use super::*;

    /// As `memtrack_torch_status` in the shim.
    mod status {
        pub(super) const OK: i32 = 0;
        pub(super) const NO_CUDA: i32 = 1;
        pub(super) const OUT_OF_RANGE: i32 = 2;
        pub(super) const NOT_INITIALIZED: i32 = 3;
        pub(super) const UNCACHED: i32 = 4;
    }

    unsafe extern "C" {
        safe fn memtrack_torch_device_count() -> i32;
        fn memtrack_torch_initialize(text: *mut c_char, size: usize) -> i32;
        fn memtrack_torch_backend(text: *mut c_char, size: usize) -> i32;
        fn memtrack_torch_read(device: i32, figures: *mut Figures, text: *mut c_char, size: usize) -> i32;
        fn memtrack_torch_reset_peak(device: i32, text: *mut c_char, size: usize) -> i32;
        fn memtrack_torch_empty_cache(text: *mut c_char, size: usize) -> i32;
    }

    /// Where the shim writes a text, cut to this size.
    struct Text([c_char; 1024]);

    impl Text {
        fn new() -> Self {
            Self([0; 1024])
        }

        fn place(&mut self) -> (*mut c_char, usize) {
            (self.0.as_mut_ptr(), self.0.len())
        }

        fn read(&self) -> String {
            // SAFETY: zeroed at first, and the shim ends with a zero within the size that it is told.
            unsafe { CStr::from_ptr(self.0.as_ptr()) }.to_string_lossy().into_owned()
        }
    }

    fn judge(status: i32, call: &'static str, ordinal: usize, text: &Text) -> Result<(), TorchError> {
        match status {
            status::OK => Ok(()),
            status::NO_CUDA => Err(TorchError::NoCuda),
            status::OUT_OF_RANGE => Err(TorchError::OutOfRange { ordinal, device_count: device_count() }),
            status::NOT_INITIALIZED => Err(TorchError::NotInitialized { ordinal }),
            status::UNCACHED => Err(TorchError::Uncached),
            _ => Err(TorchError::Threw { call, message: text.read() }),
        }
    }

    /// As the shim takes it; a number beyond all devices stays beyond them.
    fn index(ordinal: usize) -> i32 {
        i32::try_from(ordinal).unwrap_or(i32::MAX)
    }

    pub(crate) fn initialize() -> Result<(), TorchError> {
        let mut text = Text::new();
        let (place, size) = text.place();
        // SAFETY: `place` has `size` bytes.
        let status = unsafe { memtrack_torch_initialize(place, size) };
        judge(status, "initialization", 0, &text)
    }

    pub(crate) fn empty_cache() -> Result<(), TorchError> {
        let mut text = Text::new();
        let (place, size) = text.place();
        // SAFETY: `place` has `size` bytes.
        let status = unsafe { memtrack_torch_empty_cache(place, size) };
        judge(status, "emptyCache", 0, &text)
    }

    fn device_count() -> usize {
        usize::try_from(memtrack_torch_device_count()).unwrap_or(0)
    }

    impl Allocator for Libtorch {
        fn backend(&self) -> Result<Backend, TorchError> {
            let mut text = Text::new();
            let (place, size) = text.place();
            // SAFETY: `place` has `size` bytes.
            let status = unsafe { memtrack_torch_backend(place, size) };
            judge(status, "name", 0, &text)?;
            Ok(Backend::named(&text.read()))
        }

        fn read(&self, ordinal: usize) -> Result<Figures, TorchError> {
            let (mut figures, mut text) = (Figures::default(), Text::new());
            let (place, size) = text.place();
            // SAFETY: `place` has `size` bytes, and `figures` is laid out as the shim's struct.
            let status = unsafe { memtrack_torch_read(index(ordinal), &mut figures, place, size) };
            judge(status, "getDeviceStats", ordinal, &text)?;
            Ok(figures)
        }

        fn reset_peak(&self, ordinal: usize) -> Result<(), TorchError> {
            let mut text = Text::new();
            let (place, size) = text.place();
            // SAFETY: `place` has `size` bytes.
            let status = unsafe { memtrack_torch_reset_peak(index(ordinal), place, size) };
            judge(status, "resetPeakStats", ordinal, &text)
        }
    }
}

#[cfg(feature = "doc-only")]
pub(crate) use unlinked::{empty_cache, initialize};

/// Without libtorch nothing can be asked.
#[cfg(feature = "doc-only")]
mod unlinked {
    use super::*;

    pub(crate) fn initialize() -> Result<(), TorchError> {
        Err(TorchError::NotLinked)
    }

    pub(crate) fn empty_cache() -> Result<(), TorchError> {
        Err(TorchError::NotLinked)
    }

    impl Allocator for Libtorch {
        fn backend(&self) -> Result<Backend, TorchError> {
            Err(TorchError::NotLinked)
        }

        fn read(&self, _: usize) -> Result<Figures, TorchError> {
            Err(TorchError::NotLinked)
        }

        fn reset_peak(&self, _: usize) -> Result<(), TorchError> {
            Err(TorchError::NotLinked)
        }
    }
}
