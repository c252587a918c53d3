//! Checks a closed store: every checksum of every file, and whether snapshots and topics agree with
//! the log. Changes nothing.
//!
//! Memory: one state at a time (keys, sessions, states of programs), as for an open, and a few
//! blocks. The memory does not grow with the log or the topics.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use weir_core::{
    ConsequenceSink, Digest, IntentionOffset, Machine, ProgramHost, Record, TopicId, TopicName,
};

use crate::clock_moves;
use crate::disk::{Disk, FileDisk, OpenMode};
use crate::error::{IoVerb, StoreError};
use crate::finding::{Finding, Severity};
use crate::identity::{self, Identity};
use crate::install::{MANIFEST, PendingInstall, STAGED};
use crate::lock::{DirLock, SOCKET_FILE};
use crate::log::{self, LogIndex, LogReaders};
use crate::node::files::{CommittedFile, VOTE};
use crate::replay::Replay;
use crate::snapshot::{self, Snapshot};
use crate::topic::block::{BlockCursor, BlockLocation, HEADER_BYTES, Header};
use crate::topic::files::{directory, parse_directory, parse_segment, path as segment_path};
use crate::topic::writer::{SegmentEntry, SegmentList};

/// Maximum number of findings in a report. Further findings are only counted.
pub const FINDINGS_MAX: usize = 1_000;
/// Bytes between two reports of progress.
const PROGRESS_BYTES: u64 = 1 << 20;

/// The report of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// The findings, worst first; at most [`FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// Number of findings that are not in `findings`. None of them is worse than a listed one.
    pub left_out: u64,
    /// Number of files that were read.
    pub files: u64,
    /// Number of bytes that were read.
    pub bytes: u64,
    /// Number of log entries that were applied.
    pub entries: u64,
    /// Number of records in topic segments.
    pub records: u64,
    /// Offset of the newest intention; `None` if the state could not be derived.
    pub applied: Option<IntentionOffset>,
    /// Digest of the state after the newest log entry; `None` if the state could not be derived.
    pub digest: Option<Digest>,
}

impl VerifyReport {
    /// Whether the store can be opened without a loss of data.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings
            .iter()
            .all(|finding| finding.severity < Severity::Damage)
    }

    /// Whether no damage was found, not even of derived files.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings
            .iter()
            .all(|finding| finding.severity == Severity::Note)
    }

    fn add(&mut self, severity: Severity, file: &str, position: u64, what: &str) {
        let (file, what) = (file.to_owned(), what.to_owned());
        let finding = Finding {
            severity,
            file,
            position,
            what,
        };
        if self.findings.contains(&finding) {
            return;
        }
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
            return;
        }
        self.left_out += 1;
        let least = self
            .findings
            .iter_mut()
            .min_by_key(|finding| finding.severity);
        if let Some(least) = least.filter(|finding| finding.severity < severity) {
            *least = finding;
        }
    }

    /// Adds an error about the content of a file to the findings, and returns `None` for it.
    /// Returns every other error.
    fn add_error<T>(
        &mut self,
        severity: Severity,
        file: &str,
        result: Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(StoreError::Damage {
                file,
                position,
                what,
                ..
            }) => {
                self.add(severity, &file, position, what);
                Ok(None)
            }
            Err(
                error @ (StoreError::NewerFormat { .. }
                | StoreError::ForeignStore { .. }
                | StoreError::VoteLost { .. }
                | StoreError::Apply { .. }),
            ) => {
                self.add(Severity::Damage, file, 0, &error.to_string());
                Ok(None)
            }
            Err(error) if error.is_missing_file() => {
                self.add(severity, file, 0, "the file is missing");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Checks a store without programs. No process may have its directory open.
///
/// # Errors
/// Fails only if the store cannot be read at all (no store, locked, no permission). Damage of a
/// readable store is in the report.
pub fn verify(directory: &Path) -> Result<VerifyReport, StoreError> {
    verify_with(directory, None, &mut |_| {})
}

/// The progress of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Number of bytes that were read and checked.
    pub done_bytes: u64,
    /// Number of all bytes to read. The log counts twice: it is read once to check it, and once to
    /// apply it.
    pub total_bytes: u64,
}

/// Counts the bytes that were read, and reports the progress to the caller.
struct ProgressMeter<'a> {
    progress: VerifyProgress,
    reported_bytes: u64,
    each: &'a mut dyn FnMut(VerifyProgress),
}

