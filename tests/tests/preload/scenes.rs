//! Programs in C that end, close and clear things at odd times, as they would without the library. Told and left out where there is no
//! C compiler.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::child::{Ended, Folder, Preload, command, run_program};
use crate::linked::cc;

const SCENES: &str = include_str!("scenes.c");

const FUNCTIONS: &str = "cuInit cuDevicePrimaryCtxRetain cuCtxSetCurrent cuDevicePrimaryCtxReset_v2 cuMemAlloc_v2 cuMemFree_v2 \
     cuMemAllocAsync cuMemFreeAsync cuStreamCreate cuStreamDestroy_v2 cuStreamBeginCapture_v2 cuStreamEndCapture \
     cuStreamWaitEvent cuEventCreate cuEventRecord cuMemsetD8Async mock_hold_stream mock_let_stream_go mock_calls";

/// With the driver's functions in a library of its SONAME.
fn compile(folder: &Folder, name: &str, text: &str, soname: Option<&str>) -> Option<PathBuf> {
    let (stub_source, stub) = (folder.path("stub.c"), folder.path("libstub.so"));
    let functions = FUNCTIONS.split_whitespace().map(|name| format!("int {name}() {{ return 999; }}\n"));
    fs::write(&stub_source, functions.collect::<String>()).unwrap();
    cc(&[&stub, &stub_source], Some("libcuda.so.1"))?;
    let (source, built) = (folder.path(&format!("{name}.c")), folder.path(name));
    fs::write(&source, text).unwrap();
    cc(&[&built, &source, &stub, Path::new("-pthread")], soname)?;
    Some(built)
}

/// What hangs is killed, as nothing else can end it.
fn limited<'a>(scenes: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [&["-s", "KILL", "60", scenes], arguments].concat()
}

fn run_in(folder: &Folder, mode: &'static str, arguments: &[&str], more: &[(&str, &str)]) -> Option<Ended> {
    let scenes = compile(folder, "scenes", SCENES, None)?;
    let arguments = limited(scenes.to_str().unwrap(), arguments);
    Some(run_program(folder, Preload::Yes(mode), Path::new("timeout"), &arguments, more))
}

fn run(mode: &'static str, arguments: &[&str], more: &[(&str, &str)]) -> Option<Ended> {
    run_in(&Folder::new(), mode, arguments, more)
}

#[test]
fn a_process_whose_main_thread_ends_ends_with_its_last_thread() {
    let folder = Folder::new();
    let published = folder.path("published");
    let publishing = [("MEMTRACK_PUBLISH", published.to_str().unwrap())];
    for (mode, more) in [("observe", &publishing[..]), ("cache", &[]), ("cache", &publishing)] {
        let Some(ended) = run(mode, &["main-thread-ends"], more) else { return };
        let ended = ended.expect_success();
        assert_eq!(ended.number("handler"), 1, "what was registered for the end is done");
        let calls = ended.calls_on("cuda:0");
        assert_eq!((&calls["live_bytes"], &calls["calls"]["cuMemFree"]["done"]), (&(2 << 20).into(), &1.into()));
        assert_eq!(ended.errors.matches("memtrack: cuda:0, ").count(), 1, "{}", ended.errors);
        assert_eq!(ended.errors.contains("  cache: "), mode == "cache", "{}", ended.errors);
    }
}

#[test]
fn a_standard_error_that_nobody_reads_harms_nothing() {
    let folder = Folder::new();
    let Some(scenes) = compile(&folder, "scenes", SCENES, None) else { return };
    for (mode, more) in
        [("observe", &[][..]), ("cache", &[]), ("nonsense", &[]), ("cache", &[("MEMTRACK_ALLOC_CONF", "x")])]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = command(&folder, Preload::Yes(mode), &scenes, &["nothing"], more);
        // As in programs that are no Rust's: the signal ends the process.
        let output = command.stderr(writer).stdout(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
        assert!(output.status.success(), "{mode}: {}", output.status);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "buffered=1\n", "{mode}");
    }
}

#[test]
fn a_run_file_that_may_not_grow_harms_nothing() {
    let folder = Folder::new();
    let Some(scenes) = compile(&folder, "scenes", SCENES, None) else { return };
    for mode in ["observe", "cache"] {
        let arguments = ["-c", "ulimit -f 0; exec \"$0\" nothing", scenes.to_str().unwrap()];
        let ended = run_program(&folder, Preload::Yes(mode), Path::new("sh"), &arguments, &[]);
        assert_eq!(ended.status.signal(), None, "{mode}: {ended:#?}");
        assert!(ended.errors.contains("the run file cannot be written: "), "{mode}: {ended:#?}");
        assert_eq!(ended.number("buffered"), 1, "{mode}");
    }
}

#[test]
fn a_capture_that_ends_by_whatever_way_holds_no_memory_back() {
    let capacity = [("MEMTRACK_MOCK_CAPACITY_BYTES", "67108864")];
    for (how, what) in ["stream destroyed", "not joined", "as usual", "context reset", "reset before any memory"]
        .into_iter()
        .enumerate()
    {
        let Some(ended) = run("cache", &["capture-ends", &how.to_string()], &capacity) else { return };
        assert!(ended.status.success(), "{what}: {ended:#?}");
    }
}

/// A library whose beginning allocates: the loader lets no thread begin meanwhile.
const PLUGIN: &str = "
    typedef unsigned long long address;
    int cuInit(unsigned), cuDevicePrimaryCtxRetain(address *, int), cuCtxSetCurrent(address);
    int cuMemAlloc_v2(address *, unsigned long), cuMemFree_v2(address);
    __attribute__((constructor)) static void begin(void) {
        address context, given;
        cuInit(0);
        cuDevicePrimaryCtxRetain(&context, 0);
        cuCtxSetCurrent(context);
        if (!cuMemAlloc_v2(&given, 1 << 20)) cuMemFree_v2(given);
    }";

