//! The file `clock` (docs/formats/store.md): by how much opens have moved the time of a store
//! without a confirmation.
//!
//! Invariant: a move is durable before the store returns a stamp that depends on it, so that the
//! next open counts it.

use std::io::{ErrorKind, IoSlice};

use crate::clock::CLOSED_MS_MAX;
use crate::disk::{Disk, OpenMode};
use crate::error::{IoVerb, StoreError};
use crate::log::build_file;

/// Name of the file.
pub(crate) const PATH: &str = "clock";
/// Milliseconds by which an open may move the time without writing the file. A store that is
/// restarted often therefore does not write the file each time.
pub(crate) const UNNOTED_MS_MAX: u64 = 60_000;
/// Maximum size of the file in bytes.
const BYTES_MAX: u64 = 64;

/// The recorded milliseconds; [`CLOSED_MS_MAX`] if the file cannot be read or parsed.
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

/// Records the milliseconds durably.
pub(crate) fn write(disk: &dyn Disk, moved_ms: u64) -> Result<(), StoreError> {
    let text = format!("moved_ms={moved_ms}\n");
    let built = build_file(disk, PATH, 0, |file, building| {
        let written = file.write_all_at(&mut [IoSlice::new(text.as_bytes())], 0);
        written.map_err(StoreError::io(IoVerb::Write, building))
    });
    built.map(drop)
}

/// Removes the file. If it cannot be removed, the next open may move the time by less.
pub(crate) fn remove(disk: &dyn Disk) {
    match disk.remove(PATH) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!(%error, "cannot remove the file `clock`");
        }
        _ => {}
    }
}
