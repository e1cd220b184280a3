//! What a call takes more with the library before it: a program in C, linked with a driver that does nothing, times itself with the
//! library and without it. The times are figures, no test; with an optimised library:
//!
//! ```text
//! cargo build --release -p memtrack-preload
//! MEMTRACK_PRELOAD_LIBRARY=$PWD/target/release/libmemtrack_preload.so cargo test -p memtrack-tests --test preload -- --ignored --nocapture
//! ```

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;

use crate::child::{Folder, run_program};
use crate::linked::cc;

/// A driver whose memory is a number that goes round.
const DRIVER: &str = r"
typedef unsigned long long address;
static address next;
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuMemAlloc_v2(address *place, unsigned long bytes) { next = (next + 512) & 0xfffff; *place = 0x700000000000 + next; return 0; }
int cuMemFree_v2(address given) { return 0; }
int cuMemAllocAsync(address *place, unsigned long bytes, void *stream) { return cuMemAlloc_v2(place, bytes); }
int cuMemFreeAsync(address given, void *stream) { return 0; }
";

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
typedef unsigned long long address;
int cuInit(unsigned);
int cuMemAllocAsync(address *, size_t, void *), cuMemFreeAsync(address, void *);
int main(int count, char **arguments) {
    int rounds = atoi(arguments[1]);
    struct timespec begun, ended;
    double least = 1e9;
    cuInit(0);
    for (int turn = 0; turn < 5; turn++) {
        clock_gettime(CLOCK_MONOTONIC, &begun);
        for (int round = 0; round < rounds; round++) {
            address given;
            if (cuMemAllocAsync(&given, 4096, 0) || cuMemFreeAsync(given, 0)) return 1;
        }
        clock_gettime(CLOCK_MONOTONIC, &ended);
        double took = (ended.tv_sec - begun.tv_sec) * 1e9 + (ended.tv_nsec - begun.tv_nsec);
        if (took < least) least = took;
    }
    printf("picoseconds=%.0f\n", least * 1000 / rounds / 2);
    return 0;
}
"#;

/// Builds both; `None` without a compiler.
fn build(folder: &Folder) -> Option<PathBuf> {
    let (driver_source, source) = (folder.path("driver.c"), folder.path("program.c"));
    fs::write(&driver_source, DRIVER).unwrap();
    fs::write(&source, PROGRAM).unwrap();
    let (driver, program) = (folder.path("libcuda.so.1"), folder.path("program"));
    fs::remove_file(&driver).unwrap();
    cc(&[&driver, &driver_source], Some("libcuda.so.1"))?;
    cc(&[&program, &source, &driver], None)?;
    Some(program)
}

#[test]
fn what_the_driver_calls_itself_is_not_counted() {
    let folder = Folder::new();
    let Some(program) = build(&folder) else { return };
    let ended = run_program(&folder, "observe", &program, &["10"], &[]).expect_success();
    let calls = &ended.calls_on("cuda:0")["calls"];
    assert_eq!((&calls["cuMemAllocAsync"]["done"], &calls["cuMemAlloc"]["done"]), (&json!(50), &json!(0)));
}

#[test]
#[ignore = "prints times, and compares nothing"]
fn overhead() {
    const ROUNDS: &str = "5000000";
    let folder = Folder::new();
    let Some(program) = build(&folder) else { return };
    let alone = Command::new(&program).arg(ROUNDS).env("LD_LIBRARY_PATH", folder.path("")).output().unwrap();
    let alone = String::from_utf8(alone.stdout).unwrap();
    let alone: f64 = alone.trim().trim_start_matches("picoseconds=").parse().unwrap();
    for mode in ["off", "observe"] {
        let ended = run_program(&folder, mode, &program, &[ROUNDS], &[]).expect_success();
        assert_eq!(mode == "observe", ended.run_file.is_some());
        let with = ended.number("picoseconds") as f64;
        let (alone, with, more) = (alone / 1000.0, with / 1000.0, (with - alone) / 1000.0);
        println!("{mode}: {with:.1} ns a call, alone {alone:.1} ns: {more:.1} ns more");
    }
}
