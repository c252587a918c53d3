//! The codec for C: implements `include/weir_psyc.h` with the crate `weir-psyc`.
//!
//! Invariants:
//! - Nothing here allocates, even for invalid bytes.
//! - Every returned slice lies in bytes that the call received, or is static.
//! - The size of the output is compared with the buffer before the first write.
//! - This module has no rules of the syntax; they are in `weir-psyc`.

pub(crate) mod entry;
mod names;
mod parser;
pub(crate) mod raw;
mod render;
mod text;
mod uniform;
mod walk;

use weir::ErrorCode;
use weir_psyc::{ContainerError, Length, Operator};

use crate::error::Fault;
use crate::raw::Slice;

/// Largest number of elements of an array that is written or read.
const ELEMENTS_MAX: usize = 1 << 16;

/// A slice of the input. Its pointer is valid even if it is empty.
const fn slice(bytes: &[u8]) -> Slice {
    Slice {
        ptr: bytes.as_ptr(),
        len: bytes.len(),
    }
}

/// As `slice`; NULL if absent.
fn optional(bytes: Option<&[u8]>) -> Slice {
    bytes.map_or(crate::error::EMPTY, slice)
}

/// The error of bytes that the syntax does not allow.
const fn malformed(text: &'static str, detail: u32, offset: u64) -> Fault {
    Fault {
        code: ErrorCode::Protocol,
        detail,
        offset,
        text,
    }
}

fn container(error: ContainerError) -> Fault {
    let detail = u32::from(error.kind.number());
    malformed(error.kind.sentence(), detail, error.offset)
}

fn length(value: u32) -> Result<Length, Fault> {
    match value {
        0 => Ok(Length::Auto),
        1 => Ok(Length::Force),
        2 => Ok(Length::Forbid),
        _ => Err(Fault::new(
            ErrorCode::BadOption,
            "a length is 0 automatic, 1 forced or 2 forbidden",
        )),
    }
}

fn operator(value: u32) -> Result<Operator, Fault> {
    let operator = u8::try_from(value).ok().and_then(Operator::from_byte);
    operator.ok_or(Fault::new(
        ErrorCode::BadOption,
        "an operation is one of : = + - @ ? !",
    ))
}
