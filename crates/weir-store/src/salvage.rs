//! Creates a store from the readable part of a damaged one (IN4), or reports the content of such a
//! store without creating it.
//!
//! The damaged store is only read. There are two cases:
//!
//! - The log still has its first entry. The new store has this log up to its first damage.
//!   All topics are derived again from the log.
//! - The log was purged. The new store has the newest readable snapshot, the readable blocks of
//!   topics, and the log after the snapshot up to its first damage. A topic with damaged blocks
//!   lacks their records.
//!
//! Invariants:
//!
//! - The state of the new store is one that the old store once had. No log entry before its newest
//!   one is left out.
//! - Every copied byte was checked.
//! - Nothing is written to the source.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use weir_core::machine::TopicView;
use weir_core::{
    ConsequenceSink, Digest, IntentionOffset, Machine, ProgramHost, Record, TopicId, TopicName,
};

use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{IoVerb, StoreError};
use crate::finding::{Finding, Severity};
use crate::identity::{self, Identity};
use crate::log::{self, Log, LogIndex, LogOptions, LogReaders};
use crate::maintain::build_and_rename;
use crate::options::OpenOptions;
use crate::replay::Replay;
use crate::snapshot::{self, Checkpoint, Snapshot};
use crate::store::Store;
use crate::topic::block::{BlockLocation, HEADER_BYTES, Header, RawBlock};
use crate::topic::files::{directory, parse_directory, parse_segment, path as segment_path};
use crate::topic::writer::SegmentEntry;
use crate::verify::open_closed;

/// A range of offsets of a topic in which the new store lacks records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingRange {
    /// Name of the topic.
    pub topic: String,
    /// First offset that may be missing.
    pub first: u64,
    /// Last offset that may be missing.
    pub last: u64,
}

/// The records of one topic that the new store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalvagedTopic {
    /// Name of the topic.
    pub topic: String,
    /// Offset of the oldest record; zero if there is none.
    pub first: u64,
    /// Offset of the newest record; zero if there is none.
    pub last: u64,
}

/// The report of a salvage: the content of the new store, and the losses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SalvageReport {
    /// Index of the newest log entry in the new store.
    pub index: LogIndex,
    /// Offset of the newest intention in the new store. Later intentions are lost.
    pub applied: IntentionOffset,
    /// Digest of the state of the new store.
    pub digest: Digest,
    /// Damage that was found in the source.
    pub findings: Vec<Finding>,
    /// The records that the new store has, for each topic by name. Includes destroyed topics.
    pub kept: Vec<SalvagedTopic>,
    /// Records that the new store lacks although their intentions are in the new store.
    pub lost: Vec<MissingRange>,
    /// Lost records of lost intentions, as found in the topic files of the source. A topic that
    /// was created after the newest intention has the name `#` and its number.
    pub lost_later: Vec<MissingRange>,
    /// Whether the log was read to its end. If not, entries after `index` may be lost, including
    /// entries without a record in a topic.
    pub log_complete: bool,
}

