//! Writes a checkpoint whose state was captured before, and removes the snapshots that are no
//! longer needed.

use crate::disk::Disk;
use crate::engine::Engine;
use crate::error::{IoVerb, StoreError};
use crate::log::LogIndex;
use crate::permit::ExclusivePermit;
use crate::snapshot::{self, Checkpoint};

/// Number of snapshots that are retained: the newest and the one before it.
const SNAPSHOTS_KEPT: usize = 2;

/// Writes a checkpoint and removes snapshots that are no longer needed. A failure is recorded until
/// a later checkpoint succeeds.
pub(crate) fn finish(
    engine: &Engine,
    disk: &dyn Disk,
    checkpoint: &Checkpoint,
    _permit: &ExclusivePermit,
) -> Result<LogIndex, StoreError> {
    let written = write_and_remove_old(engine, disk, checkpoint);
    match &written {
        Ok(_) => engine.checkpoint_succeeded(),
        Err(error) => engine.checkpoint_failed(error),
    }
    written
}

fn write_and_remove_old(
    engine: &Engine,
    disk: &dyn Disk,
    checkpoint: &Checkpoint,
) -> Result<LogIndex, StoreError> {
    let index = checkpoint.snapshot.index;
    let written = checkpoint.write(disk, engine.identity.store_id);
    if let Err(error) = written {
        let is_sync = matches!(
            &error,
            StoreError::Io {
                verb: IoVerb::Sync,
                ..
            }
        );
        // Without a free descriptor, the sync of a directory did not start. The next checkpoint
        // repeats all syncs.
        if is_sync && !error.lacks_descriptors() {
            // The data that the failed sync covered may never reach the disk (DF1).
            return Err(engine.poison(error));
        }
        return Err(error);
    }
    engine.counters.snapshots.add(1);
    assert!(
        engine.snapshot_index() <= index && index <= engine.applied_index(),
        "a snapshot covers only applied entries, and no fewer than the one before (I3)"
    );
    engine.counters.snapshot_index.set(index.0);
    for old in snapshot::list(disk)?.into_iter().skip(SNAPSHOTS_KEPT) {
        let path = snapshot::path(old);
        disk.remove(&path)
            .map_err(StoreError::io(IoVerb::Remove, &path))?;
    }
    Ok(index)
}
