//! The index of the log: which entries exist, and where. The writer and its readers share it.
//!
//! Invariants:
//! - `checkpoints` has only valid entries, in ascending order of index,
//!   sequence and position.
//! - The first valid entry of every segment has a checkpoint.
//! - Both numbers of `truncations` ascend.
//! - No I/O happens under the lock.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::format::{FIRST_POSITION, SegmentHeader};
use crate::disk::Disk;

/// Maximum number of bytes between two checkpoints, which a reader skips to find an entry.
const CHECKPOINT_EVERY_BYTES: u64 = 64 << 10;

/// A readable segment.
#[derive(Debug)]
pub(crate) struct SegmentView {
    pub(crate) path: String,
    pub(crate) header: SegmentHeader,
    /// Offset after the last written batch that is valid.
    end: AtomicU64,
}

impl SegmentView {
    pub(crate) fn new(path: String, header: SegmentHeader, end: u64) -> Self {
        Self {
            path,
            header,
            end: AtomicU64::new(end.max(FIRST_POSITION)),
        }
    }

    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Publishes a batch whose write has returned.
    pub(crate) fn set_end(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }
}

/// The position of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checkpoint {
    pub(crate) index: u64,
    /// First sequence of its segment.
    pub(crate) segment: u64,
    pub(crate) position: u64,
}

/// Entries above `keep` that were written before the batch `sequence` are truncated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Truncation {
    sequence: u64,
    keep: u64,
}

/// The entries of the log.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) segments: Vec<Arc<SegmentView>>,
    pub(crate) purged_index: u64,
    pub(crate) purged_term: u64,
    pub(crate) last_index: u64,
    checkpoints: Vec<Checkpoint>,
    truncations: Vec<Truncation>,
    /// First index and term of each run of equal terms.
    terms: Vec<(u64, u64)>,
}

impl View {
    /// Adds an entry at `position` of the segment whose first sequence is `segment`.
    pub(crate) fn add(&mut self, index: u64, term: u64, segment: u64, position: u64) {
        self.last_index = index;
        if self.terms.last().is_none_or(|(_, last)| *last != term) {
            self.terms.push((index, term));
        }
        let is_near = self.checkpoints.last().is_some_and(|last| {
            last.segment == segment && position < last.position + CHECKPOINT_EVERY_BYTES
        });
        if !is_near {
            self.checkpoints.push(Checkpoint {
                index,
                segment,
                position,
            });
        }
    }

    /// Truncates entries above `keep`, as recorded in the batch `sequence`.
    pub(crate) fn truncate(&mut self, keep: u64, sequence: u64) {
        self.last_index = keep;
        self.terms
            .truncate(self.terms.partition_point(|(first, _)| *first <= keep));
        self.checkpoints
            .truncate(self.checkpoints.partition_point(|at| at.index <= keep));
        self.truncations
            .truncate(self.truncations.partition_point(|at| at.keep < keep));
        self.truncations.push(Truncation { sequence, keep });
    }

    /// Removes all entries. The next entry gets the index `last_index` + 1.
    pub(crate) fn reset(&mut self, last_index: u64, last_term: u64) {
        self.checkpoints.clear();
        self.truncations.clear();
        self.terms.clear();
        self.last_index = last_index;
        self.purged_index = last_index;
        self.purged_term = last_term;
    }

    /// The term of a valid entry, or of the last purged one.
    pub(crate) fn term_at(&self, index: u64) -> Option<u64> {
        if index == self.purged_index {
            return Some(self.purged_term);
        }
        if index < self.purged_index || index > self.last_index {
            return None;
        }
        let runs = self.terms.partition_point(|(first, _)| *first <= index);
        self.terms.get(runs.checked_sub(1)?).map(|(_, term)| *term)
    }

    /// Whether the entry `index`, written in the batch `sequence`, is still valid (not truncated).
    pub(crate) fn is_valid(&self, index: u64, sequence: u64) -> bool {
        is_valid_entry(&self.truncations, index, sequence)
    }

    pub(crate) fn truncations(&self) -> &[Truncation] {
        &self.truncations
    }

