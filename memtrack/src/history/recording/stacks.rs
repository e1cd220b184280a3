//! Call sites: stored as addresses, each distinct stack once, and named when a history is read, each address once.
//!
//! Walking a stack costs a microsecond or more and naming an address a hundred times that, so names are left for later.
//! Which frames are shown: none of memtrack's own, which are innermost, and none outside the marks that the standard
//! library leaves around `main` and around a thread's function.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use crate::history::options::Stacks;
use crate::history::snapshot::{Frame, Frames};
use crate::sync::lock;

/// The most frames kept of a stack, innermost first.
const MAX_DEPTH: usize = 128;

/// A call site, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StackId(u32);

impl StackId {
    /// No call site.
    pub const NONE: Self = Self(0);
}

impl Default for StackId {
    fn default() -> Self {
        Self::NONE
    }
}

/// All call sites of a recorder. Blocks refer to them, so they stay when a history is cleared.
#[derive(Default)]
pub(super) struct CallSites {
    table: Mutex<Table>,
    /// The frames of each address that was ever resolved: several where functions were inlined. Apart from the table, so
    /// that nobody who records waits for names.
    names: Mutex<HashMap<usize, Arc<[Frame]>>>,
}

#[derive(Default)]
struct Table {
    ids: HashMap<Arc<[usize]>, StackId>,
    /// From number 1.
    stacks: Vec<Arc<[usize]>>,
}

impl CallSites {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Where this thread is.
    #[inline(never)]
    pub(super) fn capture(&self) -> StackId {
        let mut addresses = [0; MAX_DEPTH];
        let mut depth = 0;
        backtrace::trace(|frame| {
            addresses[depth] = frame.ip() as usize;
            depth += 1;
            depth < MAX_DEPTH
        });
        let stack = &addresses[..depth];
        let mut table = lock(&self.table);
        if let Some(id) = table.ids.get(stack) {
            return *id;
        }
        let Ok(number) = u32::try_from(table.stacks.len() + 1) else { return StackId::NONE };
        let (id, stack) = (StackId(number), Arc::from(stack));
        table.stacks.push(Arc::clone(&stack));
        table.ids.insert(stack, id);
        id
    }

    /// The frames of a call site, innermost first.
    pub(super) fn resolve(&self, stack: StackId, stacks: Stacks) -> Option<Frames> {
        let index = (stack.0 as usize).checked_sub(1)?;
        let addresses = Arc::clone(lock(&self.table).stacks.get(index)?);
        let mut names = lock(&self.names);
        let mut frames = Vec::new();
        for address in &*addresses {
            frames.extend_from_slice(names.entry(*address).or_insert_with(|| name(*address)));
        }
        Some(shown(&frames, stacks).into())
    }

    pub(super) fn resolved_address_count(&self) -> usize {
        lock(&self.names).len()
    }
}

/// The functions at an address, innermost first; one without a name where there is no symbol.
fn name(address: usize) -> Arc<[Frame]> {
    let mut frames = Vec::new();
    backtrace::resolve(address as *mut c_void, |symbol| {
        // `#` leaves out the hash that the compiler adds.
        let name = symbol.name().map_or_else(|| format!("{address:#x}"), |name| format!("{name:#}"));
        let filename = symbol.filename().map_or_else(|| "??".into(), |path| path.to_string_lossy());
        frames.push(Frame::new(name, &*filename, symbol.lineno().map_or(0, i64::from)));
    });
    if frames.is_empty() {
        frames.push(Frame::new(format!("{address:#x}"), "??", 0));
    }
    frames.into()
}

/// The frames of a stack that say something about the program. A stack that would have none is shown as it is.
fn shown(frames: &[Frame], stacks: Stacks) -> Vec<Frame> {
    let outer = frames.iter().position(|frame| frame.name.contains("__rust_begin_short_backtrace"));
    let within = &frames[..outer.unwrap_or(frames.len())];
    // The standard library's frames between memtrack's own go with them; those around a caller's closure stay.
    let machinery = within.iter().take_while(|frame| is_own(frame) || is_standard(frame)).count();
    let own = within[..machinery].iter().rposition(is_own).map_or(0, |last| last + 1);
    let outside = &within[own..];
    let chosen: Vec<Frame> = match stacks {
        Stacks::All => outside.to_vec(),
        Stacks::Application => outside.iter().filter(|frame| is_application(&frame.filename)).cloned().collect(),
    };
    match (chosen.is_empty(), outside.is_empty()) {
        (false, _) => chosen,
        (true, false) => outside.to_vec(),
        (true, true) => frames.to_vec(),
    }
}

