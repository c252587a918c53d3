//! The encoding of pages between processes (docs/formats/native.md, section 7): a head of 48 bytes,
//! then records in the encoding of a block.
//!
//! Invariant: the checksum of a page is checked before a record is returned.

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use weir_core::Record;
use weir_core::codec::Reader;
use weir_core::exact::to_u32;
use weir_core::record::PAGE_HEAD_BYTES;

use super::Page;
use crate::error::StoreError;
use crate::topic::block::{BlockBuilder, DeltaBase};
use crate::topic::files::LoadedBlock;

/// Bytes of the head before its checksum.
const COVERED: usize = PAGE_HEAD_BYTES - 4;
/// The source of the bytes in errors, instead of a file.
const SOURCE: &str = "a page from the network";

fn checksum(head: &[u8], records: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(head);
    digest.update(records);
    to_u32(digest.finalize(), "a CRC-32C has 32 bits")
}

impl Page {
    /// Appends the encoded page to `out`.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let block = &self.block;
        let start = out.len();
        let base = &block.base;
        for number in [
            base.first,
            block.last,
            base.intention,
            base.time_ms,
            base.term,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&block.records.to_le_bytes());
        let crc = checksum(&out[start..], &block.bytes);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&block.bytes);
    }

    /// Returns the number of bytes that [`write_to`](Self::write_to) appends.
    #[must_use]
    pub fn wire_bytes(&self) -> usize {
        PAGE_HEAD_BYTES + self.block.bytes.len()
    }

    /// Returns the offset below which records of the page are skipped.
    #[must_use]
    pub fn from(&self) -> u64 {
        self.from
    }

    /// Decodes a received page. Records with offsets below `from` are skipped. The bytes are
    /// shared, not copied.
    ///
    /// # Errors
    /// `Damage` if the head, the checksum or the offsets are wrong.
    pub fn read_from(bytes: &Bytes, from: u64) -> Result<Self, StoreError> {
        let damage = |what| StoreError::damage(SOURCE, 0, what, 0);
        let Some((head, records)) = bytes.split_at_checked(PAGE_HEAD_BYTES) else {
            return Err(damage("the head of a page is incomplete"));
        };
        let short = |_| damage("the head of a page is incomplete");
        let mut reader = Reader::new(head);
        let mut numbers = [0; 5];
        for number in &mut numbers {
            *number = reader.u64().map_err(short)?;
        }
        let [first, last, intention, time_ms, term] = numbers;
        let count = u32::from_le_bytes(reader.array().map_err(short)?);
        let crc = u32::from_le_bytes(reader.array().map_err(short)?);
        if crc != checksum(&head[..COVERED], records) {
            return Err(damage("the checksum of a page is wrong"));
        }
        if first == 0
            || last < first
            || count == 0
            || u64::from(count) > (last - first).saturating_add(1)
        {
            return Err(damage("the offsets of a page are wrong"));
        }
        let base = DeltaBase {
            first,
            intention,
            time_ms,
            term,
        };
        let block = LoadedBlock {
            base,
            last,
            records: count,
            bytes: bytes.slice(PAGE_HEAD_BYTES..),
        };
        Ok(Self {
            block,
            from,
            file: SOURCE.to_owned(),
        })
    }
}

/// Builds a page from copies of records. Offsets must ascend.
#[derive(Debug)]
pub struct PageBuilder {
    block: BlockBuilder,
}

impl Default for PageBuilder {
    fn default() -> Self {
        Self {
            block: BlockBuilder::new(),
        }
    }
}

impl PageBuilder {
    /// Adds a record.
    pub fn push(&mut self, record: &Record<'_>) {
        self.block.push(record);
    }

    /// Whether no record was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.block.records() == 0
    }

    /// Returns the page, or `None` without a record. The builder is empty afterwards.
    pub fn take(&mut self) -> Option<Page> {
        if self.is_empty() {
            return None;
        }
        let raw = self.block.take();
        Some(Page {
            from: raw.base.first,
            file: SOURCE.to_owned(),
            block: LoadedBlock {
                base: raw.base,
                last: raw.last,
                records: raw.records,
                bytes: raw.bytes,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;
    use weir_core::{ClientId, ConsequenceOffset, IntentionOffset, RecordFlags, RecordKind};

    fn record(offset: u64, value: &[u8]) -> Record<'_> {
        Record {
            offset: ConsequenceOffset(offset),
            intention: IntentionOffset(offset + 7),
            term: 1,
            time_ms: 1000 + offset,
            client: ClientId([1; 16]),
            nonce: offset,
            flags: RecordFlags(RecordFlags::LAST),
            kind: RecordKind::Put,
            key: b"key",
            value,
            meta: b"",
        }
    }

    #[test]
    fn a_page_is_decoded_as_encoded_and_any_flipped_bit_is_detected() {
        let mut builder = PageBuilder::default();
        for (offset, value) in [(3, &b"one"[..]), (4, b""), (9, b"three")] {
            builder.push(&record(offset, value));
        }
        let page = builder.take().unwrap();
        let mut wire = Vec::new();
        page.write_to(&mut wire);
        assert_eq!(wire.len(), page.wire_bytes());
        let read = Page::read_from(&Bytes::from(wire.clone()), 4).unwrap();
        let found: Vec<_> = read.iter().map(Result::unwrap).collect();
        assert_eq!(found, [record(4, b""), record(9, b"three")]);
        for bit in 0..wire.len() * 8 {
            let mut wrong = wire.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(
                Page::read_from(&Bytes::from(wrong), 0).is_err(),
                "bit {bit}"
            );
        }
        for len in 0..wire.len() {
            assert!(Page::read_from(&Bytes::from(wire[..len].to_vec()), 0).is_err());
        }
    }
}
