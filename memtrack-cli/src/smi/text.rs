//! A look as text for people.

use std::fmt::Write as _;
use std::time::Duration;

use memtrack::driver::{IdleContexts, MaskEnd, NumberedBy, ProcessBytes, ProcessMemory, QueryFailure, comparable};
use memtrack::plain_text::{columns, padded, shown, shown_name};
use memtrack::units::Bytes;

use super::account::context_of;
use super::json::unexplained;
use super::{Account, DeviceLook, Look, ProcessLook};

/// Published figures older than this are said to be old.
const OLD: Duration = Duration::from_secs(300);

/// The look, with what changed since the former one. Writing to a `String` cannot fail.
pub(super) fn look(look: &Look, former: Option<&Look>) -> String {
    let mut text = String::new();
    let version = look.driver_version.as_deref().map_or_else(|| "unknown".to_owned(), shown);
    let _ = writeln!(text, "driver {version}");
    if look.mask_end != MaskEnd::Complete {
        let _ = writeln!(text, "CUDA_VISIBLE_DEVICES: {}", shown(&look.mask_end.to_string()));
    }
    for device in &look.devices {
        let place = (device.index, device.mig_index);
        let before = former.and_then(|former| former.devices.iter().find(|old| (old.index, old.mig_index) == place));
        text.push('\n');
        write_device(&mut text, look, device, before);
    }
    write_published(&mut text, look);
    text
}

fn write_device(text: &mut String, look: &Look, device: &DeviceLook, before: Option<&DeviceLook>) {
    let mut title = vec![device.title(), said(&device.name), said(&device.uuid), said(&device.pci_bus_id)];
    if let Some(cuda) = device.cuda {
        let guess = match (cuda.by, device.mig_mode) {
            (NumberedBy::Guess, Some(true)) => " (a guess: CUDA takes one of its MIG instances)",
            (NumberedBy::Guess, _) => " (a guess)",
            _ => "",
        };
        title.push(format!("cuda:{}{guess}", cuda.ordinal));
    }
    let _ = writeln!(text, "{}", title.join("  "));
    match &device.memory {
        Ok(memory) => {
            let (used, total, free) = (memory.used_bytes, memory.total_bytes, memory.free_bytes);
            let [used, total, free] = [used, total, free].map(Bytes::unsigned);
            let _ = write!(text, "  used {used} of {total}, free {free}  ({}", memory.query);
            let _ = match memory.driver_reserved_bytes {
                Some(0) => writeln!(text, ")"),
                Some(bytes) => writeln!(text, ", {} reserved by the driver apart)", Bytes::unsigned(bytes)),
                None => writeln!(text, ", what the driver reserves is in used)"),
            };
        }
        Err(failure) => {
            let _ = writeln!(text, "  used, total and free unknown: {}", shown(&failure.to_string()));
        }
    }
    if let Some(system) = device.system_memory {
        let [total, available] = [system.total_bytes, system.available_bytes].map(Bytes::unsigned);
        let _ = writeln!(text, "  the machine's memory, which it shares: {total}, {available} available");
    }
    if let Some(account) = &device.account {
        write_account(text, account);
    }
    if let Some(before) = before {
        write_change(text, before, device);
    }
    match &device.list_failure {
        Some(failure) => {
            let _ = writeln!(text, "  processes unknown: {}", shown(&failure.to_string()));
        }
        None if device.processes.is_empty() => text.push_str("  no processes listed\n"),
        None => {}
    }
    write_processes(text, &device.processes);
    for process in &device.processes {
        let age = process.published_at.and_then(|at| look.time.duration_since(at).ok());
        if let Some(age) = age.filter(|age| *age > OLD) {
            let _ =
                writeln!(text, "  process {} published its figures {} minutes ago", process.pid, age.as_secs() / 60);
        }
    }
}

fn write_account(text: &mut String, account: &Account) {
    let mut rows = Vec::new();
    for (line, sign) in account.lines.iter().zip(["=", "+", "+", "+", "+"]) {
        let bytes = line.bytes.map_or_else(|| "unknown".to_owned(), |bytes| Bytes(bytes).to_string());
        let exactness = line.unknown.as_deref().map_or_else(|| line.exactness.to_string(), shown);
        rows.push([format!("{sign} {}", line.kind), bytes, line.source.to_string(), exactness]);
    }
    write_table(text, &rows, [false, true, false, false]);
}

