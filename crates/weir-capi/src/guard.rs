//! Catches panics at the entry points of the library.
//!
//! Invariants:
//! - Every entry point runs inside [`call`], [`codec`] or [`without_error`].
//! - No unwinding leaves the library, and every panic is reported.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use weir::ErrorCode;

use crate::error::{Fail, Fault, Kind};
use crate::handle::Caller;
use crate::raw;

/// Runs an entry point. Returns the result of the call, and writes the error of a failure.
pub(crate) fn call(
    name: &'static str,
    caller: &Caller,
    error: *mut raw::Error,
    entry: impl FnOnce(&Caller) -> Result<Kind, Fail>,
) -> i32 {
    let done = catch(name, || entry(caller));
    match done.unwrap_or_else(Err) {
        Ok(kind) => kind as i32,
        Err(fail) => {
            caller.report(error, &fail);
            fail.number()
        }
    }
}

/// Runs an entry point of the codec.
#[inline]
pub(crate) fn codec(
    name: &'static str,
    caller: &Caller,
    error: *mut raw::Error,
    entry: impl FnOnce(&Caller) -> Result<Kind, Fault>,
) -> i32 {
    match catch(name, || entry(caller)) {
        Ok(Ok(kind)) => kind as i32,
        Ok(Err(fault)) => caller.report_fault(error, &fault),
        Err(fail) => {
            caller.report(error, &fail);
            fail.number()
        }
    }
}

/// Runs an entry point that cannot report a failure. Returns its result, or the default.
pub(crate) fn without_error<T: Default>(name: &'static str, entry: impl FnOnce() -> T) -> T {
    catch(name, entry).unwrap_or_default()
}

fn catch<T>(name: &'static str, entry: impl FnOnce() -> T) -> Result<T, Fail> {
    // State that a panic leaves inconsistent is protected by a lock, which is then poisoned.
    catch_unwind(AssertUnwindSafe(|| {
        enter(name);
        entry()
    }))
    .map_err(|panic| {
        let message = panic_message(panic.as_ref()).to_owned();
        // Dropping the payload of a panic may panic again.
        drop(catch_unwind(AssertUnwindSafe(|| drop(panic))));
        Fail::new(ErrorCode::Panic, format!("{name}: {message}"))
    })
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}

/// Where in a call a test requests a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(debug_assertions),
    allow(dead_code, unreachable_pub, reason = "only debug builds use it")
)]
pub enum PanicPoint {
    /// At the start of the entry point.
    Enter,
    /// While the handle is in use.
    Inside,
}

#[cfg(debug_assertions)]
mod hook {
    use super::PanicPoint;
    use std::cell::Cell;

    thread_local! {
        static NAME: Cell<&'static str> = const { Cell::new("") };
        static AT: Cell<Option<(&'static str, PanicPoint)>> = const { Cell::new(None) };
        static FULL: Cell<bool> = const { Cell::new(false) };
    }

    /// For tests: the next call of this function on this thread panics at that point; `None`: no
    /// call panics.
    pub fn panic_at(at: Option<(&'static str, PanicPoint)>) {
        AT.set(at);
    }

    /// For tests: whether the table of handles appears full to this thread.
    pub fn full_table(full: bool) {
        FULL.set(full);
    }

    pub(super) fn is_full() -> bool {
        FULL.get()
    }

    pub(super) fn enter(name: &'static str) {
        NAME.set(name);
        panic_if_requested(PanicPoint::Enter);
    }

    pub(super) fn panic_if_requested(point: PanicPoint) {
        if AT.get() == Some((NAME.get(), point)) {
            AT.set(None);
            panic!("injected");
        }
    }
}

#[cfg(debug_assertions)]
pub use hook::{full_table, panic_at};

fn enter(name: &'static str) {
    #[cfg(debug_assertions)]
    hook::enter(name);
    let _ = name;
}

/// Panics if a test requests it.
pub(crate) fn maybe_panic(point: PanicPoint) {
    #[cfg(debug_assertions)]
    hook::panic_if_requested(point);
    let _ = point;
}

/// Whether a test requests a full table of handles.
pub(crate) fn is_full_requested() -> bool {
    #[cfg(debug_assertions)]
    return hook::is_full();
    #[cfg(not(debug_assertions))]
    false
}
