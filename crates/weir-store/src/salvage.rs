//! Makes a store of what can be read of a damaged one (IN4).
//!
//! The damaged store is only read. Two cases are told apart:
//!
//! - The log reaches back to its first entry: the new store is that log up to
//!   its first damage. All topics are derived again from it.
//! - The log was purged: the new store is the newest snapshot that can be read,
//!   the blocks of topics that can be read, and the log after the snapshot up to
//!   its first damage. A topic whose blocks are damaged has a hole there.
//!
//! Invariants: a state that the store once had, never one with entries left
//! out; every byte that is copied was checked; nothing is written to the source.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use weir_core::{Digest, IntentionOffset, ProgramHost, TopicId};

use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{IoVerb, StoreError};
use crate::identity::{self, Identity};
use crate::log::{self, Log, LogIndex, LogOptions, LogReaders};
use crate::maintain::into_place;
use crate::options::OpenOptions;
use crate::snapshot::{self, Checkpoint, Snapshot};
use crate::store::Store;
use crate::topic::block::{HEADER_BYTES, Header, Place, RawBlock};
use crate::topic::files::{directory, path as segment_path};
use crate::topic::writer::SegmentEntry;
use crate::verify::{Finding, Severity, open_closed};

/// Offsets of a topic among which records are missing from the new store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Name of the topic.
    pub topic: String,
    /// First offset that may be missing.
    pub first: u64,
    /// Last offset that may be missing.
    pub last: u64,
}

/// What a salvage saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SalvageReport {
    /// Newest log entry in the new store.
    pub index: LogIndex,
    /// Newest intention in it. Those after it are lost.
    pub applied: IntentionOffset,
    /// Digest of its state.
    pub digest: Digest,
    /// Damage that was met in the source.
    pub findings: Vec<Finding>,
    /// Records that the new store lacks although their intentions are in it.
    pub lost: Vec<Lost>,
}

impl SalvageReport {
    /// Notes damage; passes every other error on.
    fn damage<T>(
        &mut self,
        file: &str,
        result: Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        let (file, position, what) = match result {
            Ok(value) => return Ok(Some(value)),
            Err(StoreError::Damage {
                file,
                position,
                what,
                ..
            }) => (file, position, what.to_owned()),
            Err(error) if error.is_missing_file() => {
                (file.to_owned(), 0, "the file is missing".to_owned())
            }
            Err(
                error @ StoreError::Io {
                    verb: IoVerb::Read, ..
                },
            ) => (file.to_owned(), 0, error.to_string()),
            Err(error) => return Err(error),
        };
        let severity = Severity::Damage;
        self.findings.push(Finding {
            severity,
            file,
            position,
            what,
        });
        Ok(None)
    }
}

/// Makes a store in `target`, which must not exist or be empty, of what can be
/// read of the store in `source`, which nobody may have open. Programs run on
/// `host`. The new store has the identity of the old one.
///
/// # Errors
/// `Damage` when no state can be made: the identity cannot be read, or neither
/// a snapshot nor the beginning of the log. `NotEmpty` for the target.
pub fn salvage(
    source: &Path,
    target: &Path,
    host: Option<&Arc<dyn ProgramHost>>,
) -> Result<SalvageReport, StoreError> {
    let (from, _lock) = open_closed(source, "weir salvage")?;
    let missing = || StoreError::damage(identity::PATH, 0, "the identity of the store", 0);
    let identity = Identity::read(&*from, identity::PATH)?.ok_or_else(missing)?;
    into_place(target, &identity, |to| copy(&from, to, &identity, host))
}

/// What the new store begins with.
struct Source {
    base: Option<Snapshot>,
    /// The log after it, if there is one that continues it.
    readers: Option<LogReaders>,
}