impl ProgressMeter<'_> {
    fn add(&mut self, bytes: u64) {
        self.progress.done_bytes += bytes;
        if self.progress.done_bytes >= self.reported_bytes + PROGRESS_BYTES {
            self.reported_bytes = self.progress.done_bytes;
            (self.each)(self.progress);
        }
    }
}

/// Checks a store whose topics may have programs, which run on `host`. Calls
/// `on_progress` about once for each MiB that was checked.
///
/// # Errors
/// As [`verify`]; `ProgramsOff` without a host.
pub fn verify_with(
    directory: &Path,
    host: Option<&Arc<dyn ProgramHost>>,
    on_progress: &mut dyn FnMut(VerifyProgress),
) -> Result<VerifyReport, StoreError> {
    let (disk, _lock) = open_closed(directory, "weir verify")?;
    verify_disk_with(&disk, host, on_progress)
}

/// Opens the disk of a closed store for reading, and acquires its lock. In a directory that this
/// process cannot write to, the lock is shared, or absent.
pub(crate) fn open_closed(
    directory: &Path,
    program: &str,
) -> Result<(Arc<dyn Disk>, Option<DirLock>), StoreError> {
    if !directory.is_dir() {
        return Err(StoreError::Missing { what: "store" });
    }
    let text = directory.display().to_string();
    let disk = FileDisk::open_existing(directory).map_err(StoreError::io(IoVerb::Open, &text))?;
    let names = disk.list("").map_err(StoreError::io(IoVerb::List, &text))?;
    if !names
        .iter()
        .any(|name| name == identity::PATH || name == "log")
    {
        return Err(StoreError::Missing { what: "store" });
    }
    let lock = match DirLock::acquire(directory, program) {
        // This process cannot write to the directory, but another one may.
        Err(StoreError::Io { source, .. })
            if matches!(
                source.kind(),
                std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied
            ) =>
        {
            DirLock::shared(directory)?
        }
        lock => Some(lock?),
    };
    Ok((Arc::new(disk), lock))
}

/// As [`verify`], on any disk.
pub fn verify_disk(disk: &Arc<dyn Disk>) -> Result<VerifyReport, StoreError> {
    verify_disk_with(disk, None, &mut |_| {})
}

/// Returns the total size of all files to read, in bytes. The files of the log count twice.
fn total_bytes(disk: &dyn Disk) -> Result<u64, StoreError> {
    let list = |dir: &str| disk.list(dir).map_err(StoreError::io(IoVerb::List, dir));
    let mut directories = vec![("log".to_owned(), 2), (snapshot::DIRECTORY.to_owned(), 1)];
    for name in list("topics")? {
        directories.push((format!("topics/{name}"), 1));
    }
    let mut total = 0;
    for (dir, times) in directories {
        // Ignore errors here: they become findings later.
        for name in list(&dir).unwrap_or_default() {
            let file = disk.open(&format!("{dir}/{name}"), OpenMode::Read);
            total += times * file.and_then(|file| file.len()).unwrap_or(0);
        }
    }
    Ok(total)
}

