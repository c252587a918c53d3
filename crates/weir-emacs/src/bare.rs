//! A module function without a wrapper, to measure the minimum cost of a call of any module. For
//! benchmarks only.
#![allow(
    unsafe_code,
    reason = "the crate has no way to register a function that it does not wrap"
)]

use std::ffi::c_void;

use emacs::func::Manage as _;
use emacs::raw::{emacs_env, emacs_value};
use emacs::{Env, Result, Value, defun};

/// Returns the value `data` without any other effect.
unsafe extern "C" fn nothing(
    _: *mut emacs_env,
    _: isize,
    _: *mut emacs_value,
    data: *mut c_void,
) -> emacs_value {
    data.cast()
}

/// A reference to nil that is valid in every call; null if Emacs has no such functions.
fn nil(env: &Env) -> *mut c_void {
    let raw = env.raw();
    // SAFETY: Emacs passed this pointer to the call that runs; it is valid on this thread until the call
    // returns.
    let functions = unsafe { ((*raw).intern, (*raw).make_global_ref) };
    let (Some(intern), Some(make_global_ref)) = functions else {
        return std::ptr::null_mut();
    };
    // SAFETY: both functions belong to this very table and no exit is pending; the name ends with a NUL.
    unsafe { make_global_ref(raw, intern(raw, c"nil".as_ptr())).cast() }
}

/// Returns a function without arguments that does nothing and returns nil.
#[defun(name = "-bench-bare")]
fn bare(env: &Env) -> Result<Value<'_>> {
    // SAFETY: `nothing` touches neither the environment nor the arguments. Its value is a global reference
    // that is never freed.
    unsafe { env.make_function(nothing, 0..0, "Do nothing.", nil(env)) }
}
