//! cubecl's real client and memory management on a driver that is only memory: no kernel runs here, tensors are only made and dropped.
#![cfg(all(feature = "cuda", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "a test without its client can only stop")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use cubecl::Runtime as _;
use cubecl::client::ComputeClient;
use cubecl::cuda::{CudaDevice, CudaRuntime};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use memtrack::scope::{Outcome, ScopeRecord};
use memtrack::source::{MemorySource as _, PeakKind, SourceError, register_source};
use memtrack_burn_digits::source::CubeclSource;

const MIB: usize = 1 << 20;

/// Sources are the process's: one test at a time.
static TURN: Mutex<()> = Mutex::new(());

/// The client on the mock driver, which is opened under the driver's name before cubecl asks for it.
fn client() -> (MutexGuard<'static, ()>, ComputeClient<CudaRuntime>) {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let executable = std::env::current_exe().unwrap();
    let folder = executable.parent().unwrap();
    let name = "libmemtrack_mock_driver.so";
    let path: PathBuf = [folder.join(name), folder.join("deps").join(name)].into_iter().find(|it| it.exists()).unwrap();
    // SAFETY: the mock has no initialisers that do anything.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) }.unwrap();
    // cubecl keeps the addresses of its functions.
    std::mem::forget(library);
    (turn, CudaRuntime::client(&CudaDevice::new(0)))
}

fn delta(record: &ScopeRecord) -> (i64, i64) {
    let figures = &record.sources[0];
    (figures.delta_bytes().unwrap(), figures.peak_delta_bytes().unwrap())
}

#[test]
fn a_scope_has_what_was_asked_for_in_it_although_cubecl_allocates_later_and_elsewhere() {
    let (_turn, client) = client();
    let source = CubeclSource::of_this_thread("cubecl", client.clone()).on_device(0);
    let _registered = register_source(Arc::new(source)).unwrap();

    let outer = memtrack::scope("outer").unwrap();
    let inner = memtrack::scope("inner").unwrap();
    let kept = client.empty(3 * MIB);
    let record = inner.close(Outcome::Ok);
    assert_eq!(delta(&record), (3 * MIB as i64, 3 * MIB as i64));
    let figures = &record.sources[0];
    assert_eq!((figures.device, figures.peak_kind), (Some(0), PeakKind::AtBoundaries));
    assert!(figures.reserved_after_bytes >= figures.after_bytes, "{figures:?}");

    let second = memtrack::scope("second").unwrap();
    // Comes and goes between two looks, which nobody can know.
    drop(client.empty(5 * MIB));
    assert_eq!(delta(&second.close(Outcome::Ok)), (0, 0));
    drop(kept);
    assert_eq!(delta(&outer.close(Outcome::Ok)), (0, 3 * MIB as i64));
}

#[test]
fn the_stream_is_that_of_the_thread_that_made_the_source() {
    let (_turn, client) = client();
    let source = Arc::new(CubeclSource::of_this_thread("mine", client.clone()));
    let before_bytes = source.read().unwrap().current_bytes;
    let _mine = client.empty(MIB);
    let others = thread::scope(|scope| {
        let read = || {
            let others = client.empty(7 * MIB);
            let own = CubeclSource::of_this_thread("theirs", client.clone()).read().unwrap().current_bytes;
            assert_eq!(own, 7 * MIB as u64);
            assert_eq!(source.read().unwrap().current_bytes - before_bytes, MIB as u64, "read on another thread");
            others
        };
        scope.spawn(read).join().unwrap()
    });
    assert_eq!(source.read().unwrap().current_bytes - before_bytes, MIB as u64);
    drop(others);
}

#[test]
fn what_is_done_before_a_reading_is_in_it_and_its_failure_is_the_readings() {
    let (_turn, client) = client();
    let held = Mutex::new(Vec::new());
    let asking = client.clone();
    let source = CubeclSource::of_this_thread("flushed", client.clone()).after(move || {
        let mut held = held.lock().unwrap();
        if held.len() == 2 {
            return Err(SourceError::new("the GPU is gone"));
        }
        held.push(asking.empty(MIB));
        Ok(())
    });
    let first = source.read().unwrap().current_bytes;
    assert_eq!(source.read().unwrap().current_bytes - first, MIB as u64);
    assert_eq!(source.read(), Err(SourceError::new("the GPU is gone")));
}
