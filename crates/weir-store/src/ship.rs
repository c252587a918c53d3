//! The transfer of snapshots between nodes (docs/formats/cluster.md, "Snapshots").
//!
//! Invariants:
//!
//! - The files of a [`ShippedSnapshot`] are not removed before it is dropped.
//! - A staged snapshot is installed only after all its bytes were read back and checked.
//! - One snapshot is staged at a time.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;
use weir_core::TopicId;

use crate::commit::attached;
use crate::disk::{Disk, OpenMode, PrefixDisk};
use crate::error::{IoVerb, StoreError};
use crate::install::{STAGED, clear_staged};
use crate::log::LogIndex;
use crate::log_index::EntryId;
use crate::permit::ExclusivePermit;
use crate::replay::{AppliedMembership, compile_restored};
use crate::replica::Replica;
use crate::snapshot::{self, Description, Snapshot};
use crate::topic::cache::{FileCache, Pin};
use crate::topic::files;

/// A file of a snapshot that is transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotFile {
    /// Topic number and segment number; `None` for the snapshot itself.
    pub segment: Option<(u32, u32)>,
    /// Number of bytes to transfer, from the start of the file.
    pub bytes: u64,
}

/// A snapshot of this node that another node can read. Its files are not removed before this value
/// is dropped.
#[derive(Debug)]
pub struct ShippedSnapshot {
    /// The newest entry in the snapshot.
    pub id: EntryId,
    /// The newest membership entry in the snapshot, and its body.
    pub membership: Option<(EntryId, Bytes)>,
    /// The files to transfer. The first one is the snapshot file; the others are topic segments.
    pub files: Vec<SnapshotFile>,
    cache: Arc<FileCache>,
    _pin: Pin,
}

/// A snapshot of another node that is being received.
#[derive(Debug)]
pub struct StagedSnapshot {
    store_id: [u8; 16],
    id: EntryId,
    files: Vec<(SnapshotFile, u64)>,
    disk: Arc<dyn Disk>,
    staging: Arc<PrefixDisk>,
    /// The loaded snapshot, after all its bytes were read and checked.
    checked: Option<Box<Snapshot>>,
    is_installing: bool,
    _permit: ExclusivePermit,
}

fn path(file: &SnapshotFile, index: LogIndex) -> String {
    match file.segment {
        Some((topic, number)) => files::path(TopicId(topic), number),
        None => snapshot::path(index),
    }
}

/// Returns the files of a snapshot: the snapshot file, then the segments.
fn files_of(description: &Description) -> Vec<SnapshotFile> {
    let snapshot_file = SnapshotFile {
        segment: None,
        bytes: description.bytes,
    };
    let segments = description.topics.iter().flat_map(|(id, list)| {
        list.segments.iter().map(|entry| SnapshotFile {
            segment: Some((id.0, entry.number)),
            bytes: entry.bytes,
        })
    });
    std::iter::once(snapshot_file).chain(segments).collect()
}

fn membership_of(membership: Option<AppliedMembership>) -> Option<(EntryId, Bytes)> {
    membership.map(|AppliedMembership { index, term, body }| (EntryId { term, index }, body))
}

impl ShippedSnapshot {
    /// Reads up to `len` bytes from position `at` of the file with the index `file`. Fewer bytes
    /// only at the end of the file; none if the file does not exist.
    pub fn read(&self, file: usize, at: u64, len: usize) -> Result<Vec<u8>, StoreError> {
        let Some(file) = self.files.get(file) else {
            return Ok(Vec::new());
        };
        let left = usize::try_from(file.bytes.saturating_sub(at)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len.min(left)];
        let path = path(file, self.id.index);
        let opened = self.cache.get(&path);
        let opened = opened.map_err(StoreError::io(IoVerb::Open, &path))?;
        let read = opened.read_exact_at(&mut bytes, at);
        read.map_err(StoreError::io_at(IoVerb::Read, &path, at))?;
        Ok(bytes)
    }
}

impl StagedSnapshot {
    /// Returns the newest entry in the snapshot.
    #[must_use]
    pub fn id(&self) -> EntryId {
        self.id
    }

    /// Returns the newest membership entry in the snapshot, and its body.
    ///
    /// # Errors
    /// `Damage` until the first file is complete.
    pub fn membership(&self) -> Result<Option<(EntryId, Bytes)>, StoreError> {
        let description = snapshot::describe(&*self.staging, self.store_id, self.id.index)?;
        Ok(membership_of(description.membership))
    }

