//! Blocks of records: the layout of a topic in memory and on disk
//! (docs/formats/store.md, "Topic segment" and "Record in a block").
//!
//! One writer builds a block and closes it once; any thread may read a block. The bytes of an open
//! block have no header. Readers get these bytes with the number of their records.

use crate::error::StoreError;
use bytes::Bytes;
use crc_fast::crc32_iscsi as crc32c;
use weir_core::codec::{Reader, Short, put_bytes, put_varint};
use weir_core::exact::{to_u16, to_u32};
use weir_core::{
    ClientId, ConsequenceOffset, IntentionOffset, Record, RecordFlags, RecordKind, TopicId,
};

/// Bytes of the header of a block.
pub(crate) const HEADER_BYTES: usize = 88;
/// A block is closed when its records reach this many bytes.
pub(crate) const BLOCK_BYTES: usize = 16 << 10;
/// The reason why the length of a block fits into 32 bits.
pub(crate) const BLOCK_FITS: &str =
    "a block is closed at 16 KiB, and one record has less than 1 GiB";

const MAGIC: [u8; 4] = *b"WTBK";
const FORMAT: u16 = 1;

const HEAD_LAST: u8 = 0x08;
const HEAD_TXN: u8 = 0x10;
const HEAD_CLIENT: u8 = 0x20;
const HEAD_OFFSET: u8 = 0x40;
const HEAD_MORE: u8 = 0x80;
const MORE_META: u8 = 0x01;
const MORE_TIME: u8 = 0x02;
const MORE_TERM: u8 = 0x04;
const MORE_NONCE: u8 = 0x08;
const MORE_INTENTION: u8 = 0x10;
const MORE_ALL: u8 = MORE_META | MORE_TIME | MORE_TERM | MORE_NONCE | MORE_INTENTION;

/// The start values for the differences in the records of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeltaBase {
    pub(crate) first: u64,
    pub(crate) intention: u64,
    pub(crate) time_ms: u64,
    pub(crate) term: u64,
}

/// The fields of the previous record. The next record is encoded as differences from them.
#[derive(Clone, Copy, Debug)]
struct PreviousRecord {
    offset: u64,
    intention: u64,
    time_ms: u64,
    term: u64,
    nonce: u64,
    client: ClientId,
}

impl PreviousRecord {
    /// Returns the state before the first record. Offset and intention are one less than those of
    /// the first record, so that the differences are 1, as between ordinary records.
    fn new(base: &DeltaBase) -> Self {
        Self {
            offset: base.first.wrapping_sub(1),
            intention: base.intention.wrapping_sub(1),
            time_ms: base.time_ms,
            term: base.term,
            nonce: 0,
            client: ClientId::NONE,
        }
    }
}

/// Builds the records of one block.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    base: DeltaBase,
    previous: PreviousRecord,
    bytes: Vec<u8>,
    records: u32,
}

impl BlockBuilder {
    pub(crate) fn new() -> Self {
        let base = DeltaBase::default();
        Self {
            base,
            previous: PreviousRecord::new(&base),
            bytes: Vec::new(),
            records: 0,
        }
    }

