//! Scans the batches of one segment file in order.
//!
//! The scan reports the contents of each position and does not interpret them. Invariants: it never
//! writes; its memory use does not depend on a length that it read.

use super::format::{BATCH_HEADER, BatchHeader, FORMAT, SegmentHeader, Undecodable};
use super::sectors::{CrcStream, apply_mask, crc, is_payload, is_zero};
use super::sectors::{SECTOR, SECTOR_BYTES};
use crate::disk::DiskFile;
use crate::error::{IoVerb, StoreError};

/// Bytes per read.
const WINDOW_BYTES: usize = 1 << 20;

/// A file that is read through one buffer.
pub(crate) struct Window<'a> {
    path: &'a str,
    file: &'a dyn DiskFile,
    len: u64,
    buffer: Vec<u8>,
    start: u64,
}

impl<'a> Window<'a> {
    /// `len` is the length of the file.
    pub(crate) fn new(path: &'a str, file: &'a dyn DiskFile, len: u64) -> Self {
        Self {
            path,
            file,
            len,
            buffer: Vec::new(),
            start: 0,
        }
    }

    /// Returns up to `bytes` bytes (at most one window) from `position`; fewer at the end of the
    /// file.
    pub(crate) fn get(&mut self, position: u64, bytes: usize) -> Result<&[u8], StoreError> {
        let bytes = bytes.min(WINDOW_BYTES).min(left(self.len, position));
        let buffered = position
            .checked_sub(self.start)
            .and_then(|offset| usize::try_from(offset).ok())
            .filter(|offset| offset.saturating_add(bytes) <= self.buffer.len());
        if let Some(offset) = buffered {
            return Ok(&self.buffer[offset..offset + bytes]);
        }
        let want = WINDOW_BYTES.min(left(self.len, position));
        self.buffer.resize(want, 0);
        self.start = position;
        if let Err(error) = self.file.read_exact_at(&mut self.buffer, position) {
            self.buffer.clear();
            return Err(StoreError::io(IoVerb::Read, self.path)(error));
        }
        Ok(&self.buffer[..bytes])
    }

    /// Calls `each` with the bytes of `from..to` in order. Each piece begins at `from` plus a
    /// multiple of the window size.
    pub(crate) fn pieces(
        &mut self,
        from: u64,
        to: u64,
        mut each: impl FnMut(u64, &[u8]),
    ) -> Result<(), StoreError> {
        let mut at = from;
        while at < to {
            let piece = self.get(at, left(to, at))?;
            if piece.is_empty() {
                break;
            }
            let len = piece.len() as u64;
            each(at, piece);
            at += len;
        }
        Ok(())
    }

    /// Offset after the last nonzero sector in `from..`; `None` if all sectors are zero. `from`
    /// must be on a sector boundary.
    pub(crate) fn nonzero_end(&mut self, from: u64) -> Result<Option<u64>, StoreError> {
        let mut end = None;
        let len = self.len;
        self.pieces(from, len, |at, piece| {
            if is_zero(piece) {
                return;
            }
            for (number, sector) in piece.chunks(SECTOR).enumerate() {
                if !is_zero(sector) {
                    end = Some(at + (number * SECTOR + sector.len()) as u64);
                }
            }
        })?;
        Ok(end)
    }
}

/// Bytes from `position` to `end`, saturated to `usize`.
fn left(end: u64, position: u64) -> usize {
    usize::try_from(end.saturating_sub(position)).unwrap_or(usize::MAX)
}

/// The contents of a position at which a batch is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// A batch whose bytes are all as written.
    Batch(BatchHeader),
    /// Less than a sector is left in the file.
    End,
    /// A sector of zeros.
    Zero,
    /// A sector that is not zero, and not a header for this position.
    BadHeader,
    /// A header for this position that a newer program wrote.
    Unsupported(Undecodable),
    /// A header for this position whose extent ends after the end of the file.
    TooLong(BatchHeader),
    /// A valid header with a payload that does not match the checksum.
    BadPayload(BatchHeader),
    /// A valid header and payload with padding that is not zero.
    BadPadding(BatchHeader),
}

/// Returns the header at `position`, if it was written for this position.
pub(crate) fn header_at(
    window: &mut Window<'_>,
    segment: &SegmentHeader,
    position: u64,
) -> Result<Result<BatchHeader, Undecodable>, StoreError> {
    Ok(decode_here(
        window.get(position, BATCH_HEADER)?,
        segment,
        position,
    ))
}

fn decode_here(
    bytes: &[u8],
    segment: &SegmentHeader,
    position: u64,
) -> Result<BatchHeader, Undecodable> {
    let header = BatchHeader::decode(bytes, segment.salt)?;
    let here = header.position == position
        && header.segment_id == segment.segment_id
        && header.store_id == segment.store_id;
    if here {
        Ok(header)
    } else {
        Err(Undecodable::Bad)
    }
}

