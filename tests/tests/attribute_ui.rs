//! Mistakes and what the compiler says about them, word for word.
//!
//! The words of rustc differ between releases, so the expectations hold for one toolchain only.

use std::process::Command;

/// The release whose messages the `.stderr` files hold.
const TOOLCHAIN: &str = "rustc 1.95.";

#[test]
fn mistakes_are_reported_at_their_place() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    let version = String::from_utf8_lossy(&version).into_owned();
    if !version.starts_with(TOOLCHAIN) || version.contains("nightly") || version.contains("beta") {
        println!("skipped: the expected messages are those of {TOOLCHAIN}x stable, and this is {version}");
        return;
    }
    trybuild::TestCases::new().compile_fail("ui/*.rs");
}
