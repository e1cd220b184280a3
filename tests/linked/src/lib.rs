//! A program that knows nothing of memtrack and is linked with the driver's library. It lies in a library of its own, as cudarc's calls
//! do in candle's programs, and is run by programs that differ in one line.
#![cfg(target_os = "linux")]
#![expect(clippy::expect_used, reason = "a program for tests")]

use std::ptr::null_mut;

use libloading::os::unix::Library;

unsafe extern "C" {
    fn cuInit(flags: u32) -> u32;
    fn cuDevicePrimaryCtxRetain(context: *mut u64, device: i32) -> u32;
    fn cuCtxSetCurrent(context: u64) -> u32;
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32;
    fn cuMemFree_v2(address: u64) -> u32;
    fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: *mut ()) -> u32;
    fn cuMemFreeAsync(address: u64, stream: *mut ()) -> u32;
}

/// Allocates 40 MiB on one stream and on any, of which a device of 64 MiB has them once.
pub fn run_out() {
    const BYTES: usize = 40 << 20;
    begin();
    let (mut first, mut second, mut third) = (0, 0, 0);
    // SAFETY: a place for one address, on the default stream.
    assert_eq!(unsafe { cuMemAllocAsync(&raw mut first, BYTES, null_mut()) }, 0);
    // SAFETY: memory that nobody uses.
    assert_eq!(unsafe { cuMemFreeAsync(first, null_mut()) }, 0);
    // SAFETY: places for one address each.
    assert_eq!(unsafe { (cuMemAlloc_v2(&raw mut second, BYTES), cuMemAlloc_v2(&raw mut third, BYTES)) }, (0, 2));
}

/// Allocates and frees, and leaves 5 MiB in one block. With an argument, the path of a shared library with a function `rounds` that
/// calls the driver too, it calls that as well.
pub fn run() {
    begin();
    for _ in 0..100 {
        let (mut first, mut second) = (0, 0);
        // SAFETY: places for one address each.
        assert_eq!(unsafe { cuMemAlloc_v2(&raw mut first, 3 << 20) }, 0);
        // SAFETY: likewise, on the default stream.
        assert_eq!(unsafe { cuMemAllocAsync(&raw mut second, 1 << 20, null_mut()) }, 0);
        // SAFETY: memory that nobody uses.
        assert_eq!(unsafe { (cuMemFree_v2(first), cuMemFreeAsync(second, null_mut())) }, (0, 0));
    }
    if let Some(library) = std::env::args().nth(1) {
        // SAFETY: a library of the tests' with this function.
        unsafe {
            let library = Library::new(library).expect("the library can be loaded");
            let rounds = library.get::<extern "C" fn() -> u32>(b"rounds\0").expect("the library has the function");
            assert_eq!(rounds(), 0);
            std::mem::forget(library);
        }
    }
    let mut left = 0;
    // SAFETY: a place for one address.
    assert_eq!(unsafe { cuMemAlloc_v2(&raw mut left, 5 << 20) }, 0);
}

fn begin() {
    let mut context = 0;
    // SAFETY: as any program of CUDA's begins, with a place for one handle.
    let answers = unsafe { (cuInit(0), cuDevicePrimaryCtxRetain(&raw mut context, 0)) };
    assert_eq!(answers, (0, 0));
    // SAFETY: a context that is held.
    assert_eq!(unsafe { cuCtxSetCurrent(context) }, 0);
}
