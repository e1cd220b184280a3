//! A look as JSON. What is not known is `null`, with the reason beside it; it is never 0.

use std::time::UNIX_EPOCH;

use memtrack::driver::{NumberedBy, ProcessBytes, QueryFailure};
use memtrack::publish::PublishedAllocator;
use serde_json::{Map, Value, json};

use super::account::context_of;
use super::{Account, DeviceLook, Look, LookError, ProcessLook};

/// The number of the form, raised when a key changes its meaning or goes; new keys do not raise it.
pub(crate) const SCHEMA_VERSION: u32 = 1;

pub(super) fn without_devices(error: &LookError) -> Value {
    json!({ "schema_version": SCHEMA_VERSION, "devices": null, "devices_unknown": error.to_string() })
}

pub(super) fn look(look: &Look) -> Value {
    let unreadable =
        look.unreadable.iter().map(|(path, reason)| json!({ "file": path.to_string_lossy(), "reason": reason }));
    let unmatched = look.unmatched.iter().map(
        |(publication, reason)| json!({ "pid": publication.pid, "program": publication.program, "reason": reason }),
    );
    json!({
        "schema_version": SCHEMA_VERSION,
        "unix_ms": look.time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
        "driver_version": look.driver_version,
        "mask": look.mask_end.to_string(),
        "devices": look.devices.iter().map(|found| device(look, found)).collect::<Vec<_>>(),
        "published": {
            "folder": look.folder.to_string_lossy(),
            "unreadable": unreadable.collect::<Vec<_>>(),
            "unmatched": unmatched.collect::<Vec<_>>(),
            "ended_count": look.ended_count,
        },
    })
}

fn device(look: &Look, device: &DeviceLook) -> Value {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| {
        object.insert(key.to_owned(), value);
    };
    put("index", device.index.into());
    put("mig_index", device.mig_index.into());
    for (key, said) in [("uuid", &device.uuid), ("name", &device.name), ("pci_bus_id", &device.pci_bus_id)] {
        put(key, said.as_ref().ok().cloned().into());
        put(&format!("{key}_unknown"), reason(said).into());
    }
    put("mig_mode", device.mig_mode.into());
    let cuda = device.cuda.map(|cuda| json!({ "ordinal": cuda.ordinal, "by": numbered_by(cuda.by) }));
    put("cuda", cuda.into());
    let memory = device.memory.as_ref().ok().map(|memory| {
        json!({
            "query": memory.query.to_string(),
            "total_bytes": memory.total_bytes,
            "used_bytes": memory.used_bytes,
            "free_bytes": memory.free_bytes,
            "driver_reserved_bytes": memory.driver_reserved_bytes,
            "driver_reserved_unknown": memory.driver_reserved_bytes.is_none().then_some("part of used_bytes in this query"),
        })
    });
    put("memory", memory.into());
    put("memory_unknown", reason(&device.memory).into());
    let system = device.system_memory.map(|system| {
        json!({
            "total_bytes": system.total_bytes,
            "available_bytes": system.available_bytes,
            "source": "the machine's memory, which the device shares",
        })
    });
    put("system_memory", system.into());
    put("used", device.account.as_ref().map(account).into());
    let processes = device.list_failure.is_none() || !device.processes.is_empty();
    let processes = processes.then(|| device.processes.iter().map(|found| process(look, found)).collect::<Vec<_>>());
    put("processes", processes.into());
    put("processes_unknown", device.list_failure.as_ref().map(ToString::to_string).into());
    put("processes_complete", device.list_is_complete.into());
    object.into()
}

fn account(account: &Account) -> Value {
    let lines = account.lines.iter().map(|line| {
        let value = json!({
            "bytes": line.bytes,
            "unknown": line.unknown,
            "source": line.source.to_string(),
            "exactness": line.exactness.to_string(),
        });
        (line.kind.name().replace(' ', "_"), value)
    });
    let mut object: Map<String, Value> = lines.collect();
    object.insert("bytes".to_owned(), account.used_bytes.into());
    object.into()
}

fn process(look: &Look, process: &ProcessLook) -> Value {
    let driver_bytes = process.driver.as_ref().and_then(ProcessBytes::known);
    let driver_unknown = match &process.driver {
        None => Some("the driver does not list it".to_owned()),
        Some(ProcessBytes::Unknown(reason)) => Some(reason.to_string()),
        Some(ProcessBytes::Known(_)) => None,
    };
    let context = process.publishes().then(|| context_of(process)).flatten();
    let age = process.published_at.map(|at| look.time.duration_since(at).unwrap_or_default().as_secs_f64());
    json!({
        "pid": process.pid,
        "program": process.program,
        "driver_bytes": driver_bytes,
        "driver_unknown": driver_unknown,
        "published": process.publishes().then(|| process.published.iter().map(allocator).collect::<Vec<_>>()),
        "published_age_seconds": age,
        "context_bytes": context.map(|(bytes, _, _)| bytes),
        "context_source": context.map(|(_, source, _)| source.to_string()),
        "unexplained_bytes": unexplained(process),
    })
}

/// What the driver lists for a process beyond what it reserved and its context.
pub(super) fn unexplained(process: &ProcessLook) -> Option<i64> {
    let driver_bytes = process.driver.as_ref().and_then(ProcessBytes::known)?;
    let (context_bytes, _, _) = context_of(process).filter(|_| process.publishes())?;
    let reserved_bytes = process.sum(|allocator| allocator.reserved_bytes);
    let left = i128::from(driver_bytes) - i128::from(reserved_bytes) - i128::from(context_bytes);
    i64::try_from(left).ok()
}

fn allocator(allocator: &PublishedAllocator) -> Value {
    json!({
        "device": allocator.device,
        "allocated_bytes": allocator.allocated_bytes,
        "requested_bytes": allocator.requested_bytes,
        "cached_bytes": allocator.cached_bytes(),
        "reserved_bytes": allocator.reserved_bytes,
        "peak_allocated_bytes": allocator.peak_allocated_bytes,
        "peak_reserved_bytes": allocator.peak_reserved_bytes,
        "inactive_split_bytes": allocator.inactive_split_bytes,
        "largest_free_block_bytes": allocator.largest_free_block_bytes,
        "fragmentation": allocator.fragmentation(),
        "has_limit": allocator.limit_bytes.is_some(),
        "limit_bytes": allocator.limit_bytes,
        "retry_count": allocator.retry_count,
        "oom_count": allocator.oom_count,
    })
}

fn reason<T>(said: &Result<T, QueryFailure>) -> Option<String> {
    said.as_ref().err().map(ToString::to_string)
}

pub(super) fn numbered_by(by: NumberedBy) -> &'static str {
    match by {
        NumberedBy::Uuid => "uuid in the mask",
        NumberedBy::PciOrder => "PCI order",
        NumberedBy::OnlyDevice => "only device",
        _ => "guess",
    }
}
