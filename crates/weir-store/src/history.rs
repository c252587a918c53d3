//! Replays a part of the log in memory.
//!
//! [`History`] reads the files of a store without a lock. It therefore works beside the process
//! that has the store open, and on a read-only medium. [`History`] sees the state that an open
//! would see at this moment. If the owner removes a file meanwhile, a call fails; the caller may
//! retry.
//!
//! Invariants:
//! - No byte is written.
//! - Every outcome comes from the machine.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use weir_core::batch::Action;
use weir_core::{
    Batch, ClientId, Commit, ConsequenceOffset, ConsequenceSink, IntentionOffset, Item, Machine,
    Outcome, Outcomes, ProgramHost, Record, RecordFlags, RecordKind, TopicId, TopicName,
};

use crate::disk::{Disk, FileDisk, OpenMode};
use crate::error::{IoVerb, StoreError};
use crate::identity::{self, Identity};
use crate::log::{self, LogIndex, LogReaders};
use crate::node::files::CommittedFile;
use crate::replay::{Content, Replay};
use crate::snapshot::{self, Snapshot};
use crate::topic::block::{BlockCursor, BlockLocation, HEADER_BYTES, Header};
use crate::topic::files::{directory, parse_segment, path as segment_path};

/// The log and the snapshots of a store, for replay.
#[derive(Debug)]
pub struct History {
    disk: Arc<dyn Disk>,
    identity: Identity,
    readers: LogReaders,
    /// The last entry to replay: in a cluster, the last committed one.
    through: LogIndex,
    host: Option<Arc<dyn ProgramHost>>,
    /// Snapshots by their log entry, newest first.
    snapshots: Vec<LogIndex>,
}

/// A record that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedRecord {
    /// Topic.
    pub topic: TopicId,
    /// Position in the topic.
    pub offset: ConsequenceOffset,
    /// The intention that caused it.
    pub intention: IntentionOffset,
    /// The kind of change.
    pub kind: RecordKind,
    /// Flags.
    pub flags: RecordFlags,
    /// Key; empty for none.
    pub key: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
}

impl OwnedRecord {
    fn of(topic: TopicId, record: &Record<'_>) -> Self {
        Self {
            topic,
            offset: record.offset,
            intention: record.intention,
            kind: record.kind,
            flags: record.flags,
            key: record.key.to_vec(),
            value: record.value.to_vec(),
        }
    }
}

/// A replayed intention. The slices are valid during the callback only.
#[derive(Clone, Copy, Debug)]
pub struct Replayed<'a> {
    /// The verdict and the fuel of the replay.
    pub commit: &'a Commit,
    /// Name of its topic; empty for housekeeping.
    pub topic: &'a str,
    /// The operation: CREATE, PUT, DELETE, TXN, …
    pub operation: &'static str,
    /// Key of a PUT or DELETE.
    pub key: &'a [u8],
    /// Value of a PUT.
    pub value: &'a [u8],
    /// Number of steps of a TXN.
    pub steps: u32,
    /// Code of a CREATE or REPLACE; empty without one.
    pub code: &'a [u8],
    /// The client; none without session.
    pub client: ClientId,
    /// Name of the authenticated principal.
    pub principal: &'a [u8],
    /// Its stamp, milliseconds since 1970-01-01 UTC.
    pub time_ms: u64,
    /// Its records.
    pub records: &'a [OwnedRecord],
    /// The state after the whole batch of the intention.
    pub machine: &'a Machine,
}

/// Whether a replayed intention agrees with the files of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// The files agree.
    Equal,
    /// The files differ.
    Differs,
    /// The files do not contain the records: they are not written to the topic yet, or compaction
    /// has removed them.
    Unknown,
}

/// Collects the records of the requested intentions.
struct Collector {
    wanted: RangeInclusive<IntentionOffset>,
    records: Vec<OwnedRecord>,
    /// The record to find. `found` becomes the intention that caused it.
    target: Option<(TopicId, ConsequenceOffset)>,
    found: Option<IntentionOffset>,
    name: String,
}

impl ConsequenceSink for Collector {
    fn topic(&mut self, id: TopicId, name: &TopicName) {
        if let Some((topic, _)) = &mut self.target
            && name.as_str() == self.name
        {
            *topic = id;
        }
    }

    fn record(&mut self, id: TopicId, record: &Record<'_>) {
        if self.wanted.contains(&record.intention) {
            self.records.push(OwnedRecord::of(id, record));
        }
        if self.target == Some((id, record.offset)) {
            self.found = Some(record.intention);
        }
    }
}

