//! The functions of `memtrack_peers.h`, where they are described.
//!
//! Each returns [`Code::Done`] or why not; the words are kept for `memtrack_peers_message`.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt::Display;
use std::ptr;

use memtrack::AllocationError;
use memtrack::device::Stream;
use memtrack::scope::{Outcome, Scope};

use crate::{Peer, PeerError};

/// What a function returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// Done.
    Done = 0,
    /// The device or the limit allows no more.
    OutOfMemory = 1,
    /// The argument is none: an unknown name, an address that was not allocated.
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

/// As [`answer`], for what belongs to the peer as a whole.
fn answer_peer(outcome: Result<(), PeerError>) -> c_int {
    use PeerError::{Allocation, Configuration, DeviceVariable, Setting, Unknown};
    match outcome {
        Err(Allocation(error)) => answer(Err(error)),
        Err(error @ (Configuration(_) | Setting(_) | Unknown(_) | DeviceVariable(_))) => fail(Code::Invalid, &error),
        Err(error) => fail(Code::Device, &error),
        Ok(()) => Code::Done as c_int,
    }
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

/// Opens the allocator of a peer.
///
/// # Safety
///
/// `name` is a text that ends in zero, and `peer` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtrack_peers_open(name: *const c_char, peer: *mut *mut Peer) -> c_int {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    // SAFETY: the caller's promise.
    answer_peer(Peer::open(&name).map(|opened| unsafe { peer.write(Box::into_raw(Box::new(opened))) }))
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
    let made = unsafe { &*peer }.new_stream();
    // SAFETY: the caller's promise.
    answer_peer(made.map(|made| unsafe { stream.write(made.0) }))
}

/// Opens a scope on this thread; null for a peer without scopes.
///
/// # Safety
///
/// `peer` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtrack_peers_enter(peer: *const Peer) -> *mut Scope {
    // SAFETY: the caller's promise.
    let entered = unsafe { &*peer }.enter();
    entered.map_or(ptr::null_mut(), |scope| Box::into_raw(Box::new(scope)))
}

/// Closes it and says how many allocations were booked to it; 0 for null.
///
/// # Safety
///
/// `scope` came from [`memtrack_peers_enter`] on this thread and is not used again; null is accepted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtrack_peers_leave(scope: *mut Scope) -> i64 {
    if scope.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    let scope = unsafe { Box::from_raw(scope) };
    scope.close(Outcome::Ok).own_allocation_count
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

/// Puts a new allocator in the old one's place, with nothing cached.
///
/// # Safety
///
/// `peer` is open, nothing is allocated from it, no scope is open, and no other thread uses it meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtrack_peers_renew(peer: *mut Peer) -> c_int {
    // SAFETY: the caller's promise.
    answer_peer(unsafe { &mut *peer }.renew())
}

/// The most bytes taken from the device since the allocator was opened or renewed.
///
/// # Safety
///
/// `peer` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtrack_peers_reserved_peak(peer: *const Peer) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { &*peer }.allocator().max_memory_reserved()
}

/// Pages moved so far; -1 where the policy moves none.
///
/// # Safety
///
/// `peer` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtrack_peers_moved_pages(peer: *const Peer) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { &*peer }.moved_page_count().map_or(-1, |count| count.cast_signed())
}
