//! What is done under `MEMTRACK_PRELOAD=observe`.

use cudarc::driver::CudaContext;
use memtrack_tests::mock::Mock;

use crate::driver::{MIB, alloc, alloc_async, free, free_async, print_calls};

pub(crate) fn run(name: &str) -> bool {
    match name {
        "counts" => counts(),
        "threads" => threads(),
        "two-devices" => two_devices(),
        "fork" => fork(),
        "exit-code" => {
            let _kept = allocate_one();
            std::process::exit(37);
        }
        "quick-end" => {
            let _kept = allocate_one();
            // SAFETY: ends the process.
            unsafe { libc::_exit(5) }
        }
        "abort" => {
            let _kept = allocate_one();
            std::process::abort();
        }
        "nothing" => {}
        "leave" => leave(),
        "published" => published(),
        _ => return false,
    }
    true
}

fn allocate_one() -> (Mock, std::sync::Arc<CudaContext>) {
    let mock = Mock::exclusive();
    let context = CudaContext::new(0).unwrap();
    alloc(3 * MIB).unwrap();
    (mock, context)
}

/// Of everything a little.
fn counts() {
    let mock = Mock::exclusive();
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let handle = stream.cu_stream().addr() as u64;
    // Through cudarc's own objects: `cuMemAllocAsync`.
    let numbers: Vec<u32> = (0..1000).collect();
    let slice = stream.clone_htod(&numbers).unwrap();
    let copy = stream.clone_dtod(&slice).unwrap();
    assert_eq!(stream.clone_dtoh(&copy).unwrap(), numbers);
    drop(slice);
    let first = alloc(10 * MIB).unwrap();
    let second = alloc_async(5 * MIB, handle).unwrap();
    assert_eq!(free(first), 0);
    assert_eq!(free_async(second, handle), 0);
    assert_eq!(alloc_async(0, handle), Ok(0));
    assert_eq!(free(0), 0);
    mock.fail_above(1 << 30);
    assert_eq!(alloc(2 << 30), Err(2));
    assert_eq!(alloc_async(3 << 30, handle), Err(2));
    assert_ne!(free(0x1234_0000), 0);
    mock.fail("cuMemFree_v2", 0, 700);
    let third = alloc(MIB).unwrap();
    assert_eq!(free(third), 700);
    print_calls(&mock);
    println!("left={}", 4000 + MIB);
    println!("peak={}", 4000 + 15 * MIB);
    std::mem::forget(copy);
}

fn threads() {
    let mock = Mock::exclusive();
    let context = CudaContext::new(0).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                context.bind_to_thread().unwrap();
                for size in 1..=200 {
                    let address = alloc_async(size * 512, 0).unwrap();
                    assert_eq!(free_async(address, 0), 0);
                }
            });
        }
    });
    print_calls(&mock);
}

fn two_devices() {
    let mock = Mock::exclusive();
    mock.set_device_count(2);
    let (first, second) = (CudaContext::new(0).unwrap(), CudaContext::new(1).unwrap());
    second.bind_to_thread().unwrap();
    let on_second = alloc(7 * MIB).unwrap();
    first.bind_to_thread().unwrap();
    alloc(2 * MIB).unwrap();
    // By whatever thread and context: the block is the second device's.
    assert_eq!(free(on_second), 0);
    // Their memory would go with them.
    std::mem::forget((first, second));
}

/// The child ends as processes do, by `exit`.
fn fork() {
    std::mem::forget(allocate_one());
    // SAFETY: the child calls functions of this program only that need no lock which another thread could hold.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: ends the process.
            unsafe { libc::exit(0) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the number of a child, and a place for one number.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            println!("child={status}");
        }
    }
}

/// All memory goes with the context.
fn leave() {
    let (_mock, context) = allocate_one();
    drop(context);
}

/// Waits until figures of this process are published.
fn published() {
    let (_mock, context) = allocate_one();
    let folder = memtrack::publish::folder().unwrap();
    let find = || {
        let found = memtrack::publish::read_folder(&folder).ok()?;
        found.into_iter().find_map(|found| found.publication.ok()).filter(|found| !found.allocators.is_empty())
    };
    let found = loop {
        match find() {
            Some(found) => break found,
            None => std::thread::sleep(std::time::Duration::from_millis(20)),
        }
    };
    assert_eq!(found.pid, std::process::id());
    println!("allocators={}", found.allocators.len());
    println!("allocated={}", found.allocators[0].allocated_bytes);
    assert!(found.allocators[0].uuid.is_some());
    std::mem::forget(context);
}
