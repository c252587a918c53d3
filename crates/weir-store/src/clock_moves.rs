//! The file `clock` (docs/formats/store.md): by how much opens have moved the time of a store
//! without a confirmation.
//!
//! Invariant: a move is durable before the store returns a stamp that depends on it, so that the
//! next open counts it.

use std::io::{ErrorKind, IoSlice};

use crate::clock::{CLOSED_MS_MAX, ClockReport, StoreClock};
use crate::disk::{Disk, OpenMode};
use crate::error::{IoVerb, StoreError};
use crate::log::build_file;

/// Name of the file.
pub(crate) const PATH: &str = "clock";
/// Milliseconds by which an open may move the time without writing the file. A store that is
/// restarted often therefore does not write the file each time.
const UNRECORDED_MS_MAX: u64 = 60_000;
/// Maximum size of the file in bytes.
const BYTES_MAX: u64 = 64;

/// Starts the clock if its wall clock is known, and records by how much this moves the time. If
/// that fails, the time is not moved. Returns `None` if the clock was not started.
pub(crate) fn start(clock: &StoreClock, newest_ms: u64, disk: &dyn Disk) -> Option<ClockReport> {
    clock.start(newest_ms, |moved_ms| {
        if disk.is_read_only() {
            return true;
        }
        let recorded_ms = read(disk);
        if moved_ms <= UNRECORDED_MS_MAX {
            if recorded_ms > 0 {
                clock.await_confirmation();
            }
            return true;
        }
        clock.await_confirmation();
        let recorded = write(disk, recorded_ms.saturating_add(moved_ms));
        if let Err(error) = &recorded {
            tracing::warn!(
                %error,
                "cannot write the file `clock`; the time of the store is not moved"
            );
        }
        recorded.is_ok()
    })
}

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
fn write(disk: &dyn Disk, moved_ms: u64) -> Result<(), StoreError> {
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
