//! The files that make a directory a node of a cluster (docs/formats/cluster.md): the vote file,
//! the committed file, and the seen file, which has the reports of the other nodes.
//!
//! Invariants:
//!
//! - Every later open finds a vote that was reported as saved.
//! - An open fails if both copies of the vote file are bad, or if the file is missing and another
//!   file of a node exists. The vote file is the first of these files that gets its name.

use std::io::IoSlice;
use std::sync::Arc;

use crc_fast::crc32_iscsi as crc32c;

use super::{DirectoryReport, Vote, new_incarnation};
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{IoVerb, StoreError};
use crate::log::LogIndex;
use crate::log_index::EntryId;

/// Directory of these files.
pub(crate) const DIRECTORY: &str = "cluster";
/// The vote file.
pub(crate) const VOTE: &str = "cluster/vote";
const VOTE_NEW: &str = "cluster/vote.new";
/// The committed file.
pub(crate) const COMMITTED: &str = "cluster/committed";
const SEEN: &str = "cluster/seen";
const SECTOR: usize = 512;
/// Bytes of a copy in the seen file.
const SEEN_BYTES: usize = 4096;
/// Position of the first record in a copy of the seen file, bytes of a record, and the maximum
/// number of records.
const RECORDS_AT: usize = 40;
const RECORD_BYTES: usize = 48;
const RECORDS_MAX: usize = 64;
const SEEN_MAGIC: [u8; 8] = *b"WEIRSEEN";
const VOTE_MAGIC: [u8; 8] = *b"WEIRVOTE";
const COMMITTED_MAGIC: [u8; 8] = *b"WEIRCOMM";
const FORMAT: u16 = 1;
/// Flags of a vote: the node has voted; a majority has granted the vote.
const HAS_VOTE: u8 = 1;
const IS_COMMITTED: u8 = 2;

/// The content of a sector of the vote file or the committed file: four numbers after the common
/// head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sector {
    flags: u8,
    /// The copy with the larger generation is the newer one.
    generation: u64,
    numbers: [u64; 4],
}