impl SalvageReport {
    /// Whether nothing is lost: the new store has the newest state and all records of the old one.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.log_complete && self.lost.is_empty() && self.lost_later.is_empty()
    }

    /// Adds damage to the findings, and returns `None` for it. Returns every other error.
    fn add_error<T>(
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

/// Creates a store in `target` from the readable part of the store in `source`. `target` must be
/// missing or an empty directory; no process may have `source` open. Programs run on `host`. The
/// new store has the identity of the old one.
///
/// # Errors
/// `Damage` if no state can be derived: the identity is not readable, or there is neither a
/// readable snapshot nor a log from its first entry. `NotEmpty` if `target` is not empty.
pub fn salvage(
    source: &Path,
    target: &Path,
    host: Option<&Arc<dyn ProgramHost>>,
) -> Result<SalvageReport, StoreError> {
    let (from, _lock) = open_closed(source, "weir salvage")?;
    let identity = identity_of(&*from)?;
    build_and_rename(target, &identity, |to| copy(&from, to, &identity, host))
}

/// Returns the report that [`salvage`] would return, without writing a store. Takes as long as
/// `verify`: it reads all topics and applies the log in memory.
///
/// # Errors
/// As [`salvage`], without `NotEmpty`.
pub fn salvage_dry_run(
    source: &Path,
    host: Option<&Arc<dyn ProgramHost>>,
) -> Result<SalvageReport, StoreError> {
    let (from, _lock) = open_closed(source, "weir salvage")?;
    dry_run(&from, &identity_of(&*from)?, host)
}

fn identity_of(from: &dyn Disk) -> Result<Identity, StoreError> {
    let missing =
        || StoreError::damage(identity::PATH, 0, "the identity of the store is missing", 0);
    Identity::read(from, identity::PATH)?.ok_or_else(missing)
}

/// The inputs of the new store.
struct Source {
    base: Option<Snapshot>,
    /// The log after `base`; `None` if no readable log continues `base`.
    readers: Option<LogReaders>,
}

/// Finds the readable snapshot and log of the damaged store.
fn find_inputs(
    from: &Arc<dyn Disk>,
    identity: &Identity,
    host: Option<&Arc<dyn ProgramHost>>,
    report: &mut SalvageReport,
) -> Result<Source, StoreError> {
    let read = report.add_error("log", log::readable(from, &identity.store_id))?;
    let readers = match read.flatten() {
        Some((readers, damage)) => {
            report.log_complete = damage.is_none();
            if let Some(damage) = damage {
                report.add_error::<()>("log", Err(damage))?;
            }
            Some(readers)
        }
        None => None,
    };
    let mut base = None;
    for index in snapshot::list(&**from)? {
        let read = Snapshot::read(&**from, identity.store_id, index, 0, host);
        base = report.add_error(&snapshot::path(index), read)?;
        if base.is_some() {
            break;
        }
    }
    let at = base.as_ref().map_or(LogIndex::ZERO, |base| base.index);
    let log_is_complete = readers
        .as_ref()
        .is_some_and(|readers| readers.first_index() <= LogIndex(1) && readers.last_index() >= at);
    if log_is_complete {
        return Ok(Source {
            base: None,
            readers,
        });
    }
    if base.is_none() {
        let what = "there is no readable snapshot, and the log does not begin with its first entry";
        return Err(StoreError::damage(snapshot::DIRECTORY, 0, what, 0));
    }
    // With a gap, entries between the snapshot and the beginning of the log are missing.
    let has_gap = readers
        .as_ref()
        .is_some_and(|readers| readers.first_index() > at.next());
    report.log_complete &= !has_gap;
    let readers = readers.filter(|readers| !has_gap && readers.last_index() > at);
    Ok(Source { base, readers })
}

fn copy(
    from: &Arc<dyn Disk>,
    to: &Arc<dyn Disk>,
    identity: &Identity,
    host: Option<&Arc<dyn ProgramHost>>,
) -> Result<SalvageReport, StoreError> {
    let mut report = SalvageReport::default();
    let Source { base, readers } = find_inputs(from, identity, host, &mut report)?;
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
        topics(&**from, Some(&**to), identity, &mut base, &mut report)?;
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
            let appended = log.append(entry.term, entry.count, &[&entry.payload]);
            appended.map_err(|error| error.not_logged())?;
        }
    }
    report.index = log.last_index();
    log.close()?;
    Identity::publish(&**to)?;
    // Open the new store, to check it before it gets its final name.
    let options = OpenOptions {
        create: false,
        host: host.cloned(),
        ..OpenOptions::default()
    };
    let store = Store::open_disk(Arc::clone(to), &options)?;
    (report.applied, report.digest) = (store.applied(), store.digest());
    let topics = store.topics(true);
    let known = topics.iter().map(|info| (info.id, info.name.clone()));
    let known: BTreeMap<TopicId, String> = known.collect();
    let kept = topics
        .iter()
        .map(|info| (info.id, info.first.0, info.last.0));
    report.compare(&**from, identity, &known, kept.collect())?;
    store.close()?;
    Ok(report)
}

/// The first offset of each topic that a replay emits.
#[derive(Default)]
struct FirstOffsets(BTreeMap<TopicId, u64>);

impl ConsequenceSink for FirstOffsets {
    fn topic(&mut self, _: TopicId, _: &TopicName) {}

