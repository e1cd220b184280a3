//! Tells Python what happens, a JSON object at a time.

use std::cell::Cell;
use std::ffi::{CString, c_char};

use serde_json::Value;

/// Python's function. It is told on the thread that runs the scenario.
pub(crate) type Callback = unsafe extern "C" fn(*const c_char);

thread_local! {
    static CALLBACK: Cell<Option<Callback>> = const { Cell::new(None) };
}

/// Runs `work`, of which `callback` is told.
pub(crate) fn telling<T>(callback: Callback, work: impl FnOnce() -> T) -> T {
    struct Done;
    impl Drop for Done {
        fn drop(&mut self) {
            CALLBACK.set(None);
        }
    }
    CALLBACK.set(Some(callback));
    let _done = Done;
    work()
}

/// Tells an event; on another thread, or while no scenario runs, nobody.
pub(crate) fn tell(event: &Value) {
    let Some(callback) = CALLBACK.get() else { return };
    // JSON has no zero byte.
    let Ok(text) = CString::new(event.to_string()) else { return };
    // SAFETY: whoever named it promised that it may be called on this thread while the scenario runs.
    unsafe { callback(text.as_ptr()) };
}