fn verify_disk_with(
    disk: &Arc<dyn Disk>,
    host: Option<&Arc<dyn ProgramHost>>,
    each: &mut dyn FnMut(VerifyProgress),
) -> Result<VerifyReport, StoreError> {
    let mut report = VerifyReport::default();
    let read = Identity::read(&**disk, identity::PATH);
    let Some(found) = report.add_error(Severity::Damage, identity::PATH, read)? else {
        return Ok(report);
    };
    let Some(identity) = found else {
        report.add(Severity::Damage, identity::PATH, 0, "the file is missing");
        return Ok(report);
    };
    report.files += 1;
    let pending = PendingInstall::find(disk, &identity.store_id);
    let pending = report
        .add_error(Severity::Damage, MANIFEST, pending)?
        .flatten();
    if pending.is_some() {
        let what = "the installation of a snapshot was interrupted; the next open of the node completes it";
        report.add(Severity::Note, MANIFEST, 0, what);
    }
    let disk = pending.as_ref().map_or(disk, |pending| &pending.disk);
    let mut meter = ProgressMeter {
        progress: VerifyProgress {
            done_bytes: 0,
            total_bytes: total_bytes(&**disk)?,
        },
        reported_bytes: 0,
        each,
    };
    let log = log::verify_watched(disk, &identity.store_id, &mut |bytes| meter.add(bytes))?;
    report.left_out += log.left_out;
    report.files += log.segments + 1;
    report.bytes += log.bytes;
    let readers = log::read_only(disk, &identity.store_id);
    for finding in log.findings {
        let severity = match finding.severity {
            log::LogSeverity::Note => Severity::Note,
            // Not a loss: an open rewrites this file from its other copy.
            log::LogSeverity::Damage if finding.file == "log/start" && readers.is_ok() => {
                Severity::Derived
            }
            log::LogSeverity::Damage => Severity::Damage,
        };
        report.add(severity, &finding.file, finding.position, finding.what);
    }
    let readers = report
        .add_error(Severity::Damage, "log", readers)?
        .flatten();
    if let (Some(pending), Some(readers)) = (&pending, &readers) {
        pending.switch_log(readers);
    }
    // If the log still has its first entry, everything else can be derived from the log.
    let log_is_complete = readers
        .as_ref()
        .is_none_or(|readers| readers.first_index() <= LogIndex(1));
    let derived = if log_is_complete {
        Severity::Derived
    } else {
        Severity::Damage
    };
    let snapshots = read_snapshots(&**disk, &identity, derived, host, &mut report, &mut meter)?;
    if let Some(readers) = readers.as_ref().filter(|_| !log_is_complete)
        && !snapshots
            .iter()
            .any(|snapshot| snapshot.index.next() >= readers.first_index())
    {
        let file = snapshot::path(LogIndex(readers.first_index().0 - 1));
        report.add(
            Severity::Damage,
            &file,
            0,
            "there is no snapshot at the start of the log",
        );
    }
    let newest = snapshots.first();
    topics(&**disk, &identity, newest, derived, &mut report, &mut meter)?;
    if let Some(readers) = &readers {
        let base = (&**disk, identity.store_id, host);
        replay(base, &snapshots, readers, &mut report, &mut meter)?;
    }
    (meter.each)(meter.progress);
    report
        .findings
        .sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    Ok(report)
}

/// The retained part of a checked snapshot.
struct CheckedSnapshot {
    index: LogIndex,
    digest: Digest,
    /// The list of segments, only for the newest snapshot.
    topics: Vec<(TopicId, SegmentList)>,
}

fn read_snapshots(
    disk: &dyn Disk,
    identity: &Identity,
    derived: Severity,
    host: Option<&Arc<dyn ProgramHost>>,
    report: &mut VerifyReport,
    meter: &mut ProgressMeter<'_>,
) -> Result<Vec<CheckedSnapshot>, StoreError> {
    let mut found = Vec::new();
    for (age, index) in snapshot::list(disk)?.into_iter().enumerate() {
        report.files += 1;
        // An older snapshot is only a second copy.
        let severity = if age == 0 { derived } else { Severity::Derived };
        let path = snapshot::path(index);
        let read = Snapshot::read(disk, identity.store_id, index, 0, host);
        let file = disk.open(&path, OpenMode::Read);
        meter.add(file.and_then(|file| file.len()).unwrap_or(0));
        let Some(snapshot) = report.add_error(severity, &path, read)? else {
            continue;
        };
        found.push(CheckedSnapshot {
            index,
            digest: snapshot.machine.digest(),
            topics: if found.is_empty() {
                snapshot.topics
            } else {
                Vec::new()
            },
        });
    }
    Ok(found)
}

