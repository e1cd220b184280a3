//! What is told at the process's end: a summary for people, and lines for the run file.

use std::fmt::Write as _;
use std::io::Write as _;

use memtrack::plain_text::counted;
use memtrack::run_file;
use memtrack::units::Bytes;

use crate::books::{Api, DeviceFigures};
use crate::cache::Cache;
use crate::process::{Mode, Process};

/// Prints the summary and writes the run file. A process that allocated nothing and freed nothing is not told of.
pub(crate) fn tell(process: &Process) {
    let devices = process.books.figures();
    if devices.is_empty() {
        return;
    }
    let mut text = String::new();
    for device in &devices {
        write_device(&mut text, process.mode, device);
    }
    let lines = devices.iter().flat_map(|device| match process.mode {
        // The epoch is memtrack's own then, with the rounded bytes and what the cache has.
        Mode::Cache => vec![calls_line(process.mode, device)],
        Mode::Off | Mode::Observe => vec![epoch_line(device), calls_line(process.mode, device)],
    });
    for line in lines {
        match run_file::write_line(&line) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                let _ = writeln!(text, "  the run file cannot be written: {error}");
                break;
            }
        }
    }
    for summary in process.cache.iter().flat_map(Cache::end) {
        text += &summary;
    }
    // In one piece, so that it stays together among others' lines. Where standard error is closed nobody reads it.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn name(device: &DeviceFigures) -> String {
    device.device.map_or_else(|| "no device".to_owned(), |number| format!("cuda:{number}"))
}

fn write_device(text: &mut String, mode: Mode, device: &DeviceFigures) {
    // Writing to a string does not fail.
    let _ = try_write_device(text, mode, device);
}

fn try_write_device(text: &mut String, mode: Mode, device: &DeviceFigures) -> std::fmt::Result {
    let size = |bytes| Bytes::unsigned(bytes);
    let (allocations, frees) = (device.done(false), device.done(true));
    writeln!(
        text,
        "memtrack: {}, {}: {}, {}, {}",
        name(device),
        match mode {
            Mode::Cache => "cached",
            Mode::Off | Mode::Observe => "observed",
        },
        counted(allocations, "allocation"),
        counted(frees, "free"),
        counted(device.failed(), "failure"),
    )?;
    writeln!(
        text,
        "  peak {}, at the end {} in {}, {} allocated in all (bytes as requested)",
        size(device.peak_bytes),
        size(device.live_bytes),
        counted(device.live_blocks, "block"),
        size(device.allocated_bytes),
    )?;
    for call in device.calls.iter().filter(|call| call.done + call.failed > 0) {
        writeln!(text, "  {:<24} {:>12} done {:>8} failed", call.api.name(), call.done, call.failed)?;
    }
    if device.out_of_memory > 0 {
        let refused = counted(device.out_of_memory, "request");
        writeln!(text, "  out of memory: {refused} refused, the largest {}", size(device.largest_refused_bytes))?;
    }
    if device.vanished_blocks > 0 {
        let blocks = counted(device.vanished_blocks, "block");
        let bytes = size(device.vanished_bytes);
        writeln!(text, "  {blocks} ({bytes}) went with the context, or by a free that was not seen")?;
    }
    if device.unknown_frees > 0 {
        let frees = counted(device.unknown_frees, "free");
        writeln!(text, "  {frees} of memory whose allocation was not seen")?;
    }
    Ok(())
}

/// The process as one epoch with one phase, so that `memtrack diff` compares two runs.
fn epoch_line(device: &DeviceFigures) -> String {
    let (process, name) = (std::process::id(), name(device));
    let DeviceFigures { live_bytes, peak_bytes, allocated_bytes, out_of_memory, .. } = device;
    let (allocations, frees) = (device.done(false), device.done(true));
    let mut line = format!(
        r#"{{"schema":"memtrack.run","version":1,"kind":"epoch","process":{process},"epoch":1,"device":"{name}","allocator":0"#
    );
    let _ = write!(
        line,
        concat!(
            r#","source":"preload","steps":0,"before_bytes":0,"after_bytes":{},"reserved_bytes":{},"ooms":{}"#,
            r#","phases":[{{"name":"other","net_bytes":{},"peak_bytes":{},"allocated_bytes":{},"allocations":{},"frees":{}}}]"#,
            r#","peak":{{"bytes":{},"phase":"other"}},"origins":[],"live":[]}}"#
        ),
        live_bytes, live_bytes, out_of_memory, live_bytes, peak_bytes, allocated_bytes, allocations, frees, peak_bytes,
    );
    line
}

/// The calls, as the driver's functions are named.
fn calls_line(mode: Mode, device: &DeviceFigures) -> String {
    let (process, name) = (std::process::id(), name(device));
    let mode = match mode {
        Mode::Cache => "cache",
        Mode::Off | Mode::Observe => "observe",
    };
    let calls = device.calls.iter().map(|call| {
        let (name, done, failed) = (Api::name(call.api), call.done, call.failed);
        format!(r#""{name}":{{"done":{done},"failed":{failed}}}"#)
    });
    let calls = calls.collect::<Vec<_>>().join(",");
    let DeviceFigures { live_bytes, live_blocks, peak_bytes, allocated_bytes, .. } = device;
    let DeviceFigures { vanished_blocks, vanished_bytes, unknown_frees, .. } = device;
    let DeviceFigures { out_of_memory, largest_refused_bytes, .. } = device;
    let mut line = format!(
        r#"{{"schema":"memtrack.run","version":1,"kind":"preload","process":{process},"device":"{name}","mode":"{mode}","calls":{{{calls}}}"#
    );
    let _ = write!(
        line,
        concat!(
            r#","live_bytes":{},"live_blocks":{},"peak_bytes":{},"allocated_bytes":{}"#,
            r#","vanished_blocks":{},"vanished_bytes":{},"unknown_frees":{},"ooms":{},"largest_refused_bytes":{}}}"#
        ),
        live_bytes,
        live_blocks,
        peak_bytes,
        allocated_bytes,
        vanished_blocks,
        vanished_bytes,
        unknown_frees,
        out_of_memory,
        largest_refused_bytes,
    );
    line
}
