//! Copies Lisp strings as bytes into a buffer that is reused.

use std::cell::RefCell;

use emacs::{ErrorKind, ModuleError, Result, Value};

/// A buffer that has grown beyond this size is freed after the call.
const KEEP_BYTES_MAX: usize = 4 << 20;
/// Initial size of the buffer, enough for most strings.
const FIRST_BYTES: usize = 16 << 10;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `body` with the bytes of a Lisp string: UTF-8 if the string is multibyte; any bytes if it
/// is unibyte.
///
/// # Errors
/// Emacs rejects a string with characters outside of Unicode, and a value that is not a string.
pub(crate) fn bytes<T>(value: Value<'_>, body: impl FnOnce(&[u8]) -> T) -> Result<T> {
    // A nested call finds no buffer, and allocates its own.
    let mut buffer = BUFFER.take();
    if buffer.is_empty() {
        buffer.resize(FIRST_BYTES, 0);
    }
    let length = copy(value, &mut buffer)?;
    let result = body(buffer.get(..length).unwrap_or_default());
    if buffer.len() <= KEEP_BYTES_MAX {
        BUFFER.set(buffer);
    }
    Ok(result)
}

fn copy(value: Value<'_>, buffer: &mut Vec<u8>) -> Result<usize> {
    let required = match value.copy_string_contents(buffer) {
        Ok(copied) => return Ok(copied.len()),
        Err(error) => match error.downcast_ref::<ErrorKind>() {
            Some(ErrorKind::Module(ModuleError::BufferTooSmall { required, .. })) => *required,
            _ => return Err(error),
        },
    };
    buffer.resize(required, 0);
    Ok(value.copy_string_contents(buffer)?.len())
}

/// The bytes of a Lisp string, copied.
pub(crate) fn owned(value: Value<'_>) -> Result<Vec<u8>> {
    bytes(value, <[u8]>::to_vec)
}

/// A Lisp string that must be text.
pub(crate) fn text(value: Value<'_>) -> Result<String> {
    match bytes(value, |bytes| std::str::from_utf8(bytes).map(str::to_owned))? {
        Ok(text) => Ok(text),
        // The conversion of the crate signals the right condition.
        Err(_) => value.into_rust(),
    }
}

/// `None` for nil.
pub(crate) fn maybe(value: Value<'_>) -> Result<Option<String>> {
    value.is_not_nil().then(|| text(value)).transpose()
}

/// The strings of a list; an empty list for nil.
pub(crate) fn list(value: Value<'_>) -> Result<Vec<String>> {
    let mut all = Vec::new();
    let mut rest = value;
    while rest.is_not_nil() {
        all.push(text(rest.car()?)?);
        rest = rest.cdr()?;
    }
    Ok(all)
}
