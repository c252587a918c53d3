//! The state of a machine as bytes (docs/formats/snapshot.md).
//!
//! Equal states have equal bytes: the order is fixed, with keys ascending. The store that writes
//! the bytes adds checksums.

use thiserror::Error;

use crate::codec::{put_bytes, put_varint};

/// Receives the bytes of a snapshot, in pieces.
pub trait SnapshotSink {
    /// Appends `bytes`.
    fn write(&mut self, bytes: &[u8]) -> Result<(), SnapshotError>;
}

impl SnapshotSink for Vec<u8> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.extend_from_slice(bytes);
        Ok(())
    }
}

/// Returns the bytes of a snapshot, in order.
pub trait SnapshotSource {
    /// Fills `buffer`. Fails if fewer bytes are left.
    fn read(&mut self, buffer: &mut [u8]) -> Result<(), SnapshotError>;
}

impl SnapshotSource for &[u8] {
    fn read(&mut self, buffer: &mut [u8]) -> Result<(), SnapshotError> {
        let (first, rest) = self
            .split_at_checked(buffer.len())
            .ok_or(SnapshotError::Malformed("more bytes of the snapshot"))?;
        buffer.copy_from_slice(first);
        *self = rest;
        Ok(())
    }
}

/// Why a snapshot could not be written or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The bytes are not a snapshot of this version.
    #[error("snapshot cannot be read: expected {0}")]
    Malformed(&'static str),
    /// The snapshot has a machine version that this build does not know.
    #[error("snapshot has machine version {found}, this build knows up to {known}")]
    Version {
        /// Version in the snapshot.
        found: u16,
        /// Newest version of this build.
        known: u16,
    },
    /// The snapshot contains programs, and this build cannot run programs.
    #[error("snapshot has topics with programs, which this build cannot run")]
    ProgramNeeded,
    /// A program of the snapshot cannot be run.
    #[error("snapshot has a program that cannot be run: {0}")]
    Program(String),
    /// The storage failed.
    #[error("snapshot storage failed")]
    Storage(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Bytes that are buffered before the sink is called.
const WRITE_BYTES: usize = 64 << 10;
/// Counters in a snapshot must be below this, so that the sum of two of them never overflows.
const COUNTER_END: u64 = 1 << 62;

pub(crate) struct Writer<'a> {
    sink: &'a mut dyn SnapshotSink,
    buffer: Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(sink: &'a mut dyn SnapshotSink) -> Self {
        Self {
            sink,
            buffer: Vec::with_capacity(WRITE_BYTES + 1024),
        }
    }

    pub(crate) fn number(&mut self, n: u64) -> Result<(), SnapshotError> {
        put_varint(&mut self.buffer, n);
        self.spill()
    }

    pub(crate) fn word(&mut self, n: u64) -> Result<(), SnapshotError> {
        self.buffer.extend_from_slice(&n.to_le_bytes());
        self.spill()
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        put_bytes(&mut self.buffer, bytes);
        self.spill()
    }

    fn spill(&mut self) -> Result<(), SnapshotError> {
        if self.buffer.len() < WRITE_BYTES {
            return Ok(());
        }
        self.finish()
    }

    pub(crate) fn finish(&mut self) -> Result<(), SnapshotError> {
        self.sink.write(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

pub(crate) struct Input<'a> {
    source: &'a mut dyn SnapshotSource,
}

impl<'a> Input<'a> {
    pub(crate) fn new(source: &'a mut dyn SnapshotSource) -> Self {
        Self { source }
    }

    fn byte(&mut self) -> Result<u8, SnapshotError> {
        let mut byte = [0];
        self.source.read(&mut byte)?;
        Ok(byte[0])
    }

    pub(crate) fn number(&mut self) -> Result<u64, SnapshotError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits || (byte == 0 && shift > 0) {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(SnapshotError::Malformed("a variable number"))
    }

    /// A number of elements, at most `max`.
    pub(crate) fn count(&mut self, max: u64, what: &'static str) -> Result<u64, SnapshotError> {
        let n = self.number()?;
        if n > max {
            Err(SnapshotError::Malformed(what))
        } else {
            Ok(n)
        }
    }

    pub(crate) fn word(&mut self) -> Result<u64, SnapshotError> {
        let mut bytes = [0; 8];
        self.source.read(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// A counter that the machine continues from.
    pub(crate) fn counter(&mut self) -> Result<u64, SnapshotError> {
        self.count(COUNTER_END - 1, "a number below 2^62")
    }

    /// A string of at most `max` bytes. A wrong length can allocate `max` bytes before the end of
    /// the input is detected.
    pub(crate) fn bytes(
        &mut self,
        max: usize,
        what: &'static str,
    ) -> Result<Vec<u8>, SnapshotError> {
        let len = self.count(max as u64, what)?;
        let len = usize::try_from(len).map_err(|_| SnapshotError::Malformed(what))?;
        let mut bytes = vec![0; len];
        self.source.read(&mut bytes)?;
        Ok(bytes)
    }

    /// A long string of at most `max` bytes. Memory grows only with the bytes that are really read.
    pub(crate) fn section(
        &mut self,
        max: u64,
        what: &'static str,
    ) -> Result<Vec<u8>, SnapshotError> {
        let mut left = self.count(max, what)?;
        let mut bytes = Vec::new();
        while left > 0 {
            let step = usize::try_from(left.min(1 << 20)).unwrap_or(1 << 20);
            let start = bytes.len();
            bytes.resize(start + step, 0);
            self.source
                .read(bytes.get_mut(start..).unwrap_or(&mut []))?;
            left -= step as u64;
        }
        Ok(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let what = "bytes of a fixed length";
        let bytes = self.bytes(N, what)?;
        bytes.try_into().map_err(|_| SnapshotError::Malformed(what))
    }
}
