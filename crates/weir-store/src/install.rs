//! Replaces the state of a node by a staged snapshot of another node (docs/formats/cluster.md,
//! "Install").
//!
//! Invariants:
//!
//! - The old state is removed only after the staged snapshot is durable and checked.
//! - An open that finds a manifest completes the switch before it reads anything else.
//! - The log retains the entries after the snapshot, because other nodes may have counted them.

use std::io::IoSlice;
use std::sync::Arc;

use crc_fast::crc32_iscsi as crc32c;

use crate::commit::{Committer, ReplayCost, attached};
use crate::disk::{Disk, OpenMode, SwitchedDisk};
use crate::engine::Engine;
use crate::error::{IoVerb, StoreError};
use crate::log::{Log, LogIndex, LogReaders};
use crate::permit::ExclusivePermit;
use crate::snapshot::{self, Snapshot};
use crate::topic::cache::FileCache;

/// Directory of a snapshot that is being received.
pub(crate) const STAGED: &str = "staged";
pub(crate) const MANIFEST: &str = "staged/manifest";
const MANIFEST_NEW: &str = "staged/manifest.new";
const MAGIC: &[u8; 8] = b"WEIRINST";
const FORMAT: u16 = 1;
const MANIFEST_BYTES: usize = 512;

/// Progress of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The old snapshots and segments are being removed.
    Clear = 1,
    /// The old files are removed; the staged files are being renamed.
    Move = 2,
}

/// Identifies the snapshot that is being installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) index: LogIndex,
    pub(crate) term: u64,
}

