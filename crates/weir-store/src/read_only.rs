//! Opens a store for reading only, while another process may write to it.
//!
//! The state is derived in memory from the newest snapshot and the log after it, as in any open.
//! Records that only the log has are written to a scratch file outside the directory
//! ([`ReadOnlyDisk`]).
//!
//! The other process may change the directory during the open:
//!
//! - It appends to the log. A partially written batch ends the log, as after a crash.
//! - It purges the log, and removes snapshots and topic segments. An attempt then fails at a file
//!   that is missing or does not match, and the next attempt lists the files again.
//!
//! If several attempts fail with the same error text, the error is not a race and is returned.
//!
//! If the install of a snapshot has begun, the state is the state after the install.
//!
//! Invariant: nothing in the directory is changed, created or locked.

use std::sync::Arc;
use std::time::Duration;

use crate::disk::{Disk, ReadOnlyDisk};
use crate::engine::Engine;
use crate::error::StoreError;
use crate::identity::{self, Identity};
use crate::install::PendingInstall;
use crate::log::LogReaders;
use crate::options::OpenOptions;
use crate::recovery::{self, OpenReport};
use crate::topic::cache::FileCache;

/// Maximum number of attempts to read the files.
const ATTEMPTS_MAX: u32 = 10;
/// Number of consecutive attempts with the same error after which the error is returned.
const SAME_MAX: u32 = 3;
/// Pause after an attempt, multiplied by the number of attempts so far.
const PAUSE: Duration = Duration::from_millis(10);

/// The parts of a store that is open for reading only.
pub(crate) struct Parts {
    pub(crate) files: Arc<FileCache>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) readers: LogReaders,
    pub(crate) report: OpenReport,
}

/// Reads the state of the store on `disk`. Another process may write to the disk.
pub(crate) fn open(disk: &Arc<dyn Disk>, options: &OpenOptions) -> Result<Parts, StoreError> {
    let mut same = 0;
    let mut previous = String::new();
    let mut attempts = 0;
    loop {
        attempts += 1;
        let error = match attempt(disk, options) {
            Ok(parts) => return Ok(parts),
            Err(error) if may_be_race(&error) => error,
            Err(error) => return Err(error),
        };
        let text = error.to_string();
        same = if text == previous { same + 1 } else { 1 };
        previous = text;
        if same == SAME_MAX {
            return Err(error);
        }
        if attempts == ATTEMPTS_MAX {
            let cause = Box::new(error);
            return Err(StoreError::ChangedWhileRead { attempts, cause });
        }
        std::thread::sleep(PAUSE * attempts);
    }
}

/// Reads the files once. Each attempt has its own scratch file.
fn attempt(disk: &Arc<dyn Disk>, options: &OpenOptions) -> Result<Parts, StoreError> {
    let missing = || StoreError::Missing { what: "store" };
    let identity = Identity::read(&**disk, identity::PATH)?.ok_or_else(missing)?;
    let pending = PendingInstall::find(disk, &identity.store_id)?;
    let disk = pending.as_ref().map_or(disk, |pending| &pending.disk);
    let disk = Arc::new(ReadOnlyDisk::new(Arc::clone(disk)));
    let files = Arc::new(FileCache::new(disk));
    let (engine, readers, report) = recovery::read(&files, &identity, pending.as_ref(), options)?;
    Ok(Parts {
        files,
        engine,
        readers,
        report,
    })
}

/// Whether a concurrent writer may have caused the error.
fn may_be_race(error: &StoreError) -> bool {
    match error {
        // Something was written, replaced or purged between two reads.
        StoreError::Damage { .. } | StoreError::IndexOutOfRange { .. } => true,
        // A file was removed, or truncated to its valid length.
        StoreError::Io { source, .. } => matches!(
            source.kind(),
            std::io::ErrorKind::NotFound | std::io::ErrorKind::UnexpectedEof
        ),
        _ => false,
    }
}