    fn record(&mut self, topic: TopicId, record: &Record<'_>) {
        self.0.entry(topic).or_insert(record.offset.0);
    }
}

/// Returns the report that [`copy`] would return, without writing.
fn dry_run(
    from: &Arc<dyn Disk>,
    identity: &Identity,
    host: Option<&Arc<dyn ProgramHost>>,
) -> Result<SalvageReport, StoreError> {
    let mut report = SalvageReport::default();
    let Source { base, readers } = find_inputs(from, identity, host, &mut report)?;
    let mut machine = Machine::new(1).with_host(host.cloned());
    let mut first = FirstOffsets::default();
    if let Some(mut base) = base {
        topics(&**from, None, identity, &mut base, &mut report)?;
        for (id, list) in &base.topics {
            let oldest = list.segments.first();
            first.0.extend(oldest.map(|entry| (*id, entry.first)));
        }
        (machine, report.index) = (base.machine, base.index);
    }
    if let Some(readers) = &readers {
        let (next, last) = (report.index.next(), readers.last_index());
        let mut replay = Replay::new(readers.reader(next), last);
        while let Some(entry) = replay.next(&mut machine, &mut first)? {
            report.index = entry.index;
        }
    }
    (report.applied, report.digest) = (machine.applied(), machine.digest());
    // The first offset that a reader of the new store would see.
    let first = |view: &TopicView<'_>| {
        let first = first.0.get(&view.id).copied().unwrap_or(0);
        let start = first.max(view.trimmed.0 + 1);
        if first > 0 && start <= view.last.0 {
            start
        } else {
            0
        }
    };
    let views = machine.topics();
    let known = views.map(|view| (view.id, view.name.as_str().to_owned()));
    let known: BTreeMap<TopicId, String> = known.collect();
    let kept = machine
        .topics()
        .map(|view| (view.id, first(&view), view.last.0));
    report.compare(&**from, identity, &known, kept.collect())?;
    Ok(report)
}

impl SalvageReport {
    /// Reports the records that the new store has of each topic (`kept`: id, first and last
    /// offset), and the later records in the files of the source.
    fn compare(
        &mut self,
        from: &dyn Disk,
        identity: &Identity,
        known: &BTreeMap<TopicId, String>,
        kept: Vec<(TopicId, u64, u64)>,
    ) -> Result<(), StoreError> {
        let mut newest = newest_offsets(from, identity)?;
        for (id, first, last) in kept {
            let Some(topic) = known.get(&id).cloned() else {
                unreachable!("the names and the topics come from one machine")
            };
            if let Some(later) = newest.remove(&id).filter(|later| *later > last) {
                self.lost_later.push(MissingRange {
                    topic: topic.clone(),
                    first: last + 1,
                    last: later,
                });
            }
            self.kept.push(SalvagedTopic { topic, first, last });
        }
        // The remaining topics were created after the newest intention of the new store.
        for (id, last) in newest {
            let topic = format!("#{}", id.0);
            self.lost_later.push(MissingRange {
                topic,
                first: 1,
                last,
            });
        }
        self.kept.sort_by(|a, b| a.topic.cmp(&b.topic));
        self.lost_later.sort_by(|a, b| a.topic.cmp(&b.topic));
        Ok(())
    }
}

/// Returns the newest offset of each topic according to the headers of its blocks. Reads a segment
/// up to its first invalid header.
fn newest_offsets(
    from: &dyn Disk,
    identity: &Identity,
) -> Result<BTreeMap<TopicId, u64>, StoreError> {
    let list = |dir: &str| from.list(dir).map_err(StoreError::io(IoVerb::List, dir));
    let mut newest = BTreeMap::new();
    for id in list("topics")?
        .iter()
        .filter_map(|name| parse_directory(name))
    {
        for number in list(&directory(id))?
            .iter()
            .filter_map(|name| parse_segment(name))
        {
            // If the new store needs this segment, its damage was already reported.
            let Ok(file) = from.open(&segment_path(id, number), OpenMode::Read) else {
                continue;
            };
            let mut location = BlockLocation {
                store_tag: identity.tag(),
                topic: id,
                segment: number,
                position: 0,
            };
            let mut header = [0; HEADER_BYTES];
            while file.read_exact_at(&mut header, location.position).is_ok() {
                let Ok(header) = Header::read(&header, &location) else {
                    break;
                };
                let offset = newest.entry(id).or_insert(0);
                *offset = header.last.max(*offset);
                location.position += HEADER_BYTES as u64 + u64::from(header.bytes);
            }
        }
    }
    Ok(newest)
}

