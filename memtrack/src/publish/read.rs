//! What others published. Files may be anybody's: nothing in them is trusted.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use super::publication::{CONTEXT_METHODS, FORM};
use super::write::file_name_of;
use super::{Liveness, Publication, PublishedAllocator, ReadError};
use crate::device::{DeviceKind, DeviceUuid, PciAddress};
use crate::driver::ContextMemory;

/// More than any device has.
const MOST_BYTES: u64 = 1 << 60;
/// A file of a hundred allocators has 60 KiB.
const LIMIT_BYTES: u64 = 1 << 20;

/// A file in the folder.
#[derive(Debug)]
#[non_exhaustive]
pub struct Found {
    /// The file.
    pub path: PathBuf,
    /// What is in it, or why it is of no use.
    pub publication: Result<Publication, ReadError>,
}

/// All published files of a folder, by name; none where there is no such folder.
///
/// Files of processes that ended are among them, see [`Publication::liveness`].
///
/// # Errors
///
/// The folder is there and cannot be read. A file that cannot be is no error but says so in its place.
pub fn read_folder(folder: &Path) -> io::Result<Vec<Found>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.ends_with(".json") && !name.starts_with('.') {
            paths.push(path);
        }
    }
    paths.sort();
    let mut found: Vec<Found> = paths.into_iter().map(|path| Found { publication: read_file(&path), path }).collect();
    refuse_copies(&mut found);
    Ok(found)
}

/// Of files that name the same process the one with that process's name stays, else the first: the figures count once.
fn refuse_copies(found: &mut [Found]) {
    let is_named_so = |found: &Found, expected: &str| found.path.file_name().is_some_and(|name| name == expected);
    for index in 0..found.len() {
        let Ok(publication) = &found[index].publication else { continue };
        let expected = file_name_of(publication.pid, publication.pid_namespace.as_deref());
        let is_same =
            |other: &Found| other.publication.as_ref().is_ok_and(|other| other.is_of_same_process(publication));
        let mut others = found.iter().enumerate().filter(|(other, found)| *other != index && is_same(found));
        let named_so = is_named_so(&found[index], &expected);
        let is_copy = others.any(|(other, found)| is_named_so(found, &expected) || (other < index && !named_so));
        if is_copy && !named_so {
            let pid = publication.pid;
            found[index].publication = Err(ReadError::OtherName { pid, expected });
        }
    }
}

/// Reads one published file.
///
/// # Errors
///
/// [`ReadError`] says what is wrong with it.
pub fn read_file(path: &Path) -> Result<Publication, ReadError> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(ReadError::Io(io::Error::other("not a plain file")));
    }
    let mut text = String::new();
    File::open(path)?.take(LIMIT_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LIMIT_BYTES {
        return Err(ReadError::TooLarge { bytes: metadata.len(), limit_bytes: LIMIT_BYTES });
    }
    let value: Value = serde_json::from_str(&text).map_err(|error| ReadError::NotJson(error.to_string()))?;
    publication(&value)
}

/// Removes the files of processes that certainly ended; how many.
///
/// # Errors
///
/// The folder cannot be read, or a file cannot be removed.
pub fn remove_stale(folder: &Path) -> io::Result<usize> {
    let mut removed = 0;
    for found in read_folder(folder)? {
        if found.publication.is_ok_and(|publication| publication.liveness() == Liveness::Ended) {
            fs::remove_file(found.path)?;
            removed += 1;
        }
    }
    Ok(removed)
}

fn publication(value: &Value) -> Result<Publication, ReadError> {
    let form = number(value, "memtrack_publication")?;
    if form != FORM {
        return Err(ReadError::OtherForm { found: form, known: FORM });
    }
    let pid = number(value, "pid")?;
    let pid = u32::try_from(pid).map_err(|_| ReadError::Field { field: "pid", expected: "process number" })?;
    let published = UNIX_EPOCH.checked_add(Duration::from_millis(number(value, "published_unix_ms")?));
    let allocators = value["allocators"].as_array();
    let allocators = allocators.ok_or(ReadError::Field { field: "allocators", expected: "list" })?;
    Ok(Publication {
        pid,
        start_ticks: optional(value, "start_ticks")?,
        pid_namespace: value["pid_namespace"].as_str().map(str::to_owned),
        program: text(value, "program")?,
        published: published.ok_or(ReadError::Field { field: "published_unix_ms", expected: "time" })?,
        allocators: allocators.iter().map(allocator).collect::<Result<_, _>>()?,
    })
}

