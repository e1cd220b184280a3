//! The `#[track_memory]` attribute of memtrack; use it through the `memtrack` crate, which re-exports it.
//!
//! The way of one use through this crate: `args` reads the attribute's options, `function` the annotated function,
//! `check` refuses what cannot work, and `expand_sync` or `expand_async` writes the function anew around its
//! untouched body. `items` goes that way for each function of an annotated block, `block` for a part of a body. Mistakes
//! are collected in `errors`, so that one compilation reports all of them.
#![forbid(unsafe_code)]

mod args;
mod arguments;
mod block;
mod check;
mod divergence;
mod early_return;
mod errors;
mod expand;
mod expand_async;
mod expand_future;
mod expand_sync;
mod expected_lints;
mod fields;
mod function;
mod inspection;
mod items;
mod level;
mod limit;
mod lists;
mod options;
mod prologue;
mod reaction;
mod report;
mod returned_closure;
mod signature;
mod site;
mod suggest;
mod suspension;
mod text;
mod values;

use proc_macro::TokenStream;

/// Measures a function, or [each function of a block](#whole-blocks): what it allocates and frees, how high memory rises
/// meanwhile, and how it ends.
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
/// and `mem.self.allocs`. Budgets are held against these. `only(device, self)` adds `mem.foreign`, the bytes that others moved
/// meanwhile, and `mem.reserved.delta`; `devices` adds `mem.devices`, how many of them changed, and `sample` `mem.sampled`.
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
/// and whether or not anybody listens: a level filter never changes their result. Without an allocator, or with memtrack
/// switched off, there is nothing to hold against them. A breach is said inside the span, in a
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
/// # Whole blocks
///
/// On an `impl` block, a trait or an inline module the attribute measures each function with a body that the block holds;
/// in a module also those of its `impl` blocks, traits and inline modules, however deep.
///
/// ```
/// use memtrack::{AllocationError, Buffer, CachingAllocator, track_memory};
///
/// struct Layer {
///     allocator: CachingAllocator,
///     weights: Buffer<f32>,
/// }
///
/// #[track_memory(phase = "forward", device = &self.allocator, err)]
/// impl Layer {
///     /// There is no `self` yet, so this gives the device itself.
///     #[track_memory(phase = "setup", device = allocator)]
///     fn new(allocator: &CachingAllocator) -> Result<Self, AllocationError> {
///         Ok(Self { allocator: allocator.clone(), weights: Buffer::zeros(allocator, 1000)? })
///     }
///
///     /// Measured as `Layer::forward`, in the phase `forward`.
///     fn forward(&self) -> Result<Buffer<f32>, AllocationError> {
///         Buffer::zeros(&self.allocator, self.len())
///     }
///
///     /// As above, but in another phase and under another name.
///     #[track_memory("gradients", phase = "backward")]
///     fn backward(&self) -> Result<Buffer<f32>, AllocationError> {
///         Buffer::zeros(&self.allocator, self.len())
///     }
///
///     /// Not measured.
///     #[track_memory(skip)]
///     fn len(&self) -> usize {
///         self.weights.len()
///     }
/// }
///
/// let allocator = CachingAllocator::new(memtrack::device::auto());
/// let layer = Layer::new(&allocator)?;
/// assert_eq!(layer.forward()?.len(), layer.backward()?.len());
/// # Ok::<(), AllocationError>(())
/// ```
///
/// **Names.** A method is called `Type::method`, by the last word of its `impl` block's type, also where it implements a
/// trait; a trait's own method `Trait::method`. A function of a module, and a method of a type that has no name, such as a
/// slice, keeps its own name.
///
/// **Options** hold for each function. What carries `#[track_memory(…)]` itself, a function or a block in the block, is
/// measured once: by its own options, and by those of the block that it does not give. `#[track_memory(skip)]` leaves out
/// the function or the block that carries it. Both are known by their last word, `track_memory`, and are found in a
/// `cfg_attr` too. Some options mean something else on a block:
///
/// | option | on a block |
/// |---|---|
/// | `name`, `args(…)`, `skip(…)` | refused: they are one function's |
/// | `err` | for the functions whose return type is written as a path that ends in a word like `Result` or `IoResult` |
/// | `ret` | for the functions that return something, but no `impl Trait` and no boxed future |
/// | `future` | for the functions that are not `async` and return `impl Future`, `Pin<Box<dyn Future>>` or a `BoxFuture` |
/// | `on_exceed` | for the functions that have a budget, be it the block's or their own |
/// | `device`, `fields` and all with an expression or a path | evaluated in each function, by the names known there: one without `self` cannot evaluate `&self.allocator`, and says so |
///
/// **Left as they are** are functions without a body, `const fn`s, naked functions, what a macro's call in the block expands to, `extern`
/// blocks, and functions and closures inside of functions. Everything that is no function stays as well.
///
/// The functions are expanded with their block: above `#[async_trait]` the attribute finds `async fn`s, below what that has
/// made of them, and measures either to the end. An attribute of a function's own keeps its place among the function's
/// others.
///
/// A module must be written out where it is annotated: of `mod m;` the attribute sees no more than that. Statements and
/// expressions cannot be annotated; that is what `track_memory_block!` is for.
///
/// # Outcomes
///
/// `mem.outcome` is `ok`, `err` (only with the option `err`), `panic` (the call itself unwound; a call that a destructor makes
/// during another panic is never told as one) or `cancelled` (a future dropped before it completed).
///
/// # Limits
///
/// A function that returns a future is measured while it is called, and not while what it returned is polled, unless it
/// is an `async fn`, has the option `future`, or is an `async` method that `#[async_trait]` has rewritten. `future` needs
/// an `impl Future`, a `Pin<Box<impl Future>>` or a `Pin<Box<dyn Future>>`; the type of any other future, such as `Pin<Box<F>>`,
/// cannot be kept. It may be `Send`, `Sync`, `Unpin` and bound to a lifetime, an `impl Future` also `UnwindSafe`, but have no
/// other trait: an `impl Future + Clone` or `+ Debug` is refused. A future that is measured
/// so and dropped before its first poll is `cancelled`, since the call has run.
///
/// With `#[track_caller]` the body cannot be moved into a closure, which would change what it sees as its caller. Then
/// a `self` taken by value is freed after the figures are read; with `err` a macro in the body that hides
/// `return Ok(…)` is reported as `err`, and an error that leaves by `?` is the outcome and no event; and when a budget panics, the returned value is leaked, since rustc does not
/// drop it if a destructor panics. With `future` the caller is lost.
///
/// A closure that is returned as an `impl Fn…`, by itself or in a tuple, takes its signature from there as without the
/// attribute. Where the body is moved (into a closure, see below, or as that of an `async fn`), that holds for a closure that is
/// written where the body ends or behind `return`, and not for one that a macro writes, a `break` gives, or whose signature is
/// that of a trait above the named one: rustc then asks for the types of its parameters. A body that returns an `impl AsyncFn…`
/// is not moved into a closure; what that means is what `#[track_caller]` means, above, and in an `async fn` such a closure needs
/// the types of its parameters.
///
/// What a function returns keeps its type, and an opaque type captures what it captured, so that the caller's borrows are
/// judged as without the attribute: a future that borrows must be dropped before what it borrows where that was so before,
/// and only there.
///
/// rustc's and clippy's lints report about an annotated function as about any other, but for a few. `missing_const_for_fn`
/// and `unused_async` fall silent, for measuring is not `const` and awaits; `needless_pass_by_value`, `boxed_local` and
/// `only_used_in_recursion`, since what the call owns is moved inside; `manual_async_fn`, since the call is measured and not only
/// the future; `explicit_auto_deref` of the last expression, whose temporaries end before the figures are read. Where the body
/// is moved into a closure (with `err`, `ret`, a budget, or a `self` taken by value) so do `unnecessary_wraps`,
/// `unused_self`, `needless_pass_by_ref_mut` and rustc's `unconditional_recursion`, and `result_large_err` is told of the closure
/// too. An `#[expect]` of a silent lint on the function becomes an `#[allow]`.
/// `unused_assignments` speaks of a `mut` argument in other words, and lints that count complexity or bytes count a little more.
///
/// A crate that forbids one of these lints (one that denies it does not mind) cannot use the attribute, since generated code
/// allows it: clippy's `shadow_same` and `implicit_return`, `used_underscore_binding` where the name of an argument taken by
/// value begins with `_`, `async_yields_async` where the result of an `async fn` may be a future; rustc's `unused_imports` with
/// `args`, `skip` and the formats of `err` and `ret`; `unreachable_code` with `#[track_caller]` and `err` or `ret`. Parameters under a `#[cfg]` are no fields
/// for `args` and `skip`.
///
/// A `const fn` and a naked function cannot be measured. The editions are 2018 and later: in 2015 a parameter
/// may not be called `dyn`, `async` or `await`, and instead of what the attribute has to report rustc says that it cannot find `core`.
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

