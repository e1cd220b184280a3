//! What is noted when the library is loaded, or a program with these functions begins: the environment, which a program can empty
//! before its first CUDA call, and where standard error goes.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once, OnceLock};

use memtrack::device::Device;
use memtrack::post_mortem::{self, PostMortemOptions};
use memtrack::{CachingAllocator, Config, EnvironmentError, plain_text, publish, run_file};

use crate::place::Place;
use crate::process::{ENVIRONMENT_VARIABLE, caught};
use crate::standard_error;

const OOM_DUMP: &str = "MEMTRACK_OOM_DUMP";
const ALLOC_CONF: &str = memtrack::ENVIRONMENT_VARIABLE;

/// With their values.
static NOTED: OnceLock<Noted> = OnceLock::new();

#[derive(Debug, Default)]
struct Noted {
    variables: Vec<(&'static str, OsString)>,
    folder: Option<PathBuf>,
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    let _ = caught(note);
}

/// Done once, at the latest at the first call.
pub(crate) fn note() {
    standard_error::note();
    NOTED.get_or_init(|| {
        let names =
            [ENVIRONMENT_VARIABLE, run_file::ENVIRONMENT_VARIABLE, publish::ENVIRONMENT_VARIABLE, OOM_DUMP, ALLOC_CONF];
        let variables: Vec<_> = names.into_iter().filter_map(|name| Some((name, env::var_os(name)?))).collect();
        let folder = if variables.is_empty() { None } else { env::current_dir().ok() };
        Noted { variables, folder }
    });
}

fn noted(name: &str) -> Option<OsString> {
    let (_, value) = NOTED.get()?.variables.iter().find(|(noted, _)| *noted == name)?;
    Some(value.clone())
}

/// The variable's value, or the one that it had at the start where the program has taken it away.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).or_else(|| noted(name))
}

/// A path in a variable. One that was there from the start is meant from where the program was then.
fn path(name: &str) -> Option<PathBuf> {
    let value = variable(name).filter(|value| !value.is_empty())?;
    let is_noted = noted(name).is_some_and(|noted| noted == value);
    let folder = NOTED.get().and_then(|noted| noted.folder.as_deref()).filter(|_| is_noted);
    Some(match folder {
        Some(folder) => folder.join(value),
        None => std::path::absolute(Path::new(&value)).unwrap_or_else(|_| value.into()),
    })
}

/// Has what memtrack itself would read from the environment later settled at the first call.
pub(crate) fn settle() {
    let is_program = matches!(Place::own(), Place::Program);
    // A program that said itself where its figures go is not overruled.
    if !(is_program && publish::folder().is_some()) {
        match variable(publish::ENVIRONMENT_VARIABLE).as_deref().and_then(OsStr::to_str) {
            Some("" | "0") => {}
            Some("1") => publish::to(publish::default_folder()),
            _ => path(publish::ENVIRONMENT_VARIABLE).into_iter().for_each(publish::to),
        }
    }
    let is_taken_away = env::var_os(OOM_DUMP).is_none();
    if (is_taken_away || !is_program)
        && let Some(folder) = path(OOM_DUMP)
    {
        post_mortem::configure(Some(PostMortemOptions::new(folder)));
    }
}

/// An allocator as the environment configures it, or did at the start.
pub(crate) fn allocator(device: Arc<dyn Device>) -> Result<CachingAllocator, EnvironmentError> {
    match noted(ALLOC_CONF).filter(|_| env::var_os(ALLOC_CONF).is_none()) {
        None => CachingAllocator::from_env(device),
        Some(text) => {
            let text = text.into_string().map_err(|_| EnvironmentError::NotUnicode)?;
            Ok(CachingAllocator::with_config(device, text.parse::<Config>()?)?)
        }
    }
}

/// Whether a post-mortem may be written.
pub(crate) fn dumps() -> bool {
    variable(OOM_DUMP).is_some_and(|folder| !folder.is_empty())
}

/// Opens the run file, if there is to be one, before anything is written; once. What there is to be told of it.
///
/// A copy in a program leaves it to the program's memtrack, which may have written to it.
pub(crate) fn open_run_file() -> Option<String> {
    static ONCE: Once = Once::new();
    let mut told = None;
    ONCE.call_once(|| {
        if matches!(Place::own(), Place::Library)
            && let Some(path) = path(run_file::ENVIRONMENT_VARIABLE)
        {
            told = open(&path);
        }
    });
    told
}

fn open(path: &Path) -> Option<String> {
    let Err(error) = run_file::record_to(path) else { return None };
    let shown = |path: &Path| plain_text::shown(&path.to_string_lossy());
    if error.kind() == std::io::ErrorKind::ResourceBusy && is_open_here(path) {
        let beside = beside(path);
        match run_file::record_to(&beside) {
            Ok(()) => {
                let (own, beside) = (shown(path), shown(&beside));
                return Some(format!("  the program writes {own} itself; what is told here is in {beside}\n"));
            }
            Err(error) => {
                run_file::stop();
                return Some(format!("  the run file cannot be written: {}: {error}\n", shown(&beside)));
            }
        }
    }
    run_file::stop();
    Some(format!("  the run file cannot be written: {}: {error}\n", shown(path)))
}

/// `NAME-preload.jsonl`
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push("-preload");
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Whether this process has the file open, as a program that uses memtrack itself has.
fn is_open_here(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let number = std::process::id().to_string();
    let path = path.to_str().map_or_else(|| path.to_owned(), |text| PathBuf::from(text.replace("%p", &number)));
    let identity = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let Some(meant) = identity(&path) else { return false };
    // The thread's: those of a main thread that has ended cannot be looked at.
    let Ok(open) = std::fs::read_dir("/proc/thread-self/fd") else { return false };
    open.flatten().any(|entry| identity(&entry.path()) == Some(meant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_run_file_lies_beside_the_programs() {
        assert_eq!(beside(Path::new("/runs/a-%p.jsonl")), Path::new("/runs/a-%p-preload.jsonl"));
        assert_eq!(beside(Path::new("/runs/a")), Path::new("/runs/a-preload"));
    }
}