fn write_change(text: &mut String, before: &DeviceLook, device: &DeviceLook) {
    match comparable(&before.memory, &device.memory) {
        Ok((earlier, later)) => {
            let difference = |from: u64, to: u64| Bytes::unsigned(to).0 - Bytes::unsigned(from).0;
            let used = Bytes(difference(earlier.used_bytes, later.used_bytes));
            let free = Bytes(difference(earlier.free_bytes, later.free_bytes));
            let _ = writeln!(text, "  since the last look: used {used:+}, free {free:+}");
        }
        Err(why) => {
            let _ = writeln!(text, "  since the last look: unknown, {}", shown(&why.to_string()));
        }
    }
    let foreign = |device: &DeviceLook| -> Vec<ProcessMemory> {
        let foreign = device.processes.iter().filter(|process| !process.publishes());
        let figure = |process: &ProcessLook| process.driver.as_ref().and_then(ProcessBytes::known);
        foreign.map(|process| ProcessMemory::listed(process.pid, figure(process))).collect()
    };
    if let Some(idle) = IdleContexts::between(&foreign(before), &foreign(device)) {
        let _ = writeln!(text, "  {idle}");
    }
}

fn write_processes(text: &mut String, processes: &[ProcessLook]) {
    if processes.is_empty() {
        return;
    }
    let heading = ["process", "program", "driver", "allocated", "cached", "context", "unexplained", "limit"];
    let mut rows = vec![heading.map(str::to_owned)];
    for process in processes {
        let bytes =
            |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), |bytes| Bytes::unsigned(bytes).to_string());
        let published = |bytes: u64| process.publishes().then_some(bytes);
        let driver = match &process.driver {
            Some(ProcessBytes::Known(bytes)) => Bytes::unsigned(*bytes).to_string(),
            Some(ProcessBytes::Unknown(_)) => "unknown".to_owned(),
            None => "not listed".to_owned(),
        };
        let context = context_of(process).filter(|_| process.publishes()).map(|(bytes, _, _)| bytes);
        rows.push([
            process.pid.to_string(),
            process.program.as_deref().map_or_else(|| "-".to_owned(), shown_name),
            driver,
            bytes(published(process.sum(|allocator| allocator.allocated_bytes))),
            bytes(published(process.sum(memtrack::publish::PublishedAllocator::cached_bytes))),
            bytes(context),
            unexplained(process).map_or_else(|| "-".to_owned(), |bytes| Bytes(bytes).to_string()),
            limit(process),
        ]);
    }
    write_table(text, &rows, [true, false, true, true, true, true, true, true]);
}

/// What the process may reserve: the largest limit of its allocators.
fn limit(process: &ProcessLook) -> String {
    if !process.publishes() {
        return "-".to_owned();
    }
    let limits: Option<Vec<u64>> = process.published.iter().map(|allocator| allocator.limit_bytes).collect();
    match limits.and_then(|limits| limits.into_iter().max()) {
        Some(bytes) => Bytes::unsigned(bytes).to_string(),
        None => "no limit".to_owned(),
    }
}

fn write_published(text: &mut String, look: &Look) {
    let folder = shown(&look.folder.to_string_lossy());
    let notes = look
        .unreadable
        .iter()
        .map(|(path, reason)| format!("{}: {}", shown(&path.to_string_lossy()), shown(reason)))
        .chain(look.unmatched.iter().map(|(publication, reason)| {
            format!(
                "process {} ({}) publishes figures, but {reason}",
                publication.pid,
                shown_name(&publication.program)
            )
        }))
        .chain((look.ended_count > 0).then(|| match look.ended_count {
            1 => format!("1 file of a process that ended in {folder}"),
            count => format!("{count} files of processes that ended in {folder}"),
        }));
    let notes: Vec<String> = notes.collect();
    if !notes.is_empty() {
        let _ = writeln!(text, "\n{}", notes.join("\n"));
    }
}

/// Two spaces in front and between; columns as wide as their widest cell, to the right or to the left.
fn write_table<const COLUMNS: usize>(text: &mut String, rows: &[[String; COLUMNS]], to_the_right: [bool; COLUMNS]) {
    let width = |column: usize| rows.iter().map(|row| columns(&row[column])).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    for row in rows {
        let mut line = String::new();
        for ((cell, width), right) in row.iter().zip(widths).zip(to_the_right) {
            let _ = match right {
                true => write!(line, "  {:blanks$}{cell}", "", blanks = width.saturating_sub(columns(cell))),
                false => write!(line, "  {}", padded(cell, width)),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

fn said(value: &Result<String, QueryFailure>) -> String {
    value.as_deref().map_or_else(|_| "-".to_owned(), shown_name)
}