#[test]
fn a_first_allocation_while_a_library_is_loaded_waits_for_nobody() {
    let folder = Folder::new();
    let Some(plugin) = compile(&folder, "plugin.so", PLUGIN, Some("plugin.so")) else { return };
    let Some(ended) = run_in(&folder, "cache", &["opens-a-library", plugin.to_str().unwrap()], &[]) else { return };
    let ended = ended.expect_success();
    assert!(ended.number("seconds") < 9, "it waited for the longest wait of all: {ended:#?}");
    assert_eq!(ended.calls_on("cuda:0")["calls"]["cuMemFree"]["done"], 1);
}

#[test]
fn an_end_in_the_middle_of_an_allocation_does_not_wait_for_it() {
    let folder = Folder::new();
    for _ in 0..5 {
        let begun = std::time::Instant::now();
        let Some(ended) = run_in(&folder, "cache", &["ends-within"], &[]) else { return };
        ended.expect_success();
        assert!(begun.elapsed().as_secs() < 9, "it waited for the longest wait of all");
    }
}

#[test]
fn a_file_that_takes_the_number_of_standard_error_gets_no_summary() {
    let folder = Folder::new();
    let data = folder.path("data");
    for mode in ["observe", "cache"] {
        let Some(ended) = run_in(&folder, mode, &["closes-standard-error", data.to_str().unwrap()], &[]) else {
            return;
        };
        assert_eq!(ended.expect_success().calls_on("cuda:0")["live_blocks"], 2);
        assert_eq!(fs::read_to_string(&data).unwrap(), "DATA");
    }
    let Some(ended) = run_in(&folder, "observe", &["redirects-standard-error", data.to_str().unwrap()], &[]) else {
        return;
    };
    ended.expect_success();
    assert!(
        fs::read_to_string(&data).unwrap().contains("memtrack: cuda:0, observed: "),
        "a log of the program's has it"
    );
}

#[test]
fn figures_of_a_process_that_takes_its_time_to_end_are_not_published_again() {
    let folder = Folder::new();
    for mode in ["observe", "cache"] {
        let published = folder.path(mode);
        let more = [("MEMTRACK_PUBLISH", published.to_str().unwrap())];
        let Some(ended) = run_in(&folder, mode, &["lingers"], &more) else { return };
        ended.expect_success();
        assert_eq!(fs::read_dir(&published).unwrap().count(), 0, "{mode}");
    }
}

#[test]
fn an_environment_that_is_cleared_is_in_force_as_it_was() {
    let settings = [("MEMTRACK_ALLOC_CONF", "policy:none")];
    let Some(ended) = run("cache", &["clears-the-environment"], &[]) else { return };
    assert_eq!(ended.expect_success().calls_on("cuda:0")["mode"], "cache");
    let Some(ended) = run("cache", &["clears-the-environment"], &settings) else { return };
    assert!(ended.expect_success().errors.contains("is not cached"), "the configuration is in force");
}

#[test]
fn a_run_file_is_where_the_program_began() {
    let folder = Folder::new();
    let Some(scenes) = compile(&folder, "scenes", SCENES, None) else { return };
    let more = [("MEMTRACK_RUN_FILE", "relative.jsonl")];
    let mut command = command(&folder, Preload::Yes("observe"), &scenes, &["changes-folder"], &more);
    assert!(command.current_dir(folder.path(".")).output().unwrap().status.success());
    assert!(folder.path("relative.jsonl").is_file());
}

#[test]
fn a_block_counts_until_its_free_is_answered() {
    let Some(ended) = run("observe", &["frees-beside"], &[]) else { return };
    assert_eq!(ended.expect_success().calls_on("cuda:0")["peak_bytes"], 200 << 20);
}

#[test]
fn a_run_file_of_the_programs_own_is_left_to_it() {
    let folder = Folder::new();
    for mode in ["observe", "cache"] {
        // The program's line is one that a reader passes over.
        let Some(ended) = run_in(&folder, mode, &["writes-the-run-file"], &[]) else { return };
        let ended = ended.expect_success();
        assert_eq!(ended.run_file.as_ref().unwrap().len(), 1, "{ended:#?}");
        let own = folder.path("run-preload.jsonl");
        let told = format!(
            "the program writes {} itself; what is told here is in {}",
            folder.path("run.jsonl").display(),
            own.display()
        );
        assert!(ended.errors.contains(&told), "{}", ended.errors);
        assert_eq!(fs::read_to_string(own).unwrap().lines().count(), 2, "{mode}");
    }
}

#[test]
fn memory_that_went_with_its_context_is_not_the_caches_at_the_end() {
    let Some(ended) = run("cache", &["reset"], &[]) else { return };
    let ended = ended.expect_success();
    assert!(ended.errors.contains("30.00 MiB at most, 30.00 MiB went with the context;"), "{}", ended.errors);
}

#[test]
fn what_could_not_be_cached_is_told_as_observed() {
    let Some(ended) = run("cache", &["nothing"], &[("MEMTRACK_ALLOC_CONF", "policy:none")]) else { return };
    let ended = ended.expect_success();
    assert!(ended.errors.contains("memtrack: cuda:0, observed: "), "{}", ended.errors);
    assert_eq!(ended.run_file.as_ref().unwrap().len(), 2, "an epoch, and the calls");
}
