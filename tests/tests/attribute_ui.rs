//! Mistakes and what the compiler says about them, word for word.
//!
//! The words of rustc differ between releases, so the expectations hold for one toolchain only.

use std::io::Write as _;
use std::process::Command;

/// The release whose messages the `.stderr` files hold.
const TOOLCHAIN: &str = "rustc 1.95.";

#[test]
fn mistakes_are_reported_at_their_place() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(&rustc).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    let version = String::from_utf8_lossy(&version).trim().to_owned();
    if !version.starts_with(TOOLCHAIN) || version.contains("nightly") || version.contains("beta") {
        // Not by `println!`, which is not shown for a test that passes.
        let reason = format!(
            "\nSKIPPED, nothing was compared: tests/ui holds the messages of {TOOLCHAIN}x stable word for word, and \
             `{} --version` says {version:?}; run `cargo +1.95 test -p memtrack-tests --test attribute_ui`\n",
            rustc.display(),
        );
        let _ = std::io::stderr().write_all(reason.as_bytes());
        return;
    }
    trybuild::TestCases::new().compile_fail("ui/*.rs");
}