    /// Writes the next bytes of the file with the index `file`, at position `at`.
    ///
    /// # Errors
    /// `IndexOutOfRange` for bytes that are not the next ones of the file.
    pub fn write(&mut self, file: usize, at: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let index = self.id.index;
        let out_of_range = |high| StoreError::IndexOutOfRange {
            what: "the position of a part of a snapshot",
            index: at,
            low: 0,
            high,
        };
        let (file, written) = self.files.get_mut(file).ok_or_else(|| out_of_range(0))?;
        if at != *written || bytes.len() as u64 > file.bytes - *written {
            return Err(out_of_range(*written));
        }
        let path = path(file, index);
        let mode = if at == 0 {
            if let Some((dir, _)) = path.rsplit_once('/') {
                let created = self.staging.create_dir(dir);
                created.map_err(StoreError::io(IoVerb::Open, dir))?;
            }
            OpenMode::CreateNew
        } else {
            OpenMode::Write
        };
        let opened = self.staging.open(&path, mode);
        let opened = opened.map_err(StoreError::io(IoVerb::Open, &path))?;
        let done = opened.write_all_at(&mut [IoSlice::new(bytes)], at);
        done.map_err(StoreError::io_at(IoVerb::Write, &path, at))?;
        *written += bytes.len() as u64;
        self.checked = None;
        Ok(())
    }

    /// Makes all files and names durable.
    fn make_durable(&self) -> Result<(), StoreError> {
        let mut directories = HashSet::new();
        for (file, written) in &self.files {
            let path = path(file, self.id.index);
            if *written != file.bytes {
                return Err(StoreError::damage(
                    &path,
                    *written,
                    "the file is incomplete",
                    0,
                ));
            }
            let opened = self.staging.open(&path, OpenMode::Write);
            let opened = opened.map_err(StoreError::io(IoVerb::Open, &path))?;
            let synced = opened.sync_data();
            synced.map_err(StoreError::io(IoVerb::Sync, &path))?;
            let dir = path.rsplit_once('/').map(|(dir, _)| dir.to_owned());
            directories.extend(dir);
        }
        self.staging
            .create_dir("topics")
            .map_err(StoreError::io(IoVerb::Open, STAGED))?;
        let rest = ["topics".to_owned(), String::new()];
        for dir in directories.into_iter().chain(rest) {
            self.staging
                .sync_dir(&dir)
                .map_err(StoreError::io(IoVerb::Sync, &dir))?;
        }
        self.disk
            .sync_dir("")
            .map_err(StoreError::io(IoVerb::Sync, "."))
    }
}

impl Drop for StagedSnapshot {
    fn drop(&mut self) {
        // On an error, the next open or the next staged snapshot removes the files.
        if !self.is_installing {
            drop(clear_staged(&*self.disk));
        }
    }
}

impl Replica {
    /// Writes a snapshot of the present state, and returns the index of its newest entry.
    pub fn checkpoint(&self) -> Result<LogIndex, StoreError> {
        let permit = self.handle.maintenance.acquire();
        self.handle.checkpoint(&permit)
    }

    /// Returns the newest snapshot of this node, for the transfer to another node; `None` before
    /// the first snapshot. Blocks while a checkpoint is being written.
    pub fn ship(&self) -> Result<Option<ShippedSnapshot>, StoreError> {
        let permit = self.handle.maintenance.acquire();
        let disk = &*self.handle.disk;
        let Some(index) = snapshot::list(disk)?.into_iter().next() else {
            return Ok(None);
        };
        let store_id = self.handle.engine.identity.store_id;
        let description = snapshot::describe(disk, store_id, index)?;
        let files = files_of(&description);
        let paths = files.iter().map(|file| path(file, index)).collect();
        let pin = self.cache.pin(paths);
        drop(permit);
        let term = description.term;
        Ok(Some(ShippedSnapshot {
            id: EntryId { term, index },
            membership: membership_of(description.membership),
            files,
            cache: Arc::clone(&self.cache),
            _pin: pin,
        }))
    }

    /// Begins to receive a snapshot of another node. The state does not change before
    /// [`install`](Self::install).
    ///
    /// # Errors
    /// `NodeRefused` while another snapshot is being received, and for files that are not those of
    /// a snapshot; `DiskFull`; `Poisoned`.
    pub fn stage(
        &self,
        id: EntryId,
        files: Vec<SnapshotFile>,
    ) -> Result<StagedSnapshot, StoreError> {
        let refused = |why: &str| StoreError::NodeRefused {
            why: why.to_owned(),
        };
        // A store that stopped during an install needs the staged files at its next open.
        self.handle.engine.writable()?;
        let permit = self.shared.staging.try_acquire();
        let permit = permit.ok_or_else(|| refused("another snapshot is being received"))?;
        let mut seen = HashSet::new();
        let is_whole = files.first().is_some_and(|file| file.segment.is_none())
            && files.iter().all(|file| {
                file.bytes > 0
                    && seen.insert(file.segment)
                    && file.segment.is_none_or(|(_, number)| number > 0)
            });
        if !is_whole {
            return Err(refused("the list of files is not that of a snapshot"));
        }
        let disk = &self.handle.disk;
        clear_staged(&**disk)?;
        let log_bytes = self
            .handle
            .run_on_commit_thread(|committer| committer.install_bytes())?;
        let needed_bytes = files
            .iter()
            .fold(log_bytes, |sum, file| sum.saturating_add(file.bytes));
        let free_bytes = disk
            .free_bytes()
            .map_err(StoreError::io(IoVerb::Find, STAGED))?;
        if needed_bytes > free_bytes {
            return Err(StoreError::DiskFull {
                needed_bytes,
                free_bytes,
            });
        }
        disk.create_dir(STAGED)
            .map_err(StoreError::io(IoVerb::Open, STAGED))?;
        Ok(StagedSnapshot {
            store_id: self.handle.engine.identity.store_id,
            id,
            files: files.into_iter().map(|file| (file, 0)).collect(),
            disk: Arc::clone(disk),
            staging: Arc::new(PrefixDisk::new(Arc::clone(disk), STAGED)),
            checked: None,
            is_installing: false,
            _permit: permit,
        })
    }

