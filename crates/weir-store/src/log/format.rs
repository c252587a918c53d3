//! The bytes of `docs/formats/log.md`: segment header, batch header, start
//! file, cut header.
//!
//! Decoding checks only magic, format and checksum. The caller knows the position and checks that
//! the value belongs there. Invariants: no I/O, and no panic on any input.

use super::sectors::{SECTOR, SECTOR_BYTES, crc};

/// Bytes of the header block of a segment.
pub(crate) const SEGMENT_HEADER: usize = 4096;
/// `SEGMENT_HEADER` as a file offset: the position of the first batch.
pub(crate) const FIRST_POSITION: u64 = 4096;
/// Bytes of a batch header.
pub(crate) const BATCH_HEADER: usize = 128;
/// Maximum size of a segment that is created or accepted.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 1 << 40;
/// Format number of all structures in this module.
pub(crate) const FORMAT: u16 = 1;

const SEGMENT_MAGIC: [u8; 8] = *b"WEIRLOGS";
const BATCH_MAGIC: [u8; 4] = *b"WBAT";
const START_MAGIC: [u8; 8] = *b"WEIRSTRT";
const CUT_MAGIC: [u8; 8] = *b"WEIRCUTS";

const _: () = assert!(SEGMENT_HEADER.is_multiple_of(SECTOR) && BATCH_HEADER <= SECTOR);

/// Why bytes cannot be decoded as a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undecodable {
    /// Wrong magic or checksum, or a field that format 1 does not allow.
    Bad,
    /// Valid checksum, but a format that this program does not know.
    Newer(u16),
    /// Valid checksum and format 1, but an unknown kind, flag or field.
    Unknown,
}

/// Reads fields in order. Reads past the end return zeros; the fixed sizes below rule them out.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let Some((head, tail)) = self.0.split_first_chunk::<N>() else {
            self.0 = &[];
            return [0; N];
        };
        self.0 = tail;
        *head
    }

    fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.bytes())
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.bytes())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }

    fn rest_is_zero(&self, leave: usize) -> bool {
        let len = self.0.len().saturating_sub(leave);
        self.0.iter().take(len).all(|byte| *byte == 0)
    }
}

/// Writes fields in order into a buffer of zeros.
struct Filler<'a> {
    buffer: &'a mut [u8],
    at: usize,
}

impl Filler<'_> {
    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.buffer[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
        self
    }

    /// Writes the checksum of all bytes before the last four into the last four.
    fn seal(self) {
        let end = self.buffer.len() - 4;
        let sum = crc(&self.buffer[..end]);
        self.buffer[end..].copy_from_slice(&sum.to_le_bytes());
    }
}

fn checksum_holds(bytes: &[u8]) -> bool {
    bytes
        .split_last_chunk::<4>()
        .is_some_and(|(head, sum)| crc(head) == u32::from_le_bytes(*sum))
}

fn format_of(format: u16) -> Result<(), Undecodable> {
    match format {
        FORMAT => Ok(()),
        0 => Err(Undecodable::Bad),
        newer => Err(Undecodable::Newer(newer)),
    }
}

/// Section 3: the header block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) repair: bool,
    pub(crate) reset: bool,
    pub(crate) store_id: [u8; 16],
    pub(crate) segment_id: u64,
    pub(crate) first_sequence: u64,
    pub(crate) next_index: u64,
    pub(crate) last_term: u64,
    pub(crate) epoch: u64,
    pub(crate) durable_before: u64,
    pub(crate) file_bytes: u64,
    pub(crate) previous_id: u64,
    pub(crate) salt: u64,
    pub(crate) previous_salt: u64,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER] {
        let mut bytes = [0; SEGMENT_HEADER];
        let flags = u16::from(self.repair) | (u16::from(self.reset) << 1);
        let mut fill = Filler {
            buffer: &mut bytes,
            at: 0,
        };
        fill.put(&SEGMENT_MAGIC)
            .put(&FORMAT.to_le_bytes())
            .put(&flags.to_le_bytes())
            .put(&4096_u32.to_le_bytes())
            .put(&self.store_id)
            .put(&self.segment_id.to_le_bytes())
            .put(&self.first_sequence.to_le_bytes())
            .put(&self.next_index.to_le_bytes())
            .put(&self.last_term.to_le_bytes())
            .put(&self.epoch.to_le_bytes())
            .put(&self.durable_before.to_le_bytes())
            .put(&self.file_bytes.to_le_bytes())
            .put(&self.previous_id.to_le_bytes())
            .put(&512_u32.to_le_bytes())
            .put(&self.salt.to_le_bytes())
            .put(&self.previous_salt.to_le_bytes());
        fill.seal();
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; SEGMENT_HEADER]) -> Result<Self, Undecodable> {
        let mut fields = Fields(bytes);
        if fields.bytes() != SEGMENT_MAGIC || !checksum_holds(bytes) {
            return Err(Undecodable::Bad);
        }
        format_of(fields.u16())?;
        let flags = fields.u16();
        let header_bytes = fields.u32();
        let header = Self {
            repair: flags & 1 != 0,
            reset: flags & 2 != 0,
            store_id: fields.bytes(),
            segment_id: fields.u64(),
            first_sequence: fields.u64(),
            next_index: fields.u64(),
            last_term: fields.u64(),
            epoch: fields.u64(),
            durable_before: fields.u64(),
            file_bytes: fields.u64(),
            previous_id: fields.u64(),
            salt: 0,
            previous_salt: 0,
        };
        let sector_bytes = fields.u32();
        let header = Self {
            salt: fields.u64(),
            previous_salt: fields.u64(),
            ..header
        };
        let is_valid = flags & !0b11 == 0
            && header_bytes == 4096
            && sector_bytes == 512
            && fields.rest_is_zero(4)
            && header.first_sequence > 0
            && header.next_index > 0
            && header.file_bytes <= SEGMENT_BYTES_MAX
            && header.file_bytes.is_multiple_of(SECTOR_BYTES);
        if is_valid {
            Ok(header)
        } else {
            Err(Undecodable::Unknown)
        }
    }
}

