//! Links the library so that it stands in for the driver: its SONAME is the name that programs ask the loader for, and it depends on
//! the driver's own library, in which the loader finds every function that is not here.
//!
//! The driver need not be installed where this is built. A stub of the same SONAME, made by rustc itself, is linked in its place, so no
//! C compiler is asked for.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the loader is told to look for.
const DRIVER: &str = "libcuda.so.1";

/// A library needs a panic handler and nothing else.
const STUB: &str = "#![no_std]\n\
                    #[panic_handler]\n\
                    fn panic(_: &core::panic::PanicInfo<'_>) -> ! { loop {} }\n";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_OS")? != "linux" {
        return Ok(());
    }
    let folder = PathBuf::from(env::var("OUT_DIR")?);
    let stub = build_stub(&folder)?;
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
    // Its functions are called when the process ends.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Nothing of the stub is used by name, and linkers drop such libraries unless told otherwise.
    let stub = stub.display();
    println!("cargo:rustc-cdylib-link-arg=-Wl,--push-state,--no-as-needed,{stub},--pop-state");
    Ok(())
}

fn build_stub(folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let (source, stub) = (folder.join("driver_stub.rs"), folder.join(DRIVER));
    std::fs::write(&source, STUB)?;
    let mut rustc = Command::new(env::var_os("RUSTC").ok_or("cargo sets RUSTC")?);
    rustc.args(["--crate-type", "cdylib", "--crate-name", "driver_stub", "--edition", "2024", "-C", "panic=abort"]);
    rustc.arg("--target").arg(env::var("TARGET")?);
    rustc.arg("-C").arg(format!("link-arg=-Wl,-soname,{DRIVER}"));
    // Neither the C library nor its start-up code: the stub has no code that needs them.
    rustc.args(["-C", "link-arg=-nostartfiles", "-C", "link-arg=-nostdlib"]);
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut argument = std::ffi::OsString::from("linker=");
        argument.push(linker);
        rustc.arg("-C").arg(argument);
    }
    rustc.arg("-o").arg(&stub).arg(&source);
    let status = rustc.status()?;
    if !status.success() {
        return Err(format!("{rustc:?} failed: {status}; a linker for shared libraries is needed").into());
    }
    Ok(stub)
}
