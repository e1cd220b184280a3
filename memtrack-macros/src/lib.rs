//! The `#[track_memory]` attribute of memtrack; use it through the `memtrack` crate, which re-exports it.
//!
//! The way of one use through this crate: `args` reads the attribute's options, `function` the annotated function,
//! `check` refuses what cannot work, and `expand_sync` or `expand_async` writes the function anew around its
//! untouched body. Mistakes are collected in `errors`, so that one compilation reports all of them.
#![forbid(unsafe_code)]

mod args;
mod arguments;
mod check;
mod early_return;
mod errors;
mod expand;
mod expand_async;
mod expand_future;
mod expand_sync;
mod fields;
mod function;
mod inspection;
mod items;
mod level;
mod limit;
mod lists;
mod prologue;
mod reaction;
mod report;
mod signature;
mod site;
mod suggest;
mod text;
mod values;

use proc_macro::TokenStream;

/// Measures a function: what it allocates and frees, how high memory rises meanwhile, and how it ends.
///
/// Each call opens a tracing span and a memory scope. When the call ends, the scope's figures are recorded on the span,
/// all at once: `mem.device`, `mem.phase`, `mem.before`, `mem.after`, `mem.delta`, `mem.peak` (absolute),
/// `mem.peak_delta` (above `mem.before`), `mem.allocs`, `mem.frees`, `mem.retries`, `mem.ooms` and `mem.outcome`. Bytes
/// and counts are `i64`. What the call owns is freed before the figures are read: its arguments, those bound to `_`, a
/// `self` taken by value, and the temporaries of its last expression.
///
/// Works on functions and methods, generic or not, synchronous or `async`. An `async fn` is measured from its first
/// poll until it completes or is dropped; a future that is never polled leaves no span. Arguments are not recorded
/// unless `args`, `skip` or `fields` names them, and need no `Debug`.
///
/// # What the figures count
///
/// They are the **device's** during the call, whoever caused them: what other threads and tasks allocate and free
/// meanwhile is in `mem.before`, `mem.after`, `mem.delta`, `mem.peak`, `mem.peak_delta`, `mem.allocs`, `mem.frees`,
/// `mem.retries` and `mem.ooms` too, and so is what runs between the polls of an `async fn`. That answers how full the
/// device was while the call ran, and not how much of it the call took. What the call's own threads and tasks did is
/// shown by `only(self)`, in requested bytes: `mem.self.delta` (allocated in the call and not freed), `mem.self.peak`
/// and `mem.self.allocs`. Budgets are held against these.
///
/// # Options
///
/// All are optional, in any order, each at most once. `docs/attribute.md` has an example of each, run as a test.
///
/// | option | meaning | without it |
/// |---|---|---|
/// | `name = "…"`, or only `"…"` | the span's and the scope's name: a [constant text](#constants) | the function's name |
/// | `target = "…"` | the span's target: a [constant text](#constants) | the module's path |
/// | `level = "debug"` | the span's level: a name, a number from 1 (trace) to 5 (error), or the path of a constant | info |
/// | `parent = expr` | the span that this one is in; `None` for none | the current span |
/// | `follows_from = expr` | spans that caused this one: anything that can be iterated | none |
/// | `fields(a = expr, b = %expr, c = ?expr, %d, ?e, f)` | further fields of the span, in tracing's words; `f` alone is declared empty, for the body to record | none |
/// | `args(a, b)`, `args` | these arguments, or all, as fields: numbers, texts and truth values as what they are, others by their `Debug` | none |
/// | `skip(a, b)`, `skip_all` | all arguments but these as fields; none of them | none |
/// | `only(self)`, `only(device)`, `only(device, self)` | which figures the span shows | `only(device)` |
/// | `err`, `err(Display)`, `err(Debug, level = "warn")` | tells `Err` from `Ok` in `mem.outcome`; with a format or a level the error is told in an event too; the function must return a `Result` | `ok` for both |
/// | `ret`, `ret(Display)`, `ret(level = "debug")` | tells the returned value in an event; with `err`, what is in `Ok` | silence |
/// | `phase = "…"` | the phase the scope counts for: a [constant text](#constants) | the phase around it |
/// | `device = expr` | which allocator to measure: a `CachingAllocator`, or a `&`, `&mut`, `Box`, `Rc`, `Arc`, `LazyLock` or `LazyCell` of one; evaluated once, before the body | the current allocator |
/// | `devices = expr`, `devices(all)` | several allocators: an array, a slice or a `Vec`; sums, and the peak of the sum | |
/// | `future` | for a function that returns a future: measures the call and the polls of what it returns | the call alone |
/// | `sample = 100` | one call of so many gets a span, with the field `mem.sampled`; a number or a `u64` expression | each call |
/// | `min_delta = "1MiB"` | records nothing on the span of a call that ended well and changed less | each call's figures |
/// | `max_delta = "1MiB"` | budget: requested bytes that the call may leave allocated | |
/// | `max_peak = "2GiB"` | budget: requested bytes that may be allocated at once | |
/// | `max_allocs = 0` | budget: allocations that it may make | |
/// | `leak_check`, `leak_check = "4KiB"` | budget: requested bytes that may be forgotten, none or so many | |
/// | `on_exceed = "event"`, `"panic"`, `path` | what a breached budget does: warns, panics as the call returns, or calls a `fn(&Exceeded)` | `"event"` |
/// | `oom(event, snapshot)` | what happens when memory runs out inside: an error event that names the function; a snapshot, once, in the folder `MEMTRACK_OOM_DUMP` | the allocator's own event |
/// | `crate = path` | where memtrack is, for code that reaches it through another crate | `::memtrack` |
///
/// `fields`, `args`, `device`, `devices`, `parent`, `follows_from` and `sample` can use the arguments by the names that the
/// function gives them. No field may be given twice, nor begin with `mem.`; one that has an argument's name goes before it.
/// Only one of `device` and `devices` can be given, and one of `args`, `skip` and `skip_all`.
///
/// A size is a text such as `"512MiB"` (2^20 each) or `"2GB"` (10^9 each), read when the program is compiled; or a whole
/// number of bytes; or a constant of an integer type.
///
/// # Budgets
///
/// They are held against what the call's own threads and tasks allocated, so that what runs beside it cannot breach them,
/// and whether or not anybody listens: a level filter never changes their result. A breach is said inside the span, in a
/// warning of the target `memtrack::budget_exceeded` or `memtrack::leak`. With `on_exceed = "panic"`, or under
/// `memtrack::testing::strict`, it panics instead, once all that the call owned is dropped; a call that unwinds, a future
/// that is cancelled and anything inside a destructor that runs during a panic warn instead.
///
/// # Constants
///
/// `name`, `phase` and `target` take a text that is known when the program is compiled and not empty: a string literal,
/// the path of a `&'static str` that is a `const` or a `static`, or one of `concat!`, `env!` and `stringify!`. An argument
/// is none, even a `&'static str`; a phase that is chosen at run time is opened with `memtrack::phase` in the body.
///
/// The path of a `phase` may depend on `Self` and on type parameters, as in `phase = Self::PHASE`. That of a `name`, a
/// `target` or a `level` may not: tracing keeps them in one `static` for all types. Name the type, as in
/// `name = Encoder::NAME`, which works where the type has no parameters.
///
/// # Outcomes
///
/// `mem.outcome` is `ok`, `err` (only with the option `err`), `panic` (the call itself unwound; a call made by a
/// destructor during another panic is not a panic) or `cancelled` (a future dropped before it completed).
///
/// # Limits
///
/// A function that returns a future is measured while it is called, and not while what it returned is polled, unless it
/// is an `async fn`, has the option `future`, or is an `async` method that `#[async_trait]` has rewritten. `future` needs
/// an `impl Future` or a `Pin<Box<dyn Future>>`; the type of any other future cannot be kept. A future that is measured
/// so and dropped before its first poll is `cancelled`, since the call has run.
///
/// With `#[track_caller]` the body cannot be moved into a closure, which would change what it sees as its caller. Then
/// a `self` taken by value is freed after the figures are read; with `err` a macro in the body that hides
/// `return Ok(…)` is reported as `err`; and when a budget panics, the returned value is leaked, since rustc does not
/// drop it if a destructor panics. With `future` the caller is lost.
///
/// Some of clippy's lints do not see an annotated function's own code any more and fall silent: among them
/// `needless_return`, `needless_pass_by_value`, `boxed_local`, `unused_async`, `unnecessary_wraps`,
/// `only_used_in_recursion` and `missing_const_for_fn`. rustc's lints report as without the attribute.
///
/// If a layer of the subscriber panics while the figures are recorded, the call ends with that panic, unless it unwinds
/// already: then the layer's panic ends there, and the first one goes on.
///
/// # Cost
///
/// With memtrack switched off at run time: one relaxed atomic load. Otherwise a span, and if the span is enabled or
/// `phase`, a budget or `oom` is given, or everything is measured for the totals by call site, one lock to open the scope and
/// one to close it. Without memtrack's feature `track` the attribute returns its item as it is, and reads no option.
#[proc_macro_attribute]
pub fn track_memory(args: TokenStream, item: TokenStream) -> TokenStream {
    if cfg!(feature = "track") { expand::attribute(args.into(), item.into()).into() } else { item }
}