    pub(crate) fn records(&self) -> u32 {
        self.records
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn base(&self) -> DeltaBase {
        self.base
    }

    pub(crate) fn last(&self) -> u64 {
        self.previous.offset
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() >= BLOCK_BYTES
    }

    /// Appends a record.
    ///
    /// # Panics
    /// If the offset does not ascend, or the intention, the time or the term descends (I1).
    #[inline]
    pub(crate) fn push(&mut self, record: &Record<'_>) {
        if self.records == 0 {
            self.base = DeltaBase {
                first: record.offset.0,
                intention: record.intention.0,
                time_ms: record.time_ms,
                term: record.term,
            };
            self.previous = PreviousRecord::new(&self.base);
        }
        let before = &self.previous;
        assert!(
            record.offset.0 > before.offset && record.intention.0 >= before.intention,
            "records of a block ascend (I1)"
        );
        assert!(
            record.time_ms >= before.time_ms && record.term >= before.term,
            "times and terms of a block do not descend"
        );
        let gap = record.offset.0 - before.offset - 1;
        let step = record.intention.0 - before.intention;
        let expected = if record.client.is_none() {
            0
        } else {
            before.nonce.wrapping_add(1)
        };
        let bit = |condition: bool, bit: u8| if condition { bit } else { 0 };
        let more = bit(!record.meta.is_empty(), MORE_META)
            | bit(record.time_ms != before.time_ms, MORE_TIME)
            | bit(record.term != before.term, MORE_TERM)
            | bit(record.nonce != expected, MORE_NONCE)
            | bit(step != 1, MORE_INTENTION);
        let head = record.kind as u8
            | bit(record.flags.last(), HEAD_LAST)
            | bit(record.flags.txn(), HEAD_TXN)
            | bit(record.client != before.client, HEAD_CLIENT)
            | bit(gap != 0, HEAD_OFFSET)
            | bit(more != 0, HEAD_MORE);
        let out = &mut self.bytes;
        out.push(head);
        if more != 0 {
            out.push(more);
        }
        if head & HEAD_CLIENT != 0 {
            out.extend_from_slice(&record.client.0);
        }
        if gap != 0 {
            put_varint(out, gap);
        }
        if more & MORE_INTENTION != 0 {
            put_varint(out, step);
        }
        if more & MORE_TIME != 0 {
            put_varint(out, record.time_ms - before.time_ms);
        }
        if more & MORE_TERM != 0 {
            put_varint(out, record.term - before.term);
        }
        if more & MORE_NONCE != 0 {
            put_varint(out, record.nonce);
        }
        if more & MORE_META != 0 {
            put_bytes(out, record.meta);
        }
        put_bytes(out, record.key);
        put_bytes(out, record.value);
        self.previous = PreviousRecord {
            offset: record.offset.0,
            intention: record.intention.0,
            time_ms: record.time_ms,
            term: record.term,
            nonce: record.nonce,
            client: record.client,
        };
        self.records += 1;
    }

    /// Closes the block and starts an empty one.
    pub(crate) fn take(&mut self) -> RawBlock {
        let raw = RawBlock {
            base: self.base,
            last: self.previous.offset,
            records: self.records,
            bytes: Bytes::from(std::mem::take(&mut self.bytes)),
        };
        self.records = 0;
        raw
    }
}

/// Records of a closed block, without their header.
#[derive(Clone, Debug)]
pub(crate) struct RawBlock {
    pub(crate) base: DeltaBase,
    pub(crate) last: u64,
    pub(crate) records: u32,
    pub(crate) bytes: Bytes,
}

/// Where a block is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockLocation {
    pub(crate) store_tag: [u8; 8],
    pub(crate) topic: TopicId,
    pub(crate) segment: u32,
    pub(crate) position: u64,
}

/// The reason why a header is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadHeader {
    /// Damaged. The text names the wrong part.
    Wrong(&'static str),
    /// Written by a later format.
    Newer(u16),
}

impl BadHeader {
    pub(crate) fn error(self, file: &str, position: u64) -> StoreError {
        match self {
            Self::Wrong(what) => StoreError::damage(file, position, what, 0),
            Self::Newer(found) => StoreError::NewerFormat {
                file: file.to_owned(),
                found,
                supported: FORMAT,
            },
        }
    }
}

/// A checked header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) base: DeltaBase,
    pub(crate) last: u64,
    pub(crate) records: u32,
    pub(crate) bytes: u32,
    crc: u32,
    /// Checksum of the header.
    pub(crate) own_crc: u32,
}

impl RawBlock {
    /// Returns the checksum of a header, which is in its last four bytes.
    pub(crate) fn own_crc(header: &[u8; HEADER_BYTES]) -> u32 {
        let Some(crc) = header.last_chunk::<4>() else {
            unreachable!("a header is longer than its checksum")
        };
        u32::from_le_bytes(*crc)
    }

    /// Returns the header of this block at `location`.
    pub(crate) fn header(&self, location: &BlockLocation) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            let Some(field) = header.get_mut(at..at + bytes.len()) else {
                unreachable!("every field lies inside the header")
            };
            field.copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&MAGIC);
        put(&FORMAT.to_le_bytes());
        put(&[0; 2]);
        put(&location.store_tag);
        put(&location.topic.0.to_le_bytes());
        put(&location.segment.to_le_bytes());
        put(&location.position.to_le_bytes());
        put(&self.base.first.to_le_bytes());
        put(&self.last.to_le_bytes());
        put(&self.base.intention.to_le_bytes());
        put(&self.base.time_ms.to_le_bytes());
        put(&self.base.term.to_le_bytes());
        put(&self.records.to_le_bytes());
        put(&to_u32(self.bytes.len(), BLOCK_FITS).to_le_bytes());
        put(&crc32c(&self.bytes).to_le_bytes());
        let (body, tail) = header.split_at_mut(HEADER_BYTES - 4);
        tail.copy_from_slice(&crc32c(body).to_le_bytes());
        header
    }
}

