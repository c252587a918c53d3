//! The file in which a query notes how far it came.
//!
//! ```text
//! weir query 2
//!                      an empty line, and then the token
//! ```
//!
//! What must never happen here: half a file in the place of a whole one.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use weir::ErrorCode;

use crate::report::{Because, Failure};

const HEAD: &[u8] = b"weir query 2\n\n";

/// Reads the file; nothing when there is none.
pub(super) fn read(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    let failed = || format!("cannot read {}", path.display());
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.failed(failed)?,
    };
    let token = bytes.strip_prefix(HEAD).ok_or_else(|| {
        let failure = Failure::new(ErrorCode::TokenCorrupt, failed());
        failure.because("it is not what a query wrote")
    })?;
    Ok(Some(token.to_vec()))
}

/// Writes the file beside its place, and then into it. What it says was printed
/// before: who is killed in between prints that again. `last`: and is to survive a
/// power cut.
pub(super) fn write(path: &Path, token: &[u8], last: bool) -> anyhow::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let bytes = [HEAD, token].concat();
    let write = || {
        let mut file = File::create(&beside)?;
        file.write_all(&bytes)?;
        if last {
            file.sync_all()?;
        }
        std::fs::rename(&beside, path)
    };
    write().failed(|| format!("cannot write {}", path.display()))
}
