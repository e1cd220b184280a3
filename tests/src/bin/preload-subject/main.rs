//! A program that knows nothing of memtrack and allocates as it is told: for the tests of the preloaded library, which run it as a
//! child. Its first argument names what it does; what it prints is for the tests to compare.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a program for tests")]

#[cfg(target_os = "linux")]
mod cached;
#[cfg(target_os = "linux")]
mod driver;
#[cfg(target_os = "linux")]
mod observed;

#[cfg(target_os = "linux")]
fn main() {
    let name = std::env::args().nth(1).expect("the first argument names what to do");
    let known = observed::run(&name) || cached::run(&name);
    assert!(known, "{name}: unknown");
}

#[cfg(not(target_os = "linux"))]
fn main() {}