/// Measures a part of a body, as [`#[track_memory]`](macro@track_memory) measures a function, and gives its value.
///
/// The options are the attribute's; the block stands behind them, last.
///
/// ```
/// use memtrack::{AllocationError, Buffer, CachingAllocator, track_memory_block};
///
/// fn train(allocator: &CachingAllocator) -> Result<f32, AllocationError> {
///     let input = track_memory_block!("load", device = allocator, { Buffer::from_slice(allocator, &[1.0_f32; 1000])? });
///     let mut sum = 0.0;
///     for step in 0..3_u64 {
///         // Named after its phase.
///         sum += track_memory_block!(phase = "forward", device = allocator, fields(step = step), {
///             let mut output = Buffer::zeros(allocator, input.len())?;
///             output.copy_from(&input)?;
///             output.to_vec()?[0]
///         });
///     }
///     Ok(sum)
/// }
///
/// let allocator = CachingAllocator::new(memtrack::device::auto());
/// assert_eq!(train(&allocator)?, 3.0);
/// # Ok::<(), AllocationError>(())
/// ```
///
/// The block is a plain block in its place: `return`, `?`, `break` and `continue` mean what they mean there, and the type
/// that is wanted of it reaches its last expression. It may be `unsafe { … }` or carry a label, `'a: { … }`. Its variables
/// and the temporaries of its last expression are dropped before the figures are read, whatever the edition.
///
/// # Options
///
/// Those of the attribute, but for `args`, `skip`, `skip_all` and `future`. A `name` is needed, or a `phase` that is also
/// the name. `err` and `ret` look at the block's own value.
///
/// # Outcomes
///
/// A block that is left early, by `return`, `?`, `break` or `continue`, ends as `ok`: whoever leaves it knows why. With
/// `err` the value of the block itself is judged, which must be a `Result`. A block that unwinds ends as `panic`.
///
/// # Asynchronous code
///
/// A scope must not stay open across an `.await`, where other tasks would run in it, so an `.await` in the block is an error.
/// (One that a macro writes, such as `join!`, is not seen; it makes the function's future one that is not `Send`.) Measure an
/// `async` block instead. The macro then gives its future, which is measured from its first poll to its end:
///
/// ```
/// # use std::future::ready;
/// use memtrack::track_memory_block;
///
/// # async fn read(path: &str) -> std::io::Result<Vec<u8>> { ready(Ok(path.into())).await }
/// async fn load(path: &str) -> std::io::Result<usize> {
///     let bytes = track_memory_block!("load", phase = "load", err, async { read(path).await }).await?;
///     Ok(bytes.len())
/// }
/// # let mut load = std::pin::pin!(load("path"));
/// # let poll = load.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
/// # assert!(matches!(poll, std::task::Poll::Ready(Ok(4))));
/// ```
///
/// As in any `async` block, `return` and `?` leave that block, and `err` judges what they give.
///
/// # Why it is not called `track_memory!`
///
/// An attribute and a macro share one namespace, so that one path cannot lead to both.
///
/// # Limits
///
/// In a `const`, a `static` and a `const fn` rustc refuses the block: measuring happens at run time. When a budget panics
/// because of a block that is left early with a value, by `return value` or `?`, or that ends with a closure or a borrow, written
/// there or in a tuple, that value is leaked: rustc does not drop it if a destructor panics.
///
/// # Cost
///
/// The attribute's. Without memtrack's feature `track` the macro gives the block alone, and reads no option.
#[proc_macro]
pub fn track_memory_block(input: TokenStream) -> TokenStream {
    block::block(input.into(), cfg!(feature = "track")).into()
}
