//! Checksums, masks, and counts of sectors by their set bits, over data in several parts.
//!
//! A batch records how many of its sectors are zero on purpose, and recovery compares this number
//! (`docs/formats/log.md`, section 7.2). Invariant: the payload is not copied.

use weir_core::exact::to_u32;

/// Bytes that the disk writes completely or not at all.
pub(crate) const SECTOR: usize = 512;
/// `SECTOR` as a file offset.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// CRC-32C of `bytes`.
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Whether the checksum of a payload matches its header.
pub(crate) fn is_payload(found: u32, expected: u32) -> bool {
    #[cfg(feature = "sim")]
    if crate::disk::trusts_payloads() {
        return true;
    }
    found == expected
}

/// CRC-32C of the concatenation of all parts.
pub(crate) fn crc_parts(parts: &[&[u8]]) -> u32 {
    match parts {
        [] => 0,
        [one] => crc(one),
        many => {
            let mut digest = CrcStream::new();
            for part in many {
                digest.update(part);
            }
            digest.finish()
        }
    }
}

/// CRC-32C of bytes that arrive in pieces.
pub(crate) struct CrcStream(crc_fast::Digest);

impl CrcStream {
    pub(crate) fn new() -> Self {
        Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(&self) -> u32 {
        to_u32(self.0.finalize(), "a CRC-32C has 32 bits")
    }
}

/// Whether all bytes are 0.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    // Comparing with a block of zeros is the fastest test, also in builds without optimization.
    bytes
        .chunks(ZEROS.len())
        .all(|chunk| chunk == &ZEROS[..chunk.len()])
}

static ZEROS: [u8; 4096] = [0; 4096];

/// Number of special sectors of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SectorCount {
    /// Sectors that are all zero.
    pub(crate) zero: u32,
    /// Sectors with exactly one set bit.
    pub(crate) one_bit: u32,
}

impl SectorCount {
    /// Counts a sector; `bits` is the number of its set bits, counted up to two.
    fn add(&mut self, bits: u32) {
        self.zero += u32::from(bits == 0);
        self.one_bit += u32::from(bits == 1);
    }
}

/// Number of set bits of `bytes`, counted up to two. The first bytes nearly always decide.
fn bits_up_to_two(bytes: &[u8]) -> u32 {
    let mut bits = 0;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        bits += u64::from_le_bytes(*word).count_ones();
        if bits > 1 {
            return 2;
        }
    }
    for byte in rest {
        bits += byte.count_ones();
    }
    bits.min(2)
}

/// Counts the sectors of the concatenated parts, which start on a sector boundary. An incomplete
/// last sector counts as if padded with zeros. Takes O(sectors) time unless many bytes are zero.
pub(crate) fn count_sectors<'a>(parts: impl Iterator<Item = &'a [u8]>) -> SectorCount {
    let mut count = SectorCount::default();
    // Number of bytes in the current sector, and their set bits.
    let mut filled = 0_usize;
    let mut bits = 0;
    for mut part in parts {
        if filled > 0 {
            let (head, tail) = part.split_at(part.len().min(SECTOR - filled));
            if bits < 2 {
                bits += bits_up_to_two(head);
            }
            filled += head.len();
            part = tail;
            if filled < SECTOR {
                continue;
            }
            count.add(bits);
        }
        let (sectors, rest) = part.as_chunks::<SECTOR>();
        for sector in sectors {
            count.add(bits_up_to_two(sector));
        }
        filled = rest.len();
        bits = bits_up_to_two(rest);
    }
    if filled > 0 {
        count.add(bits);
    }
    count
}

/// XORs `bytes` with the mask; `offset` is the offset of `bytes` in the payload.
pub(crate) fn apply_mask(bytes: &mut [u8], mask: u64, offset: u64) {
    let pattern = mask
        .rotate_right(to_u32(offset % 8, "a remainder of 8 is below 8") * 8)
        .to_le_bytes();
    let (words, rest) = bytes.as_chunks_mut::<8>();
    let wide = u64::from_le_bytes(pattern);
    for word in words {
        *word = (u64::from_le_bytes(*word) ^ wide).to_le_bytes();
    }
    for (byte, pattern) in rest.iter_mut().zip(pattern) {
        *byte ^= pattern;
    }
}

/// The `number`-th mask to try for a payload; `number` counts from 1.
pub(crate) fn mask_to_try(salt: u64, sequence: u64, number: u64) -> u64 {
    // The constant spreads the bits; any odd constant works.
    (salt ^ sequence.rotate_left(32))
        .wrapping_add(number)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        | 1
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_crc_32c() {
        assert_eq!(crc(b"123456789"), 0xE306_9283);
        assert_eq!(crc_parts(&[b"1234", b"", b"56789"]), 0xE306_9283);
        assert_eq!(crc(b""), 0);
        let long: Vec<u8> = (0..100_000_u32)
            .map(|n| (n * 7 % 251).to_le_bytes()[0])
            .collect();
        let mut slow = u32::MAX;
        for byte in &long {
            slow ^= u32::from(*byte);
            for _ in 0..8 {
                slow = if slow & 1 == 1 {
                    (slow >> 1) ^ 0x82F6_3B78
                } else {
                    slow >> 1
                };
            }
        }
        assert_eq!(crc(&long), !slow);
    }

    #[test]
    fn sectors_are_counted_across_part_borders() {
        // Three sectors, each all zero, with one set bit, or with two; every pair of split points.
        for pattern in 0..27_usize {
            let mut bytes = vec![0_u8; 3 * SECTOR];
            let mut expected = SectorCount::default();
            for sector in 0..3 {
                let bits = pattern / 3_usize.pow(u32::try_from(sector).unwrap()) % 3;
                for bit in 0..bits {
                    bytes[sector * SECTOR + (pattern * 97 + bit * 311) % SECTOR] |= 0x10;
                }
                expected.add(u32::try_from(bits).unwrap());
            }
            for first in (0..bytes.len()).step_by(37) {
                for second in (first..bytes.len()).step_by(101) {
                    let parts = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                    assert_eq!(count_sectors(parts.into_iter()), expected);
                }
            }
        }
        assert_eq!(count_sectors([&[0_u8; 5][..], &[][..]].into_iter()).zero, 1);
        assert_eq!(count_sectors([&[][..]].into_iter()), SectorCount::default());
    }

    #[test]
    fn a_mask_can_be_applied_and_removed_in_pieces() {
        let plain: Vec<u8> = (0..=255).cycle().take(3001).collect();
        let mask = mask_to_try(3, 9, 1);
        let mut masked = plain.clone();
        apply_mask(&mut masked, mask, 0);
        for (at, byte) in masked.iter().enumerate() {
            assert_eq!(byte ^ plain[at], mask.to_le_bytes()[at % 8]);
        }
        for cut in [0, 1, 7, 8, 1000, 3001] {
            let mut pieces = masked.clone();
            let (head, tail) = pieces.split_at_mut(cut);
            apply_mask(head, mask, 0);
            apply_mask(tail, mask, cut as u64);
            assert_eq!(pieces, plain);
        }
    }
}
