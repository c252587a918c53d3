//! Checkpoints, log compaction and backup, all while the store continues to serve.
//!
//! The commit thread only captures the state (a clone) and continues. The caller's thread or a
//! background thread writes the files, one of them at a time. A file is removed only after its
//! replacement is durable.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_core::Compaction;

use crate::log::LogIndex;

use crate::commit::Committer;
use crate::disk::{Disk, FileDisk, OpenMode};
use crate::engine::Engine;
use crate::error::{IoVerb, StoreError};
use crate::identity::{self, Identity};
use crate::log::{Log, LogOptions};
use crate::permit::ExclusivePermit;
use crate::snapshot::{self, Snapshot};
use crate::store::Store;
use crate::topic::files::path as segment_path;

/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// The contents of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupReport {
    /// Newest log entry in the backup.
    pub index: LogIndex,
    /// Bytes copied.
    pub bytes: u64,
    /// Files copied.
    pub files: u64,
}

/// The result of a log compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactReport {
    /// The snapshot up to which the log was purged.
    pub index: LogIndex,
    /// Size of the log before, in bytes.
    pub log_bytes_before: u64,
    /// Size of the log after, in bytes.
    pub log_bytes_after: u64,
}

impl Committer {
    /// Starts a checkpoint on a separate thread.
    pub(crate) fn checkpoint_in_background(&mut self, permit: ExclusivePermit) {
        // A checkpoint that fails is retried after the same amount of log. A failed sync poisons
        // the store.
        let Ok(checkpoint) = self.begin_checkpoint() else {
            return;
        };
        let handle = self.maintenance_handle();
        let work = move || {
            drop(handle.finish_checkpoint(&checkpoint, &permit));
            drop(permit);
            // A checkpoint that became due meanwhile would otherwise wait for the next write.
            drop(handle.send(Committer::checkpoint_when_due));
        };
        let name = "weir-checkpoint".to_owned();
        let spawned = std::thread::Builder::new().name(name).spawn(work);
        if let Err(error) = spawned.map_err(StoreError::io(IoVerb::Open, "a thread")) {
            self.engine.checkpoint_failed(&error);
        }
    }
}

impl Store {
    /// Writes a snapshot of the current state. Does not block commits. Returns the log entry that
    /// the snapshot covers last.
    pub fn checkpoint(&self) -> Result<LogIndex, StoreError> {
        let permit = self.maintenance.acquire();
        self.checkpoint_under(&permit)
    }

    pub(crate) fn checkpoint_under(
        &self,
        permit: &ExclusivePermit,
    ) -> Result<LogIndex, StoreError> {
        self.maintenance_handle().checkpoint(permit)
    }

    /// Writes a snapshot and purges the log up to it. Afterwards, the topic segments are the only
    /// copy of the purged records.
    pub fn compact_log(&self) -> Result<CompactReport, StoreError> {
        let permit = self.maintenance.acquire();
        let before = self.run_on_commit_thread(|committer| committer.log.stats().bytes)?;
        let index = self.checkpoint_under(&permit)?;
        self.maintenance_handle().read_back(index, &permit)?;
        let after = self.run_on_commit_thread(move |committer| {
            committer.purge(index)?;
            Ok::<u64, StoreError>(committer.log.stats().bytes)
        })??;
        Ok(CompactReport {
            index,
            log_bytes_before: before,
            log_bytes_after: after,
        })
    }

    /// Compacts each topic whose options enable compaction, and then the log. Does not block
    /// commits.
    ///
    /// # Errors
    /// The errors of [`compact_topic`](Self::compact_topic) and [`compact_log`](Self::compact_log).
    pub fn compact(&self) -> Result<CompactReport, StoreError> {
        for info in self.topics(false) {
            if info.options.compaction == Compaction::Off {
                continue;
            }
            match self.compact_topic(&info.name) {
                // The topic was destroyed or changed after it was listed.
                Err(StoreError::TopicUnknown { .. } | StoreError::CompactionOff { .. }) => {}
                done => drop(done?),
            }
        }
        self.compact_log()
    }

    /// Copies the current state of the store to `target`, which must be empty or not exist. Does
    /// not block commits. The copy is a separate store that can be opened. A failed backup leaves
    /// no incomplete copy at `target`.
    pub fn backup(&self, target: &Path) -> Result<BackupReport, StoreError> {
        let permit = self.maintenance.acquire();
        check_empty(target)?;
        let index = self.checkpoint_under(&permit)?;
        self.maintenance_handle().read_back(index, &permit)?;
        let mut report = build_and_rename(target, &self.engine.identity, |copy| {
            copy_state(&*self.disk, copy, &self.engine, index)
        })?;
        report.index = index;
        drop(permit);
        Ok(report)
    }
}

/// Checks that a directory is empty or does not exist.
fn check_empty(target: &Path) -> Result<(), StoreError> {
    let text = target.display().to_string();
    let mut names = match target.read_dir() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        names => names.map_err(StoreError::io(IoVerb::List, &text))?,
    };
    if names.next().is_some() {
        return Err(StoreError::NotEmpty { directory: text });
    }
    Ok(())
}

