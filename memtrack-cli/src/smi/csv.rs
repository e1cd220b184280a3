//! Queries in `nvidia-smi`'s form: a line of names, then a line for each device or process.
//!
//! Names, units and the marks for what is not known are `nvidia-smi`'s, so that scripts read both. MiB are whole and rounded up,
//! as there: an H200's 615.06 MiB that the driver reserves are 616.

use std::fmt::Write as _;
use std::str::FromStr;

use memtrack::driver::{PartKind, ProcessBytes, QueryFailure, QueryStatus};
use memtrack::plain_text::steers;
use memtrack::units::MIB;

use super::{DeviceLook, Format, Look, ProcessLook};

/// What `nvidia-smi` prints for what is not known.
const NOT_AVAILABLE: &str = "[N/A]";

/// A field of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GpuField {
    /// NVML's index.
    Index,
    /// The UUID.
    Uuid,
    /// What a person calls it.
    Name,
    /// The PCI address.
    PciBusId,
    /// The driver's version.
    DriverVersion,
    /// How many devices there are.
    Count,
    /// Whether it is split into instances.
    MigMode,
    /// Bytes it has.
    MemoryTotal,
    /// Bytes the driver keeps.
    MemoryReserved,
    /// Bytes in use.
    MemoryUsed,
    /// Bytes free.
    MemoryFree,
    /// A part of what is used, as memtrack counts it.
    Part(PartKind),
}

/// The names as they are asked for, each with the field and its name in the first line.
const GPU_FIELDS: [(&str, GpuField, &str); 19] = [
    ("index", GpuField::Index, "index"),
    ("uuid", GpuField::Uuid, "uuid"),
    ("gpu_uuid", GpuField::Uuid, "uuid"),
    ("name", GpuField::Name, "name"),
    ("gpu_name", GpuField::Name, "name"),
    ("pci.bus_id", GpuField::PciBusId, "pci.bus_id"),
    ("gpu_bus_id", GpuField::PciBusId, "pci.bus_id"),
    ("driver_version", GpuField::DriverVersion, "driver_version"),
    ("count", GpuField::Count, "count"),
    ("mig.mode.current", GpuField::MigMode, "mig.mode.current"),
    ("memory.total", GpuField::MemoryTotal, "memory.total [MiB]"),
    ("memory.reserved", GpuField::MemoryReserved, "memory.reserved [MiB]"),
    ("memory.used", GpuField::MemoryUsed, "memory.used [MiB]"),
    ("memory.free", GpuField::MemoryFree, "memory.free [MiB]"),
    ("memtrack.allocated", GpuField::Part(PartKind::Allocated), "memtrack.allocated [MiB]"),
    ("memtrack.cached", GpuField::Part(PartKind::Cached), "memtrack.cached [MiB]"),
    ("memtrack.context", GpuField::Part(PartKind::Context), "memtrack.context [MiB]"),
    ("memtrack.other_processes", GpuField::Part(PartKind::OtherProcesses), "memtrack.other_processes [MiB]"),
    ("memtrack.unexplained", GpuField::Part(PartKind::Unexplained), "memtrack.unexplained [MiB]"),
];

/// A field of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AppField {
    /// Its number.
    Pid,
    /// The program.
    ProcessName,
    /// Its device's UUID.
    GpuUuid,
    /// Its device's PCI address.
    GpuBusId,
    /// Its device's name.
    GpuName,
    /// What the driver says it uses.
    UsedMemory,
    /// What it published as allocated.
    Allocated,
    /// What it published as reserved.
    Reserved,
}

const APP_FIELDS: [(&str, AppField, &str); 10] = [
    ("pid", AppField::Pid, "pid"),
    ("process_name", AppField::ProcessName, "process_name"),
    ("name", AppField::ProcessName, "process_name"),
    ("gpu_uuid", AppField::GpuUuid, "gpu_uuid"),
    ("gpu_bus_id", AppField::GpuBusId, "gpu_bus_id"),
    ("gpu_name", AppField::GpuName, "gpu_name"),
    ("used_memory", AppField::UsedMemory, "used_gpu_memory [MiB]"),
    ("used_gpu_memory", AppField::UsedMemory, "used_gpu_memory [MiB]"),
    ("memtrack.allocated", AppField::Allocated, "memtrack.allocated [MiB]"),
    ("memtrack.reserved", AppField::Reserved, "memtrack.reserved [MiB]"),
];

impl FromStr for GpuField {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(&GPU_FIELDS, text)
    }
}

impl FromStr for AppField {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(&APP_FIELDS, text)
    }
}

fn named<F: Copy>(fields: &[(&str, F, &str)], text: &str) -> Result<F, String> {
    let found = fields.iter().find(|(name, _, _)| *name == text.trim());
    found.map(|(_, field, _)| *field).ok_or_else(|| {
        let names: Vec<&str> = fields.iter().map(|(name, _, _)| *name).collect();
        format!("not a field; the fields are {}", names.join(", "))
    })
}

