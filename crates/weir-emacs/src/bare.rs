//! Module functions without a wrapper, to measure the minimum cost that any module has for a call
//! and for a string. For benchmarks only.
#![allow(
    unsafe_code,
    reason = "the crate has no way to register functions that it does not wrap"
)]

use std::ffi::c_void;

use emacs::func::Manage as _;
use emacs::raw::{emacs_env, emacs_value};
use emacs::{Env, Result, Value, defun};

/// Size of the buffer of the functions that copy a string.
const BUFFER_BYTES: usize = 1 << 20;

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
    // SAFETY: Emacs passed this pointer to the call that runs; it is valid on this thread until the
    // call returns.
    let functions = unsafe { ((*raw).intern, (*raw).make_global_ref) };
    let (Some(intern), Some(make_global_ref)) = functions else {
        return std::ptr::null_mut();
    };
    // SAFETY: both functions belong to this very table and no exit is pending; the name ends with a
    // NUL.
    unsafe { make_global_ref(raw, intern(raw, c"nil".as_ptr())).cast() }
}

/// Returns a function without arguments that does nothing and returns nil.
#[defun(name = "-bench-bare")]
fn bare(env: &Env) -> Result<Value<'_>> {
    // SAFETY: `nothing` touches neither the environment nor the arguments. Its value is a global
    // reference that is never freed.
    unsafe { env.make_function(nothing, 0..0, "Do nothing.", nil(env)) }
}

/// Copies the string in the only argument into the buffer `data`, and returns the argument.
unsafe extern "C" fn copy(
    env: *mut emacs_env,
    _: isize,
    arguments: *mut emacs_value,
    data: *mut c_void,
) -> emacs_value {
    let mut length = BUFFER_BYTES.cast_signed();
    // SAFETY: Emacs calls with a valid environment and one argument; `data` has `BUFFER_BYTES`
    // bytes. A string that does not fit leaves an exit pending, which is allowed on return.
    unsafe {
        let text = *arguments;
        if let Some(copy_string_contents) = (*env).copy_string_contents {
            copy_string_contents(env, text, data.cast(), &raw mut length);
        }
        text
    }
}

/// Returns a unibyte string of the first bytes of the buffer `data`; the only argument is their
/// number.
unsafe extern "C" fn make(
    env: *mut emacs_env,
    _: isize,
    arguments: *mut emacs_value,
    data: *mut c_void,
) -> emacs_value {
    // SAFETY: as in `copy`. An argument that is not an integer leaves an exit pending, with which
    // every function of the environment returns at once.
    unsafe {
        let functions = ((*env).extract_integer, (*env).make_unibyte_string);
        let (Some(extract_integer), Some(make_unibyte_string)) = functions else {
            return *arguments;
        };
        let size = extract_integer(env, *arguments);
        let size = isize::try_from(size).unwrap_or(0);
        make_unibyte_string(env, data.cast(), size.clamp(0, BUFFER_BYTES.cast_signed()))
    }
}

/// A buffer for `copy` and `make`, which is never freed.
fn buffer() -> *mut c_void {
    Box::leak(vec![b'R'; BUFFER_BYTES].into_boxed_slice())
        .as_mut_ptr()
        .cast()
}

/// Returns a function that copies its argument, a string of less than 1 MiB, and returns it.
#[defun(name = "-bench-bare-take")]
fn bare_take(env: &Env) -> Result<Value<'_>> {
    // SAFETY: the buffer lives as long as the process, and only this function writes to it.
    unsafe { env.make_function(copy, 1..1, "Copy a string.", buffer()) }
}

/// Returns a function that returns a unibyte string of SIZE letters R, at most 1 MiB.
#[defun(name = "-bench-bare-bytes")]
fn bare_bytes(env: &Env) -> Result<Value<'_>> {
    // SAFETY: the buffer lives as long as the process, and nothing writes to it.
    unsafe { env.make_function(make, 1..1, "Make a unibyte string.", buffer()) }
}
