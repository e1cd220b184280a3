//! What `proof/prove.py` loads into a Python with PyTorch: tch and memtrack over the same libtorch, in the same process.
//!
//! Python calls [`memtrack_tch_proof_run`] with the name of a scenario and a function of its own. That is told each reading of
//! [`TorchSource`](memtrack_tch::TorchSource) at the moment of the reading, each scope that opens, and each record; it asks PyTorch
//! there and then, and compares. Nothing is compared here.
//!
//! - `teller`: what Python is told.
//! - `watch`: the source and the spans, told of.
//! - `memory`: PyTorch's allocator, or a small imitation for a machine without a GPU.
//! - `scenarios`: what is run.
//! - `training`: the loop of `tch-digits`.

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[path = "../digits/training.rs"]
#[allow(dead_code, reason = "its loop is the other program's; here its functions are called one by one")]
mod training;

mod memory;
mod scenarios;
mod teller;
mod watch;

use teller::Callback;

/// Runs a scenario on `cuda:device`, or with -1 on the CPU with an imitation of PyTorch's allocator, and tells `callback`.
///
/// Returns 0, or 1 with a message of at most `size` bytes in `text`.
///
/// # Safety
///
/// `scenario` is a text that ends with a zero, `text` has `size` bytes, and `callback` may be called on this thread until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtrack_tch_proof_run(
    scenario: *const c_char,
    device: i32,
    callback: Callback,
    text: *mut c_char,
    size: usize,
) -> i32 {
    // SAFETY: the caller's promise.
    let scenario = unsafe { CStr::from_ptr(scenario) }.to_string_lossy();
    let run = || teller::telling(callback, || scenarios::run(&scenario, usize::try_from(device).ok()));
    let message = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => return 0,
        Ok(Err(message)) => message,
        Err(panic) => panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".to_owned()),
    };
    // SAFETY: the caller's promise.
    unsafe { write(&message, text, size) };
    1
}

/// Opens a source on `cuda:device`, and says why it cannot; nothing where it can. For what must fail.
///
/// # Safety
///
/// `text` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtrack_tch_proof_open(device: u32, text: *mut c_char, size: usize) {
    let opened = memtrack_tch::TorchSource::new(usize::try_from(device).unwrap_or(usize::MAX));
    let message = opened.err().map(|error| error.to_string()).unwrap_or_default();
    // SAFETY: the caller's promise.
    unsafe { write(&message, text, size) };
}

/// What the imitation says of itself, in the order of PyTorch's `Figures`; resets its peaks first where `reset` is not 0.
///
/// # Safety
///
/// `figures` has six places.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtrack_tch_proof_imitation(reset: i32, figures: *mut i64) {
    if reset != 0 {
        memory::imitation().reset_peak();
    }
    let told = memory::imitation().figures();
    // SAFETY: the caller's promise.
    unsafe { figures.copy_from_nonoverlapping(told.as_ptr(), told.len()) };
}

/// Limits what the imitation may reserve.
#[unsafe(no_mangle)]
pub extern "C" fn memtrack_tch_proof_limit_imitation(limit_bytes: i64) {
    memory::imitation().set_limit(limit_bytes);
}

/// Writes a text that ends with a zero, cut to `size`.
///
/// # Safety
///
/// `text` has `size` bytes.
unsafe fn write(message: &str, text: *mut c_char, size: usize) {
    let Some(longest) = size.checked_sub(1) else { return };
    let length = message.len().min(longest);
    // SAFETY: `length` is below `size`.
    unsafe {
        text.copy_from_nonoverlapping(message.as_ptr().cast(), length);
        *text.add(length) = 0;
    }
}
