//! A program in C that is linked with `libcuda.so.1`, as candle's are. Told and left out where there is no C compiler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::child::{Folder, run_program};

/// The functions the program is linked with, in a library of the driver's SONAME.
const STUB: &str = "
#define STUB(name) int name() { return 999; }
STUB(cuInit) STUB(cuDevicePrimaryCtxRetain) STUB(cuCtxSetCurrent) STUB(cuMemAlloc_v2) STUB(cuMemFree_v2)
STUB(cuMemAllocAsync) STUB(cuMemFreeAsync) STUB(cuMemcpyDtoHAsync_v2) STUB(cuMemsetD8Async) STUB(cuStreamSynchronize)
";

const PROGRAM: &str = r#"
#include <stdio.h>
#include <string.h>
typedef unsigned long long address;
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuMemAlloc_v2(address *, size_t), cuMemFree_v2(address);
int cuMemAllocAsync(address *, size_t, void *), cuMemFreeAsync(address, void *), cuStreamSynchronize(void *);
int cuMemsetD8Async(address, unsigned char, size_t, void *), cuMemcpyDtoHAsync_v2(void *, address, size_t, void *);
#define CHECK(call) do { int answer = call; if (answer) { printf("%s: %d\n", #call, answer); return 1; } } while (0)
int main(void) {
    void *context;
    static unsigned char bytes[1 << 16];
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    for (int round = 0; round < 100; round++) {
        address first, second;
        CHECK(cuMemAlloc_v2(&first, 3 << 20));
        CHECK(cuMemAllocAsync(&second, sizeof bytes, 0));
        CHECK(cuMemsetD8Async(second, round, sizeof bytes, 0));
        CHECK(cuMemcpyDtoHAsync_v2(bytes, second, sizeof bytes, 0));
        CHECK(cuStreamSynchronize(0));
        for (size_t i = 0; i < sizeof bytes; i++) if (bytes[i] != round) return 2;
        CHECK(cuMemFreeAsync(second, 0));
        CHECK(cuMemFree_v2(first));
    }
    return 0;
}
"#;

pub(crate) fn cc(arguments: &[&Path], soname: Option<&str>) -> Option<()> {
    let mut command = Command::new("cc");
    if let Some(soname) = soname {
        command.args(["-shared", "-fPIC"]).arg(format!("-Wl,-soname,{soname}"));
    }
    command.args(["-w", "-O2", "-o"]).args(arguments);
    match command.output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(())
        }
        Err(error) => {
            eprintln!("left out: there is no C compiler to build a linked program with: {error}");
            None
        }
    }
}

/// Builds the program; `None` without a compiler.
pub(crate) fn build(folder: &Folder) -> Option<PathBuf> {
    let (stub_source, source) = (folder.path("stub.c"), folder.path("program.c"));
    fs::write(&stub_source, STUB).unwrap();
    fs::write(&source, PROGRAM).unwrap();
    let (stub, program) = (folder.path("libstub.so"), folder.path("program"));
    cc(&[&stub, &stub_source], Some("libcuda.so.1"))?;
    cc(&[&program, &source, &stub], None)?;
    Some(program)
}

#[test]
fn every_call_of_a_program_that_links_the_driver_is_counted() {
    let folder = Folder::new();
    let Some(program) = build(&folder) else { return };
    let ended = run_program(&folder, "observe", &program, &[], &[]).expect_success();
    let calls = ended.calls_on("cuda:0");
    for function in ["cuMemAlloc", "cuMemAllocAsync", "cuMemFree", "cuMemFreeAsync"] {
        assert_eq!(calls["calls"][function]["done"], 100, "{function}: {ended:#?}");
    }
    assert_eq!(calls["live_bytes"], 0);
    assert_eq!(calls["peak_bytes"], (3 << 20) + (1 << 16));
}
