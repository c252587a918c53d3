//! Reads the files of a server's store that contain its history.
//!
//! Invariant: read-only; every method that would change a file fails.

use std::io::{self, IoSlice};
use std::sync::Arc;

use parking_lot::Mutex;
use weir_protocol::{FILE_BYTES_MAX, Message};
use weir_store::StoreError;
use weir_store::disk::{Disk, DiskFile, OpenMode};

use super::link::packet_of;
use super::{Remote, error_of};
use crate::reply::block_on;

/// The files of a server's store that contain its history.
#[derive(Debug)]
pub(crate) struct RemoteDisk(Arc<Remote>);

/// A file of a [`RemoteDisk`].
#[derive(Debug)]
struct RemoteFile {
    remote: Arc<Remote>,
    path: String,
    /// The last part that was read: its position, and its bytes.
    part: Mutex<(u64, Vec<u8>)>,
}

fn unsupported() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "the files of a server are read-only",
    )
}

impl RemoteDisk {
    /// Asks the server whether this client may read its files.
    pub(crate) fn new(remote: Arc<Remote>) -> Result<Self, StoreError> {
        remote.file_names("log")?;
        Ok(Self(remote))
    }
}

impl Remote {
    fn file_names(&self, path: &str) -> Result<Vec<String>, StoreError> {
        let bytes = block_on(self.request(&Message::Files { path }))?;
        let Message::FilesResponse { lines } = packet_of(&bytes)?.message else {
            return Err(error_of(&bytes));
        };
        let lines = String::from_utf8_lossy(lines);
        Ok(lines.lines().map(str::to_owned).collect())
    }

    /// The length of a file, and its bytes from `at`.
    fn file_part(&self, path: &str, at: u64, bytes: usize) -> io::Result<(u64, Vec<u8>)> {
        let bytes = bytes as u64;
        let answer = block_on(self.request(&Message::File { path, at, bytes }));
        let answer = answer.map_err(io::Error::other)?;
        let packet = packet_of(&answer).map_err(io::Error::other)?;
        let Message::FileResponse { length, part } = packet.message else {
            return Err(io::Error::other(error_of(&answer)));
        };
        let length = length.ok_or(io::ErrorKind::NotFound)?;
        let end = at.checked_add(part.len() as u64);
        if part.len() as u64 > bytes || (!part.is_empty() && end.is_none_or(|end| end > length)) {
            return Err(io::Error::other(error_of(&answer)));
        }
        Ok((length, part.to_vec()))
    }
}

impl Disk for RemoteDisk {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        if mode != OpenMode::Read {
            return Err(unsupported());
        }
        let (_, part) = self.0.file_part(path, 0, FILE_BYTES_MAX)?;
        Ok(Arc::new(RemoteFile {
            remote: Arc::clone(&self.0),
            path: path.to_owned(),
            part: Mutex::new((0, part)),
        }))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.0.file_names(dir).map_err(io::Error::other)
    }

    fn create_dir(&self, _: &str) -> io::Result<()> {
        Err(unsupported())
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Err(unsupported())
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Err(unsupported())
    }

    fn remove_dir(&self, _: &str) -> io::Result<()> {
        Err(unsupported())
    }

    fn sync_dir(&self, _: &str) -> io::Result<()> {
        Err(unsupported())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn is_read_only(&self) -> bool {
        true
    }
}

impl DiskFile for RemoteFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut cached = self.part.lock();
        let mut done = 0;
        while done < buffer.len() {
            let wanted = offset + done as u64;
            let (at, part) = &*cached;
            let from = wanted.checked_sub(*at).map(usize::try_from);
            let available = match from {
                Some(Ok(from)) => part.get(from..).unwrap_or_default(),
                _ => &[],
            };
            let rest = buffer.get_mut(done..).unwrap_or_default();
            let count = available.len().min(rest.len());
            if count == 0 {
                let (_, part) = self.remote.file_part(&self.path, wanted, FILE_BYTES_MAX)?;
                if part.is_empty() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                *cached = (wanted, part);
                continue;
            }
            for (to, from) in rest.iter_mut().zip(available) {
                *to = *from;
            }
            done += count;
        }
        Ok(())
    }

    fn write_all_at(&self, _: &mut [IoSlice<'_>], _: u64) -> io::Result<()> {
        Err(unsupported())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(unsupported())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.remote.file_part(&self.path, 0, 0)?.0)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(unsupported())
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        Err(unsupported())
    }
}
