//! The identity file of a store (docs/formats/store.md, "Identity").

use std::io::IoSlice;

use crc_fast::crc32_iscsi as crc32c;

use crate::disk::{Disk, OpenMode};
use crate::error::{IoVerb, StoreError};

/// Name of the file.
pub(crate) const PATH: &str = "weir.id";
/// Name of the file until the log exists.
pub(crate) const NEW: &str = "weir.id.new";
const BYTES: usize = 512;
const MAGIC: &[u8; 8] = b"WEIRSTOR";
const FORMAT: u16 = 1;

/// The field at `at`.
fn array<const N: usize>(bytes: &[u8; BYTES], at: usize) -> [u8; N] {
    let Some(field) = bytes.get(at..).and_then(|rest| rest.first_chunk()) else {
        unreachable!("every field lies inside the file")
    };
    *field
}

/// The identity of a store, which never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Random, generated once.
    pub store_id: [u8; 16],
    /// When the store was created, in milliseconds since 1970-01-01 UTC.
    pub created_ms: u64,
}

impl Identity {
    /// The part of the id that every block repeats.
    pub(crate) fn tag(&self) -> [u8; 8] {
        let Some(tag) = self.store_id.first_chunk() else {
            unreachable!("the id has 16 bytes")
        };
        *tag
    }

    /// Reads the file; `None` if it does not exist.
    pub(crate) fn read(disk: &dyn Disk, path: &str) -> Result<Option<Self>, StoreError> {
        if !disk
            .list("")
            .map_err(StoreError::io(IoVerb::List, "."))?
            .iter()
            .any(|n| n == path)
        {
            return Ok(None);
        }
        let file = disk
            .open(path, OpenMode::Read)
            .map_err(StoreError::io(IoVerb::Open, path))?;
        let len = file.len().map_err(StoreError::io(IoVerb::Read, path))?;
        let mut bytes = [0; BYTES];
        if len != BYTES as u64 {
            return Err(StoreError::damage(
                path,
                len.min(BYTES as u64),
                "the identity does not have 512 bytes",
                0,
            ));
        }
        file.read_exact_at(&mut bytes, 0)
            .map_err(StoreError::io(IoVerb::Read, path))?;
        Self::decode(&bytes).map(Some)
    }

    fn decode(bytes: &[u8; BYTES]) -> Result<Self, StoreError> {
        let damage = |position, what| StoreError::damage(PATH, position, what, 0);
        let (body, crc) = bytes.split_at(BYTES - 4);
        if crc != crc32c(body).to_le_bytes() {
            return Err(damage(
                BYTES as u64 - 4,
                "the checksum of the identity is wrong",
            ));
        }
        if array(bytes, 0) != *MAGIC {
            return Err(damage(0, "the magic number of the identity is wrong"));
        }
        let format = u16::from_le_bytes(array(bytes, 8));
        let reserved = body
            .get(10..16)
            .into_iter()
            .chain(body.get(40..))
            .flatten()
            .any(|b| *b != 0);
        if format != FORMAT || reserved {
            let file = PATH.to_owned();
            return Err(StoreError::NewerFormat {
                file,
                found: format,
                supported: FORMAT,
            });
        }
        Ok(Self {
            store_id: array(bytes, 16),
            created_ms: u64::from_le_bytes(array(bytes, 32)),
        })
    }

    fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.store_id);
        bytes[32..40].copy_from_slice(&self.created_ms.to_le_bytes());
        let crc = crc32c(&bytes[..BYTES - 4]);
        bytes[BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Writes the file of a new store durably, under the name [`NEW`].
    pub(crate) fn prepare(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        let names = disk.list("").map_err(StoreError::io(IoVerb::List, "."))?;
        if names.iter().any(|name| name == NEW) {
            disk.remove(NEW)
                .map_err(StoreError::io(IoVerb::Remove, NEW))?;
        }
        let file = disk
            .open(NEW, OpenMode::CreateNew)
            .map_err(StoreError::io(IoVerb::Open, NEW))?;
        let bytes = self.encode();
        let write = file.write_all_at(&mut [IoSlice::new(&bytes)], 0);
        write.map_err(StoreError::io(IoVerb::Write, NEW))?;
        file.sync_data()
            .map_err(StoreError::io(IoVerb::Sync, NEW))?;
        disk.sync_dir("").map_err(StoreError::io(IoVerb::Sync, "."))
    }

    /// Makes the file durable, because an earlier process may not have synced it. Rewrites its one
    /// sector with the same bytes.
    pub(crate) fn rewrite(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        let file = disk
            .open(NEW, OpenMode::Write)
            .map_err(StoreError::io(IoVerb::Open, NEW))?;
        let write = file.write_all_at(&mut [IoSlice::new(&self.encode())], 0);
        write.map_err(StoreError::io(IoVerb::Write, NEW))?;
        file.sync_data()
            .map_err(StoreError::io(IoVerb::Sync, NEW))?;
        disk.sync_dir("").map_err(StoreError::io(IoVerb::Sync, "."))
    }

    /// Renames the file to [`PATH`]. From then on, the store exists.
    pub(crate) fn publish(disk: &dyn Disk) -> Result<(), StoreError> {
        disk.rename(NEW, PATH)
            .map_err(StoreError::io(IoVerb::Rename, PATH))?;
        disk.sync_dir("").map_err(StoreError::io(IoVerb::Sync, "."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_the_identity_is_detected() {
        let identity = Identity {
            store_id: [0xab; 16],
            created_ms: 1_790_000_000_000,
        };
        let good = identity.encode();
        assert!(Identity::decode(&good).is_ok_and(|back| back == identity));
        for bit in 0..BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Identity::decode(&bad).is_err(), "bit {bit}");
        }
    }
}