/// The kind of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Data = 1,
    Seal = 2,
    Clean = 3,
    Open = 4,
    Truncate = 5,
    Reset = 6,
    Roll = 7,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Data,
            2 => Self::Seal,
            3 => Self::Clean,
            4 => Self::Open,
            5 => Self::Truncate,
            6 => Self::Reset,
            7 => Self::Roll,
            _ => return None,
        })
    }

    /// Whether a batch of this kind changes the set of entries.
    pub(crate) fn changes_entries(self) -> bool {
        matches!(self, Self::Data | Self::Truncate | Self::Reset)
    }
}

/// Section 4: the header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) kind: Kind,
    pub(crate) store_id: [u8; 16],
    pub(crate) segment_id: u64,
    pub(crate) position: u64,
    pub(crate) sequence: u64,
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) epoch: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) durable_before: u64,
    pub(crate) count: u32,
    pub(crate) zero_sectors: u32,
    pub(crate) payload_crc: u32,
    pub(crate) mask: u64,
}

impl BatchHeader {
    /// Encodes the header; `salt` is the salt of the segment.
    pub(crate) fn encode(&self, salt: u64) -> [u8; BATCH_HEADER] {
        let mut bytes = [0; BATCH_HEADER];
        let mut fill = Filler {
            buffer: &mut bytes,
            at: 0,
        };
        fill.put(&BATCH_MAGIC)
            .put(&FORMAT.to_le_bytes())
            .put(&[self.kind as u8, 0])
            .put(&self.store_id)
            .put(&self.segment_id.to_le_bytes())
            .put(&self.position.to_le_bytes())
            .put(&self.sequence.to_le_bytes())
            .put(&self.index.to_le_bytes())
            .put(&self.term.to_le_bytes())
            .put(&self.epoch.to_le_bytes())
            .put(&self.payload_bytes.to_le_bytes())
            .put(&self.durable_before.to_le_bytes())
            .put(&self.count.to_le_bytes())
            .put(&self.zero_sectors.to_le_bytes())
            .put(&self.payload_crc.to_le_bytes())
            .put(&self.mask.to_le_bytes());
        let sum = salted_crc(salt, &bytes);
        bytes[BATCH_HEADER - 4..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes the first 128 bytes of `bytes`, from a segment with `salt`. Shorter input is `Bad`.
    pub(crate) fn decode(bytes: &[u8], salt: u64) -> Result<Self, Undecodable> {
        let bytes = bytes
            .first_chunk::<BATCH_HEADER>()
            .ok_or(Undecodable::Bad)?;
        let mut fields = Fields(bytes);
        if fields.bytes() != BATCH_MAGIC || !bytes.ends_with(&salted_crc(salt, bytes).to_le_bytes())
        {
            return Err(Undecodable::Bad);
        }
        format_of(fields.u16())?;
        let kind = Kind::from_byte(fields.u8()).ok_or(Undecodable::Unknown)?;
        let flags = fields.u8();
        let header = Self {
            kind,
            store_id: fields.bytes(),
            segment_id: fields.u64(),
            position: fields.u64(),
            sequence: fields.u64(),
            index: fields.u64(),
            term: fields.u64(),
            epoch: fields.u64(),
            payload_bytes: fields.u64(),
            durable_before: fields.u64(),
            count: fields.u32(),
            zero_sectors: fields.u32(),
            payload_crc: fields.u32(),
            mask: fields.u64(),
        };
        let is_valid = flags == 0
            && fields.rest_is_zero(4)
            && (kind == Kind::Data || header.payload_bytes == 0)
            && header.extent_bytes().is_some();
        if is_valid {
            Ok(header)
        } else {
            Err(Undecodable::Unknown)
        }
    }

    /// Bytes from this header to the next one, including padding; `None` if the length overflows.
    pub(crate) fn extent_bytes(&self) -> Option<u64> {
        extent_bytes(self.payload_bytes)
    }

    /// Offset after the batch. Saturates, because the position was read from a file.
    ///
    /// # Panics
    /// If the payload has no extent; a decoded header always has one.
    pub(crate) fn end(&self) -> u64 {
        let Some(extent) = self.extent_bytes() else {
            unreachable!("`decode` rejects a header whose extent overflows");
        };
        self.position.saturating_add(extent)
    }
}

/// The checksum of a batch header, over the salt and then all bytes except the checksum.
fn salted_crc(salt: u64, bytes: &[u8; BATCH_HEADER]) -> u32 {
    let mut salted = [0; BATCH_HEADER + 4];
    salted[..8].copy_from_slice(&salt.to_le_bytes());
    salted[8..].copy_from_slice(&bytes[..BATCH_HEADER - 4]);
    crc(&salted)
}

/// Bytes that a batch with `payload_bytes` bytes of payload occupies in the file.
pub(crate) fn extent_bytes(payload_bytes: u64) -> Option<u64> {
    payload_bytes
        .checked_add(BATCH_HEADER as u64)?
        .checked_next_multiple_of(SECTOR_BYTES)
}

/// Section 5: one copy of the start file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StartMark {
    pub(crate) store_id: [u8; 16],
    pub(crate) first_sequence: u64,
    pub(crate) purged_index: u64,
    pub(crate) purged_term: u64,
    pub(crate) generation: u64,
    pub(crate) newest_segment: u64,
}

impl StartMark {
    pub(crate) fn encode(&self) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        let mut fill = Filler {
            buffer: &mut bytes,
            at: 0,
        };
        fill.put(&START_MAGIC)
            .put(&FORMAT.to_le_bytes())
            .put(&[0; 6])
            .put(&self.store_id)
            .put(&self.first_sequence.to_le_bytes())
            .put(&self.purged_index.to_le_bytes())
            .put(&self.purged_term.to_le_bytes())
            .put(&self.generation.to_le_bytes())
            .put(&self.newest_segment.to_le_bytes());
        fill.seal();
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; SECTOR]) -> Result<Self, Undecodable> {
        let mut fields = Fields(bytes);
        if fields.bytes() != START_MAGIC || !checksum_holds(bytes) {
            return Err(Undecodable::Bad);
        }
        format_of(fields.u16())?;
        if fields.bytes() != [0_u8; 6] {
            return Err(Undecodable::Unknown);
        }
        let mark = Self {
            store_id: fields.bytes(),
            first_sequence: fields.u64(),
            purged_index: fields.u64(),
            purged_term: fields.u64(),
            generation: fields.u64(),
            newest_segment: fields.u64(),
        };
        if fields.rest_is_zero(4) {
            Ok(mark)
        } else {
            Err(Undecodable::Unknown)
        }
    }
}