fn allocator(value: &Value) -> Result<PublishedAllocator, ReadError> {
    let kind = match value["kind"].as_str() {
        Some("cuda") => DeviceKind::Cuda,
        Some("host") => DeviceKind::Host,
        Some("simulated") => DeviceKind::Simulated,
        _ => return Err(ReadError::Field { field: "kind", expected: "kind of device" }),
    };
    let uuid = match value["uuid"].as_str() {
        None => None,
        Some(text) => Some(uuid(text).ok_or(ReadError::Field { field: "uuid", expected: "UUID" })?),
    };
    let pci_address = match value["pci_address"].as_str() {
        None => None,
        Some(text) => Some(pci(text).ok_or(ReadError::Field { field: "pci_address", expected: "PCI address" })?),
    };
    let (allocated_bytes, reserved_bytes) = (number(value, "allocated_bytes")?, number(value, "reserved_bytes")?);
    if allocated_bytes > reserved_bytes || reserved_bytes > MOST_BYTES {
        return Err(ReadError::Impossible { allocated_bytes, reserved_bytes });
    }
    Ok(PublishedAllocator {
        device: text(value, "device")?,
        kind,
        model: text(value, "model")?,
        uuid,
        pci_address,
        allocated_bytes,
        requested_bytes: number(value, "requested_bytes")?,
        reserved_bytes,
        peak_allocated_bytes: number(value, "peak_allocated_bytes")?,
        peak_reserved_bytes: number(value, "peak_reserved_bytes")?,
        inactive_split_bytes: number(value, "inactive_split_bytes")?,
        largest_free_block_bytes: number(value, "largest_free_block_bytes")?,
        limit_bytes: optional(value, "limit_bytes")?.filter(|bytes| *bytes != u64::MAX),
        retry_count: number(value, "retry_count")?,
        oom_count: number(value, "oom_count")?,
        context: context(value)?,
    })
}

fn context(value: &Value) -> Result<Option<ContextMemory>, ReadError> {
    let Some(bytes) = optional(value, "context_bytes")? else { return Ok(None) };
    let method = CONTEXT_METHODS.iter().find(|(_, name)| value["context_method"].as_str() == Some(name));
    let (method, _) =
        method.ok_or(ReadError::Field { field: "context_method", expected: "way to measure a context" })?;
    Ok(Some(ContextMemory::new(bytes, *method)))
}

fn number(value: &Value, field: &'static str) -> Result<u64, ReadError> {
    value[field].as_u64().ok_or(ReadError::Field { field, expected: "whole number" })
}

/// A number, or `null`; a field that is not there is a mistake.
fn optional(value: &Value, field: &'static str) -> Result<Option<u64>, ReadError> {
    match value.get(field) {
        Some(Value::Null) => Ok(None),
        _ => number(value, field).map(Some),
    }
}

fn text(value: &Value, field: &'static str) -> Result<String, ReadError> {
    value[field].as_str().map(str::to_owned).ok_or(ReadError::Field { field, expected: "text" })
}

fn uuid(text: &str) -> Option<DeviceUuid> {
    let digits: Vec<u32> =
        text.chars().filter(|letter| *letter != '-').map(|letter| letter.to_digit(16)).collect::<Option<_>>()?;
    let mut bytes = [0; 16];
    if digits.len() != 32 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::try_from(pair[0] << 4 | pair[1]).ok()?;
    }
    Some(DeviceUuid(bytes))
}

fn pci(text: &str) -> Option<PciAddress> {
    let mut parts = text.strip_suffix(".0")?.split(':').map(|part| u32::from_str_radix(part, 16).ok());
    let address = PciAddress { domain: parts.next()??, bus: parts.next()??, device: parts.next()?? };
    parts.next().is_none().then_some(address)
}
