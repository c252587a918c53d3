//! Purges the log after a snapshot, so that it does not grow for ever.
//!
//! Two snapshots are kept. The log goes up to the older one, in whole segments,
//! and keeps at least `OpenOptions::log_keep_bytes`. So the newest snapshot can
//! be lost and the state still be derived.
//!
//! Invariants: purged ≤ snapshot ≤ applied ≤ last (I3); nothing is purged before
//! both snapshots, and every block that they list, were read from disk and
//! checked.

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
use crate::topic::files::{BlockRef, Home, TopicFiles};

/// Where a block ends, by its segment; `None` while it is only in memory.
fn end_of(files: &TopicFiles, block: &BlockRef) -> Option<((TopicId, u32), u64)> {
    let Home::File(segment, position) = &block.home else {
        return None;
    };
    let end = position + HEADER_BYTES as u64 + u64::from(block.bytes);
    Some(((files.id, segment.number), end))
}

impl Committer {
    /// How far this store is.
    pub(crate) fn positions(&self) -> Positions {
        Positions {
            purged: LogIndex(self.log.first_index().0 - 1),
            snapshot: self.engine.snapshot_index(),
            applied: self.engine.applied_index(),
            last: self.log.last_index(),
        }
    }

    /// Purges the log up to an entry, or tells the log provider that it may do so.
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
    /// Purges the log before the older one of the snapshots that are kept, if
    /// a segment goes by that.
    pub(crate) fn purge_log(&self, permit: &ExclusivePermit) -> Result<(), StoreError> {
        let snapshots = snapshot::list(&*self.disk)?;
        let [_, .., older] = snapshots.as_slice() else {
            return Ok(());
        };
        let older = *older;
        let through = self.ask(move |committer| {
            let keep_bytes = committer.log_keep_bytes?;
            committer.log.purgeable_through(older, keep_bytes)
        })?;
        let Some(through) = through else {
            return Ok(());
        };
        if self.unread_bytes() > AT_ONCE_BYTES_MAX {
            // Others need the permit meanwhile: checkpoints, backups, retention.
            self.read_back_in_background();
            return Ok(());
        }
        for index in snapshots {
            snapshot::check(&*self.disk, self.engine.identity.store_id, index)?;
        }
        self.read_back_blocks(permit)?;
        self.ask(move |committer| committer.purge(through))?
    }

    /// Bytes of blocks that were not read back.
    fn unread_bytes(&self) -> u64 {
        let topics = self.engine.topics.read().clone();
        let marks = self.read_back.marks.lock();
        let mut bytes = 0;
        for files in &topics {
            let contents = files.contents.read();
            let unread = contents.blocks.iter().filter(|block| {
                end_of(files, block).is_some_and(|(segment, end)| {
                    marks.get(&segment).is_none_or(|before| *before < end)
                })
            });
            bytes += unread.map(|block| u64::from(block.bytes)).sum::<u64>();
        }
        bytes
    }

    /// Reads back what was not, at a bounded rate and without the permit, and purges the log then.
    fn read_back_in_background(&self) {
        let handle = self.clone();
        self.read_back
            .begin(move || match handle.read_back_slowly() {
                Ok(true) => {
                    // Who has the permit purges after a checkpoint of its own, or the next one does.
                    if let Some(permit) = handle.maintenance.try_acquire()
                        && let Err(error) = handle.purge_log(&permit)
                    {
                        tracing::warn!(%error, "the log was not purged");
                    }
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "the log was not purged"),
            });
    }

    /// Returns whether it came to the end.
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
                let before = self.read_back.marks.lock().get(&segment).copied();
                if before.is_some_and(|before| before >= end) {
                    continue;
                }
                // No mark for a rebuild: it may be gone, because no permit is held here.
                let checked = files.check(block);
                if checked.is_err() {
                    files.wait_installed();
                }
                let mut marks = self.read_back.marks.lock();
                if !self.engine.has_installed(installs) {
                    return Ok(false);
                }
                match checked {
                    // Compaction or retention has removed it.
                    Err(_) if files.is_replaced(block) => continue,
                    checked => drop(checked?),
                }
                marks.insert(segment, end);
                drop(marks);
                bytes += u64::from(block.bytes);
                if self.engine.queue.is_shut() || !self.read_back.pause(start, bytes) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Reads every block from disk that was not read back before.
    fn read_back_blocks(&self, _permit: &ExclusivePermit) -> Result<(), StoreError> {
        let topics = self.engine.topics.read().clone();
        let mut found = BTreeMap::new();
        for files in &topics {
            let blocks = files.contents.read().blocks.clone();
            for block in &blocks {
                let Some((segment, end)) = end_of(files, block) else {
                    continue;
                };
                let before = self.read_back.marks.lock().get(&segment).copied();
                if before.is_none_or(|before| before < end) {
                    files.load(block)?;
                }
                found.insert(segment, end);
            }
        }
        *self.read_back.marks.lock() = found;
        Ok(())
    }

    /// Reads a snapshot and every block from disk, before they become the only
    /// copy.
    pub(crate) fn read_back(
        &self,
        index: LogIndex,
        permit: &ExclusivePermit,
    ) -> Result<(), StoreError> {
        snapshot::check(&*self.disk, self.engine.identity.store_id, index)?;
        self.read_back.marks.lock().clear();
        self.read_back_blocks(permit)
    }
}
