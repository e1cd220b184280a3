//! The functions of `memtrack_peers.h`, where they are described.
//!
//! Each returns [`Code::Done`] or why not; the words are kept for `memtrack_peers_message`.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt::Display;
use std::ptr;

use memtrack::AllocationError;
use memtrack::device::Stream;

use crate::Peer;

/// What a function returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// Done.
    Done = 0,
    /// The device or the limit allows no more.
    OutOfMemory = 1,
    /// The argument is none: a text that is malformed, an address that was not allocated.
    Invalid = 2,
    /// The GPU or its driver.
    Device = 3,
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

fn fail(code: Code, error: &dyn Display) -> c_int {
    // Texts have no zeros; one that does is left out.
    MESSAGE.with(|message| *message.borrow_mut() = CString::new(error.to_string()).unwrap_or_default());
    code as c_int
}

fn answer(outcome: Result<(), AllocationError>) -> c_int {
    match outcome {
        Ok(()) => Code::Done as c_int,
        Err(error @ AllocationError::OutOfMemory(_)) => fail(Code::OutOfMemory, &error),
        Err(error @ AllocationError::InvalidPointer { .. }) => fail(Code::Invalid, &error),
        Err(error) => fail(Code::Device, &error),
    }
}

/// What the last call on this thread that failed has to say; good until the next one.
#[unsafe(no_mangle)]
pub extern "C" fn memtrack_peers_message() -> *const c_char {
    MESSAGE.with(|message| message.borrow().as_ptr())
}

/// Opens an allocator on the first GPU.
///
/// # Safety
///
/// `configuration` is a text that ends in zero, and `peer` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtrack_peers_open(configuration: *const c_char, peer: *mut *mut Peer) -> c_int {
    // SAFETY: the caller's promise.
    let configuration = unsafe { CStr::from_ptr(configuration) }.to_string_lossy();
    match Peer::open(&configuration) {
        Ok(opened) => {
            // SAFETY: the caller's promise.
            unsafe { peer.write(Box::into_raw(Box::new(opened))) };
            Code::Done as c_int
        }
        Err(error @ (crate::PeerError::Configuration(_) | crate::PeerError::Setting(_))) => fail(Code::Invalid, &error),
        Err(error) => fail(Code::Device, &error),
    }
}

/// Closes it and gives all its memory back.
///
/// # Safety
///
/// `peer` came from [`memtrack_peers_open`] and is not used again; null is accepted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtrack_peers_close(peer: *mut Peer) {
    if !ptr::eq(peer, ptr::null_mut()) {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(peer) });
    }
}

/// Makes a stream that the allocator knows.
///
/// # Safety
///
/// `peer` is open, and `stream` a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtrack_peers_new_stream(peer: *const Peer, stream: *mut u64) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { &*peer }.new_stream() {
        Ok(made) => {
            // SAFETY: the caller's promise.
            unsafe { stream.write(made.0) };
            Code::Done as c_int
        }
        Err(error) => fail(Code::Device, &error),
    }
}

/// Allocates.
///
/// # Safety
///
/// `peer` is open, and `address` a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtrack_peers_allocate(
    peer: *const Peer,
    bytes: u64,
    stream: u64,
    address: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let allocated = unsafe { &*peer }.allocator().allocate_raw(bytes, Stream(stream));
    // SAFETY: the caller's promise.
    answer(allocated.map(|allocated| unsafe { address.write(allocated) }))
}

/// Frees.
///
/// # Safety
///
/// `peer` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtrack_peers_free(peer: *const Peer, address: u64) -> c_int {
    // SAFETY: the caller's promise.
    answer(unsafe { &*peer }.allocator().free_raw(address))
}

/// Gives cached memory back.
///
/// # Safety
///
/// `peer` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtrack_peers_trim(peer: *const Peer) -> c_int {
    // SAFETY: the caller's promise.
    answer(unsafe { &*peer }.allocator().empty_cache().map_err(AllocationError::from))
}

/// The most bytes taken from the device since the last reset of peaks.
///
/// # Safety
///
/// `peer` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtrack_peers_reserved_peak(peer: *const Peer) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { &*peer }.allocator().max_memory_reserved()
}

/// Sets peaks to the values now.
///
/// # Safety
///
/// `peer` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtrack_peers_reset_peaks(peer: *const Peer) {
    // SAFETY: the caller's promise.
    unsafe { &*peer }.allocator().reset_peak_memory_stats();
}
