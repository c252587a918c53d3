//! Checks whether the user has pressed C-g, at most once per millisecond.
//!
//! This is the only raw call of the module, because the `emacs` crate does not wrap
//! `process_input`.

use std::time::{Duration, Instant};

use emacs::{Env, Result};

/// Time between two checks: too short for the user to notice, and long enough for a negligible
/// cost.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// `emacs_process_input_quit` of emacs-module.h.
const QUIT: u32 = 1;

/// Checks for a quit during a long call.
pub(crate) struct QuitCheck<'e> {
    env: &'e Env,
    last: Instant,
}

impl<'e> QuitCheck<'e> {
    pub(crate) fn new(env: &'e Env) -> Self {
        Self {
            env,
            last: Instant::now(),
        }
    }

    /// Whether the call may continue. After `false` it must return without any effect.
    pub(crate) fn may_continue(&mut self) -> bool {
        if self.last.elapsed() < CHECK_INTERVAL {
            return true;
        }
        self.last = Instant::now();
        !is_requested(self.env)
    }
}

/// Reports the error that is pending after a quit; every call of Lisp returns it.
pub(crate) fn pending(env: &Env) -> Result<()> {
    env.intern("nil").map(drop)
}

#[allow(unsafe_code, reason = "the crate does not wrap this function")]
fn is_requested(env: &Env) -> bool {
    let raw = env.raw();
    // SAFETY: Emacs passed this pointer to the call that runs; it is valid on this thread until the
    // call returns, and `env` lives no longer than that call.
    let process_input = unsafe { (*raw).process_input };
    let Some(process_input) = process_input else {
        return false;
    };
    // SAFETY: the function is from the table of `env`; no exit is pending, because every call of
    // the crate turns a pending exit into an `Err`, which ends the loops that check.
    let answer = unsafe { process_input(raw) };
    answer == QUIT
}
