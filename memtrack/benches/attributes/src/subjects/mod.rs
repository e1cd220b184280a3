//! The functions that are measured. Each does as good as nothing, so that what its attribute adds is all there is.

mod asynchronous;
mod synchronous;

pub use asynchronous::ASYNCHRONOUS;
pub use synchronous::SYNCHRONOUS;

use memtrack::CachingAllocator;
use memtrack::device::Simulated;
use std::sync::{Arc, LazyLock};

/// The allocator that is measured, here and by default.
pub static ALLOCATOR: LazyLock<CachingAllocator> = LazyLock::new(|| CachingAllocator::new(Arc::new(Simulated::new())));

/// What an error is in functions that can fail; they never do.
#[derive(Debug)]
pub struct Unlucky;

impl std::fmt::Display for Unlucky {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("unlucky")
    }
}

/// Whose attribute a subject has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// None: what the others are compared with.
    Plain,
    /// `tracing`.
    Tracing,
    /// `fastrace`.
    Fastrace,
    /// `hotpath`.
    Hotpath,
    /// `memtrack`.
    Memtrack,
}

/// How a function is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// It returns its value.
    Synchronous,
    /// It returns a future, which its caller polls to the end where it stands.
    Asynchronous,
    /// It returns a future, which is polled to the end behind a pointer to any future, as executors poll tasks.
    Dynamic,
}

/// A function that is measured.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// Whose attribute it has.
    pub library: Library,
    /// How it is called. Only subjects of one form can be compared.
    pub form: Form,
    /// Its attribute, and what it has to do; in its form no other has this name.
    pub name: &'static str,
    /// Calls it so many times, one after the other.
    pub call: fn(calls: u64),
}

impl Subject {
    /// Its name among all subjects.
    pub fn title(&self) -> String {
        match self.form {
            Form::Synchronous => self.name.to_owned(),
            Form::Asynchronous => format!("async {}", self.name),
            Form::Dynamic => format!("dyn async {}", self.name),
        }
    }
}

/// The name, in each form, of the subject without an attribute.
pub const PLAIN: &str = "fn";
/// The name of the one with `#[tracing::instrument]`.
pub const INSTRUMENT: &str = "instrument";
/// The name of the one with `#[tracing::instrument]` that records as many fields as `#[track_memory]` does.
pub const INSTRUMENT_AND_RECORD: &str = "instrument + record_all";

/// All subjects: synchronous ones, then asynchronous ones.
pub fn all() -> impl Iterator<Item = &'static Subject> {
    SYNCHRONOUS.iter().chain(ASYNCHRONOUS)
}

/// A subject that calls `$function` in a loop of its own.
macro_rules! subject {
    ($library:ident, $form:ident, $name:expr, $function:path) => {{
        #[inline(never)]
        fn call(calls: u64) {
            for number in 0..calls {
                let _ = ::std::hint::black_box($function(::std::hint::black_box(number)));
            }
        }
        $crate::subjects::Subject {
            library: $crate::subjects::Library::$library,
            form: $crate::subjects::Form::$form,
            name: $name,
            call,
        }
    }};
}
use subject;

/// Records what `#[track_memory]` would, in one call, on the span the caller is in.
macro_rules! record_as_many {
    () => {
        ::tracing::record_all!(
            ::tracing::Span::current(),
            mem.device = "simulated:0",
            mem.phase = "forward",
            mem.before = 0_i64,
            mem.after = 0_i64,
            mem.delta = 0_i64,
            mem.peak = 0_i64,
            mem.peak_delta = 0_i64,
            mem.allocs = 0_i64,
            mem.frees = 0_i64,
            mem.retries = 0_i64,
            mem.ooms = 0_i64,
            mem.outcome = "ok"
        )
    };
}
use record_as_many;