impl Header {
    /// Decodes a header, and checks that it belongs to `location`.
    pub(crate) fn read(
        bytes: &[u8; HEADER_BYTES],
        location: &BlockLocation,
    ) -> Result<Self, BadHeader> {
        let wrong = |what| Err(BadHeader::Wrong(what));
        let (body, crc) = bytes.split_at(HEADER_BYTES - 4);
        let own_crc = crc32c(body);
        if crc != own_crc.to_le_bytes() {
            return wrong("the checksum of a block header is wrong");
        }
        let mut rest = body;
        let mut word = |len: usize| {
            let (field, after) = rest.split_at_checked(len).unwrap_or((rest, &[]));
            rest = after;
            field
                .iter()
                .rev()
                .fold(0_u64, |n, byte| n << 8 | u64::from(*byte))
        };
        let small = |n: u64| to_u32(n, "the field has 4 bytes");
        if word(4) != u64::from(u32::from_le_bytes(MAGIC)) {
            return wrong("the magic number of a block is wrong");
        }
        let (format, flags) = (word(2), word(2));
        if format != u64::from(FORMAT) || flags != 0 {
            return Err(BadHeader::Newer(to_u16(format, "the field has 2 bytes")));
        }
        let found = BlockLocation {
            store_tag: word(8).to_le_bytes(),
            topic: TopicId(small(word(4))),
            segment: small(word(4)),
            position: word(8),
        };
        if found != *location {
            return wrong("a block belongs to another position");
        }
        let first = word(8);
        let last = word(8);
        let (intention, time_ms, term) = (word(8), word(8), word(8));
        let base = DeltaBase {
            first,
            intention,
            time_ms,
            term,
        };
        let (records, bytes, crc) = (small(word(4)), small(word(4)), small(word(4)));
        if first == 0 || last < first || records == 0 || u64::from(records) > last - first + 1 {
            return wrong("the offsets of a block are wrong");
        }
        Ok(Self {
            base,
            last,
            records,
            bytes,
            crc,
            own_crc,
        })
    }

    /// Whether length and checksum of `records` match the header.
    pub(crate) fn covers(&self, records: &[u8]) -> bool {
        records.len() == self.bytes as usize && crc32c(records) == self.crc
    }
}

/// Reads records from the bytes of a block.
#[derive(Clone, Debug)]
pub(crate) struct BlockCursor {
    previous: PreviousRecord,
    at: usize,
    left: u32,
}

impl BlockCursor {
    pub(crate) fn new(base: &DeltaBase, records: u32) -> Self {
        Self {
            previous: PreviousRecord::new(base),
            at: 0,
            left: records,
        }
    }