/// A number that no topic has.
const NO_TOPIC: TopicId = TopicId(u32::MAX);

impl History {
    /// Opens the history of the store in `directory`; `host` runs its programs.
    ///
    /// # Errors
    /// `Missing` if there is no store; `Damage` if its log cannot be read.
    pub fn open(directory: &Path, host: Option<Arc<dyn ProgramHost>>) -> Result<Self, StoreError> {
        let missing = || StoreError::Missing { what: "store" };
        if !directory.join(identity::PATH).is_file() {
            return Err(missing());
        }
        let text = directory.display().to_string();
        let disk =
            FileDisk::open_existing(directory).map_err(StoreError::io(IoVerb::Open, &text))?;
        Self::on(Arc::new(disk), host)
    }

    /// Like [`open`](Self::open), for any disk that contains a store.
    ///
    /// # Errors
    /// As for `open`.
    pub fn on(disk: Arc<dyn Disk>, host: Option<Arc<dyn ProgramHost>>) -> Result<Self, StoreError> {
        let missing = || StoreError::Missing { what: "store" };
        let identity = Identity::read(&*disk, identity::PATH)?.ok_or_else(missing)?;
        let readers = log::read_only(&disk, &identity.store_id)?.ok_or_else(missing)?;
        let snapshots = snapshot::list(&*disk)?;
        let through = CommittedFile::peek(&*disk, identity.store_id)?
            .map_or(LogIndex(u64::MAX), |committed| {
                committed.max(snapshots.first().copied().unwrap_or_default())
            });
        Ok(Self {
            disk,
            identity,
            through: through.min(readers.last_index()),
            readers,
            host,
            snapshots,
        })
    }

    /// Returns the first intention that can be replayed.
    pub fn first(&self) -> Result<IntentionOffset, StoreError> {
        let mut first = IntentionOffset(1);
        if self.readers.first_index() > LogIndex(1)
            && let Err(from) = self.start(&|_| false)?
        {
            first = from;
        }
        Ok(first)
    }