impl Sector {
    fn encode(&self, magic: [u8; 8], store_id: &[u8; 16]) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        bytes[..8].copy_from_slice(&magic);
        bytes[8..10].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[10] = self.flags;
        bytes[16..32].copy_from_slice(store_id);
        bytes[32..40].copy_from_slice(&self.generation.to_le_bytes());
        for (field, number) in bytes[40..72].chunks_exact_mut(8).zip(self.numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        let crc = crc32c(&bytes[..SECTOR - 4]);
        bytes[SECTOR - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes a sector. `None` if the checksum or the magic is wrong.
    fn decode(
        bytes: &[u8],
        magic: [u8; 8],
        store_id: &[u8; 16],
        file: &str,
    ) -> Result<Option<Self>, StoreError> {
        let Some((body, crc)) = bytes.split_last_chunk::<4>() else {
            return Ok(None);
        };
        if crc32c(body).to_le_bytes() != *crc || !body.starts_with(&magic) {
            return Ok(None);
        }
        // A copy with another length is not a sector.
        let Some((head, tail)) = body.split_first_chunk::<72>() else {
            return Ok(None);
        };
        let (words, _) = head.as_chunks::<8>();
        let word = |at: usize| u64::from_le_bytes(words[at / 8]);
        let head = word(8).to_le_bytes();
        let [low, high, flags, reserved @ ..] = head;
        let found = u16::from_le_bytes([low, high]);
        let is_known = reserved.iter().chain(tail).all(|byte| *byte == 0)
            && flags & !(HAS_VOTE | IS_COMMITTED) == 0;
        if found != FORMAT || !is_known {
            return Err(StoreError::NewerFormat {
                file: file.to_owned(),
                found,
                supported: FORMAT,
            });
        }
        if body.get(16..32) != Some(&store_id[..]) {
            let file = file.to_owned();
            return Err(StoreError::ForeignStore { file });
        }
        Ok(Some(Self {
            flags,
            generation: word(32),
            numbers: [word(40), word(48), word(56), word(64)],
        }))
    }
}

/// Returns the newest valid copy, and whether one of the two copies is invalid.
fn read_copies(
    file: &dyn DiskFile,
    path: &str,
    magic: [u8; 8],
    store_id: &[u8; 16],
) -> Result<(Option<Sector>, bool), StoreError> {
    let len = file.len().map_err(StoreError::io(IoVerb::Read, path))?;
    let (mut newest, mut has_bad_copy) = (None::<Sector>, false);
    for at in [0, SECTOR as u64] {
        let mut bytes = [0; SECTOR];
        let copy = if len < at + SECTOR as u64 {
            None
        } else {
            let read = file.read_exact_at(&mut bytes, at);
            read.map_err(StoreError::io_at(IoVerb::Read, path, at))?;
            Sector::decode(&bytes, magic, store_id, path)?
        };
        has_bad_copy |= copy.is_none();
        if let Some(copy) = copy
            && newest.is_none_or(|newest| newest.generation < copy.generation)
        {
            newest = Some(copy);
        }
    }
    Ok((newest, has_bad_copy))
}

fn write_sector(
    file: &dyn DiskFile,
    path: &str,
    sector: &[u8; SECTOR],
    at: u64,
) -> Result<(), StoreError> {
    let written = file.write_all_at(&mut [IoSlice::new(sector)], at);
    written.map_err(StoreError::io_at(IoVerb::Write, path, at))
}

/// Whether the directory belongs to a node of a cluster.
///
/// # Errors
/// `VoteLost` if the directory belonged to a node, and the vote file is missing.
pub(crate) fn is_node(disk: &dyn Disk) -> Result<bool, StoreError> {
    let names = disk.list(DIRECTORY);
    let names = names.map_err(StoreError::io(IoVerb::List, DIRECTORY))?;
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    if has("vote") {
        return Ok(true);
    }
    if has("committed") || has("seen") {
        return Err(StoreError::VoteLost { what: "is missing" });
    }
    Ok(false)
}

/// Returns number and incarnation of the node that owns the directory; `None` for a store
/// outside of a cluster. Changes no file.
///
/// # Errors
/// `VoteLost` if the vote is missing or no copy of it is valid.
pub(crate) fn node_of(
    disk: &dyn Disk,
    store_id: [u8; 16],
) -> Result<Option<(u64, u64)>, StoreError> {
    if !is_node(disk)? {
        return Ok(None);
    }
    let file = disk
        .open(VOTE, OpenMode::Read)
        .map_err(StoreError::io(IoVerb::Open, VOTE))?;
    let (sector, _) = read_copies(&*file, VOTE, VOTE_MAGIC, &store_id)?;
    let sector = sector.ok_or_else(unknown_vote)?;
    Ok(Some((sector.numbers[0], sector.numbers[3])))
}

/// The error if no copy of the vote is valid.
fn unknown_vote() -> StoreError {
    let what = "is damaged in both copies";
    StoreError::VoteLost { what }
}

/// The vote of a node. A node must never lose its vote.
#[derive(Debug)]
pub(crate) struct VoteFile {
    file: Arc<dyn DiskFile>,
    store_id: [u8; 16],
    pub(crate) node: u64,
    /// Identifies the disk of the directory; never 0.
    pub(crate) incarnation: u64,
    pub(crate) vote: Option<Vote>,
    /// Number of writes so far. Each open writes the file once.
    pub(crate) generation: u64,
}

impl VoteFile {
    /// Opens the file; `None` if the directory does not belong to a node.
    ///
    /// # Errors
    /// `VoteLost` if the file is missing or no copy is valid. The earlier votes of the node are then
    /// unknown, so it must not vote.
    pub(crate) fn open(disk: &dyn Disk, store_id: [u8; 16]) -> Result<Option<Self>, StoreError> {
        if !is_node(disk)? {
            return Ok(None);
        }
        let file = disk
            .open(VOTE, OpenMode::Write)
            .map_err(StoreError::io(IoVerb::Open, VOTE))?;
        let (sector, has_bad_copy) = read_copies(&*file, VOTE, VOTE_MAGIC, &store_id)?;
        let sector = sector.ok_or_else(unknown_vote)?;
        let [node, term, voted_for, incarnation] = sector.numbers;
        let vote = (sector.flags & HAS_VOTE != 0).then_some(Vote {
            term,
            voted_for,
            is_committed: sector.flags & IS_COMMITTED != 0,
        });
        let mut opened = Self {
            file,
            store_id,
            node,
            // Files from before the introduction of incarnations have 0.
            incarnation: match incarnation {
                0 => new_incarnation(),
                known => known,
            },
            vote,
            generation: sector.generation,
        };
        // Write again: the copies may differ after a crash, and the bytes that were read may come
        // from the cache of the system and not be on the disk.
        opened.write(vote)?;
        if has_bad_copy {
            tracing::warn!("one copy of the vote was damaged and was rewritten");
        }
        Ok(Some(opened))
    }

    /// Creates the file, so that the directory belongs to a node. The name of the file is durable
    /// when this returns.
    pub(crate) fn create(
        disk: &dyn Disk,
        store_id: [u8; 16],
        node: u64,
        incarnation: u64,
        vote: Option<Vote>,
    ) -> Result<Self, StoreError> {
        disk.create_dir(DIRECTORY)
            .map_err(StoreError::io(IoVerb::Open, DIRECTORY))?;
        let names = disk.list(DIRECTORY);
        let names = names.map_err(StoreError::io(IoVerb::List, DIRECTORY))?;
        if names.iter().any(|name| name == "vote.new") {
            disk.remove(VOTE_NEW)
                .map_err(StoreError::io(IoVerb::Remove, VOTE_NEW))?;
        }
        let file = disk
            .open(VOTE_NEW, OpenMode::CreateNew)
            .map_err(StoreError::io(IoVerb::Open, VOTE_NEW))?;
        let mut created = Self {
            file,
            store_id,
            node,
            incarnation,
            vote: None,
            generation: 0,
        };
        created.write(vote)?;
        disk.rename(VOTE_NEW, VOTE)
            .map_err(StoreError::io(IoVerb::Rename, VOTE))?;
        for dir in [DIRECTORY, ""] {
            disk.sync_dir(dir)
                .map_err(StoreError::io(IoVerb::Sync, dir))?;
        }
        Ok(created)
    }

    /// Saves a vote. The vote is durable when this returns.
    pub(crate) fn save(&mut self, vote: Vote) -> Result<(), StoreError> {
        self.write(Some(vote))
    }

    /// Writes the second copy, then the first, and syncs after each. A crash leaves at least one
    /// copy valid.
    fn write(&mut self, vote: Option<Vote>) -> Result<(), StoreError> {
        self.generation += 1;
        let (flags, term, voted_for) = vote.map_or((0, 0, 0), |vote| {
            let flags = HAS_VOTE | (u8::from(vote.is_committed) * IS_COMMITTED);
            (flags, vote.term, vote.voted_for)
        });
        let sector = Sector {
            flags,
            generation: self.generation,
            numbers: [self.node, term, voted_for, self.incarnation],
        };
        let bytes = sector.encode(VOTE_MAGIC, &self.store_id);
        for at in [SECTOR as u64, 0] {
            write_sector(&*self.file, VOTE, &bytes, at)?;
            self.file
                .sync_data()
                .map_err(StoreError::io(IoVerb::Sync, VOTE))?;
        }
        self.vote = vote;
        Ok(())
    }
}

/// The newest log entry that the node knows to be committed. The file is never synced: after a
/// loss, the leader reports the position again.
#[derive(Debug)]
pub(crate) struct CommittedFile {
    file: Arc<dyn DiskFile>,
    store_id: [u8; 16],
    generation: u64,
    /// Index and term of the newest committed entry.
    pub(crate) newest: Option<(LogIndex, u64)>,
}

impl CommittedFile {
    /// Opens the file, or creates it.
    pub(crate) fn open(disk: &dyn Disk, store_id: [u8; 16]) -> Result<Self, StoreError> {
        let names = disk.list(DIRECTORY);
        let names = names.map_err(StoreError::io(IoVerb::List, DIRECTORY))?;
        let mode = if names.iter().any(|name| name == "committed") {
            OpenMode::Write
        } else {
            OpenMode::CreateNew
        };
        let file = disk
            .open(COMMITTED, mode)
            .map_err(StoreError::io(IoVerb::Open, COMMITTED))?;
        let (sector, _) = read_copies(&*file, COMMITTED, COMMITTED_MAGIC, &store_id)?;
        let newest = sector.map(|sector| (LogIndex(sector.numbers[0]), sector.numbers[1]));
        Ok(Self {
            file,
            store_id,
            generation: sector.map_or(0, |sector| sector.generation),
            newest: newest.filter(|(index, _)| *index > LogIndex::ZERO),
        })
    }

    /// Returns the committed index in the file, which another process may have open. Zero if the
    /// file is missing or has no valid copy; `None` outside of a cluster. Changes no file.
    pub(crate) fn peek(
        disk: &dyn Disk,
        store_id: [u8; 16],
    ) -> Result<Option<LogIndex>, StoreError> {
        if !is_node(disk)? {
            return Ok(None);
        }
        let file = match disk.open(COMMITTED, OpenMode::Read) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Some(LogIndex::ZERO));
            }
            opened => opened.map_err(StoreError::io(IoVerb::Open, COMMITTED))?,
        };
        let (sector, _) = read_copies(&*file, COMMITTED, COMMITTED_MAGIC, &store_id)?;
        Ok(Some(LogIndex(sector.map_or(0, |sector| sector.numbers[0]))))
    }

    /// Lowers the index to `last`, the newest entry of the log, whose term is `term`. After a power
    /// cut, the log may lack committed entries. Other nodes have them.
    pub(crate) fn limit_to(&mut self, last: LogIndex, term: u64) -> Result<(), StoreError> {
        if self.newest.is_none_or(|(index, _)| index <= last) {
            return Ok(());
        }
        if last == LogIndex::ZERO {
            // The old index may name an entry of another term in the log that is written now. The
            // next open would report damage.
            self.save(LogIndex::ZERO, 0)?;
            self.newest = None;
            return Ok(());
        }
        self.save(last, term)
    }

    /// Saves the index and term of a committed entry. Writes the two copies alternately.
    pub(crate) fn save(&mut self, index: LogIndex, term: u64) -> Result<(), StoreError> {
        let generation = self.generation + 1;
        let sector = Sector {
            flags: 0,
            generation,
            numbers: [index.0, term, 0, 0],
        };
        let bytes = sector.encode(COMMITTED_MAGIC, &self.store_id);
        let at = generation % 2 * SECTOR as u64;
        write_sector(&*self.file, COMMITTED, &bytes, at)?;
        // After a failure, the next save writes the same copy again, and the other stays valid.
        self.generation = generation;
        self.newest = Some((index, term));
        Ok(())
    }
}