/// Checks the batch at `position`, including payload and padding.
pub(crate) fn probe(
    window: &mut Window<'_>,
    segment: &SegmentHeader,
    position: u64,
) -> Result<Probe, StoreError> {
    let sector = window.get(position, SECTOR)?;
    if sector.len() < SECTOR {
        return Ok(Probe::End);
    }
    if is_zero(sector) {
        return Ok(Probe::Zero);
    }
    let header = match header_at(window, segment, position)? {
        Ok(header) => header,
        Err(Undecodable::Bad) => return Ok(Probe::BadHeader),
        Err(cause) => return Ok(Probe::Unsupported(cause)),
    };
    let end = header.end();
    if end > window.len {
        return Ok(Probe::TooLong(header));
    }
    let payload_end = position + BATCH_HEADER as u64 + header.payload_bytes;
    let mut sum = PayloadSum::new(&header);
    window.pieces(position + BATCH_HEADER as u64, payload_end, |_, piece| {
        sum.update(piece);
    })?;
    if !is_payload(sum.finish(), header.payload_crc) {
        return Ok(Probe::BadPayload(header));
    }
    let mut padding_is_zero = true;
    window.pieces(payload_end, end, |_, piece| {
        padding_is_zero = padding_is_zero && is_zero(piece);
    })?;
    Ok(if padding_is_zero {
        Probe::Batch(header)
    } else {
        Probe::BadPadding(header)
    })
}

/// Computes the checksum of a payload from its stored bytes.
pub(crate) struct PayloadSum {
    mask: u64,
    offset: u64,
    single: Option<u32>,
    stream: Option<CrcStream>,
    plain: Vec<u8>,
}

impl PayloadSum {
    pub(crate) fn new(header: &BatchHeader) -> Self {
        let stream = (header.payload_bytes > WINDOW_BYTES as u64).then(CrcStream::new);
        Self {
            mask: header.mask,
            offset: 0,
            single: None,
            stream,
            plain: Vec::new(),
        }
    }

    /// Adds the next stored bytes. If the payload fits into one window, it must be added in one
    /// call.
    pub(crate) fn update(&mut self, stored: &[u8]) {
        let bytes = if self.mask == 0 {
            stored
        } else {
            self.plain.clear();
            self.plain.extend_from_slice(stored);
            apply_mask(&mut self.plain, self.mask, self.offset);
            &self.plain
        };
        self.offset += stored.len() as u64;
        match &mut self.stream {
            Some(stream) => stream.update(bytes),
            None => self.single = Some(crc(bytes)),
        }
    }

    pub(crate) fn finish(&self) -> u32 {
        self.stream
            .as_ref()
            .map_or(self.single.unwrap_or(0), CrcStream::finish)
    }
}

/// Whether a batch with a valid header and a wrong payload lacks a sector (row 6 of the table in
/// `docs/formats/log.md`, section 7.2).
pub(crate) fn lacks_a_sector(
    window: &mut Window<'_>,
    header: &BatchHeader,
) -> Result<bool, StoreError> {
    let mut zero = 0_u64;
    window.pieces(header.position, header.end(), |_, piece| {
        zero += piece
            .chunks(SECTOR)
            .filter(|sector| is_zero(sector))
            .count() as u64;
    })?;
    Ok(zero > u64::from(header.zero_sectors))
}

/// Returns the error for content that a newer program wrote.
pub(crate) fn unsupported(path: &str, position: u64, found: Undecodable) -> StoreError {
    match found {
        Undecodable::Newer(found) => StoreError::NewerFormat {
            file: path.to_owned(),
            found,
            supported: FORMAT,
        },
        Undecodable::Unknown | Undecodable::Bad => StoreError::UnknownContent {
            file: path.to_owned(),
            position,
        },
    }
}

/// Facts from valid headers after a bad position.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Evidence {
    /// Highest `durable before`.
    pub(crate) durable_before: u64,
    /// Highest epoch.
    pub(crate) epoch: u64,
    /// Number of headers found.
    pub(crate) headers: u64,
}

impl Evidence {
    pub(crate) fn add(&mut self, durable_before: u64, epoch: u64) {
        self.durable_before = self.durable_before.max(durable_before);
        self.epoch = self.epoch.max(epoch);
        self.headers += 1;
    }
}

/// Collects all headers in `from..` of a segment that were written for their position.
pub(crate) fn collect_headers(
    window: &mut Window<'_>,
    segment: &SegmentHeader,
    from: u64,
    evidence: &mut Evidence,
) -> Result<(), StoreError> {
    let mut at = from;
    while at.saturating_add(SECTOR_BYTES) <= window.len {
        let piece = window.get(at, WINDOW_BYTES)?;
        let start = at;
        at += piece.len() as u64;
        for (number, sector) in piece.chunks(SECTOR).enumerate() {
            let position = start + (number * SECTOR) as u64;
            if let Ok(header) = decode_here(sector, segment, position) {
                if header.durable_before < header.sequence {
                    evidence.add(header.durable_before, header.epoch);
                }
                if header.end() > position + SECTOR_BYTES {
                    at = header.end();
                    break;
                }
            }
        }
    }
    Ok(())
}