/// Reads every block of every segment, and compares the segments with the list in the newest
/// snapshot.
fn topics(
    disk: &dyn Disk,
    identity: &Identity,
    snapshot: Option<&CheckedSnapshot>,
    derived: Severity,
    report: &mut VerifyReport,
    meter: &mut ProgressMeter<'_>,
) -> Result<(), StoreError> {
    let mut listed = BTreeMap::new();
    for (id, list) in snapshot.map(|s| s.topics.as_slice()).unwrap_or_default() {
        listed.extend(
            list.segments
                .iter()
                .map(|entry| ((*id, entry.number), *entry)),
        );
    }
    for ((id, number), entry) in &listed {
        let read = segment(disk, identity, (*id, *number), Some(entry), report, meter);
        report.add_error(derived, &segment_path(*id, *number), read)?;
    }
    let list = |dir: &str| disk.list(dir).map_err(StoreError::io(IoVerb::List, dir));
    let stray = "not a file of the store";
    for name in list("topics")? {
        let Some(id) = parse_directory(&name) else {
            report.add(Severity::Note, &format!("topics/{name}"), 0, stray);
            continue;
        };
        for file in list(&directory(id))? {
            let Some(number) = parse_segment(&file) else {
                report.add(Severity::Note, &format!("topics/{name}/{file}"), 0, stray);
                continue;
            };
            if !listed.contains_key(&(id, number)) {
                let read = segment(disk, identity, (id, number), None, report, meter);
                report.add_error(Severity::Derived, &segment_path(id, number), read)?;
            }
        }
    }
    let known = [
        "weir.id",
        "LOCK",
        clock_moves::PATH,
        SOCKET_FILE,
        "cluster",
        STAGED,
        "log",
        "cut",
        "topics",
        "snapshots",
        "rebuild",
    ];
    let known: BTreeSet<&str> = known.into_iter().collect();
    for name in list("")?
        .iter()
        .filter(|name| !known.contains(name.as_str()))
    {
        report.add(Severity::Note, name, 0, stray);
    }
    let staged = list(STAGED)?;
    if !staged.is_empty() && staged.iter().all(|name| name != "manifest") {
        let what = "an incomplete snapshot of another node; the next open of the node removes it";
        report.add(Severity::Note, STAGED, 0, what);
    }
    Ok(())
}

