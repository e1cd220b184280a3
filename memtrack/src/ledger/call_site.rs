//! A place in the program whose calls are counted together, and the process's list of all such places.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sync::lock;

/// All call sites that were used so far, by number.
static REGISTERED: Mutex<Vec<&'static CallSite>> = Mutex::new(Vec::new());

/// A call site's number, the same on all devices: the first used has 1. As wide as a step's number, so that a scope's kind is
/// passed in two registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SiteId(u64);

impl SiteId {
    pub(super) fn of_index(index: usize) -> Self {
        Self(index as u64 + 1)
    }

    #[inline]
    pub(super) fn index(self) -> usize {
        self.0 as usize - 1
    }
}

/// A function or a block of the program, as one static: what [`OpenScope::open_site`](crate::scope::OpenScope::open_site)
/// counts together.
///
/// All calls of a generic function are of one site, since a static in a generic function is one for all its types.
///
/// ```
/// use memtrack::scope::CallSite;
/// static FORWARD: CallSite = CallSite::new("forward", module_path!(), file!(), line!());
/// assert_eq!(FORWARD.name(), "forward");
/// ```
pub struct CallSite {
    name: &'static str,
    module_path: &'static str,
    file: &'static str,
    line: u32,
    /// Zero until it is first used.
    id: AtomicU64,
    unmeasured_call_count: AtomicU64,
}

impl CallSite {
    /// A site that was not called yet.
    pub const fn new(name: &'static str, module_path: &'static str, file: &'static str, line: u32) -> Self {
        Self { name, module_path, file, line, id: AtomicU64::new(0), unmeasured_call_count: AtomicU64::new(0) }
    }

    /// The name of its scopes.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The module it is in.
    pub const fn module_path(&self) -> &'static str {
        self.module_path
    }

    /// The file it is in.
    pub const fn file(&self) -> &'static str {
        self.file
    }

    /// Its line in the file.
    pub const fn line(&self) -> u32 {
        self.line
    }

    /// Counts a call that is not measured, as one that was left out by sampling, so that the number of calls stays exact. One
    /// relaxed addition.
    #[inline]
    pub fn count_unmeasured(&'static self) {
        self.unmeasured_call_count.fetch_add(1, Ordering::Relaxed);
        self.id();
    }

    /// Calls that were not measured, since the program began. Such a call has chosen no device.
    pub fn unmeasured_call_count(&self) -> u64 {
        self.unmeasured_call_count.load(Ordering::Relaxed)
    }

    /// Its number, given on first use.
    #[inline]
    pub(crate) fn id(&'static self) -> SiteId {
        match self.id.load(Ordering::Relaxed) {
            0 => self.register(),
            id => SiteId(id),
        }
    }

    #[cold]
    fn register(&'static self) -> SiteId {
        let mut registered = lock(&REGISTERED);
        // Another thread may have been faster.
        let id = self.id.load(Ordering::Relaxed);
        if id != 0 {
            return SiteId(id);
        }
        let id = SiteId::of_index(registered.len());
        registered.push(self);
        self.id.store(id.0, Ordering::Relaxed);
        id
    }

    pub(crate) fn of_id(id: SiteId) -> Option<&'static Self> {
        lock(&REGISTERED).get(id.index()).copied()
    }

    /// The unmeasured calls of every site so far, by number.
    pub(super) fn unmeasured_call_counts() -> Vec<u64> {
        lock(&REGISTERED).iter().map(|site| site.unmeasured_call_count()).collect()
    }
}

impl fmt::Debug for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{} ({}:{})", self.module_path, self.name, self.file, self.line)
    }
}
