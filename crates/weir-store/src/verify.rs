//! Checking a closed store: every checksum of every file, and whether what is
//! derived agrees with the log. Changes nothing.

use std::path::Path;
use std::sync::Arc;

use weir_core::{
    Batch, ConsequenceSink, Digest, IntentionOffset, Machine, Outcomes, Record, TopicId, TopicName,
};

use crate::disk::{Disk, FileDisk, OpenMode};
use crate::error::{IoVerb, StoreError};
use crate::identity::{self, Identity};
use crate::lock::DirLock;
use crate::log::{self, LogIndex};
use crate::snapshot::{self, Snapshot};
use crate::topic::block::{BlockCursor, HEADER_BYTES, Header, Place};
use crate::topic::files::{directory, path as segment_path};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Something a crash leaves behind; the next open deals with it.
    Note,
    /// Damage in a file that can be derived again from the log.
    Derived,
    /// Damage in the only copy of something.
    Damage,
}

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// File, relative to the store directory.
    pub file: String,
    /// Byte in it.
    pub position: u64,
    /// What is wrong.
    pub what: String,
}

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Everything that was found, worst first.
    pub findings: Vec<Finding>,
    /// Files read.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Log entries.
    pub entries: u64,
    /// Records in topic segments.
    pub records: u64,
    /// Newest log entry.
    pub last_index: u64,
    /// Newest intention offset.
    pub applied: IntentionOffset,
    /// Digest of the state after the newest log entry, if it could be made.
    pub digest: Option<Digest>,
}

impl VerifyReport {
    /// Whether the store can be opened without losing anything.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity < Severity::Damage)
    }

    fn add(&mut self, severity: Severity, error: &StoreError) {
        let (file, position, what) = match error {
            StoreError::Damage { file, position, what, .. } => {
                (file.clone(), *position, (*what).to_owned())
            }
            other => (String::new(), 0, other.to_string()),
        };
        self.findings.push(Finding { severity, file, position, what });
    }
}

/// Checks the store in a directory that nobody has open.
///
/// # Errors
/// Only when it cannot be read at all (no store, locked, not permitted); what
/// is wrong with a store that can be read is in the report.
pub fn verify(directory: &Path) -> Result<VerifyReport, StoreError> {
    if !directory.is_dir() {
        return Err(StoreError::Missing { what: "store" });
    }
    let text = directory.display().to_string();
    let disk = FileDisk::open(directory).map_err(StoreError::io(IoVerb::Open, &text))?;
    let _lock = DirLock::acquire(directory, "weir verify")?;
    verify_disk(&(Arc::new(disk) as Arc<dyn Disk>))
}

/// The same on any disk.
pub fn verify_disk(disk: &Arc<dyn Disk>) -> Result<VerifyReport, StoreError> {
    let mut report = VerifyReport::default();
    let identity = match Identity::read(&**disk, identity::PATH) {
        Ok(Some(identity)) => identity,
        Ok(None) => return Err(StoreError::Missing { what: "store" }),
        Err(error) => {
            report.add(Severity::Damage, &error);
            return Ok(report);
        }
    };
    report.files += 1;
    let log = log::verify(disk, identity.store_id)?;
    report.files += log.files;
    report.bytes += log.bytes;
    report.entries = log.entries;
    report.last_index = log.last_index.0;
    for finding in log.findings {
        let severity = if finding.damage { Severity::Damage } else { Severity::Note };
        let (file, position, what) = (finding.file, finding.position, finding.what);
        report.findings.push(Finding { severity, file, position, what });
    }
    // While the log reaches back to the start everything else can be derived.
    let derived = if log.first_index <= LogIndex(1) { Severity::Derived } else { Severity::Damage };
    let snapshots = read_snapshots(&**disk, &identity, derived, &mut report)?;
    let newest = snapshots.first();
    topics(&**disk, &identity, newest, derived, &mut report)?;
    if report.is_sound() {
        replay(disk, &identity, &snapshots, &log.readers, &mut report)?;
    }
    report.findings.sort_by(|a, b| b.severity.cmp(&a.severity));
    Ok(report)
}

fn read_snapshots(
    disk: &dyn Disk,
    identity: &Identity,
    derived: Severity,
    report: &mut VerifyReport,
) -> Result<Vec<Snapshot>, StoreError> {
    let mut found = Vec::new();
    for (age, index) in snapshot::list(disk)?.into_iter().enumerate() {
        report.files += 1;
        match Snapshot::read(disk, identity.store_id, index, 0) {
            Ok(snapshot) => found.push(snapshot),
            // An older snapshot is only a second copy.
            Err(error) => {
                report.add(if age == 0 { derived } else { Severity::Derived }, &error);
            }
        }
    }
    Ok(found)
}

