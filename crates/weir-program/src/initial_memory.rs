//! The initial contents of a memory, without its zeros.
//!
//! A module of 200 bytes may start with 16 MiB of zeros, and a store may have many modules.
//!
//! Invariant: only bytes that data segments wrote are stored, never more than the size of the
//! module.

use std::ops::Range;

/// Size of the cells that are compared with zero if the data segments are not known, in bytes.
const CELL_BYTES: usize = 64;

/// The initial contents of a memory.
#[derive(Debug, Default)]
pub(crate) struct InitialMemory {
    /// Length of the whole memory in bytes.
    len: usize,
    /// Parts that do not overlap, in ascending order: the start of each part in the memory, and in
    /// `bytes`.
    parts: Vec<(usize, usize)>,
    bytes: Vec<u8>,
}

impl InitialMemory {
    /// The contents of `memory`, to which only these segments were written.
    pub(crate) fn of_segments(memory: &[u8], segments: &[(usize, Vec<u8>)]) -> Self {
        let mut ranges: Vec<Range<usize>> = segments
            .iter()
            .map(|(at, bytes)| *at..at + bytes.len())
            .collect();
        ranges.sort_unstable_by_key(|range| range.start);
        Self::of_ranges(memory, ranges.into_iter())
    }

    /// The parts of `memory` that are not zero. O(length).
    pub(crate) fn of_memory(memory: &[u8]) -> Self {
        let cells = (0..).step_by(CELL_BYTES).zip(memory.chunks(CELL_BYTES));
        let used = cells.filter(|(_, cell)| cell.iter().any(|byte| *byte != 0));
        Self::of_ranges(memory, used.map(|(at, cell)| at..at + cell.len()))
    }

    /// Stores ranges, which are in the order of their starts.
    fn of_ranges(memory: &[u8], ranges: impl Iterator<Item = Range<usize>>) -> Self {
        let mut first = Self {
            len: memory.len(),
            ..Self::default()
        };
        let mut end = 0;
        for range in ranges.filter(|range| !range.is_empty()) {
            let from = range.start.max(end);
            let Some(bytes) = memory.get(from..range.end) else {
                continue;
            };
            if first.parts.is_empty() || from > end {
                first.parts.push((from, first.bytes.len()));
            }
            first.bytes.extend_from_slice(bytes);
            end = range.end;
        }
        first.parts.shrink_to_fit();
        first.bytes.shrink_to_fit();
        first
    }

    /// Length of the whole memory in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory that this value uses.
    pub(crate) fn bytes_used(&self) -> u64 {
        (self.bytes.len() + self.parts.len() * size_of::<(usize, usize)>()) as u64
    }

    /// Restores the initial contents of a part of a memory. O(part + log parts).
    pub(crate) fn restore(&self, part: Range<usize>, memory: &mut [u8]) {
        let Some(to) = memory.get_mut(part.clone()) else {
            return;
        };
        to.fill(0);
        let after = self.parts.partition_point(|(at, _)| *at <= part.start);
        for index in after.saturating_sub(1)..self.parts.len() {
            let Some((at, bytes)) = self.part(index).filter(|(at, _)| *at < part.end) else {
                return;
            };
            let (from, end) = (at.max(part.start), (at + bytes.len()).min(part.end));
            if from < end
                && let (Some(to), Some(bytes)) = (
                    to.get_mut(from - part.start..end - part.start),
                    bytes.get(from - at..end - at),
                )
            {
                to.copy_from_slice(bytes);
            }
        }
    }

    /// Writes zeros to every part whose initial contents are not zero.
    pub(crate) fn clear(&self, memory: &mut [u8]) {
        for index in 0..self.parts.len() {
            if let Some((at, bytes)) = self.part(index)
                && let Some(to) = memory.get_mut(at..at + bytes.len())
            {
                to.fill(0);
            }
        }
    }

    fn part(&self, index: usize) -> Option<(usize, &[u8])> {
        let (at, start) = *self.parts.get(index)?;
        let next = self.parts.get(index + 1);
        let end = next.map_or(self.bytes.len(), |(_, start)| *start);
        Some((at, self.bytes.get(start..end)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_restored() {
        let segments = [
            (100, vec![1; 50]),
            (120, vec![2; 10]),
            (140, vec![3; 20]),
            (160, vec![4; 5]),
            (1000, Vec::new()),
            (4000, vec![5; 96]),
        ];
        let mut memory = vec![0; 8192];
        for (at, bytes) in &segments {
            memory[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        for first in [
            InitialMemory::of_segments(&memory, &segments),
            InitialMemory::of_memory(&memory),
        ] {
            assert_eq!(first.len(), 8192);
            for (from, to) in [(0, 8192), (0, 101), (110, 165), (164, 4001), (4090, 5000)] {
                let mut dirty = vec![9; 8192];
                first.restore(from..to, &mut dirty);
                assert_eq!(dirty[from..to], memory[from..to], "{from}..{to}");
                assert!(dirty[..from].iter().chain(&dirty[to..]).all(|b| *b == 9));
            }
            let mut cleared = memory.clone();
            first.clear(&mut cleared);
            assert_eq!(cleared, vec![0; 8192]);
        }
    }

    #[test]
    fn zeros_use_no_memory() {
        let memory = vec![0; 16 << 20];
        assert_eq!(InitialMemory::of_segments(&memory, &[]).bytes_used(), 0);
        assert_eq!(InitialMemory::of_memory(&memory).bytes_used(), 0);
        let mut memory = memory;
        for page in memory.chunks_mut(4096) {
            page[7] = 1;
        }
        let segments: Vec<_> = (0..4096).map(|n| (n * 4096 + 7, vec![1])).collect();
        assert!(InitialMemory::of_segments(&memory, &segments).bytes_used() < 100_000);
        assert!(InitialMemory::of_memory(&memory).bytes_used() < 400_000);
    }
}
