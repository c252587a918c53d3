//! Threads and locks of the module.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::failure::Failure;

/// Locks a mutex, even after a panic of another thread, because the guarded values stay valid.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread that receives no signals: a broken pipe must not end Emacs.
pub(crate) fn thread(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let start = move || {
        let blocked = nix::sys::signal::SigSet::all().thread_block();
        if blocked.is_ok() {
            body();
        }
    };
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(start)
        .map(drop)
        .map_err(|error| Failure::new("weir-error", format!("no thread: {error}")))
}