/// Reads what there is.
fn look(
    from: &Arc<dyn Disk>,
    identity: &Identity,
    host: Option<&Arc<dyn ProgramHost>>,
    report: &mut SalvageReport,
) -> Result<Source, StoreError> {
    let read = report.damage("log", log::readable(from, &identity.store_id))?;
    let readers = match read.flatten() {
        Some((readers, damage)) => {
            if let Some(damage) = damage {
                report.damage::<()>("log", Err(damage))?;
            }
            Some(readers)
        }
        None => None,
    };
    let mut base = None;
    for index in snapshot::list(&**from)? {
        let read = Snapshot::read(&**from, identity.store_id, index, 0, host);
        base = report.damage(&snapshot::path(index), read)?;
        if base.is_some() {
            break;
        }
    }
    let at = base.as_ref().map_or(LogIndex::ZERO, |base| base.index);
    let whole = readers
        .as_ref()
        .is_some_and(|readers| readers.first_index() <= LogIndex(1) && readers.last_index() >= at);
    if whole {
        return Ok(Source {
            base: None,
            readers,
        });
    }
    if base.is_none() {
        let what = "a snapshot, or a log that begins with its first entry";
        return Err(StoreError::damage(snapshot::DIRECTORY, 0, what, 0));
    }
    let readers =
        readers.filter(|readers| readers.first_index() <= at.next() && readers.last_index() > at);
    Ok(Source { base, readers })
}

fn copy(
    from: &Arc<dyn Disk>,
    to: &Arc<dyn Disk>,
    identity: &Identity,
    host: Option<&Arc<dyn ProgramHost>>,
) -> Result<SalvageReport, StoreError> {
    let mut report = SalvageReport::default();
    let Source { base, readers } = look(from, identity, host, &mut report)?;
    identity.prepare(&**to)?;
    for dir in ["topics", snapshot::DIRECTORY] {
        to.create_dir(dir)
            .map_err(StoreError::io(IoVerb::Open, dir))?;
    }
    let options = LogOptions {
        create: true,
        ..LogOptions::default()
    };
    let (mut log, _) = Log::open(Arc::clone(to), identity.store_id, options)?;
    let mut next = LogIndex(1);
    if let Some(mut base) = base {
        topics(&**from, &**to, identity, &mut base, &mut report)?;
        next = base.index.next();
        log.reset(next, base.term)?;
        let checkpoint = Checkpoint {
            snapshot: base,
            unsynced: Vec::new(),
        };
        checkpoint.write(&**to, identity.store_id)?;
    }
    if let Some(readers) = &readers {
        let mut reader = readers.reader(next);
        while let Some(entry) = reader.next(readers.last_index())? {
            log.append(entry.term, entry.count, &[&entry.payload])?;
        }
    }
    report.index = log.last_index();
    log.close()?;
    Identity::name(&**to)?;
    // Whether it opens is seen before it gets its name.
    let options = OpenOptions {
        create: false,
        host: host.cloned(),
        ..OpenOptions::default()
    };
    let store = Store::open_disk(Arc::clone(to), &options)?;
    (report.applied, report.digest) = (store.applied(), store.digest());
    store.close()?;
    Ok(report)
}

/// Copies the blocks that a snapshot lists and that can be read, and changes
/// its list to them.
fn topics(
    from: &dyn Disk,
    to: &dyn Disk,
    identity: &Identity,
    base: &mut Snapshot,
    report: &mut SalvageReport,
) -> Result<(), StoreError> {
    let names: BTreeMap<TopicId, String> = base
        .machine
        .topics()
        .map(|view| (view.id, view.name.as_str().to_owned()))
        .collect();
    for (id, list) in &mut base.topics {
        let dir = directory(*id);
        to.create_dir(&dir)
            .map_err(StoreError::io(IoVerb::Open, &dir))?;
        let mut kept = Vec::new();
        for entry in &list.segments {
            let mut segment = SegmentCopy {
                to,
                place: Place {
                    store_tag: identity.tag(),
                    topic: *id,
                    segment: entry.number,
                    position: 0,
                },
                path: segment_path(*id, entry.number),
                file: None,
                entry: None,
                lost: Vec::new(),
            };
            segment.copy(from, entry, report)?;
            kept.extend(segment.entry);
            let topic = names.get(id).cloned().unwrap_or_default();
            report
                .lost
                .extend(segment.lost.into_iter().map(|(first, last)| Lost {
                    topic: topic.clone(),
                    first,
                    last,
                }));
        }
        list.segments = kept;
        to.sync_dir(&dir)
            .map_err(StoreError::io(IoVerb::Sync, &dir))?;
    }
    to.sync_dir("topics")
        .map_err(StoreError::io(IoVerb::Sync, "topics"))
}

