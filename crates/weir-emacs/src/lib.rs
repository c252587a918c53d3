//! The dynamic module of Emacs: a store in the editor, or a connection to a server.
//!
//! Invariants: no thread but that of Emacs touches a Lisp value; no write and no request waits on that
//! thread; a panic becomes a Lisp signal at the boundary (the `emacs` crate catches it); a handle is
//! dropped by its finalizer, and closing twice is a no-op.
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

// The symbols that Emacs looks for; the macros hold the unsafe code.
#[allow(unsafe_code, reason = "the macros export symbols and initialisers")]
mod exported {
    emacs::plugin_is_GPL_compatible!();

    /// Called when Emacs loads the module.
    #[allow(clippy::unnecessary_wraps, reason = "the macro wants a Result")]
    #[emacs::module(
        name = "weir-module",
        defun_prefix = "weir",
        separator = "-",
        mod_in_name = false
    )]
    fn init(_: &emacs::Env) -> emacs::Result<()> {
        Ok(())
    }
}