    /// The nearest checkpoint at or before the entry `index`.
    pub(crate) fn locate(&self, index: u64) -> Option<Checkpoint> {
        let after = self.checkpoints.partition_point(|at| at.index <= index);
        self.checkpoints.get(after.checked_sub(1)?).copied()
    }

    /// Index of the first valid entry whose bytes exist.
    pub(crate) fn first_present(&self) -> Option<u64> {
        self.checkpoints.first().map(|at| at.index)
    }

    /// Number of leading segments without an entry above `index`; never includes the last segment.
    pub(crate) fn purgeable(&self, index: u64) -> usize {
        let next = index.saturating_add(1);
        let mut count = 0;
        for pair in self.segments.windows(2) {
            let [_, after] = pair else { break };
            let at = self
                .checkpoints
                .partition_point(|at| at.segment < after.header.first_sequence);
            let first_after = self
                .checkpoints
                .get(at)
                .map_or(self.last_index.saturating_add(1), |at| at.index);
            if first_after > next {
                break;
            }
            count += 1;
        }
        count
    }

    /// Removes the first `count` segments and their entries.
    pub(crate) fn drop_front(&mut self, count: usize) -> Vec<Arc<SegmentView>> {
        let removed: Vec<_> = self.segments.drain(..count).collect();
        if let Some(first) = self
            .segments
            .first()
            .map(|segment| segment.header.first_sequence)
        {
            let at = self.checkpoints.partition_point(|at| at.segment < first);
            self.checkpoints.drain(..at);
            self.truncations.retain(|at| at.sequence >= first);
        }
        removed
    }

    /// The segment whose first sequence is `first_sequence`.
    pub(crate) fn segment(&self, first_sequence: u64) -> Option<&Arc<SegmentView>> {
        let at = self
            .segments
            .binary_search_by_key(&first_sequence, |segment| segment.header.first_sequence)
            .ok()?;
        self.segments.get(at)
    }

    /// The segment after the one whose first sequence is `first_sequence`.
    pub(crate) fn segment_after(&self, first_sequence: u64) -> Option<&Arc<SegmentView>> {
        let at = self
            .segments
            .partition_point(|segment| segment.header.first_sequence <= first_sequence);
        self.segments.get(at)
    }
}

/// Like [`View::is_valid`], on a copy of the truncations. Both numbers of the truncations ascend,
/// so the first truncation after `sequence` has the lowest `keep`.
pub(crate) fn is_valid_entry(truncations: &[Truncation], index: u64, sequence: u64) -> bool {
    let after = truncations.partition_point(|at| at.sequence <= sequence);
    truncations.get(after).is_none_or(|at| index <= at.keep)
}

/// The view and its lock.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    view: RwLock<View>,
    /// Incremented when data that a reader may have buffered becomes invalid.
    generation: AtomicU64,
}

impl Shared {
    pub(crate) fn new(disk: Arc<dyn Disk>, view: View) -> Self {
        Self {
            disk,
            view: RwLock::new(view),
            generation: AtomicU64::new(0),
        }
    }

    /// No panic can interrupt a change of the view, so the view is always consistent.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, View> {
        self.view.read()
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, View> {
        self.view.write()
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn raise_generation(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_entry_of_an_index_is_valid() {
        let mut view = View::default();
        for index in 1..=10 {
            view.add(index, 1, 1, index * 512);
        }
        view.truncate(7, 11); // batches 8, 9, 10 are truncated
        view.add(8, 2, 1, 12 * 512); // sequence 12
        view.add(9, 2, 1, 13 * 512);
        view.truncate(8, 14); // batch 13 is truncated
        view.add(9, 3, 1, 15 * 512);
        assert!(view.is_valid(7, 7) && !view.is_valid(8, 8) && !view.is_valid(10, 10));
        assert!(view.is_valid(8, 12) && !view.is_valid(9, 13) && view.is_valid(9, 15));
        assert_eq!(
            [7, 8, 9].map(|index| view.term_at(index)),
            [Some(1), Some(2), Some(3)]
        );
        assert_eq!(view.term_at(10), None);
        view.truncate(3, 16);
        assert!(!view.is_valid(8, 12) && view.is_valid(3, 3) && !view.is_valid(4, 4));
    }
}
