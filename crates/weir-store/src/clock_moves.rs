//! By how much opens have moved the time of a store without a confirmation: the file `clock`
//! (docs/formats/store.md).
//!
//! Invariant: a move is durable before a stamp is given by it, so that it counts at the next open.

use std::io::{ErrorKind, IoSlice};

use crate::clock::CLOSED_MS_MAX;
use crate::disk::{Disk, OpenMode};
use crate::error::{IoVerb, StoreError};
use crate::log::build_file;

/// Name of the file.
pub(crate) const PATH: &str = "clock";
/// Milliseconds that an open may move the time without a note: a store that is restarted often
/// writes no file each time.
pub(crate) const UNNOTED_MS_MAX: u64 = 60_000;
/// Bytes that the file has at most.
const BYTES_MAX: u64 = 64;

/// Milliseconds that were noted; everything when the file cannot be read or understood.
pub(crate) fn read(disk: &dyn Disk) -> u64 {
    let file = match disk.open(PATH, OpenMode::Read) {
        Err(error) if error.kind() == ErrorKind::NotFound => return 0,
        Err(_) => return CLOSED_MS_MAX,
        Ok(file) => file,
    };
    let text = file
        .len()
        .ok()
        .filter(|len| *len <= BYTES_MAX)
        .and_then(|len| {
            let mut bytes = vec![0; usize::try_from(len).ok()?];
            file.read_exact_at(&mut bytes, 0).ok()?;
            String::from_utf8(bytes).ok()
        });
    let number = text.as_deref().and_then(|text| {
        let number = text.strip_prefix("moved_ms=")?.strip_suffix('\n')?;
        number.parse().ok()
    });
    number.unwrap_or(CLOSED_MS_MAX)
}

/// Notes so many milliseconds, durably.
pub(crate) fn write(disk: &dyn Disk, moved_ms: u64) -> Result<(), StoreError> {
    let text = format!("moved_ms={moved_ms}\n");
    let built = build_file(disk, PATH, 0, |file, building| {
        let written = file.write_all_at(&mut [IoSlice::new(text.as_bytes())], 0);
        written.map_err(StoreError::io(IoVerb::Write, building))
    });
    built.map(drop)
}

/// Forgets what was noted. A file that stays lets the next open move less.
pub(crate) fn remove(disk: &dyn Disk) {
    match disk.remove(PATH) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!(%error, "the file `clock` cannot be removed");
        }
        _ => {}
    }
}
