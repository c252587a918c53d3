//! Purges the log after a snapshot, so that the log does not grow without a limit.
//!
//! The store retains two snapshots. A purge removes whole segments of the log up to the older
//! snapshot, and retains at least `OpenOptions::log_keep_bytes`. If the newest snapshot is lost,
//! the state can still be derived from the older one and the log.
//!
//! Invariants:
//!
//! - purged ≤ snapshot ≤ applied ≤ last (I3).
//! - Nothing is purged before both snapshots, and every block that they list, were read from disk
//!   and checked.

use std::collections::BTreeMap;
use std::time::Instant;

use weir_core::TopicId;

use crate::commit::Committer;
use crate::engine::Positions;
use crate::error::StoreError;
use crate::log::LogIndex;
use crate::log_index::EntryId;
use crate::maintenance_handle::MaintenanceHandle;
use crate::permit::ExclusivePermit;
use crate::read_back::AT_ONCE_BYTES_MAX;
use crate::snapshot;
use crate::topic::block::HEADER_BYTES;
use crate::topic::files::{BlockRef, BlockStorage, TopicFiles};

/// Returns the segment of a block and the position in bytes at which the block ends there. `None`
/// if the block is only in memory.
fn end_of(files: &TopicFiles, block: &BlockRef) -> Option<((TopicId, u32), u64)> {
    let BlockStorage::File(segment, position) = &block.storage else {
        return None;
    };
    let end = position + HEADER_BYTES as u64 + u64::from(block.bytes);
    Some(((files.id, segment.number), end))
}

impl Committer {
    /// Returns the log positions of this store.
    pub(crate) fn positions(&self) -> Positions {
        Positions {
            purged: LogIndex(self.log.first_index().0 - 1),
            snapshot: self.engine.snapshot_index(),
            applied: self.engine.applied_index(),
            last: self.log.last_index(),
        }
    }

    /// Purges the log up to an entry. In a cluster, reports to the log provider that it may purge.
    pub(crate) fn purge(&mut self, through: LogIndex) -> Result<(), StoreError> {
        if let Some(replica) = &self.replica {
            if let Some(term) = self.log.term_at(through) {
                let index = through;
                replica.provider.purgeable(EntryId { term, index });
            }
            return Ok(());
        }
        let mut positions = self.positions();
        positions.purged = positions.purged.max(through);
        positions.assert_order();
        let purged = self.log.purge_through(through);
        purged.map_err(|error| self.fail(error))?;
        let counters = &self.engine.counters;
        counters.purged_index.set(through.0);
        counters.log_bytes.set(self.log.stats().bytes);
        Ok(())
    }
}

impl MaintenanceHandle {
    /// Purges the log before the older retained snapshot, if this removes a segment.
    pub(crate) fn purge_log(&self, permit: &ExclusivePermit) -> Result<(), StoreError> {
        let snapshots = snapshot::list(&*self.disk)?;
        let [_, .., older] = snapshots.as_slice() else {
            return Ok(());
        };
        let older = *older;
        let through = self.run_on_commit_thread(move |committer| {
            let keep_bytes = committer.log_keep_bytes?;
            committer.log.purgeable_through(older, keep_bytes)
        })?;
        let Some(through) = through else {
            return Ok(());
        };
        if self.unread_bytes() > AT_ONCE_BYTES_MAX {
            // Reading back takes long, and checkpoints, backups and retention need the permit.
            self.read_back_in_background();
            return Ok(());
        }
        for index in snapshots {
            snapshot::check(&*self.disk, self.engine.identity.store_id, index)?;
        }
        self.read_back_blocks(permit)?;
        self.run_on_commit_thread(move |committer| committer.purge(through))?
    }

    /// Returns the bytes of the blocks that were not read back yet.
    fn unread_bytes(&self) -> u64 {
        let topics = self.engine.topics.read().clone();
        let positions = self.read_back.positions.lock();
        let mut bytes = 0;
        for files in &topics {
            let contents = files.contents.read();
            let unread = contents.blocks.iter().filter(|block| {
                end_of(files, block).is_some_and(|(segment, end)| {
                    positions.get(&segment).is_none_or(|before| *before < end)
                })
            });
            bytes += unread.map(|block| u64::from(block.bytes)).sum::<u64>();
        }
        bytes
    }

    /// Reads back the remaining blocks at a bounded rate, without the permit. Then purges the log.
    fn read_back_in_background(&self) {
        let handle = self.clone();
        let work = move || match handle.read_back_most() {
            Ok(true) => {
                // If another task has the permit, a later checkpoint purges.
                if let Some(permit) = handle.maintenance.try_acquire()
                    && let Err(error) = handle.purge_log(&permit)
                {
                    tracing::warn!(%error, "the log was not purged");
                }
            }
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "the log was not purged"),
        };
        self.read_back.begin(work);
    }

    /// Reads back the remaining blocks, also those that are written meanwhile, until a purge can
    /// read the rest. Returns `false` if it stopped before.
    fn read_back_most(&self) -> Result<bool, StoreError> {
        while self.read_back_slowly()? {
            if self.unread_bytes() <= AT_ONCE_BYTES_MAX {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads back the remaining blocks. Returns `false` if it stopped before the end.
    fn read_back_slowly(&self) -> Result<bool, StoreError> {
        let (start, mut bytes) = (Instant::now(), 0);
        let installs = self.engine.counters.installs.get();
        let topics = self.engine.topics.read().clone();
        for files in &topics {
            let blocks = files.contents.read().blocks.clone();
            for block in &blocks {
                let Some((segment, end)) = end_of(files, block) else {
                    continue;
                };
                let before = self.read_back.positions.lock().get(&segment).copied();
                if before.is_some_and(|before| before >= end) {
                    continue;
                }
                // Do not mark the block for a rebuild on an error: without the permit, the block
                // may have been removed meanwhile.
                let checked = files.check(block);
                if checked.is_err() {
                    files.wait_installed();
                }
                let mut positions = self.read_back.positions.lock();
                if !self.engine.has_installed(installs) {
                    return Ok(false);
                }
                match checked {
                    // Compaction or retention has removed the block.
                    Err(_) if files.is_replaced(block) => continue,
                    checked => drop(checked?),
                }
                positions.insert(segment, end);
                drop(positions);
                bytes += u64::from(block.bytes);
                if self.engine.queue.is_shut() || !self.read_back.pause(start, bytes) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Reads from disk every block that was not read back before.
    fn read_back_blocks(&self, _permit: &ExclusivePermit) -> Result<(), StoreError> {
        let topics = self.engine.topics.read().clone();
        let mut found = BTreeMap::new();
        for files in &topics {
            let blocks = files.contents.read().blocks.clone();
            for block in &blocks {
                let Some((segment, end)) = end_of(files, block) else {
                    continue;
                };
                let before = self.read_back.positions.lock().get(&segment).copied();
                if before.is_none_or(|before| before < end) {
                    files.load(block)?;
                }
                found.insert(segment, end);
            }
        }
        *self.read_back.positions.lock() = found;
        Ok(())
    }

    /// Reads a snapshot and every block from disk, before they become the only copy of the state.
    pub(crate) fn read_back(
        &self,
        index: LogIndex,
        permit: &ExclusivePermit,
    ) -> Result<(), StoreError> {
        snapshot::check(&*self.disk, self.engine.identity.store_id, index)?;
        self.read_back.positions.lock().clear();
        self.read_back_blocks(permit)
    }
}