/// Section 6: the header block of a cut file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CutHeader {
    pub(crate) store_id: [u8; 16],
    pub(crate) segment_id: u64,
    pub(crate) position: u64,
    pub(crate) bytes: u64,
    pub(crate) created_unix_s: u64,
    pub(crate) content_crc: u32,
}

impl CutHeader {
    pub(crate) fn encode(&self) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        let mut fill = Filler {
            buffer: &mut bytes,
            at: 0,
        };
        fill.put(&CUT_MAGIC)
            .put(&FORMAT.to_le_bytes())
            .put(&[0; 6])
            .put(&self.store_id)
            .put(&self.segment_id.to_le_bytes())
            .put(&self.position.to_le_bytes())
            .put(&self.bytes.to_le_bytes())
            .put(&self.created_unix_s.to_le_bytes())
            .put(&self.content_crc.to_le_bytes());
        fill.seal();
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; SECTOR]) -> Result<Self, Undecodable> {
        let mut fields = Fields(bytes);
        if fields.bytes() != CUT_MAGIC || !checksum_holds(bytes) {
            return Err(Undecodable::Bad);
        }
        format_of(fields.u16())?;
        if fields.bytes() != [0_u8; 6] {
            return Err(Undecodable::Unknown);
        }
        let header = Self {
            store_id: fields.bytes(),
            segment_id: fields.u64(),
            position: fields.u64(),
            bytes: fields.u64(),
            created_unix_s: fields.u64(),
            content_crc: fields.u32(),
        };
        if fields.rest_is_zero(4) {
            Ok(header)
        } else {
            Err(Undecodable::Unknown)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const SALT: u64 = 0x5EED;

    fn batch() -> BatchHeader {
        BatchHeader {
            kind: Kind::Data,
            store_id: *b"0123456789abcdef",
            segment_id: 3,
            position: 4096,
            sequence: 7,
            index: 6,
            term: 2,
            epoch: 4,
            payload_bytes: 64 << 20,
            durable_before: 5,
            count: 11,
            zero_sectors: 1,
            payload_crc: 0xDEAD_BEEF,
            mask: 0x0102,
        }
    }

    fn segment() -> SegmentHeader {
        SegmentHeader {
            repair: true,
            reset: false,
            store_id: *b"0123456789abcdef",
            segment_id: 3,
            first_sequence: 7,
            next_index: 6,
            last_term: 2,
            epoch: 4,
            durable_before: 5,
            file_bytes: 1 << 20,
            previous_id: 2,
            salt: 77,
            previous_salt: 76,
        }
    }

    #[test]
    fn batch_header_has_the_documented_bytes() {
        let bytes = batch().encode(SALT);
        assert_eq!(&bytes[..8], b"WBAT\x01\0\x01\0");
        assert_eq!(&bytes[8..24], b"0123456789abcdef");
        let words: Vec<u64> = bytes[24..88]
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect();
        assert_eq!(words, [3, 4096, 7, 6, 2, 4, 64 << 20, 5]);
        assert_eq!(
            bytes[88..100],
            [11, 0, 0, 0, 1, 0, 0, 0, 0xEF, 0xBE, 0xAD, 0xDE]
        );
        assert_eq!(
            bytes[100..124],
            [[2, 1], [0; 2]]
                .concat()
                .iter()
                .copied()
                .chain([0; 20])
                .collect::<Vec<u8>>()
        );
        let salted = [&SALT.to_le_bytes()[..], &bytes[..124]].concat();
        assert_eq!(bytes[124..], crc(&salted).to_le_bytes());
        assert_eq!(BatchHeader::decode(&bytes, SALT), Ok(batch()));
        assert_eq!(BatchHeader::decode(&bytes, SALT + 1), Err(Undecodable::Bad));
    }

    #[test]
    fn every_flipped_bit_of_every_header_is_detected() {
        let mut bytes = batch().encode(SALT);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                BatchHeader::decode(&bytes, SALT),
                Err(Undecodable::Bad),
                "bit {bit}"
            );
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let mut bytes = segment().encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(segment()));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                SegmentHeader::decode(&bytes),
                Err(Undecodable::Bad),
                "bit {bit}"
            );
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let start = StartMark {
            store_id: [9; 16],
            first_sequence: 4,
            purged_index: 3,
            purged_term: 1,
            generation: 2,
            newest_segment: 3,
        };
        let mut bytes = start.encode();
        assert_eq!(StartMark::decode(&bytes), Ok(start));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                StartMark::decode(&bytes),
                Err(Undecodable::Bad),
                "bit {bit}"
            );
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn an_unknown_flag_of_a_segment_is_refused() {
        for bit in 2..16 {
            let mut bytes = segment().encode();
            bytes[10 + bit / 8] |= 1 << (bit % 8);
            let end = bytes.len() - 4;
            let sum = crc(&bytes[..end]);
            bytes[end..].copy_from_slice(&sum.to_le_bytes());
            assert_eq!(
                SegmentHeader::decode(&bytes),
                Err(Undecodable::Unknown),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn a_newer_format_is_not_reported_as_damage() {
        for (at, value, expected) in [
            (4, 2, Undecodable::Newer(2)),
            (6, 9, Undecodable::Unknown),
            (7, 1, Undecodable::Unknown),
            (110, 1, Undecodable::Unknown),
        ] {
            let mut bytes = batch().encode(SALT);
            bytes[at] = value;
            assert_eq!(BatchHeader::decode(&bytes, SALT), Err(Undecodable::Bad));
            let sum = salted_crc(SALT, &bytes);
            bytes[124..].copy_from_slice(&sum.to_le_bytes());
            assert_eq!(BatchHeader::decode(&bytes, SALT), Err(expected));
        }
    }

    #[test]
    fn a_payload_length_that_overflows_is_rejected() {
        let header = BatchHeader {
            payload_bytes: u64::MAX - 200,
            ..batch()
        };
        assert_eq!(
            BatchHeader::decode(&header.encode(SALT), SALT),
            Err(Undecodable::Unknown)
        );
        assert_eq!(extent_bytes(0), Some(512));
        assert_eq!(extent_bytes(384), Some(512));
        assert_eq!(extent_bytes(385), Some(1024));
    }
}
