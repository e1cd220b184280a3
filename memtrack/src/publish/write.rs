//! A publication as a file.

use std::fmt::{self, Display, Write as _};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::UNIX_EPOCH;

use super::liveness::own_namespace;
use super::publication::{CONTEXT_METHODS, FORM};
use super::{Publication, PublishError, PublishedAllocator};

/// The machine's own pid namespace, fixed in Linux (`PROC_PID_INIT_INO`).
const INITIAL_NAMESPACE: &str = "pid:[4026531836]";

/// The process's number; in a container also its pid namespace's, as several containers with one folder have a process 1.
pub(super) fn file_name() -> String {
    file_name_of(std::process::id(), own_namespace().as_deref())
}

/// The name of the file of a process, by its number and its pid namespace.
pub(super) fn file_name_of(pid: u32, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) if namespace != INITIAL_NAMESPACE => {
            let number: String = namespace.chars().filter(char::is_ascii_digit).collect();
            format!("{pid}.{number}.json")
        }
        _ => format!("{pid}.json"),
    }
}

/// Replaces this process's file whole: readers see the old one or the new one.
pub(super) fn write(folder: &Path, publication: &Publication) -> Result<PathBuf, PublishError> {
    static FILES: AtomicU32 = AtomicU32::new(0);
    make_folder(folder).map_err(|error| PublishError::Folder { folder: folder.to_owned(), error })?;
    let path = folder.join(file_name());
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.join(format!(".{}.{number}.tmp", file_name()));
    // One of this name can only be left from a process of this number that was killed here.
    let _ = fs::remove_file(&temporary);
    let written = new_file(&temporary)
        .and_then(|mut file| file.write_all(text(publication).as_bytes()))
        .and_then(|()| fs::rename(&temporary, &path));
    match written {
        Ok(()) => Ok(path),
        Err(error) => {
            let _ = fs::remove_file(&temporary);
            Err(PublishError::File { path, error })
        }
    }
}

pub(super) fn remove(path: &Path) -> Result<(), PublishError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(PublishError::File { path: path.to_owned(), error })
        }
        _ => Ok(()),
    }
}

fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => io::Error::new(io::ErrorKind::NotADirectory, "it is there and is no folder"),
        _ => error,
    })
}

/// Fails where a file or a link of that name is there: it is not ours.
fn new_file(path: &Path) -> io::Result<fs::File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

fn text(publication: &Publication) -> String {
    let Publication { pid, start_ticks, pid_namespace, program, published, allocators } = publication;
    let published_ms = published.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let mut fields = Fields::default();
    fields.put("memtrack_publication", FORM);
    fields.put("pid", pid);
    fields.optional("start_ticks", start_ticks.as_ref());
    fields.optional("pid_namespace", pid_namespace.as_deref().map(Quoted));
    fields.put("program", Quoted(program));
    fields.put("published_unix_ms", published_ms);
    let allocators: Vec<String> = allocators.iter().map(allocator_text).collect();
    fields.put("allocators", format_args!("[{}]", allocators.join(",")));
    fields.done() + "\n"
}

fn allocator_text(allocator: &PublishedAllocator) -> String {
    let mut fields = Fields::default();
    fields.put("device", Quoted(&allocator.device));
    fields.put("kind", Quoted(&allocator.kind.to_string()));
    fields.put("model", Quoted(&allocator.model));
    fields.optional("uuid", allocator.uuid.map(|uuid| format!("\"{uuid}\"")));
    fields.optional("pci_address", allocator.pci_address.map(|address| format!("\"{address}\"")));
    fields.put("allocated_bytes", allocator.allocated_bytes);
    fields.put("requested_bytes", allocator.requested_bytes);
    fields.put("reserved_bytes", allocator.reserved_bytes);
    fields.put("peak_allocated_bytes", allocator.peak_allocated_bytes);
    fields.put("peak_reserved_bytes", allocator.peak_reserved_bytes);
    fields.put("inactive_split_bytes", allocator.inactive_split_bytes);
    fields.put("largest_free_block_bytes", allocator.largest_free_block_bytes);
    fields.optional("limit_bytes", allocator.limit_bytes);
    fields.put("retry_count", allocator.retry_count);
    fields.put("oom_count", allocator.oom_count);
    let context = allocator.context.as_ref();
    let method = context.and_then(|context| CONTEXT_METHODS.iter().find(|(method, _)| *method == context.method));
    fields.optional("context_bytes", context.map(|context| context.bytes));
    fields.optional("context_method", method.map(|(_, name)| Quoted(name)));
    fields.done()
}

/// A JSON object under way. Writing to a `String` cannot fail.
#[derive(Default)]
struct Fields(String);

impl Fields {
    fn put(&mut self, name: &str, value: impl Display) {
        let before = if self.0.is_empty() { "{" } else { "," };
        let _ = write!(self.0, "{before}\"{name}\":{value}");
    }

    fn optional(&mut self, name: &str, value: Option<impl Display>) {
        match value {
            Some(value) => self.put(name, value),
            None => self.put(name, "null"),
        }
    }

    fn done(self) -> String {
        self.0 + "}"
    }
}

/// Text in JSON's quotes.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for letter in self.0.chars() {
            match letter {
                '"' | '\\' => write!(f, "\\{letter}")?,
                letter if letter < ' ' => write!(f, "\\u{:04x}", u32::from(letter))?,
                letter => f.write_char(letter)?,
            }
        }
        f.write_str("\"")
    }
}
