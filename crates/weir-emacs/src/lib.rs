//! The dynamic module of Emacs: a store in the editor, or a connection to a server.
//!
//! Invariants: only the thread of Emacs accesses Lisp values; no write and no request blocks that
//! thread; a panic becomes a Lisp signal at the boundary (the `emacs` crate catches it); a handle
//! is dropped by its finalizer, and a second close is a no-op.
#![deny(unsafe_code)]

mod answer;
mod bare;
mod bench;
mod failure;
mod functions;
mod jira;
mod query;
mod quit;
mod store;
mod text;
mod threads;
mod work;

// Emacs looks up these symbols.
#[allow(unsafe_code, reason = "Emacs finds its entry by the name of a symbol")]
mod exported {
    use std::ffi::c_int;
    use std::sync::PoisonError;
    use std::sync::atomic::{AtomicBool, Ordering};

    use emacs::init::{__INIT_FNS__, __MOD_IN_NAME__, __PREFIX__, initialize};
    use emacs::raw::emacs_runtime;
    use emacs::{Env, Result, Value};

    emacs::plugin_is_GPL_compatible!();

    /// Whether the functions are already defined.
    static LOADED: AtomicBool = AtomicBool::new(false);

    /// Defines all functions, with names that begin with `weir-`.
    fn define(env: &Env) -> Result<Value<'_>> {
        let prefix = ["weir".to_owned(), "-".to_owned()];
        *__PREFIX__.lock().unwrap_or_else(PoisonError::into_inner) = prefix;
        __MOD_IN_NAME__.store(false, Ordering::Relaxed);
        let functions = __INIT_FNS__.lock();
        let functions = functions.unwrap_or_else(PoisonError::into_inner);
        for define in functions.values() {
            define(env)?;
        }
        env.provide("weir-module")
    }

    /// Called each time Emacs loads the module. The macro of the crate would fail on the second
    /// call, because its references to Lisp values already exist.
    ///
    /// # Safety
    /// Only Emacs calls it, with a pointer that is valid during the call.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn emacs_module_init(runtime: *mut emacs_runtime) -> c_int {
        if LOADED.load(Ordering::SeqCst) {
            return 0;
        }
        // SAFETY: Emacs passed the pointer; the size is the first field in every version of the
        // structure.
        let size = unsafe { (*runtime).size };
        if usize::try_from(size).unwrap_or(0) < size_of::<emacs_runtime>() {
            return 1;
        }
        // SAFETY: as above; the environment lives no longer than this call.
        let env = unsafe { Env::from_runtime(runtime) };
        let failed = initialize(&env, define);
        LOADED.store(failed == 0, Ordering::SeqCst);
        failed
    }
}