/// Copies the readable blocks that a snapshot lists, and changes the list of the snapshot to these
/// blocks. Without `to`, only reads the blocks.
fn topics(
    from: &dyn Disk,
    to: Option<&dyn Disk>,
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
        if let Some(to) = to {
            to.create_dir(&dir)
                .map_err(StoreError::io(IoVerb::Open, &dir))?;
        }
        let mut kept = Vec::new();
        for entry in &list.segments {
            let mut segment = SegmentCopy {
                to,
                location: BlockLocation {
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
                .extend(segment.lost.into_iter().map(|(first, last)| MissingRange {
                    topic: topic.clone(),
                    first,
                    last,
                }));
        }
        list.segments = kept;
        if let Some(to) = to {
            to.sync_dir(&dir)
                .map_err(StoreError::io(IoVerb::Sync, &dir))?;
        }
    }
    to.map_or(Ok(()), |to| {
        to.sync_dir("topics")
            .map_err(StoreError::io(IoVerb::Sync, "topics"))
    })
}

/// The copy of one topic segment.
struct SegmentCopy<'a> {
    /// `None`: nothing is written.
    to: Option<&'a dyn Disk>,
    /// The location of the next block in the copy.
    location: BlockLocation,
    path: String,
    file: Option<Arc<dyn DiskFile>>,
    /// The list entry of the copied blocks.
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
            let read = report.add_error(&self.path, self.read(from, position))?;
            // Without a valid header, the start of the next block is unknown.
            let Some((header, records)) = read else { break };
            match records {
                Ok(records) => self.write(&header, records)?,
                Err(damage) => {
                    report.add_error::<()>(&self.path, Err(damage))?;
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

    /// Reads a header, and the records after it. The outer error is damage of the header, the inner
    /// one damage of the records.
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
            return Err(damage("a block header is incomplete"));
        }
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, position)
            .map_err(StoreError::io(IoVerb::Read, &self.path))?;
        let location = BlockLocation {
            position,
            ..self.location
        };
        let header = Header::read(&header, &location)
            .map_err(|_| damage("a block header is not as written"))?;
        let at = position + HEADER_BYTES as u64;
        if u64::from(header.bytes) > len - at {
            return Ok((header, Err(damage("a block ends after its segment"))));
        }
        let mut records = vec![0; header.bytes as usize];
        let read = file.read_exact_at(&mut records, at);
        let records = match read {
            Err(error) => Err(StoreError::io(IoVerb::Read, &self.path)(error)),
            Ok(()) if !header.covers(&records) => Err(damage("the checksum of a block is wrong")),
            Ok(()) => Ok(records),
        };
        Ok((header, records))
    }

    fn write(&mut self, header: &Header, records: Vec<u8>) -> Result<(), StoreError> {
        if let (None, Some(to)) = (&self.file, self.to) {
            let created = to.open(&self.path, OpenMode::CreateNew);
            self.file = Some(created.map_err(StoreError::io(IoVerb::Open, &self.path))?);
        }
        let block = RawBlock {
            base: header.base,
            last: header.last,
            records: header.records,
            bytes: records.into(),
        };
        let bytes = block.header(&self.location);
        if let Some(file) = &self.file {
            let mut parts = [IoSlice::new(&bytes), IoSlice::new(&block.bytes)];
            file.write_all_at(&mut parts, self.location.position)
                .map_err(StoreError::io(IoVerb::Write, &self.path))?;
        }
        self.location.position += HEADER_BYTES as u64 + block.bytes.len() as u64;
        let entry = self.entry.unwrap_or(SegmentEntry {
            number: self.location.segment,
            bytes: 0,
            first: header.base.first,
            last: 0,
            chain: 0,
        });
        let own_crc = RawBlock::own_crc(&bytes);
        self.entry = Some(entry.with_block(self.location.position, header.last, own_crc));
        Ok(())
    }
}