/// Reads every block of every segment.
fn topics(
    disk: &dyn Disk,
    identity: &Identity,
    snapshot: Option<&Snapshot>,
    derived: Severity,
    report: &mut VerifyReport,
) -> Result<(), StoreError> {
    let list = |dir: &str| disk.list(dir).map_err(StoreError::io(IoVerb::List, dir));
    for (id, segments) in snapshot.map(|s| s.topics.as_slice()).unwrap_or_default() {
        let mut before = 0;
        for (number, bytes) in &segments.segments {
            let checked = segment(disk, identity, *id, *number, Some(*bytes), before, report);
            match checked {
                Ok(last) => before = last,
                Err(error) => report.add(derived, &error),
            }
        }
    }
    for name in list("topics")? {
        let Some(id) = u32::from_str_radix(&name, 16).ok().map(TopicId) else {
            note(report, format!("topics/{name}"), "a name that the store does not use");
            continue;
        };
        for file in list(&directory(id))? {
            let number = file.strip_suffix(".seg").and_then(|number| number.parse().ok());
            let Some(number) = number else {
                note(report, format!("topics/{name}/{file}"), "a name that the store does not use");
                continue;
            };
            let topic = snapshot.and_then(|s| s.topics.iter().find(|(known, _)| *known == id));
            let listed =
                topic.is_some_and(|(_, list)| list.segments.iter().any(|(n, _)| *n == number));
            if !listed && let Err(error) = segment(disk, identity, id, number, None, 0, report) {
                report.add(Severity::Derived, &error);
            }
        }
    }
    Ok(())
}

fn note(report: &mut VerifyReport, file: String, what: &str) {
    let what = what.to_owned();
    report.findings.push(Finding { severity: Severity::Note, file, position: 0, what });
}

/// Reads a segment to its end; the first `listed` bytes must be there. Returns
/// the offset of its last record.
fn segment(
    disk: &dyn Disk,
    identity: &Identity,
    id: TopicId,
    number: u32,
    listed: Option<u64>,
    before: u64,
    report: &mut VerifyReport,
) -> Result<u64, StoreError> {
    let path = segment_path(id, number);
    let file = disk.open(&path, OpenMode::Read).map_err(StoreError::io(IoVerb::Open, &path))?;
    let len = file.len().map_err(StoreError::io(IoVerb::Read, &path))?;
    report.files += 1;
    report.bytes += len;
    if len < listed.unwrap_or(0) {
        return Err(StoreError::damage(&path, len, "topic segment is too short", 0));
    }
    let (mut position, mut last) = (0, before);
    while position < len {
        let damage = |what| StoreError::damage(&path, position, what, 0);
        let mut header = [0; HEADER_BYTES];
        let place = Place { store_tag: identity.tag(), topic: id, segment: number, position };
        let read = file.read_exact_at(&mut header, position);
        let header = match read {
            Ok(()) => Header::read(&header, &place).map_err(damage)?,
            Err(_) => return Err(damage("a block header")),
        };
        let mut records = vec![0; usize::try_from(header.bytes).unwrap_or(0)];
        let at = position + HEADER_BYTES as u64;
        if at + u64::from(header.bytes) > len
            || file.read_exact_at(&mut records, at).is_err()
            || !header.covers(&records)
        {
            return Err(damage("checksum of a block"));
        }
        if header.base.first <= last {
            return Err(damage("blocks of a topic in order"));
        }
        let mut cursor = BlockCursor::new(&header.base, header.records);
        while let Some(record) = cursor.next(&records) {
            last = record.map_err(damage)?.offset.0;
            report.records += 1;
        }
        if last != header.last {
            return Err(damage("last record of a block"));
        }
        position = at + u64::from(header.bytes);
        if listed == Some(position) {
            before_end(&*file, &path, position, len, report);
            return Ok(last);
        }
    }
    Ok(last)
}

/// Bytes behind the listed ones belong to a later time and are cut at open.
fn before_end(
    file: &dyn crate::disk::DiskFile,
    path: &str,
    position: u64,
    len: u64,
    report: &mut VerifyReport,
) {
    let _ = file;
    if len > position {
        let what = format!("{} bytes that the log will write again", len - position);
        let finding =
            Finding { severity: Severity::Note, file: path.to_owned(), position, what };
        report.findings.push(finding);
    }
}

/// Applies the log and compares with every snapshot on the way.
fn replay(
    disk: &Arc<dyn Disk>,
    identity: &Identity,
    snapshots: &[Snapshot],
    readers: &log::LogReaders,
    report: &mut VerifyReport,
) -> Result<(), StoreError> {
    struct Nothing;
    impl ConsequenceSink for Nothing {
        fn topic(&mut self, _: TopicId, _: &TopicName) {}
        fn record(&mut self, _: TopicId, _: &Record<'_>) {}
    }
    let _ = (disk, identity);
    let first = readers.first_index();
    let base = snapshots.iter().rev().find(|snapshot| snapshot.index.next() >= first);
    let (mut machine, mut index) = match base {
        _ if first <= LogIndex(1) => (Machine::new(1), LogIndex::ZERO),
        Some(snapshot) => (snapshot.machine.clone(), snapshot.index),
        None => return Ok(()),
    };
    let last = readers.last_index();
    let mut reader = readers.reader(index.next());
    let mut outcomes = Outcomes::default();
    loop {
        if let Some(snapshot) = snapshots.iter().find(|snapshot| snapshot.index == index)
            && snapshot.machine.digest() != machine.digest()
        {
            let file = snapshot::path(index);
            let error = StoreError::damage(&file, 512, "the state that the log leads to", 0);
            report.add(Severity::Damage, &error);
        }
        let Some(entry) = reader.next(last)? else { break };
        let applied = Batch::read(&entry.payload, entry.term)
            .map_err(Into::into)
            .and_then(|batch| machine.apply(&batch, &mut Nothing, &mut outcomes));
        if let Err(error) = applied {
            report.add(Severity::Damage, &StoreError::Apply { index: entry.index, error });
            return Ok(());
        }
        outcomes.clear();
        index = entry.index;
    }
    report.applied = machine.applied();
    report.digest = Some(machine.digest());
    Ok(())
}