    /// Replays intentions in log order, and passes each executed one in `wanted` to the callback.
    /// Returns the offset of the last replayed intention.
    ///
    /// # Errors
    /// `Gone` if the log before them was purged and no snapshot is old enough.
    pub fn replay(
        &self,
        wanted: RangeInclusive<IntentionOffset>,
        each: &mut dyn FnMut(Replayed<'_>),
    ) -> Result<IntentionOffset, StoreError> {
        let old_enough = |machine: &Machine| machine.applied() < *wanted.start();
        let (mut machine, mut log) = self.start(&old_enough)?.map_err(|first| {
            let intention = *wanted.start();
            StoreError::Gone { intention, first }
        })?;
        let mut sink = Collector {
            wanted: wanted.clone(),
            records: Vec::new(),
            target: None,
            found: None,
            name: String::new(),
        };
        while machine.applied() < *wanted.end() {
            let Some(entry) = log.next(&mut machine, &mut sink)? else {
                break;
            };
            if machine.applied() >= *wanted.start() {
                let content = Content::read(&entry.payload, entry.index, entry.term, entry.count)?;
                if let Content::Batch(batch) = content {
                    report_items(&batch, log.outcomes(), &sink, &machine, each);
                }
            }
            sink.records.clear();
        }
        Ok(machine.applied())
    }

    /// Returns the intention that caused a record. `None` if the record does not exist, or if the
    /// log before it was purged and no snapshot is old enough.
    ///
    /// # Errors
    /// Errors of reads, and of entries that cannot be applied.
    pub fn intention_of(
        &self,
        topic: &str,
        offset: ConsequenceOffset,
    ) -> Result<Option<IntentionOffset>, StoreError> {
        let id = |machine: &Machine| machine.topic(topic).map(|view| (view.id, view.last));
        let old_enough = |machine: &Machine| id(machine).is_none_or(|(_, last)| last < offset);
        let Ok((mut machine, mut log)) = self.start(&old_enough)? else {
            return Ok(None);
        };
        let id = id(&machine).map_or(NO_TOPIC, |(id, _)| id);
        let mut sink = Collector {
            wanted: IntentionOffset(1)..=IntentionOffset(0),
            records: Vec::new(),
            target: Some((id, offset)),
            found: None,
            name: topic.to_owned(),
        };
        while sink.found.is_none() {
            if log.next(&mut machine, &mut sink)?.is_none() {
                break;
            }
        }
        Ok(sink.found)
    }

    /// Returns the state to replay from: the newest snapshot that is old enough, or the empty
    /// state. If the log after both is purged, returns the first intention that can be replayed.
    fn start(
        &self,
        old_enough: &dyn Fn(&Machine) -> bool,
    ) -> Result<Result<(Machine, Replay), IntentionOffset>, StoreError> {
        let first = self.readers.first_index();
        let mut oldest = IntentionOffset::ZERO;
        for index in &self.snapshots {
            if index.next() < first {
                break;
            }
            let store_id = self.identity.store_id;
            let read = Snapshot::read(&*self.disk, store_id, *index, 1, self.host.as_ref());
            let snapshot = match read {
                Ok(snapshot) => snapshot,
                // An older snapshot or the log has the same state.
                Err(error) if error.is_damage() || error.is_missing_file() => continue,
                Err(error) => return Err(error),
            };
            oldest = snapshot.machine.applied();
            if old_enough(&snapshot.machine) {
                return Ok(Ok((snapshot.machine, self.replay_from(index.next()))));
            }
        }
        if first > LogIndex(1) {
            return Ok(Err(oldest.plus(1)));
        }
        let machine = Machine::new(1).with_host(self.host.clone());
        Ok(Ok((machine, self.replay_from(LogIndex(1)))))
    }

    fn replay_from(&self, index: LogIndex) -> Replay {
        Replay::new(self.readers.reader(index), self.through)
    }

    /// Compares a replayed intention with the files of the store: its outcome with the table of
    /// sessions in the newest snapshot, its records with the files of the topic. Takes time linear
    /// in the size of that snapshot and those files.
    pub fn compare(&self, replayed: &Replayed<'_>) -> Result<Agreement, StoreError> {
        let commit = replayed.commit;
        let newest = self.newest_snapshot()?;
        let kept = newest.as_ref().and_then(|snapshot| {
            let sessions = snapshot.machine.sessions();
            sessions.outcome(replayed.client, commit.nonce)
        });
        if let Some(kept) = kept.filter(|kept| kept.intention == commit.intention) {
            let now = Commit {
                fuel: 0,
                ..commit.clone()
            };
            if kept != now {
                return Ok(Agreement::Differs);
            }
        }
        let Some(topic) = replayed.machine.topic(replayed.topic) else {
            return Ok(Agreement::Unknown);
        };
        let stored = self.stored(newest.as_ref(), topic.id, commit.intention)?;
        let wanted = replayed.records;
        // Compaction may change flags.
        let same = |a: &OwnedRecord, b: &OwnedRecord| {
            (a.offset, a.kind, &a.key, &a.value) == (b.offset, b.kind, &b.key, &b.value)
        };
        let matching: Vec<&OwnedRecord> = wanted
            .iter()
            .filter(|record| stored.records.iter().any(|kept| same(kept, record)))
            .collect();
        if stored.records.len() > matching.len() {
            return Ok(Agreement::Differs);
        }
        let proven = if commit.records == 0 {
            stored.reaches_after
        } else {
            !matching.is_empty()
        };
        Ok(if proven {
            Agreement::Equal
        } else {
            Agreement::Unknown
        })
    }

    fn newest_snapshot(&self) -> Result<Option<Snapshot>, StoreError> {
        for index in &self.snapshots {
            let store_id = self.identity.store_id;
            match Snapshot::read(&*self.disk, store_id, *index, 1, self.host.as_ref()) {
                Ok(snapshot) => return Ok(Some(snapshot)),
                Err(error) if error.is_damage() || error.is_missing_file() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Reads the records of an intention from the segments of a topic.
    fn stored(
        &self,
        newest: Option<&Snapshot>,
        topic: TopicId,
        intention: IntentionOffset,
    ) -> Result<StoredRecords, StoreError> {
        let mut stored = StoredRecords::default();
        let dir = directory(topic);
        let names = self.disk.list(&dir);
        let names = names.map_err(StoreError::io(IoVerb::List, &dir))?;
        let listed: Vec<u32> = newest
            .into_iter()
            .flat_map(|snapshot| &snapshot.topics)
            .filter(|(id, _)| *id == topic)
            .flat_map(|(_, list)| list.segments.iter().map(|entry| entry.number))
            .collect();
        // A file that no snapshot lists may be left over from a crash. The next open removes such a
        // file.
        let trusted = |number: &u32| {
            listed.contains(number) || listed.iter().max().is_none_or(|last| number > last)
        };
        for number in names
            .iter()
            .filter_map(|name| parse_segment(name))
            .filter(trusted)
        {
            self.search(&mut stored, (topic, number), intention)?;
        }
        Ok(stored)
    }

    /// Searches one segment. Skips damaged blocks.
    fn search(
        &self,
        stored: &mut StoredRecords,
        (topic, segment): (TopicId, u32),
        intention: IntentionOffset,
    ) -> Result<(), StoreError> {
        let path = segment_path(topic, segment);
        let read = StoreError::io(IoVerb::Read, &path);
        let Ok(file) = self.disk.open(&path, OpenMode::Read) else {
            return Ok(());
        };
        let len = file.len().map_err(read)?;
        let mut position = 0;
        while len - position >= HEADER_BYTES as u64 {
            let mut header = [0; HEADER_BYTES];
            let location = BlockLocation {
                store_tag: self.identity.tag(),
                topic,
                segment,
                position,
            };
            file.read_exact_at(&mut header, position)
                .map_err(StoreError::io(IoVerb::Read, &path))?;
            let Ok(header) = Header::read(&header, &location) else {
                return Ok(());
            };
            let at = position + HEADER_BYTES as u64;
            if u64::from(header.bytes) > len - at {
                return Ok(());
            }
            position = at + u64::from(header.bytes);
            let mut records = vec![0; header.bytes as usize];
            file.read_exact_at(&mut records, at)
                .map_err(StoreError::io(IoVerb::Read, &path))?;
            if !header.covers(&records) {
                return Ok(());
            }
            let mut cursor = BlockCursor::new(&header.base, header.records);
            while let Some(Ok(record)) = cursor.next(&records) {
                if record.intention == intention {
                    stored.records.push(OwnedRecord::of(topic, &record));
                }
                stored.reaches_after |= record.intention > intention;
            }
        }
        Ok(())
    }
}

/// The records of an intention in the files of a topic.
#[derive(Default)]
struct StoredRecords {
    records: Vec<OwnedRecord>,
    /// Whether the files have records of later intentions.
    reaches_after: bool,
}

/// Passes the requested, executed items of a batch to the callback.
fn report_items(
    batch: &Batch<'_>,
    outcomes: &Outcomes,
    sink: &Collector,
    machine: &Machine,
    each: &mut dyn FnMut(Replayed<'_>),
) {
    for (item, outcome) in batch.items().zip(outcomes.iter()) {
        let Ok(item) = item else { return };
        let Outcome::Committed(commit) = &outcome else {
            continue;
        };
        if !sink.wanted.contains(&commit.intention) {
            continue;
        }
        let is_of_commit = |record: &&OwnedRecord| record.intention == commit.intention;
        let records: Vec<OwnedRecord> = sink.records.iter().filter(is_of_commit).cloned().collect();
        let Ok(topic) = std::str::from_utf8(item.topic) else {
            unreachable!("an intention is committed for a topic, whose name is ASCII");
        };
        let (operation, key, value, steps) = describe(&item);
        let code = match item.action {
            Action::Create { code, .. } | Action::Replace { code, .. } => code,
            _ => &[],
        };
        each(Replayed {
            commit,
            topic,
            operation,
            key,
            value,
            steps,
            code,
            client: item.client,
            principal: item.principal,
            time_ms: batch.time_ms,
            records: &records,
            machine,
        });
    }
}

fn describe<'a>(item: &Item<'a>) -> (&'static str, &'a [u8], &'a [u8], u32) {
    match item.action {
        Action::Create { .. } => ("CREATE", &[], &[], 0),
        Action::Destroy => ("DESTROY", &[], &[], 0),
        Action::Put { key, value } => ("PUT", key, value, 0),
        Action::Delete { key } => ("DELETE", key, &[], 0),
        Action::Alter { .. } => ("ALTER", &[], &[], 0),
        Action::Replace { .. } => ("REPLACE", &[], &[], 0),
        Action::Txn(steps) => ("TXN", &[], &[], steps.len()),
        Action::ExpireSessions { .. } => ("EXPIRE", &[], &[], 0),
        Action::Quarantine { .. } => ("QUARANTINE", &[], &[], 0),
        Action::Trim { .. } => ("TRIM", &[], &[], 0),
        Action::Cursor { group, .. } => ("CURSOR", group.as_bytes(), &[], 0),
    }
}