fn heading<F: PartialEq>(fields: &[(&str, F, &'static str)], field: &F) -> &'static str {
    fields.iter().find(|(_, known, _)| known == field).map_or("", |(_, _, heading)| heading)
}

/// Every GPU; MIG instances have no line, as with `nvidia-smi`, unless the GPU itself was left out.
pub(super) fn gpus(look: &Look, fields: &[GpuField], format: Option<Format>, is_first: bool) -> String {
    let format = format.unwrap_or_default();
    let mut text = String::new();
    if is_first && !format.noheader {
        line(&mut text, fields.iter().map(|field| heading(&GPU_FIELDS, field).to_owned()));
    }
    let has_gpus = look.devices.iter().any(|device| device.mig_index.is_none());
    for device in look.devices.iter().filter(|device| device.mig_index.is_none() || !has_gpus) {
        line(&mut text, fields.iter().map(|field| gpu_value(look, device, *field, format)));
    }
    text
}

/// Every process that the driver lists, of every device and instance.
pub(super) fn apps(look: &Look, fields: &[AppField], format: Option<Format>, is_first: bool) -> String {
    let format = format.unwrap_or_default();
    let mut text = String::new();
    if is_first && !format.noheader {
        line(&mut text, fields.iter().map(|field| heading(&APP_FIELDS, field).to_owned()));
    }
    for device in &look.devices {
        for process in device.processes.iter().filter(|process| process.driver.is_some()) {
            line(&mut text, fields.iter().map(|field| app_value(device, process, *field, format)));
        }
    }
    text
}

fn line(text: &mut String, values: impl Iterator<Item = String>) {
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "{}", values.collect::<Vec<_>>().join(", "));
}

fn gpu_value(look: &Look, device: &DeviceLook, field: GpuField, format: Format) -> String {
    let memory = |figure: fn(&memtrack::driver::DriverMemory) -> Option<u64>| match &device.memory {
        Ok(memory) => figure(memory).map_or_else(|| NOT_AVAILABLE.to_owned(), |bytes| mebibytes(bytes, format)),
        Err(failure) => mark(failure).to_owned(),
    };
    match field {
        GpuField::Index => device.index.to_string(),
        GpuField::Uuid => said(&device.uuid),
        GpuField::Name => said(&device.name),
        GpuField::PciBusId => said(&device.pci_bus_id),
        GpuField::DriverVersion => look.driver_version.as_deref().map_or_else(|| NOT_AVAILABLE.to_owned(), one_field),
        GpuField::Count => look.device_count.to_string(),
        GpuField::MigMode => match device.mig_mode {
            Some(true) => "Enabled".to_owned(),
            Some(false) => "Disabled".to_owned(),
            None => NOT_AVAILABLE.to_owned(),
        },
        GpuField::MemoryTotal => memory(|memory| Some(memory.total_bytes)),
        GpuField::MemoryReserved => memory(|memory| memory.driver_reserved_bytes),
        GpuField::MemoryUsed => memory(|memory| Some(memory.used_bytes)),
        GpuField::MemoryFree => memory(|memory| Some(memory.free_bytes)),
        GpuField::Part(kind) => match device.account.as_ref().and_then(|account| account.line(kind).bytes) {
            None => NOT_AVAILABLE.to_owned(),
            Some(bytes) if bytes < 0 => format!("-{}", mebibytes(bytes.unsigned_abs(), format)),
            Some(bytes) => mebibytes(bytes.unsigned_abs(), format),
        },
    }
}

fn app_value(device: &DeviceLook, process: &ProcessLook, field: AppField, format: Format) -> String {
    let published = |bytes: u64| match process.publishes() {
        true => mebibytes(bytes, format),
        false => NOT_AVAILABLE.to_owned(),
    };
    match field {
        AppField::Pid => process.pid.to_string(),
        AppField::ProcessName => process.program.as_deref().map_or_else(|| NOT_AVAILABLE.to_owned(), one_field),
        AppField::GpuUuid => said(&device.uuid),
        AppField::GpuBusId => said(&device.pci_bus_id),
        AppField::GpuName => said(&device.name),
        AppField::UsedMemory => match process.driver.as_ref().and_then(ProcessBytes::known) {
            Some(bytes) => mebibytes(bytes, format),
            None => NOT_AVAILABLE.to_owned(),
        },
        AppField::Allocated => published(process.sum(|allocator| allocator.allocated_bytes)),
        AppField::Reserved => published(process.sum(|allocator| allocator.reserved_bytes)),
    }
}

fn mebibytes(bytes: u64, format: Format) -> String {
    let unit = if format.nounits { "" } else { " MiB" };
    format!("{}{unit}", bytes.div_ceil(MIB))
}

fn said(value: &Result<String, QueryFailure>) -> String {
    value.as_deref().map_or_else(|failure| mark(failure).to_owned(), one_field)
}

fn mark(failure: &QueryFailure) -> &'static str {
    match failure.status {
        QueryStatus::NoPermission => "[Insufficient Permissions]",
        QueryStatus::DeviceLost => "[GPU is lost]",
        QueryStatus::NotSupported | QueryStatus::NotAvailable | QueryStatus::MissingFunction => NOT_AVAILABLE,
        _ => "[Unknown Error]",
    }
}

/// Names come from others: what would begin a new field or line, or move the cursor, is left out, and so is what programs that read
/// CSV take for the beginning of a quoted field; `nvidia-smi` quotes none.
fn one_field(text: &str) -> String {
    let is_left_out = |letter: char| matches!(letter, ',' | '"') || steers(letter);
    text.chars().map(|letter| if is_left_out(letter) { ' ' } else { letter }).collect()
}