/// Builds a store in a directory beside `target`, which must be empty or not exist. Renames the
/// directory to `target` when the store is complete.
pub(crate) fn build_and_rename<T>(
    target: &Path,
    identity: &Identity,
    build: impl FnOnce(&Arc<dyn Disk>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    // Without a separator at its end, so that the other directory is beside it, not in it.
    let target = target.components().as_path();
    check_empty(target)?;
    let text = target.display().to_string();
    let io = |verb| StoreError::io(verb, &text);
    let partial = partial_name(target, identity);
    if [identity::NEW, identity::PATH]
        .iter()
        .any(|name| partial.join(name).exists())
    {
        // The store id in the name shows that this directory is an unfinished copy of this store.
        std::fs::remove_dir_all(&partial).map_err(io(IoVerb::Remove))?;
    }
    let copy = FileDisk::open(&partial).map_err(io(IoVerb::Open))?;
    let result = build(&(Arc::new(copy) as Arc<dyn Disk>));
    if result.is_err() {
        // Remove an incomplete copy: the failure may have been a lack of space.
        drop(std::fs::remove_dir_all(&partial));
    }
    let copied = result?;
    if target.exists() {
        std::fs::remove_dir(target).map_err(io(IoVerb::Remove))?;
    }
    std::fs::rename(&partial, target).map_err(io(IoVerb::Rename))?;
    let parent = target
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = FileDisk::open(parent.unwrap_or(Path::new("."))).map_err(io(IoVerb::Open))?;
    parent.sync_dir("").map_err(io(IoVerb::Sync))?;
    Ok(copied)
}

/// Name of the directory in which a backup is built. It is beside its target, and unique to this
/// store.
fn partial_name(target: &Path, identity: &Identity) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(".partial-");
    name.push(weir_core::ClientId(identity.store_id).to_string());
    PathBuf::from(name)
}

/// Copies the identity, snapshot and segments, and creates an empty log after them. The copy is not
/// a node of a cluster: its snapshot has no members.
fn copy_state(
    from: &dyn Disk,
    to: &Arc<dyn Disk>,
    engine: &Engine,
    index: LogIndex,
) -> Result<BackupReport, StoreError> {
    let mut report = BackupReport {
        index,
        bytes: 0,
        files: 0,
    };
    let store_id = engine.identity.store_id;
    let mut state = Snapshot::read(from, store_id, index, 0, engine.host.as_ref())?;
    state.membership = None;
    let create_dir = |dir: &str| {
        to.create_dir(dir)
            .map_err(StoreError::io(IoVerb::Open, dir))
    };
    engine.identity.prepare(&**to)?;
    create_dir("topics")?;
    for (id, list) in &state.topics {
        let dir = crate::topic::files::directory(*id);
        create_dir(&dir)?;
        for entry in &list.segments {
            let path = segment_path(*id, entry.number);
            report.bytes += copy(from, &**to, &path, entry.bytes)?;
            report.files += 1;
        }
        to.sync_dir(&dir)
            .map_err(StoreError::io(IoVerb::Sync, &dir))?;
    }
    create_dir(snapshot::DIRECTORY)?;
    report.bytes += state.write(&**to, store_id)?;
    report.files += 1;
    for dir in ["topics", snapshot::DIRECTORY] {
        to.sync_dir(dir)
            .map_err(StoreError::io(IoVerb::Sync, dir))?;
    }
    let options = LogOptions {
        create: true,
        ..LogOptions::default()
    };
    let (mut log, _) = Log::open(Arc::clone(to), store_id, options)?;
    log.reset(index.next(), state.term)?;
    log.close()?;
    Identity::publish(&**to)?;
    Ok(report)
}

/// Copies the first `len` bytes of a file and syncs the copy. Returns `len`.
fn copy(from: &dyn Disk, to: &dyn Disk, path: &str, len: u64) -> Result<u64, StoreError> {
    let source = from
        .open(path, OpenMode::Read)
        .map_err(StoreError::io(IoVerb::Open, path))?;
    let target = to
        .open(path, OpenMode::CreateNew)
        .map_err(StoreError::io(IoVerb::Open, path))?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut at = 0;
    while at < len {
        let step = usize::try_from(len - at)
            .unwrap_or(COPY_BYTES)
            .min(COPY_BYTES);
        let part = &mut buffer[..step];
        source
            .read_exact_at(part, at)
            .map_err(StoreError::io(IoVerb::Read, path))?;
        let mut parts = [std::io::IoSlice::new(part)];
        target
            .write_all_at(&mut parts, at)
            .map_err(StoreError::io(IoVerb::Write, path))?;
        at += step as u64;
    }
    target
        .sync_data()
        .map_err(StoreError::io(IoVerb::Sync, path))?;
    Ok(len)
}