/// Whether a function is of this library or of what it walks stacks with. Where debug information has only lines, the
/// name of an inlined function is without its path, and the source file tells.
fn is_own(Frame { name, filename, .. }: &Frame) -> bool {
    // Where this crate's sources were at its compilation, in the workspace or in a registry.
    const HERE: &str = file!();
    let sources = HERE.strip_suffix("history/recording/stacks.rs").unwrap_or(HERE);
    let path = filename.replace('\\', "/");
    is_of(name, &["memtrack::", "backtrace::"])
        || name.starts_with("_Unwind_")
        || path.contains(sources)
        || path.contains("/backtrace-0.")
}

fn is_standard(Frame { name, filename, .. }: &Frame) -> bool {
    is_of(name, &["std::", "core::", "alloc::"]) || filename.contains("/rustc/") || filename.contains("/rustlib/src/")
}

/// Methods of traits are named `<memtrack::Type as Trait>::method`.
fn is_of(name: &str, crates: &[&str]) -> bool {
    let path = name.trim_start_matches(['<', '&']);
    crates.iter().any(|start| path.starts_with(start))
}

/// Whether a source file is the program's: neither unknown, nor the standard library's, nor from a registry or git checkout.
fn is_application(filename: &str) -> bool {
    const FOREIGN: [&str; 4] = ["/rustc/", "/rustlib/", "/registry/src/", "/git/checkouts/"];
    let path = filename.replace('\\', "/");
    filename != "??" && !FOREIGN.iter().any(|part| path.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(name: &str, filename: &str) -> Frame {
        Frame::new(name, filename, 1)
    }

    fn names(frames: &[Frame], stacks: Stacks) -> Vec<String> {
        shown(frames, stacks).iter().map(|frame| frame.name.to_string()).collect()
    }

    #[test]
    fn machinery_inside_and_outside_the_program_is_left_out() {
        let stack = [
            frame("trace", "/home/x/.cargo/registry/src/index/backtrace-0.3.76/src/backtrace/libunwind.rs"),
            frame("capture", concat!("/home/x/", file!())),
            frame("backtrace::backtrace::trace", "/home/x/.cargo/registry/src/x/backtrace/lib.rs"),
            frame("memtrack::allocator::allocate", "memtrack/src/lib.rs"),
            frame("<memtrack::Buffer<T> as core::clone::Clone>::clone", "memtrack/src/lib.rs"),
            frame("core::ops::function::FnOnce::call_once", "/rustc/1/library/core/function.rs"),
            frame("train::forward", "src/main.rs"),
            frame("rayon::join", "/home/x/.cargo/registry/src/x/rayon/lib.rs"),
            frame("train::main", "src/main.rs"),
            frame("std::sys::backtrace::__rust_begin_short_backtrace", "/rustc/1/library/std/backtrace.rs"),
            frame("main", "??"),
        ];
        let all = ["core::ops::function::FnOnce::call_once", "train::forward", "rayon::join", "train::main"];
        assert_eq!(names(&stack, Stacks::All), all);
        assert_eq!(names(&stack, Stacks::Application), ["train::forward", "train::main"]);
        assert_eq!(names(&stack[..4], Stacks::All).len(), 4);
        assert_eq!(names(&stack[7..8], Stacks::Application), ["rayon::join"]);
    }

    #[test]
    fn one_place_is_one_stack() {
        let sites = CallSites::new();
        let captured: Vec<StackId> = (0..3).map(|_| sites.capture()).collect();
        assert!(captured.iter().all(|stack| *stack == captured[0] && *stack != StackId::NONE));
        assert_ne!(sites.capture(), captured[0]);
        assert_eq!(lock(&sites.table).stacks.len(), 2);
        assert_eq!(sites.resolve(StackId::NONE, Stacks::All), None);
        assert_eq!(sites.resolved_address_count(), 0);
        let frames = sites.resolve(captured[0], Stacks::All).unwrap();
        assert!(!frames.is_empty());
        let resolved = sites.resolved_address_count();
        assert!(resolved > 0);
        assert_eq!(sites.resolve(captured[1], Stacks::All), Some(frames));
        assert_eq!(sites.resolved_address_count(), resolved);
    }
}
