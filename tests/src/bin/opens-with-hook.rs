//! A program that opens the driver through cudarc, after it has loaded the library that counts. The first argument says how.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a program for tests")]

#[cfg(target_os = "linux")]
#[path = "preload-subject/driver.rs"]
mod driver;

#[cfg(target_os = "linux")]
fn main() {
    use cudarc::driver::CudaContext;
    use driver::{MIB, alloc, alloc_async, free, free_async, print_calls};
    use memtrack_hook::LoadError;
    use memtrack_tests::mock::Mock;

    match std::env::args().nth(1).expect("the first argument says how").as_str() {
        "load" => memtrack_hook::load().unwrap(),
        "load-twice" => {
            memtrack_hook::load().unwrap();
            memtrack_hook::load().unwrap();
        }
        "cache" => {
            memtrack_hook::mode(memtrack_hook::Mode::Cache).unwrap();
            memtrack_hook::load().unwrap();
        }
        "cache-after-load" => {
            memtrack_hook::load().unwrap();
            memtrack_hook::mode(memtrack_hook::Mode::Cache).unwrap();
        }
        "without" => {}
        "too-late" => {
            let mock = Mock::exclusive();
            let _context = CudaContext::new(0).unwrap();
            drop(mock);
            assert_eq!(memtrack_hook::load(), Err(LoadError::TooLate { driver: "libcuda.so" }));
            assert_eq!(memtrack_hook::mode(memtrack_hook::Mode::Cache), Err(memtrack_hook::TooLate));
        }
        "not-found" => {
            let error = memtrack_hook::load_from("/nowhere/libmemtrack_preload.so").unwrap_err();
            assert!(matches!(error, LoadError::NotFound { .. }), "{error:?}");
        }
        "no-library" => {
            let error = memtrack_hook::load_from("/proc/self/cmdline").unwrap_err();
            let LoadError::Refused { message, .. } = &error else { panic!("{error:?}") };
            // The loader's words, which name the file.
            assert!(message.contains("/proc/self/cmdline: "), "{message}");
        }
        other => panic!("{other}: unknown"),
    }
    let mock = Mock::exclusive();
    let context = CudaContext::new(0).unwrap();
    for _ in 0..10 {
        let (first, second) = (alloc(3 * MIB).unwrap(), alloc_async(MIB, 0).unwrap());
        assert_eq!((free(first), free_async(second, 0)), (0, 0));
    }
    alloc(5 * MIB).unwrap();
    print_calls(&mock);
    std::mem::forget(context);
}

#[cfg(not(target_os = "linux"))]
fn main() {}
