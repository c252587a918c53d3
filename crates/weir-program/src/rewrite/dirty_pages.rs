//! Records which pieces of a memory were written.

use std::ops::Range;

/// Longest single write (a vector) minus one: the number of bytes that a write may extend beyond
/// the piece that it marks.
const WRITE_EXTENT_BYTES: usize = 15;
/// Bytes of the smallest piece, as a power of two.
const PIECE_SHIFT_MIN: u32 = 10;

/// Divides a memory into at most 64 pieces, and records which of them were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DirtyPages {
    /// A piece has 2 to the power `shift` bytes.
    pub(super) shift: u32,
    /// Bit n: piece n was written.
    pub(crate) bits: u64,
}

impl DirtyPages {
    /// A record without marks, for a memory of at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let piece = bytes_max.div_ceil(64).next_power_of_two();
        Self {
            shift: piece.trailing_zeros().max(PIECE_SHIFT_MIN),
            bits: 0,
        }
    }

    /// Marks a write of the host: `len` bytes, starting at `at`.
    pub(crate) fn add(&mut self, at: usize, len: usize) {
        if len == 0 {
            return;
        }
        let (first, last) = (at >> self.shift, (at + len - 1) >> self.shift);
        for piece in first..=last.min(63) {
            self.bits |= 1 << piece;
        }
    }

    /// Removes the marks. Returns the parts that may have been written in a memory of this size, in
    /// ascending order. Two parts may overlap by some bytes.
    pub(crate) fn take(
        &mut self,
        bytes: usize,
    ) -> impl Iterator<Item = Range<usize>> + Clone + use<> {
        let mut bits = std::mem::take(&mut self.bits);
        let shift = self.shift;
        std::iter::from_fn(move || {
            let from = (bits != 0).then(|| (bits.trailing_zeros() as usize) << shift)?;
            bits &= bits - 1;
            let to = (from + (1 << shift) + WRITE_EXTENT_BYTES).min(bytes);
            Some(from.min(to)..to)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 65_536;

    #[test]
    fn writes_of_the_host_mark_their_pieces() {
        let mut dirty = DirtyPages::new(PAGE as u64);
        dirty.add(1023, 2);
        assert_eq!(dirty.bits, 3);
        dirty.add(5000, 0);
        assert_eq!(dirty.bits, 3);
        dirty.add(65_535, 1);
        assert_eq!(dirty.bits, 3 | 1 << 63);
        // A memory of 16 MiB has pieces of 256 KiB.
        let mut wide = DirtyPages::new(16 << 20);
        wide.add((16 << 20) - 1, 1);
        assert_eq!(wide.bits, 1 << 63);
    }
}