/// The reports of the other nodes about their directories. They help to detect a directory that was
/// replaced by an older copy. After a power cut, lost reports may not arrive again, and an older
/// copy may stay undetected.
#[derive(Debug)]
pub(crate) struct PeerReportsFile {
    file: Arc<dyn DiskFile>,
    store_id: [u8; 16],
    generation: u64,
    /// In ascending order of node numbers.
    pub(crate) nodes: Vec<(u64, DirectoryReport)>,
}

impl PeerReportsFile {
    /// Opens the file, or creates it.
    pub(crate) fn open(disk: &dyn Disk, store_id: [u8; 16]) -> Result<Self, StoreError> {
        let names = disk.list(DIRECTORY);
        let names = names.map_err(StoreError::io(IoVerb::List, DIRECTORY))?;
        let mode = if names.iter().any(|name| name == "seen") {
            OpenMode::Write
        } else {
            OpenMode::CreateNew
        };
        let file = disk
            .open(SEEN, mode)
            .map_err(StoreError::io(IoVerb::Open, SEEN))?;
        let len = file.len().map_err(StoreError::io(IoVerb::Read, SEEN))?;
        let (mut generation, mut nodes) = (0, Vec::new());
        for at in [0, SEEN_BYTES as u64] {
            if len < at + SEEN_BYTES as u64 {
                break;
            }
            let mut bytes = [0; SEEN_BYTES];
            file.read_exact_at(&mut bytes, at)
                .map_err(StoreError::io_at(IoVerb::Read, SEEN, at))?;
            if let Some((found, seen)) = decode_seen(&bytes, &store_id)
                && found > generation
            {
                (generation, nodes) = (found, seen);
            }
        }
        Ok(Self {
            file,
            store_id,
            generation,
            nodes,
        })
    }

