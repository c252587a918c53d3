//! Versions of the library, and descriptions of errors.

use std::ffi::c_char;
use std::sync::LazyLock;

use weir::{ErrorCode, ErrorFault, ErrorRetry};

use crate::error::{Fail, Kind, number};
use crate::handle::{Caller, zeroed};
use crate::raw;

/// `WEIR_ABI_VERSION` of the header.
pub(crate) const ABI_VERSION: u32 = 7;

static BUILD: LazyLock<String> = LazyLock::new(|| {
    let profile = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    let (arch, os) = (std::env::consts::ARCH, std::env::consts::OS);
    let scanner = weir::query::build_info();
    let kernel = scanner.rsplit(' ').next().unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    format!("weir={version}; profile={profile}; target={arch}-{os}; scanner={kernel}\0")
});

pub(crate) fn build_info() -> *const c_char {
    BUILD.as_ptr().cast()
}

pub(crate) fn code(c: &Caller, code: i32, out: *mut raw::CodeInfo) -> Result<Kind, Fail> {
    let known = code.checked_neg().and_then(|code| u16::try_from(code).ok());
    let Some(known) = known.and_then(ErrorCode::from_number) else {
        c.info_size(out)?;
        return Ok(Kind::Absent);
    };
    let text = |text: &'static str| raw::Slice {
        ptr: text.as_ptr(),
        len: text.len(),
    };
    let mut info = zeroed::<raw::CodeInfo>();
    info.code = number(known);
    info.fault = match known.fault() {
        ErrorFault::Caller => 1,
        ErrorFault::Peer => 2,
        ErrorFault::Environment => 3,
        ErrorFault::Us => 4,
    };
    info.retry = match known.retry() {
        ErrorRetry::Yes => 1,
        ErrorRetry::After => 2,
        ErrorRetry::No => 3,
    };
    info.name = text(known.name());
    info.sentence = text(known.sentence());
    info.advice = text(known.advice());
    c.write_info(out, &info)?;
    Ok(Kind::Ok)
}