/// Reads and checks the blocks of a segment. A listed segment must have the listed blocks; later
/// bytes were written after the snapshot, and are not read.
fn segment(
    disk: &dyn Disk,
    identity: &Identity,
    (id, number): (TopicId, u32),
    listed: Option<&SegmentEntry>,
    report: &mut VerifyReport,
    meter: &mut ProgressMeter<'_>,
) -> Result<(), StoreError> {
    let path = segment_path(id, number);
    let file = disk
        .open(&path, OpenMode::Read)
        .map_err(StoreError::io(IoVerb::Open, &path))?;
    let len = file.len().map_err(StoreError::io(IoVerb::Read, &path))?;
    report.files += 1;
    report.bytes += len;
    let (mut position, mut last) = (0, 0);
    let mut seen: Option<SegmentEntry> = None;
    while position < len && (listed.is_none() || seen != listed.copied()) {
        let damage = |what| StoreError::damage(&path, position, what, 0);
        let mut header = [0; HEADER_BYTES];
        let location = BlockLocation {
            store_tag: identity.tag(),
            topic: id,
            segment: number,
            position,
        };
        if len - position < HEADER_BYTES as u64 {
            return Err(damage("a block header is incomplete"));
        }
        let read = file.read_exact_at(&mut header, position);
        read.map_err(StoreError::io(IoVerb::Read, &path))?;
        let header = Header::read(&header, &location).map_err(|bad| bad.error(&path, position))?;
        let at = position + HEADER_BYTES as u64;
        if u64::from(header.bytes) > len - at {
            return Err(damage("a block ends after its segment"));
        }
        let mut records = vec![0; header.bytes as usize];
        let read = file.read_exact_at(&mut records, at);
        read.map_err(StoreError::io(IoVerb::Read, &path))?;
        if !header.covers(&records) {
            return Err(damage("the checksum of a block is wrong"));
        }
        if header.base.first <= last {
            return Err(damage("the blocks of a topic are not in order"));
        }
        let mut cursor = BlockCursor::new(&header.base, header.records);
        while let Some(record) = cursor.next(&records) {
            last = record.map_err(damage)?.offset.0;
            report.records += 1;
        }
        if last != header.last {
            return Err(damage("the offset of the last record of a block is wrong"));
        }
        meter.add(HEADER_BYTES as u64 + u64::from(header.bytes));
        position = at + u64::from(header.bytes);
        let entry = seen.unwrap_or(SegmentEntry {
            number,
            bytes: 0,
            first: header.base.first,
            last: 0,
            chain: 0,
        });
        seen = Some(entry.with_block(position, header.last, header.own_crc));
    }
    if listed.is_some() && seen != listed.copied() {
        return Err(StoreError::damage(
            &path,
            position,
            "the blocks differ from those in the snapshot",
            0,
        ));
    }
    if position < len {
        report.add(
            Severity::Note,
            &path,
            position,
            "bytes that were written after the snapshot",
        );
    }
    Ok(())
}

/// Applies the log, and compares the state with every snapshot at its log position.
fn replay(
    (disk, store_id, host): (&dyn Disk, [u8; 16], Option<&Arc<dyn ProgramHost>>),
    snapshots: &[CheckedSnapshot],
    readers: &LogReaders,
    report: &mut VerifyReport,
    meter: &mut ProgressMeter<'_>,
) -> Result<(), StoreError> {
    struct DiscardSink;
    impl ConsequenceSink for DiscardSink {
        fn topic(&mut self, _: TopicId, _: &TopicName) {}
        fn record(&mut self, _: TopicId, _: &Record<'_>) {}
    }
    let first = readers.first_index();
    let mut last = readers.last_index();
    let committed = CommittedFile::peek(disk, store_id);
    let committed = report.add_error(Severity::Damage, VOTE, committed)?;
    if let Some(committed) = committed.flatten() {
        // Later entries are not committed and may still be truncated.
        let newest = snapshots
            .first()
            .map_or(LogIndex::ZERO, |newest| newest.index);
        last = last.min(committed.max(newest));
    }
    let base = snapshots
        .iter()
        .rev()
        .find(|snapshot| snapshot.index.next() >= first);
    let (mut machine, mut index) = match base {
        _ if first <= LogIndex(1) => (Machine::new(1).with_host(host.cloned()), LogIndex::ZERO),
        Some(snapshot) => {
            let read = Snapshot::read(disk, store_id, snapshot.index, 0, host)?;
            (read.machine, snapshot.index)
        }
        None => return Ok(()),
    };
    let mut replay = Replay::new(readers.reader(index.next()), last);
    loop {
        if let Some(snapshot) = snapshots.iter().find(|snapshot| snapshot.index == index)
            && snapshot.digest != machine.digest()
        {
            let what = "the snapshot differs from the state that the log produces";
            report.add(Severity::Damage, &snapshot::path(index), 512, what);
        }
        let next = replay.next(&mut machine, &mut DiscardSink);
        let Some(Some(entry)) = report.add_error(Severity::Damage, "log", next)? else {
            break;
        };
        report.entries += 1;
        meter.add(log::batch_bytes(entry.payload.len()));
        index = entry.index;
    }
    if index == last {
        report.applied = Some(machine.applied());
        report.digest = Some(machine.digest());
    }
    Ok(())
}
