//! Keys and values on the command line, for any bytes.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use weir::{ErrorCode, limits};

use crate::bytes;
use crate::report::{Failure, FailureContext};

/// Maximum bytes of a value in a file: those of the largest value that a store accepts.
const BYTES_MAX: u64 = limits::VALUE_BYTES_MAX as u64;

/// The options for a key.
#[derive(Clone, Debug, Args)]
#[group(id = "a_key", multiple = false)]
pub(crate) struct KeyArgs {
    /// Key of the record
    #[arg(short, long, value_name = "KEY", value_parser = plain())]
    pub(crate) key: Option<OsString>,
    /// Key in hexadecimal, for bytes that cannot be typed
    #[arg(long, value_name = "HEX", value_parser = parse_hex, hide_short_help = true)]
    key_hex: Option<Bytes>,
    /// Key in base64
    #[arg(long, value_name = "BASE64", value_parser = parse_base64, hide_short_help = true)]
    key64: Option<Bytes>,
}

/// Bytes decoded from hexadecimal or base64.
#[derive(Clone, Debug)]
pub(crate) struct Bytes(Vec<u8>);

impl KeyArgs {
    /// The key, if any.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        let plain = self.key.as_deref().map(OsStr::as_bytes);
        let coded = || Some(self.key_hex.as_ref().or(self.key64.as_ref())?.0.as_slice());
        plain.or_else(coded)
    }
}

/// The error for an empty key, which the store would treat as no key.
const EMPTY: &str = "a key must not be empty; omit it for a record without key";

fn plain() -> impl TypedValueParser<Value = OsString> {
    let text = OsStringValueParser::new();
    text.try_map(|key| if key.is_empty() { Err(EMPTY) } else { Ok(key) })
}

fn not_empty(bytes: Vec<u8>) -> Result<Bytes, String> {
    if bytes.is_empty() {
        return Err(EMPTY.to_owned());
    }
    Ok(Bytes(bytes))
}

fn parse_hex(text: &str) -> Result<Bytes, String> {
    let bytes = bytes::from_hex(text);
    not_empty(bytes.ok_or("hexadecimal has two digits 0-9 a-f for each byte")?)
}

fn parse_base64(text: &str) -> Result<Bytes, String> {
    not_empty(bytes::from_base64(text).ok_or("this is not base64")?)
}

/// Reads a value: the bytes as typed, `@FILE` for the content of a file, `@@...` for a value that
/// begins with `@`.
pub(crate) fn value(text: &OsStr) -> anyhow::Result<Cow<'_, [u8]>> {
    let bytes = text.as_bytes();
    match bytes.strip_prefix(b"@") {
        None => Ok(Cow::Borrowed(bytes)),
        Some(rest) if rest.starts_with(b"@") => Ok(Cow::Borrowed(rest)),
        Some(path) => {
            let path = OsStr::from_bytes(path);
            let shown = || format!("cannot read the value from {}", path.display());
            let file = File::open(path).failed(shown)?;
            let mut value = Vec::new();
            // The byte after the maximum shows that the file is larger.
            let read = file.take(BYTES_MAX + 1).read_to_end(&mut value);
            if read.failed(shown)? as u64 > BYTES_MAX {
                let why = format!("a value has at most {BYTES_MAX} bytes, and the file has more");
                let failure = Failure::new(ErrorCode::TooLarge, shown());
                return Err(failure.because(why).into());
            }
            Ok(Cow::Owned(value))
        }
    }
}
