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
/// unless `fields` names them, and need no `Debug`.
///
/// # What the figures count
///
/// They are the **device's** during the call, whoever caused them: what other threads and tasks allocate and free
/// meanwhile is in `mem.before`, `mem.after`, `mem.delta`, `mem.peak`, `mem.peak_delta`, `mem.allocs`, `mem.frees`,
/// `mem.retries` and `mem.ooms` too, and so is what runs between the polls of an `async fn`. That answers how full the
/// device was while the call ran, and not how much of it the call took. What a scope's own threads and tasks did is in
/// the `own_*` fields of `ScopeRecord`, the value that closing a `memtrack::scope` or an `OpenScope` by hand gives; no
/// field of the span holds it.
///
/// # Options
///
/// All are optional, in any order, each at most once.
///
/// | option | meaning | without it |
/// |---|---|---|
/// | `name = "…"`, or only `"…"` | the span's and the scope's name: a [constant text](#constants) | the function's name |
/// | `phase = "…"` | the phase the scope counts for: a [constant text](#constants) | the phase around it |
/// | `device = expr` | which allocator to measure: a `CachingAllocator`, or a `&`, `&mut`, `Box`, `Rc`, `Arc`, `LazyLock` or `LazyCell` of one; evaluated once, before the body | the current allocator |
/// | `fields(a = expr, b = %expr, c = ?expr, %d, ?e, f)` | further fields of the span, in tracing's words; `f` alone is declared empty, for the body to record | none |
/// | `level = "debug"` | the span's level: a name, a number from 1 (trace) to 5 (error), or the path of a constant | info |
/// | `target = "…"` | the span's target: a [constant text](#constants) | the module's path |
/// | `err` | tells `Err` from `Ok` in `mem.outcome`; the function must return a `Result` | `ok` for both |
/// | `crate = path` | where memtrack is, for code that reaches it through another crate | `::memtrack` |
///
/// `fields` and `device` can use the arguments by the names that the function gives them. No field may be given twice,
/// nor begin with `mem.`.
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
/// Under `#[async_trait]` a method has become a function that returns a boxed future when this attribute sees it: the call
/// is measured, and not what the future does later; and `err` is refused.
///
/// With `#[track_caller]` the body cannot be moved into a closure, which would change what it sees as its caller. Then
/// a `self` taken by value is freed after the figures are read, and with `err` a macro in the body that hides
/// `return Ok(…)` is reported as `err`.
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
/// `phase` is given, one lock to open the scope and one to close it.
#[proc_macro_attribute]
pub fn track_memory(args: TokenStream, item: TokenStream) -> TokenStream {
    if cfg!(feature = "track") { expand::attribute(args.into(), item.into()).into() } else { item }
}
