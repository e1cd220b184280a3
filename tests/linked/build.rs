//! A library to link with where there is no driver: rustc makes it, of functions that fail, with the driver's SONAME. Its file has a
//! name that nobody asks the loader for, since cargo puts this folder on the loader's path.

use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

const FUNCTIONS: [&str; 7] = [
    "cuInit",
    "cuDevicePrimaryCtxRetain",
    "cuCtxSetCurrent",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemAllocAsync",
    "cuMemFreeAsync",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS")? != "linux" {
        return Ok(());
    }
    let folder = PathBuf::from(std::env::var("OUT_DIR")?);
    let mut text =
        "#![no_std]\n#[panic_handler]\nfn panic(_: &core::panic::PanicInfo<'_>) -> ! { loop {} }\n".to_owned();
    for function in FUNCTIONS {
        text += &format!("#[unsafe(no_mangle)]\nextern \"C\" fn {function}() -> u32 {{ 999 }}\n");
    }
    let source = folder.join("stub.rs");
    std::fs::write(&source, text)?;
    let mut rustc = Command::new(std::env::var_os("RUSTC").ok_or("cargo sets RUSTC")?);
    rustc.args(["--crate-type", "cdylib", "--crate-name", "stub", "--edition", "2024", "-C", "panic=abort"]);
    rustc.arg("--target").arg(std::env::var("TARGET")?);
    rustc.args(["-C", "link-arg=-Wl,-soname,libcuda.so.1", "-C", "link-arg=-nostartfiles", "-C", "link-arg=-nostdlib"]);
    rustc.arg("-o").arg(folder.join("libmemtrack_linked_stub.so")).arg(&source);
    let status = rustc.status()?;
    if !status.success() {
        return Err(format!("{rustc:?} failed: {status}").into());
    }
    println!("cargo:rustc-link-search=native={}", folder.display());
    println!("cargo:rustc-link-lib=dylib=memtrack_linked_stub");
    Ok(())
}
