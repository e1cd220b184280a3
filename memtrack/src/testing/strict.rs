//! Whether functions with a budget panic when it is breached.

use std::marker::PhantomData;

use crate::context;

/// While its guard lives, a budget of `#[track_memory]` that is breached on this thread panics instead of being logged.
///
/// It holds for this thread, and for work that is given to others through a [`ScopeHandle`](crate::scope::ScopeHandle) or
/// [`InScope`](crate::scope::InScope) made meanwhile: there it holds while that work runs, also after the guard is gone. Other threads, such as
/// those of tests that run in parallel, are not concerned. In an asynchronous test of one thread, or in what `block_on` drives, a guard may
/// live across `.await`; it cannot be sent.
///
/// ```
/// use memtrack::testing;
///
/// let guard = testing::strict();
/// assert!(testing::is_strict());
/// drop(guard);
/// assert!(!testing::is_strict());
/// ```
pub fn strict() -> Strict {
    context::enter_strict();
    Strict { not_send: PhantomData }
}

/// Whether a breached budget is to panic on this thread: for those who handle breaches themselves.
pub fn is_strict() -> bool {
    context::is_strict()
}

/// While it lives, breached budgets panic on this thread. Made by [`strict`].
#[derive(Debug)]
#[must_use = "budgets are strict only while this guard lives"]
pub struct Strict {
    not_send: PhantomData<*const ()>,
}

impl Drop for Strict {
    fn drop(&mut self) {
        context::leave_strict();
    }
}
