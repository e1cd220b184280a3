//! What is told at the process's end: a summary for people, and lines for the run file.

use std::fmt::Write as _;

use memtrack::plain_text::counted;
use memtrack::run_file;
use memtrack::units::Bytes;

use crate::books::{Api, DeviceFigures, LiveGroup};
use crate::cache::Cache;
use crate::process::Process;
use crate::{at_load, standard_error};

/// So many groups of live blocks are told of.
const LIVE_GROUPS: usize = 5;

/// Prints the summary and writes the run file. A process that allocated nothing and freed nothing is not told of.
///
/// `is_within` says that this thread was in the middle of a call when it ended the process.
pub(crate) fn tell(process: &Process, is_within: bool) {
    let devices = process.books.figures_with_live();
    if devices.is_empty() {
        return;
    }
    let is_cached = |device: &DeviceFigures| {
        let is_served = |cache: &Cache| device.device.is_some_and(|number| cache.has_served(number));
        process.cache.as_ref().is_some_and(is_served)
    };
    let mut text = String::new();
    for device in &devices {
        write_device(&mut text, is_cached(device), device);
    }
    text += &at_load::open_run_file().unwrap_or_default();
    let lines = devices.iter().flat_map(|device| match is_cached(device) {
        // The epoch is memtrack's own then, with the rounded bytes and what the cache has.
        true => vec![calls_line(true, device)],
        false => vec![epoch_line(device), calls_line(false, device)],
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
    for summary in process.cache.iter().flat_map(|cache| cache.end(is_within)) {
        text += &summary;
    }
    standard_error::write(&text);
}

/// As [`Bytes`], and beyond its largest number too.
fn size(bytes: u64) -> String {
    /// 2^60
    const EXBI: f64 = (1_u64 << 60) as f64;
    match i64::try_from(bytes) {
        Ok(bytes) => Bytes(bytes).to_string(),
        Err(_) => format!("{:.2} EiB", bytes as f64 / EXBI),
    }
}

fn name(device: &DeviceFigures) -> String {
    device.device.map_or_else(|| "no device".to_owned(), |number| format!("cuda:{number}"))
}

fn write_device(text: &mut String, is_cached: bool, device: &DeviceFigures) {
    // Writing to a string does not fail.
    let _ = try_write_device(text, is_cached, device);
}

fn try_write_device(text: &mut String, is_cached: bool, device: &DeviceFigures) -> std::fmt::Result {
    let (allocations, frees) = (device.done(false), device.done(true));
    writeln!(
        text,
        "memtrack: {}, {}: {}, {}, {}",
        name(device),
        if is_cached { "cached" } else { "observed" },
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
    if let Some(refusal) = device.refusal {
        let requested = size(refusal.requested_bytes);
        write!(text, "    when {requested} was refused, the program held {}", size(refusal.live_bytes))?;
        match refusal.device_free_bytes {
            Some(bytes) => writeln!(text, ", and the device had {} free", size(bytes))?,
            None => writeln!(text)?,
        }
    }
    write_live(text, &device.live)?;
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

/// What the program has not freed.
fn write_live(text: &mut String, live: &[LiveGroup]) -> std::fmt::Result {
    let (told, left_out) = live.split_at(live.len().min(LIVE_GROUPS));
    if !told.is_empty() {
        writeln!(text, "  live at the end, by function and size:")?;
    }
    for group in told {
        let (name, blocks, each) = (group.api.name(), counted(group.blocks, "block"), size(group.bytes));
        match group.blocks {
            1 => writeln!(text, "    {name:<22} {blocks:>12} of {each}")?,
            _ => writeln!(text, "    {name:<22} {blocks:>12} of {each}, {} together", size(group.total_bytes()))?,
        }
    }
    if !left_out.is_empty() {
        let (sizes, blocks) = (left_out.len() as u64, left_out.iter().map(|group| group.blocks).sum());
        let bytes = left_out.iter().map(LiveGroup::total_bytes).sum();
        let (sizes, blocks, bytes) = (counted(sizes, "size"), counted(blocks, "block"), size(bytes));
        writeln!(text, "    of {sizes} more {blocks}, {bytes} together")?;
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
fn calls_line(is_cached: bool, device: &DeviceFigures) -> String {
    let (process, name) = (std::process::id(), name(device));
    let mode = if is_cached { "cache" } else { "observe" };
    let calls = device.calls.iter().map(|call| {
        let (name, done, failed) = (Api::name(call.api), call.done, call.failed);
        format!(r#""{name}":{{"done":{done},"failed":{failed}}}"#)
    });
    let calls = calls.collect::<Vec<_>>().join(",");
    let DeviceFigures { live_bytes, live_blocks, peak_bytes, allocated_bytes, .. } = device;
    let DeviceFigures { vanished_blocks, vanished_bytes, unknown_frees, .. } = device;
    let DeviceFigures { out_of_memory, largest_refused_bytes, .. } = device;
    let groups = device.live.iter().map(|LiveGroup { api, bytes, blocks }| {
        format!(r#"{{"function":"{}","bytes":{bytes},"blocks":{blocks}}}"#, api.name())
    });
    let groups = groups.collect::<Vec<_>>().join(",");
    let number = |bytes: Option<u64>| bytes.map_or_else(|| "null".to_owned(), |bytes| bytes.to_string());
    let refused_live = number(device.refusal.map(|refusal| refusal.live_bytes));
    let refused_free = number(device.refusal.and_then(|refusal| refusal.device_free_bytes));
    let mut line = format!(
        r#"{{"schema":"memtrack.run","version":1,"kind":"preload","process":{process},"device":"{name}","mode":"{mode}","calls":{{{calls}}}"#
    );
    let _ = write!(
        line,
        concat!(
            r#","live_bytes":{},"live_blocks":{},"peak_bytes":{},"allocated_bytes":{}"#,
            r#","vanished_blocks":{},"vanished_bytes":{},"unknown_frees":{},"ooms":{},"largest_refused_bytes":{}"#,
            r#","live_bytes_at_refusal":{},"device_free_bytes_at_refusal":{},"live":[{}]}}"#
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
        refused_live,
        refused_free,
        groups,
    );
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_whole_beyond_what_is_signed() {
        assert_eq!(size(3 << 20), "3.00 MiB");
        assert_eq!(size(i64::MAX as u64), "8.00 EiB");
        assert_eq!(size(u64::MAX), "16.00 EiB");
    }
}
