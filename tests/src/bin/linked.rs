//! A program that is linked with the driver and knows nothing of memtrack.

fn main() {
    #[cfg(target_os = "linux")]
    memtrack_tests_linked::run();
}