/// One topic segment on its way.
struct SegmentCopy<'a> {
    to: &'a dyn Disk,
    /// Where the next block goes.
    place: Place,
    path: String,
    file: Option<Arc<dyn DiskFile>>,
    /// What was copied.
    entry: Option<SegmentEntry>,
    lost: Vec<(u64, u64)>,
}

impl SegmentCopy<'_> {
    fn copy(
        &mut self,
        from: &dyn Disk,
        listed: &SegmentEntry,
        report: &mut SalvageReport,
    ) -> Result<(), StoreError> {
        let (mut position, mut next) = (0, listed.first);
        while position < listed.bytes {
            let read = report.damage(&self.path, self.read(from, position))?;
            // Without its header nobody knows where the next block begins.
            let Some((header, records)) = read else { break };
            match records {
                Ok(records) => self.write(&header, records)?,
                Err(damage) => {
                    report.damage::<()>(&self.path, Err(damage))?;
                    self.lost.push((header.base.first, header.last));
                }
            }
            next = header.last + 1;
            position += HEADER_BYTES as u64 + u64::from(header.bytes);
        }
        if position < listed.bytes {
            self.lost.push((next, listed.last));
        }
        if let Some(file) = &self.file {
            file.sync_data()
                .map_err(StoreError::io(IoVerb::Sync, &self.path))?;
        }
        Ok(())
    }

    /// A header, and the records after it or what is wrong with them.
    #[allow(clippy::type_complexity, reason = "two kinds of damage, named above")]
    fn read(
        &self,
        from: &dyn Disk,
        position: u64,
    ) -> Result<(Header, Result<Vec<u8>, StoreError>), StoreError> {
        let file = from
            .open(&self.path, OpenMode::Read)
            .map_err(StoreError::io(IoVerb::Open, &self.path))?;
        let len = file
            .len()
            .map_err(StoreError::io(IoVerb::Read, &self.path))?;
        let damage = |what| StoreError::damage(&self.path, position, what, 0);
        if len.saturating_sub(position) < HEADER_BYTES as u64 {
            return Err(damage("a block header"));
        }
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, position)
            .map_err(StoreError::io(IoVerb::Read, &self.path))?;
        let place = Place {
            position,
            ..self.place
        };
        let header = Header::read(&header, &place).map_err(|_| damage("a block header"))?;
        let at = position + HEADER_BYTES as u64;
        if u64::from(header.bytes) > len - at {
            return Ok((header, Err(damage("a block that ends after the segment"))));
        }
        let mut records = vec![0; header.bytes as usize];
        let read = file.read_exact_at(&mut records, at);
        let records = match read {
            Err(error) => Err(StoreError::io(IoVerb::Read, &self.path)(error)),
            Ok(()) if !header.covers(&records) => Err(damage("checksum of a block")),
            Ok(()) => Ok(records),
        };
        Ok((header, records))
    }

    fn write(&mut self, header: &Header, records: Vec<u8>) -> Result<(), StoreError> {
        if self.file.is_none() {
            let made = self.to.open(&self.path, OpenMode::CreateNew);
            self.file = Some(made.map_err(StoreError::io(IoVerb::Open, &self.path))?);
        }
        let Some(file) = &self.file else {
            return Ok(());
        };
        let block = RawBlock {
            base: header.base,
            last: header.last,
            records: header.records,
            bytes: records.into(),
        };
        let bytes = block.header(&self.place);
        let mut parts = [IoSlice::new(&bytes), IoSlice::new(&block.bytes)];
        file.write_all_at(&mut parts, self.place.position)
            .map_err(StoreError::io(IoVerb::Write, &self.path))?;
        self.place.position += HEADER_BYTES as u64 + block.bytes.len() as u64;
        let entry = self.entry.unwrap_or(SegmentEntry {
            number: self.place.segment,
            bytes: 0,
            first: header.base.first,
            last: 0,
            chain: 0,
        });
        let own_crc = RawBlock::own_crc(&bytes);
        self.entry = Some(entry.with_block(self.place.position, header.last, own_crc));
        Ok(())
    }
}