    /// Returns the next record of `block`; `None` at the end. All calls must pass equal bytes.
    /// Fails if the bytes are not a valid record; the next call then returns `None`.
    #[inline]
    pub(crate) fn next<'a>(&mut self, block: &'a [u8]) -> Option<Result<Record<'a>, &'static str>> {
        if self.left == 0 {
            return None;
        }
        let Ok(record) = self.read(block) else {
            self.left = 0;
            return Some(Err("a record of a block is not as written"));
        };
        self.left -= 1;
        Some(Ok(record))
    }

    #[inline]
    fn read<'a>(&mut self, block: &'a [u8]) -> Result<Record<'a>, Short> {
        let mut rest = Reader::new(block.get(self.at..).ok_or(Short)?);
        let head = rest.u8()?;
        let more = if head & HEAD_MORE != 0 { rest.u8()? } else { 0 };
        if more & !MORE_ALL != 0 || (head & HEAD_MORE != 0 && more == 0) {
            return Err(Short);
        }
        let current = &mut self.previous;
        if head & HEAD_CLIENT != 0 {
            current.client = ClientId(rest.array()?);
        }
        let gap = if head & HEAD_OFFSET != 0 {
            rest.varint()?
        } else {
            0
        };
        current.offset = current
            .offset
            .wrapping_add(1)
            .checked_add(gap)
            .ok_or(Short)?;
        let step = if more & MORE_INTENTION != 0 {
            rest.varint()?
        } else {
            1
        };
        current.intention = current.intention.wrapping_add(step);
        if more & MORE_TIME != 0 {
            current.time_ms = current.time_ms.checked_add(rest.varint()?).ok_or(Short)?;
        }
        if more & MORE_TERM != 0 {
            current.term = current.term.checked_add(rest.varint()?).ok_or(Short)?;
        }
        current.nonce = if more & MORE_NONCE != 0 {
            rest.varint()?
        } else if current.client.is_none() {
            0
        } else {
            current.nonce.checked_add(1).ok_or(Short)?
        };
        let meta = if more & MORE_META != 0 {
            rest.bytes()?
        } else {
            &[]
        };
        let key = rest.bytes()?;
        let value = rest.bytes()?;
        self.at += rest.at();
        if self.left == 1 && self.at != block.len() {
            return Err(Short);
        }
        let flag_if = |bit: u8, flag: u8| if head & bit != 0 { flag } else { 0 };
        Ok(Record {
            offset: ConsequenceOffset(current.offset),
            intention: IntentionOffset(current.intention),
            term: current.term,
            time_ms: current.time_ms,
            client: current.client,
            nonce: current.nonce,
            flags: RecordFlags(
                flag_if(HEAD_LAST, RecordFlags::LAST) | flag_if(HEAD_TXN, RecordFlags::TXN),
            ),
            kind: RecordKind::from_number(head & 7).ok_or(Short)?,
            key,
            value,
            meta,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(n: u64) -> Record<'static> {
        Record {
            offset: ConsequenceOffset(n),
            intention: IntentionOffset(n * 3 / 2),
            term: 1 + n / 40,
            time_ms: 1_700_000_000_000 + n / 7,
            client: ClientId([u8::try_from(n / 10 % 3).unwrap_or(0); 16]),
            nonce: if (n / 10).is_multiple_of(3) { 0 } else { n },
            flags: RecordFlags(u8::try_from(n % 4).unwrap_or(0)),
            kind: if n.is_multiple_of(5) {
                RecordKind::Delete
            } else {
                RecordKind::Put
            },
            key: if n.is_multiple_of(6) { b"" } else { b"key" },
            value: if n.is_multiple_of(5) {
                b""
            } else {
                b"some value"
            },
            meta: if n.is_multiple_of(9) { b"{}" } else { b"" },
        }
    }

    #[test]
    fn records_with_gaps_and_changes_are_decoded_as_encoded() {
        let offsets: Vec<u64> = (1..100).filter(|n| n % 13 != 0).collect();
        let mut builder = BlockBuilder::new();
        for n in &offsets {
            builder.push(&record(*n));
        }
        let block = builder.take();
        let location = BlockLocation {
            store_tag: [7; 8],
            topic: TopicId(3),
            segment: 2,
            position: 4096,
        };
        let bytes = block.header(&location);
        let header = Header::read(&bytes, &location);
        assert!(header.is_ok_and(|h| h.covers(&block.bytes) && h.last == 99 && h.records == 92));
        let mut cursor = BlockCursor::new(&block.base, block.records);
        for n in &offsets {
            assert_eq!(cursor.next(&block.bytes), Some(Ok(record(*n))));
        }
        assert_eq!(cursor.next(&block.bytes), None);
    }

    #[test]
    #[should_panic(expected = "ascend (I1)")]
    fn a_repeated_offset_is_a_panic() {
        let mut builder = BlockBuilder::new();
        builder.push(&record(7));
        builder.push(&record(7));
    }

    /// The time is written as a difference. In a release, a negative difference would wrap.
    #[test]
    #[should_panic(expected = "times and terms of a block do not descend")]
    fn a_time_before_that_of_the_last_record_is_a_panic() {
        let mut builder = BlockBuilder::new();
        builder.push(&record(7));
        builder.push(&Record {
            time_ms: 1,
            ..record(8)
        });
    }

    #[test]
    fn every_flipped_bit_of_a_header_and_every_other_location_is_detected() {
        let mut builder = BlockBuilder::new();
        builder.push(&record(1));
        let block = builder.take();
        let location = BlockLocation {
            store_tag: [7; 8],
            topic: TopicId(3),
            segment: 2,
            position: 0,
        };
        let good = block.header(&location);
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = good;
            if let Some(byte) = bad.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
            assert!(Header::read(&bad, &location).is_err(), "bit {bit}");
        }
        for other in [
            BlockLocation {
                store_tag: [8; 8],
                ..location
            },
            BlockLocation {
                topic: TopicId(4),
                ..location
            },
            BlockLocation {
                segment: 3,
                ..location
            },
            BlockLocation {
                position: 88,
                ..location
            },
        ] {
            assert!(Header::read(&good, &other).is_err());
        }
    }
}