    /// Saves the reports of the other nodes. Writes the two copies alternately.
    pub(crate) fn save(
        &mut self,
        nodes: Vec<(u64, DirectoryReport)>,
        is_synced: bool,
    ) -> Result<(), StoreError> {
        let generation = self.generation + 1;
        let bytes = encode_seen(generation, &nodes, &self.store_id);
        let at = generation % 2 * SEEN_BYTES as u64;
        let written = self.file.write_all_at(&mut [IoSlice::new(&bytes)], at);
        written.map_err(StoreError::io_at(IoVerb::Write, SEEN, at))?;
        if is_synced {
            self.file
                .sync_data()
                .map_err(StoreError::io(IoVerb::Sync, SEEN))?;
        }
        // After a failure, the next save writes the same copy again, and the other stays valid.
        self.generation = generation;
        self.nodes = nodes;
        Ok(())
    }
}

fn encode_seen(
    generation: u64,
    nodes: &[(u64, DirectoryReport)],
    store_id: &[u8; 16],
) -> [u8; SEEN_BYTES] {
    let mut bytes = [0; SEEN_BYTES];
    let nodes = &nodes[..nodes.len().min(RECORDS_MAX)];
    bytes[..8].copy_from_slice(&SEEN_MAGIC);
    bytes[8..10].copy_from_slice(&FORMAT.to_le_bytes());
    let Ok(count) = u16::try_from(nodes.len()) else {
        unreachable!("the list is limited to 64 records");
    };
    bytes[10..12].copy_from_slice(&count.to_le_bytes());
    bytes[16..32].copy_from_slice(store_id);
    bytes[32..40].copy_from_slice(&generation.to_le_bytes());
    let records = bytes[RECORDS_AT..].chunks_exact_mut(RECORD_BYTES);
    for (record, (node, report)) in records.zip(nodes) {
        let newest = report.newest.map_or((0, 0), |id| (id.index.0, id.term));
        let DirectoryReport {
            incarnation,
            generation,
            run,
            ..
        } = *report;
        let numbers = [*node, incarnation, generation, run, newest.0, newest.1];
        for (field, number) in record.chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
    }
    let crc = crc32c(&bytes[..SEEN_BYTES - 4]);
    bytes[SEEN_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Returns generation and records of a copy of the seen file; `None` if the copy is invalid.
fn decode_seen(
    bytes: &[u8; SEEN_BYTES],
    store_id: &[u8; 16],
) -> Option<(u64, Vec<(u64, DirectoryReport)>)> {
    let (body, crc) = bytes.split_at(SEEN_BYTES - 4);
    let is_whole = crc32c(body).to_le_bytes() == *crc
        && body.starts_with(&SEEN_MAGIC)
        && body[8..10] == FORMAT.to_le_bytes()
        && body[16..32] == store_id[..];
    if !is_whole {
        return None;
    }
    let word = |bytes: &[u8], at: usize| {
        let word = bytes.get(at..)?.first_chunk()?;
        Some(u64::from_le_bytes(*word))
    };
    let count = usize::from(u16::from_le_bytes([body[10], body[11]])).min(RECORDS_MAX);
    let mut nodes = Vec::with_capacity(count);
    for record in body[RECORDS_AT..].chunks_exact(RECORD_BYTES).take(count) {
        let (index, term) = (word(record, 32)?, word(record, 40)?);
        let index = LogIndex(index);
        let report = DirectoryReport {
            incarnation: word(record, 8)?,
            generation: word(record, 16)?,
            run: word(record, 24)?,
            newest: (index > LogIndex::ZERO).then_some(EntryId { term, index }),
        };
        nodes.push((word(record, 0)?, report));
    }
    Some((word(body, 32)?, nodes))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_seen_file_has_the_documented_bytes() {
        let report = DirectoryReport {
            incarnation: 7,
            generation: 8,
            run: 9,
            newest: Some(EntryId {
                term: 11,
                index: LogIndex(10),
            }),
        };
        let without_newest = DirectoryReport {
            newest: None,
            ..report
        };
        let nodes = vec![(2, report), (5, without_newest)];
        let bytes = encode_seen(3, &nodes, &[7; 16]);
        let mut expected = b"WEIRSEEN\x01\x00\x02\x00\x00\x00\x00\x00".to_vec();
        expected.extend_from_slice(&[7; 16]);
        for number in [3, 2, 7, 8, 9, 10, 11, 5, 7, 8, 9, 0, 0_u64] {
            expected.extend_from_slice(&number.to_le_bytes());
        }
        expected.resize(SEEN_BYTES - 4, 0);
        expected.extend_from_slice(&crc32c(&expected).to_le_bytes());
        assert_eq!(bytes[..], expected);
        assert_eq!(decode_seen(&bytes, &[7; 16]), Some((3, nodes)));
        assert_eq!(decode_seen(&bytes, &[8; 16]), None);
        for byte in 0..SEEN_BYTES {
            let mut bad = bytes;
            bad[byte] ^= 1;
            assert_eq!(decode_seen(&bad, &[7; 16]), None, "byte {byte}");
        }
    }

    #[cfg(feature = "sim")]
    #[test]
    fn a_failed_save_leaves_the_copy_that_was_saved_before() {
        use crate::disk::{SimDisk, SimFailure, SimOp};
        let disk = SimDisk::new();
        disk.create_dir(DIRECTORY).unwrap();
        let id = [7; 16];
        let mut reports = PeerReportsFile::open(&disk, id).unwrap();
        let mut committed = CommittedFile::open(&disk, id).unwrap();
        let nodes = vec![(2, DirectoryReport::default())];
        reports.save(nodes.clone(), true).unwrap();
        committed.save(LogIndex(5), 1).unwrap();
        disk.fail(SimOp::Write, 1, SimFailure::Io);
        reports.save(Vec::new(), true).unwrap_err();
        disk.fail(SimOp::Write, 1, SimFailure::Io);
        committed.save(LogIndex(6), 1).unwrap_err();
        // A crash during the retries may damage the copies that they write. These are the others.
        reports.save(Vec::new(), true).unwrap();
        committed.save(LogIndex(6), 1).unwrap();
        let mut bytes = [0; SEEN_BYTES];
        let at = SEEN_BYTES as u64;
        reports.file.read_exact_at(&mut bytes, at).unwrap();
        assert_eq!(decode_seen(&bytes, &id), Some((1, nodes)));
        let mut bytes = [0; SECTOR];
        let at = SECTOR as u64;
        committed.file.read_exact_at(&mut bytes, at).unwrap();
        let sector = Sector::decode(&bytes, COMMITTED_MAGIC, &id, COMMITTED).unwrap();
        assert_eq!(sector.unwrap().numbers[0], 5);
    }

    #[cfg(feature = "sim")]
    #[test]
    fn an_empty_log_removes_the_committed_index_also_for_the_next_open() {
        let disk = crate::disk::SimDisk::new();
        disk.create_dir(DIRECTORY).unwrap();
        let id = [7; 16];
        let mut committed = CommittedFile::open(&disk, id).unwrap();
        committed.save(LogIndex(5), 1).unwrap();
        committed.limit_to(LogIndex::ZERO, 0).unwrap();
        assert_eq!(committed.newest, None);
        assert_eq!(CommittedFile::open(&disk, id).unwrap().newest, None);
        committed.save(LogIndex(1), 2).unwrap();
        let newest = CommittedFile::open(&disk, id).unwrap().newest;
        assert_eq!(newest, Some((LogIndex(1), 2)));
    }

    #[test]
    fn a_copy_of_the_vote_has_the_documented_bytes() {
        let sector = Sector {
            flags: HAS_VOTE | IS_COMMITTED,
            generation: 3,
            numbers: [2, 300, 1, 0x1122_3344_5566_7788],
        };
        let mut expected = b"WEIRVOTE\x01\x00\x03".to_vec();
        expected.resize(16, 0);
        expected.extend_from_slice(&[7; 16]);
        expected.extend_from_slice(&[3, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend_from_slice(&[0x2c, 1, 0, 0, 0, 0, 0, 0]);
        expected.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend_from_slice(&[0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        expected.resize(SECTOR - 4, 0);
        expected.extend_from_slice(&crc32c(&expected).to_le_bytes());
        assert_eq!(sector.encode(VOTE_MAGIC, &[7; 16])[..], expected);
    }

    #[test]
    fn every_flipped_bit_of_a_copy_is_detected() {
        let sector = Sector {
            flags: HAS_VOTE,
            generation: 3,
            numbers: [1, 2, 3, 4],
        };
        let store_id = [7; 16];
        let good = sector.encode(VOTE_MAGIC, &store_id);
        let read = |bytes: &[u8]| Sector::decode(bytes, VOTE_MAGIC, &store_id, VOTE);
        assert_eq!(read(&good).unwrap(), Some(sector));
        for bit in 0..SECTOR * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&bad).unwrap(), None, "bit {bit}");
        }
        assert!(
            Sector::decode(&good, COMMITTED_MAGIC, &store_id, COMMITTED)
                .unwrap()
                .is_none()
        );
    }
}
