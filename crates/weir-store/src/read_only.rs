//! Opening a store for reading only, possibly beside the process that writes it.
//!
//! The state is made in memory, of the newest snapshot and the log after it, as
//! an open would make it; records that only the log has go to a scratch file
//! outside the directory ([`ReadOnlyDisk`]).
//!
//! The writer goes on meanwhile. It appends to the log: a batch that is written
//! in part ends the log here, as after a crash. It purges the log and removes
//! snapshots and topic segments: then an attempt meets a file that is missing or
//! does not fit, and the next attempt begins with the names of that time. An
//! error that several attempts meet in the same words is no race and is
//! returned.
//!
//! Where the install of a snapshot was begun, the state is that of its end.
//!
//! Invariant: nothing in the directory is changed, created or locked.

use std::sync::Arc;
use std::time::Duration;

use crate::disk::{Disk, ReadOnlyDisk};
use crate::engine::Engine;
use crate::error::StoreError;
use crate::identity::{self, Identity};
use crate::install::Pending;
use crate::log::LogReaders;
use crate::options::OpenOptions;
use crate::recovery::{self, OpenReport};
use crate::topic::cache::FileCache;

/// Attempts to read the files, at most.
const ATTEMPTS_MAX: u32 = 10;
/// Attempts in a row that meet the same error before it is returned.
const SAME_MAX: u32 = 3;
/// Pause after an attempt, times the number of attempts so far.
const PAUSE: Duration = Duration::from_millis(10);

/// A state that is only read.
pub(crate) struct Parts {
    pub(crate) files: Arc<FileCache>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) readers: LogReaders,
    pub(crate) report: OpenReport,
}

/// Reads the state of the store on `disk`, to which another process may write.
pub(crate) fn open(disk: &Arc<dyn Disk>, options: &OpenOptions) -> Result<Parts, StoreError> {
    let mut same = 0;
    let mut before = String::new();
    let mut attempts = 0;
    loop {
        attempts += 1;
        let error = match attempt(disk, options) {
            Ok(parts) => return Ok(parts),
            Err(error) if may_be_race(&error) => error,
            Err(error) => return Err(error),
        };
        let text = error.to_string();
        same = if text == before { same + 1 } else { 1 };
        before = text;
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
    let pending = Pending::find(disk, &identity.store_id)?;
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

/// Whether the process that writes the store can have caused an error.
fn may_be_race(error: &StoreError) -> bool {
    match error {
        // Something was written, replaced or purged between two reads.
        StoreError::Damage { .. } | StoreError::IndexOutOfRange { .. } => true,
        // A file was removed, or cut to the length that counts.
        StoreError::Io { source, .. } => matches!(
            source.kind(),
            std::io::ErrorKind::NotFound | std::io::ErrorKind::UnexpectedEof
        ),
        _ => false,
    }
}