impl Manifest {
    fn encode(self, phase: Phase, store_id: &[u8; 16]) -> [u8; MANIFEST_BYTES] {
        let mut bytes = [0; MANIFEST_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[10] = phase as u8;
        bytes[16..32].copy_from_slice(store_id);
        bytes[32..40].copy_from_slice(&self.index.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.term.to_le_bytes());
        let crc = crc32c(&bytes[..MANIFEST_BYTES - 4]);
        bytes[MANIFEST_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(
        bytes: &[u8; MANIFEST_BYTES],
        store_id: &[u8; 16],
    ) -> Result<(Self, Phase), StoreError> {
        let damage =
            |position| StoreError::damage(MANIFEST, position, "the manifest is not as written", 0);
        let (body, crc) = bytes.split_at(MANIFEST_BYTES - 4);
        if crc != crc32c(body).to_le_bytes() || !body.starts_with(MAGIC) {
            return Err(damage(0));
        }
        let found = u16::from_le_bytes([bytes[8], bytes[9]]);
        let phase = match bytes[10] {
            1 => Some(Phase::Clear),
            2 => Some(Phase::Move),
            _ => None,
        };
        let is_zero = bytes[11..16]
            .iter()
            .chain(&body[48..])
            .all(|byte| *byte == 0);
        let Some(phase) = phase.filter(|_| found == FORMAT && is_zero) else {
            return Err(StoreError::NewerFormat {
                file: MANIFEST.to_owned(),
                found,
                supported: FORMAT,
            });
        };
        if bytes[16..32] != store_id[..] {
            let file = MANIFEST.to_owned();
            return Err(StoreError::ForeignStore { file });
        }
        let word = |at: usize| {
            let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk()) else {
                unreachable!("every field lies inside the manifest")
            };
            u64::from_le_bytes(*word)
        };
        let manifest = Self {
            index: LogIndex(word(32)),
            term: word(40),
        };
        Ok((manifest, phase))
    }

    /// Writes the manifest durably.
    fn write(self, disk: &dyn Disk, phase: Phase, store_id: &[u8; 16]) -> Result<(), StoreError> {
        remove_if_present(disk, STAGED, "manifest.new")?;
        let file = disk
            .open(MANIFEST_NEW, OpenMode::CreateNew)
            .map_err(StoreError::io(IoVerb::Open, MANIFEST_NEW))?;
        let bytes = self.encode(phase, store_id);
        file.write_all_at(&mut [IoSlice::new(&bytes)], 0)
            .map_err(StoreError::io(IoVerb::Write, MANIFEST_NEW))?;
        file.sync_data()
            .map_err(StoreError::io(IoVerb::Sync, MANIFEST_NEW))?;
        disk.rename(MANIFEST_NEW, MANIFEST)
            .map_err(StoreError::io(IoVerb::Rename, MANIFEST))?;
        sync(disk, STAGED)
    }

    fn read(disk: &dyn Disk, store_id: &[u8; 16]) -> Result<Option<(Self, Phase)>, StoreError> {
        if !names(disk, STAGED)?.iter().any(|name| name == "manifest") {
            return Ok(None);
        }
        let file = disk
            .open(MANIFEST, OpenMode::Read)
            .map_err(StoreError::io(IoVerb::Open, MANIFEST))?;
        let len = file.len().map_err(StoreError::io(IoVerb::Read, MANIFEST))?;
        if len != MANIFEST_BYTES as u64 {
            return Err(StoreError::damage(
                MANIFEST,
                len,
                "the manifest is not as written",
                0,
            ));
        }
        let mut bytes = [0; MANIFEST_BYTES];
        file.read_exact_at(&mut bytes, 0)
            .map_err(StoreError::io(IoVerb::Read, MANIFEST))?;
        Self::decode(&bytes, store_id).map(Some)
    }
}

fn names(disk: &dyn Disk, dir: &str) -> Result<Vec<String>, StoreError> {
    disk.list(dir).map_err(StoreError::io(IoVerb::List, dir))
}

fn sync(disk: &dyn Disk, dir: &str) -> Result<(), StoreError> {
    disk.sync_dir(dir)
        .map_err(StoreError::io(IoVerb::Sync, dir))
}

fn remove(disk: &dyn Disk, path: &str) -> Result<(), StoreError> {
    disk.remove(path)
        .map_err(StoreError::io(IoVerb::Remove, path))
}

fn remove_if_present(disk: &dyn Disk, dir: &str, name: &str) -> Result<(), StoreError> {
    if names(disk, dir)?.iter().any(|found| found == name) {
        remove(disk, &format!("{dir}/{name}"))?;
    }
    Ok(())
}

/// Removes the files in a directory, durably.
fn remove_files(
    disk: &dyn Disk,
    dir: &str,
    matches: impl Fn(&str) -> bool,
) -> Result<(), StoreError> {
    let names: Vec<String> = names(disk, dir)?;
    let removed: Vec<_> = names.iter().filter(|name| matches(name)).collect();
    for name in &removed {
        remove(disk, &format!("{dir}/{name}"))?;
    }
    if removed.is_empty() {
        Ok(())
    } else {
        sync(disk, dir)
    }
}

/// Names of the topic directories in the directory `topics` below `root`.
fn topic_directories(disk: &dyn Disk, root: &str) -> Result<Vec<String>, StoreError> {
    let mut found = names(disk, &format!("{root}topics"))?;
    found.retain(|name| crate::topic::files::parse_directory(name).is_some());
    Ok(found)
}

fn is_segment(name: &str) -> bool {
    crate::topic::files::parse_segment(name).is_some()
}

fn is_snapshot(name: &str) -> bool {
    let stem = name.strip_suffix(".new").unwrap_or(name);
    stem.strip_suffix(".snap").is_some()
}

/// Removes the staged files. The caller must have checked that no manifest exists.
pub(crate) fn clear_staged(disk: &dyn Disk) -> Result<(), StoreError> {
    let found = names(disk, STAGED)?;
    if found.is_empty() {
        return Ok(());
    }
    let remove_dir = |dir: &str| {
        disk.remove_dir(dir)
            .map_err(StoreError::io(IoVerb::Remove, dir))
    };
    for name in topic_directories(disk, "staged/")? {
        let dir = format!("staged/topics/{name}");
        remove_files(disk, &dir, |_| true)?;
        remove_dir(&dir)?;
    }
    remove_files(disk, "staged/snapshots", |_| true)?;
    for dir in ["topics", snapshot::DIRECTORY] {
        if found.iter().any(|name| name == dir) {
            remove_dir(&format!("staged/{dir}"))?;
        }
    }
    remove_if_present(disk, STAGED, "manifest.new")
}

/// An unfinished switch, for callers that only read.
pub(crate) struct PendingInstall {
    /// The disk as it will be after the switch.
    pub(crate) disk: Arc<dyn Disk>,
    manifest: Manifest,
}

impl PendingInstall {
    /// The switch that the next open of the node will complete, if there is one.
    pub(crate) fn find(
        disk: &Arc<dyn Disk>,
        store_id: &[u8; 16],
    ) -> Result<Option<Self>, StoreError> {
        let Some((manifest, phase)) = Manifest::read(&**disk, store_id)? else {
            return Ok(None);
        };
        let old_files_remain = phase == Phase::Clear;
        let disk = Arc::new(SwitchedDisk::new(
            Arc::clone(disk),
            STAGED,
            old_files_remain,
        ));
        Ok(Some(Self { disk, manifest }))
    }

    /// Sets the bounds of the log to those after the switch.
    pub(crate) fn switch_log(&self, log: &LogReaders) {
        let Manifest { index, term } = self.manifest;
        if is_replaced(log.last_index(), log.term_at(index), self.manifest) {
            log.reset(index, term);
        }
    }
}

/// Whether a log does not continue a snapshot: the log ends before the snapshot, or has a different
/// entry at its index.
fn is_replaced(last: LogIndex, term: Option<u64>, manifest: Manifest) -> bool {
    last < manifest.index || term.is_some_and(|found| found != manifest.term)
}

/// Completes an unfinished switch, or removes staged files that have no manifest. Afterwards, `log`
/// ends at or after the snapshot.
pub(crate) fn resume(
    disk: &dyn Disk,
    log: &mut Log,
    store_id: &[u8; 16],
) -> Result<(), StoreError> {
    let Some((manifest, phase)) = Manifest::read(disk, store_id)? else {
        return clear_staged(disk);
    };
    tracing::info!(
        index = manifest.index.0,
        "completing the installation of a snapshot"
    );
    switch(disk, log, store_id, manifest, phase)
}

fn switch(
    disk: &dyn Disk,
    log: &mut Log,
    store_id: &[u8; 16],
    manifest: Manifest,
    phase: Phase,
) -> Result<(), StoreError> {
    if phase == Phase::Clear {
        remove_files(disk, snapshot::DIRECTORY, is_snapshot)?;
        for name in topic_directories(disk, "")? {
            remove_files(disk, &format!("topics/{name}"), is_segment)?;
        }
        manifest.write(disk, Phase::Move, store_id)?;
    }
    for name in topic_directories(disk, "staged/")? {
        move_files(disk, &format!("topics/{name}"))?;
    }
    disk.create_dir("topics")
        .map_err(StoreError::io(IoVerb::Open, "topics"))?;
    sync(disk, "topics")?;
    move_files(disk, snapshot::DIRECTORY)?;
    sync(disk, "")?;
    let Manifest { index, term } = manifest;
    if is_replaced(log.last_index(), log.term_at(index), manifest) {
        log.reset(index.next(), term)?;
    } else {
        // Without the manifest, an open refuses a log that ends before the snapshot.
        log.sync()?;
    }
    remove(disk, MANIFEST)?;
    sync(disk, STAGED)?;
    clear_staged(disk)
}

/// Renames the files of a staged directory to their final paths.
fn move_files(disk: &dyn Disk, dir: &str) -> Result<(), StoreError> {
    disk.create_dir(dir)
        .map_err(StoreError::io(IoVerb::Open, dir))?;
    let staged = format!("{STAGED}/{dir}");
    for name in names(disk, &staged)? {
        let to = format!("{dir}/{name}");
        disk.rename(&format!("{staged}/{name}"), &to)
            .map_err(StoreError::io(IoVerb::Rename, &to))?;
    }
    sync(disk, dir)
}

impl Committer {
    /// Replaces the state by a staged snapshot that was checked.
    ///
    /// # Errors
    /// Before the manifest is written, an error (also a full disk) leaves the state unchanged. A
    /// later error poisons the store, and the next open completes the switch.
    pub(crate) fn install(
        &mut self,
        cache: &Arc<FileCache>,
        snapshot: Snapshot,
        permit: &ExclusivePermit,
    ) -> Result<(), StoreError> {
        self.flush();
        self.engine.writable()?;
        let shared = Arc::clone(&self.applier);
        let mut applier = shared.lock();
        if snapshot.index < applier.applied {
            return Err(StoreError::IndexOutOfRange {
                what: "the index of a snapshot to install",
                index: snapshot.index.0,
                low: applier.applied.0,
                high: u64::MAX,
            });
        }
        let store_id = self.engine.identity.store_id;
        let manifest = Manifest {
            index: snapshot.index,
            term: snapshot.term,
        };
        // Steps after the manifest free space, except creating the new log.
        self.log.check_space_for_reset()?;
        if let Err(error) = manifest.write(&*self.disk, Phase::Clear, &store_id) {
            // A manifest that was written would be found by the next open.
            let is_absent = names(&*self.disk, STAGED)
                .is_ok_and(|names| names.iter().all(|name| name != "manifest"));
            return Err(if is_absent {
                error
            } else {
                self.engine.poison(error)
            });
        }
        let guard = cache.begin_install();
        let switched = switch(
            &*self.disk,
            &mut self.log,
            &store_id,
            manifest,
            Phase::Clear,
        );
        cache.evict_all();
        let writers =
            switched.and_then(|()| attached(cache, self.engine.identity.tag(), &snapshot));
        let writers = writers.map_err(|error| self.engine.poison(error))?;
        let Snapshot {
            index,
            term,
            machine,
            membership,
            ..
        } = snapshot;
        let newest_ms = machine.time_ms();
        let mut current = self.engine.machine.write();
        applier.topics.replace(writers);
        *current = machine;
        self.engine.counters.installs.add(1);
        drop(current);
        drop(guard);
        applier.applied = index;
        applier.term = term;
        applier.membership = membership;
        applier.cost = ReplayCost::default();
        if let Some(replica) = &self.replica {
            *replica.shared.applied.lock() = applier.state();
        }
        let counters = &self.engine.counters;
        counters.applied_index.set(index.0);
        counters.snapshot_index.set(index.0);
        counters.durable_index.set(self.log.durable_index().0);
        self.publish_synced();
        counters.purged_index.set(self.log.first_index().0 - 1);
        counters.log_bytes.set(self.log.stats().bytes);
        applier.topics.notify_all();
        drop(applier);
        self.engine.topic_created.notify();
        self.reset_maintenance(permit);
        if let Some(replica) = &mut self.replica {
            replica.stamp_ms = replica.stamp_ms.max(newest_ms);
            let mut committed = replica.shared.committed.lock();
            if committed.newest.is_none_or(|(newest, _)| newest < index) {
                let saved = committed.save(index, term);
                drop(committed);
                saved.map_err(|error| self.engine.poison(error))?;
            }
        }
        Ok(())
    }

    /// Bytes that must be free in addition to the files of a snapshot.
    pub(crate) fn install_bytes(&self) -> u64 {
        self.log.reset_bytes_needed()
    }

    /// Fails with `DiskFull` if a staged snapshot cannot be installed.
    pub(crate) fn check_space_for_install(&self) -> Result<(), StoreError> {
        self.log.check_space_for_reset()
    }

    /// Resets the maintenance state, which refers to removed files.
    fn reset_maintenance(&mut self, _permit: &ExclusivePermit) {
        self.read_back.positions.lock().clear();
        self.replayed_bytes = 0;
        self.snapshot_at = self.log.stats().batch_bytes;
        self.register_programs();
    }
}

impl Engine {
    /// Whether exactly `found` snapshots of other nodes have been installed so far.
    pub(crate) fn has_installed(&self, found: u64) -> bool {
        self.counters.installs.get() == found
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_a_manifest_is_detected() {
        let manifest = Manifest {
            index: LogIndex(7),
            term: 3,
        };
        let store_id = [9; 16];
        let good = manifest.encode(Phase::Move, &store_id);
        assert_eq!(
            Manifest::decode(&good, &store_id).unwrap(),
            (manifest, Phase::Move)
        );
        for bit in 0..MANIFEST_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::decode(&bad, &store_id).is_err(), "bit {bit}");
        }
    }
}