    /// Reads all bytes of a staged snapshot, and checks whether it can be installed. The install
    /// does not read them again.
    ///
    /// # Errors
    /// `Damage` for an incomplete or damaged snapshot, and `DiskFull`.
    pub fn check(&self, staged: &mut StagedSnapshot) -> Result<(), StoreError> {
        if staged.checked.is_none() {
            staged.make_durable()?;
            staged.checked = Some(Box::new(self.check_staged(staged)?));
        }
        self.handle
            .run_on_commit_thread(|committer| committer.check_space_for_install())?
    }

    fn checked(&self, staged: &mut StagedSnapshot) -> Result<Snapshot, StoreError> {
        self.check(staged)?;
        let snapshot = staged.checked.take().map(|snapshot| *snapshot);
        snapshot.ok_or(StoreError::Closed)
    }

    /// Replaces the state with a staged snapshot. If the log does not continue the snapshot, the
    /// log is reset to begin after it. Readers continue at their offsets.
    ///
    /// # Errors
    /// `Damage` for an incomplete or damaged snapshot, `IndexOutOfRange` for a snapshot before the
    /// last applied entry, and `DiskFull`. After these errors, the state is unchanged.
    pub fn install(&self, mut staged: StagedSnapshot) -> Result<(), StoreError> {
        let snapshot = self.checked(&mut staged)?;
        self.install_checked(staged, snapshot)
    }

    /// As [`install`](Self::install), for a snapshot at the last applied entry of this node, to
    /// replace a state that differs from other nodes. Returns the names of the topics that differ.
    ///
    /// # Errors
    /// As for `install`; `IndexOutOfRange` for a snapshot at another entry.
    pub fn restore(&self, mut staged: StagedSnapshot) -> Result<Vec<String>, StoreError> {
        let snapshot = self.checked(&mut staged)?;
        let (index, applied) = (staged.id.index, self.handle.engine.applied_index());
        if index != applied {
            return Err(StoreError::IndexOutOfRange {
                what: "the index of a state to restore",
                index: index.0,
                low: applied.0,
                high: applied.0,
            });
        }
        let differing = {
            let ours = self.handle.engine.machine.read();
            let ours: BTreeMap<_, _> = ours.topic_digests().collect();
            let theirs: BTreeMap<_, _> = snapshot.machine.topic_digests().collect();
            let names: BTreeSet<&str> = ours.keys().chain(theirs.keys()).copied().collect();
            let differs = |name: &&str| ours.get(name) != theirs.get(name);
            let names = names.into_iter().filter(differs);
            names.map(str::to_owned).collect()
        };
        self.install_checked(staged, snapshot)?;
        Ok(differing)
    }

    fn install_checked(
        &self,
        mut staged: StagedSnapshot,
        snapshot: Snapshot,
    ) -> Result<(), StoreError> {
        let permit = self.handle.maintenance.acquire();
        let cache = Arc::clone(&self.cache);
        staged.is_installing = true;
        let installed = self.handle.run_on_commit_thread(move |committer| {
            let installed = committer.install(&cache, snapshot, &permit);
            drop(permit);
            installed
        })?;
        // If no error stopped the store, there is no manifest, and the staged files can be removed.
        staged.is_installing = self.handle.engine.writable().is_err();
        installed?;
        // The samples are digests of the replaced state.
        self.handle.engine.samples.clear();
        Ok(())
    }

    /// Reads and checks a staged snapshot, and every block that it lists.
    fn check_staged(&self, staged: &StagedSnapshot) -> Result<Snapshot, StoreError> {
        let engine = &self.handle.engine;
        let index = staged.id.index;
        let name = snapshot::path(index);
        let damage = |what| StoreError::damage(&name, 32, what, 0);
        let store_id = engine.identity.store_id;
        let disk = Arc::clone(&staged.staging) as Arc<dyn Disk>;
        let description = snapshot::describe(&*disk, store_id, index)?;
        let files: Vec<_> = staged.files.iter().map(|(file, _)| *file).collect();
        if description.term != staged.id.term || files != files_of(&description) {
            return Err(damage("the files differ from those in the snapshot"));
        }
        let seed = self
            .seed
            .unwrap_or_else(|| RandomState::new().build_hasher().finish());
        let snapshot = Snapshot::read(&*disk, store_id, index, seed, engine.host.as_ref())?;
        if snapshot.machine.has_programs() {
            compile_restored(engine);
        }
        let cache = Arc::new(FileCache::new(disk));
        for writer in attached(&cache, engine.identity.tag(), &snapshot)? {
            let blocks = writer.files.contents.read().blocks.clone();
            for block in &blocks {
                writer.files.check(block)?;
            }
        }
        Ok(snapshot)
    }
}
