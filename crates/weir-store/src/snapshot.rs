//! Snapshots: one file with the machine and the list of topic segments after one log entry
//! (docs/formats/store.md, "Snapshot").
//!
//! Invariants:
//!
//! - A snapshot gets its name only after its content and every segment that it lists are durable.
//! - All checksums of a snapshot are checked before its machine is loaded.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use weir_core::codec::{Reader, put_varint};
use weir_core::exact::to_u32;
use weir_core::{
    IntentionOffset, Machine, ProgramHost, SnapshotError, SnapshotSink, SnapshotSource, TopicId,
};

use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{IoVerb, StoreError};
use crate::log::LogIndex;
use crate::replay::AppliedMembership;
use crate::topic::files::Segment;
use crate::topic::writer::{SegmentEntry, SegmentList};

const MAGIC: &[u8; 8] = b"WEIRSNAP";
const FORMAT: u16 = 1;
const HEADER_BYTES: usize = 512;
/// Flag in byte 10 of the header: the members of a cluster precede the list of segments.
const HAS_MEMBERSHIP: u8 = 1;
const CHUNK_BYTES: usize = 64 << 10;
const VARINT_BYTES_MAX: usize = 10;
/// Directory of the snapshots.
pub(crate) const DIRECTORY: &str = "snapshots";

/// Returns the path of the snapshot after a log entry.
pub(crate) fn path(index: LogIndex) -> String {
    format!("{DIRECTORY}/{:020}.snap", index.0)
}

/// Returns the log index in the file name of a snapshot; `None` for other names.
pub(crate) fn parse_name(name: &str) -> Option<LogIndex> {
    let digits = name
        .strip_suffix(".snap")
        .filter(|digits| digits.len() == 20)?;
    let all = digits.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| digits.parse().ok().map(LogIndex))?
}

/// Returns the log indexes of all snapshots, newest first.
pub(crate) fn list(disk: &dyn Disk) -> Result<Vec<LogIndex>, StoreError> {
    let names = disk
        .list(DIRECTORY)
        .map_err(StoreError::io(IoVerb::List, DIRECTORY))?;
    let mut indexes: Vec<LogIndex> = names.iter().filter_map(|name| parse_name(name)).collect();
    indexes.sort_unstable_by(|a, b| b.cmp(a));
    Ok(indexes)
}

/// Removes the snapshots before `index`, and makes the removal durable. The snapshot at `index`
/// must exist.
pub(crate) fn remove_before(disk: &dyn Disk, index: LogIndex) -> Result<(), StoreError> {
    for old in list(disk)?.into_iter().filter(|old| *old < index) {
        let path = path(old);
        disk.remove(&path)
            .map_err(StoreError::io(IoVerb::Remove, &path))?;
    }
    disk.sync_dir(DIRECTORY)
        .map_err(StoreError::io(IoVerb::Sync, DIRECTORY))
}

/// The content of a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) index: LogIndex,
    pub(crate) term: u64,
    pub(crate) machine: Machine,
    pub(crate) topics: Vec<(TopicId, SegmentList)>,
    /// The members of the cluster after `index`; `None` outside of a cluster.
    pub(crate) membership: Option<AppliedMembership>,
}

/// A snapshot that is not written yet, with the segments that must be synced before it.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    pub(crate) snapshot: Snapshot,
    pub(crate) unsynced: Vec<Arc<Segment>>,
}

impl Checkpoint {
    /// Makes the segments durable, then the snapshot, then its name.
    pub(crate) fn write(&self, disk: &dyn Disk, store_id: [u8; 16]) -> Result<(), StoreError> {
        let mut durable = Vec::new();
        for segment in &self.unsynced {
            durable.push((segment, segment.sync()?));
        }
        let sync_dir = |dir: &str| {
            disk.sync_dir(dir)
                .map_err(StoreError::io(IoVerb::Sync, dir))
        };
        let mut directories: Vec<&str> = self
            .unsynced
            .iter()
            .filter_map(|s| Some(s.path.rsplit_once('/')?.0))
            .collect();
        directories.dedup();
        for dir in directories {
            sync_dir(dir)?;
        }
        if !self.unsynced.is_empty() {
            sync_dir("topics")?;
        }
        // Make the names of both directories durable before a snapshot that relies on them gets
        // its name.
        disk.create_dir(DIRECTORY)
            .map_err(StoreError::io(IoVerb::Open, DIRECTORY))?;
        sync_dir("")?;
        // Not marked earlier: if a step above fails, the next checkpoint must repeat all steps.
        for (segment, written) in durable {
            segment.mark_durable(written);
        }
        self.snapshot.write(disk, store_id)?;
        sync_dir(DIRECTORY)
    }
}

impl Snapshot {
    /// Writes the file and renames it to its final name. The name is not durable yet. Returns the
    /// bytes of the file.
    pub(crate) fn write(&self, disk: &dyn Disk, store_id: [u8; 16]) -> Result<u64, StoreError> {
        let name = path(self.index);
        let new = format!("{name}.new");
        if disk.open(&new, OpenMode::Read).is_ok() {
            disk.remove(&new)
                .map_err(StoreError::io(IoVerb::Remove, &new))?;
        }
        let written = self.write_content(disk, store_id, &new);
        if written.is_err() {
            // Free the space: a full disk may be the cause of the failure.
            drop(disk.remove(&new));
        }
        let bytes = written?;
        disk.rename(&new, &name)
            .map_err(StoreError::io(IoVerb::Rename, &name))?;
        Ok(bytes)
    }

    fn write_content(
        &self,
        disk: &dyn Disk,
        store_id: [u8; 16],
        path: &str,
    ) -> Result<u64, StoreError> {
        let file = disk
            .open(path, OpenMode::CreateNew)
            .map_err(StoreError::io(IoVerb::Open, path))?;
        let header = self.header(store_id);
        let written = file.write_all_at(&mut [IoSlice::new(&header)], 0);
        written.map_err(StoreError::io(IoVerb::Write, path))?;
        let mut out = ChunkWriter::new(&*file, path, own_crc(&header));
        if let Some(membership) = &self.membership {
            out.write(&membership_bytes(membership)).map_err(storage)?;
        }
        out.write(&self.list_bytes()).map_err(storage)?;
        self.machine.save(&mut out).map_err(storage)?;
        out.finish()?;
        file.sync_data()
            .map_err(StoreError::io(IoVerb::Sync, path))?;
        file.len().map_err(StoreError::io(IoVerb::Read, path))
    }

    fn header(&self, store_id: [u8; 16]) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[10] = u8::from(self.membership.is_some()) * HAS_MEMBERSHIP;
        bytes[16..32].copy_from_slice(&store_id);
        bytes[32..40].copy_from_slice(&self.index.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.term.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.machine.applied().0.to_le_bytes());
        let crc = crc_fast::crc32_iscsi(&bytes[..HEADER_BYTES - 4]);
        bytes[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn list_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.topics.len() as u64);
        for (id, list) in &self.topics {
            put_varint(&mut out, u64::from(id.0));
            put_varint(&mut out, u64::from(list.next));
            put_varint(&mut out, list.segments.len() as u64);
            for entry in &list.segments {
                put_varint(&mut out, u64::from(entry.number));
                for n in [entry.bytes, entry.first, entry.last - entry.first] {
                    put_varint(&mut out, n);
                }
                out.extend_from_slice(&entry.chain.to_le_bytes());
            }
        }
        // With its length first, the list can be read without the machine.
        let mut framed = Vec::new();
        put_varint(&mut framed, out.len() as u64);
        framed.extend_from_slice(&out);
        framed
    }

    /// Reads and checks the whole file.
    pub(crate) fn read(
        disk: &dyn Disk,
        store_id: [u8; 16],
        index: LogIndex,
        seed: u64,
        host: Option<&Arc<dyn ProgramHost>>,
    ) -> Result<Self, StoreError> {
        let name = path(index);
        let damage = |position, what| StoreError::damage(&name, position, what, 0);
        let (file, len, header) = open(disk, store_id, index, &name)?;
        Chunks::new(&*file, &name, len, &header).check()?;
        let mut source = Chunks::new(&*file, &name, len, &header);
        let (membership, topics) = read_front(&mut source, &header, index)?;
        let machine = load(&mut source, seed, host.cloned()).map_err(|error| match error {
            SnapshotError::Version { found, known } => StoreError::NewerFormat {
                file: name.clone(),
                found,
                supported: known,
            },
            SnapshotError::ProgramNeeded => StoreError::ProgramsOff,
            SnapshotError::Program(why) => StoreError::ProgramUnable { why },
            SnapshotError::Storage(_) => storage(error),
            _ => damage(512, "the machine state is not as written"),
        })?;
        if !source.is_at_end()? || machine.applied() != IntentionOffset(word(&header, 48)) {
            return Err(damage(48, "the machine state is not as written"));
        }
        Ok(Self {
            index,
            term: word(&header, 40),
            machine,
            topics,
            membership,
        })
    }
}

/// The content of a snapshot without the machine.
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) term: u64,
    pub(crate) membership: Option<AppliedMembership>,
    pub(crate) topics: Vec<(TopicId, SegmentList)>,
    /// Bytes of the file.
    pub(crate) bytes: u64,
}

/// Reads the members and the segment list of a snapshot, but not the machine.
pub(crate) fn describe(
    disk: &dyn Disk,
    store_id: [u8; 16],
    index: LogIndex,
) -> Result<Description, StoreError> {
    let name = path(index);
    let (file, bytes, header) = open(disk, store_id, index, &name)?;
    let mut source = Chunks::new(&*file, &name, bytes, &header);
    let (membership, topics) = read_front(&mut source, &header, index)?;
    Ok(Description {
        term: word(&header, 40),
        membership,
        topics,
        bytes,
    })
}

type Front = (Option<AppliedMembership>, Vec<(TopicId, SegmentList)>);

/// Reads the part of a snapshot before the machine.
fn read_front(
    source: &mut Chunks<'_>,
    header: &Header,
    index: LogIndex,
) -> Result<Front, StoreError> {
    let damage = |name: &str, what| StoreError::damage(name, 512, what, 0);
    let mut membership = None;
    if header[10] & HAS_MEMBERSHIP != 0 {
        let framed = source.framed()?;
        let read = read_membership(&framed).filter(|read| read.index <= index);
        membership =
            Some(read.ok_or_else(|| {
                damage(source.name, "the members of the cluster are not as written")
            })?);
    }
    let list = source.framed()?;
    let topics = read_list(&list);
    let topics = topics
        .ok_or_else(|| damage(source.name, "the list of topic segments is not as written"))?;
    Ok((membership, topics))
}

/// Encodes a membership entry: the length of the rest, then index, term and body.
fn membership_bytes(membership: &AppliedMembership) -> Vec<u8> {
    let mut framed = Vec::new();
    put_varint(&mut framed, membership.body.len() as u64 + 16);
    framed.extend_from_slice(&membership.index.0.to_le_bytes());
    framed.extend_from_slice(&membership.term.to_le_bytes());
    framed.extend_from_slice(&membership.body);
    framed
}

fn read_membership(bytes: &[u8]) -> Option<AppliedMembership> {
    let mut reader = Reader::new(bytes);
    let (index, term) = (LogIndex(reader.u64().ok()?), reader.u64().ok()?);
    let body = Bytes::copy_from_slice(reader.rest());
    Some(AppliedMembership { index, term, body })
}

/// Checks every byte of a snapshot without loading it.
pub(crate) fn check(
    disk: &dyn Disk,
    store_id: [u8; 16],
    index: LogIndex,
) -> Result<(), StoreError> {
    check_watched(disk, store_id, index, &mut |_| true)
}

/// As `check`. Calls `watch` with the number of bytes of each chunk, and stops if `watch` returns
/// false.
pub(crate) fn check_watched(
    disk: &dyn Disk,
    store_id: [u8; 16],
    index: LogIndex,
    watch: &mut dyn FnMut(u64) -> bool,
) -> Result<(), StoreError> {
    let name = path(index);
    let (file, len, header) = open(disk, store_id, index, &name)?;
    let mut chunks = Chunks::new(&*file, &name, len, &header);
    while chunks.advance()? {
        if !watch(chunks.chunk.len() as u64) {
            break;
        }
    }
    Ok(())
}

type Header = [u8; HEADER_BYTES];

fn word(header: &Header, at: usize) -> u64 {
    let Some(bytes) = header.get(at..).and_then(|rest| rest.first_chunk::<8>()) else {
        unreachable!("every field lies inside the header")
    };
    u64::from_le_bytes(*bytes)
}

/// Opens a snapshot and checks its header. Returns the file, its length in bytes, and the header.
fn open(
    disk: &dyn Disk,
    store_id: [u8; 16],
    index: LogIndex,
    name: &str,
) -> Result<(Arc<dyn DiskFile>, u64, Header), StoreError> {
    let damage = |position, what| StoreError::damage(name, position, what, 0);
    let file = disk
        .open(name, OpenMode::Read)
        .map_err(StoreError::io(IoVerb::Open, name))?;
    let mut header = [0; HEADER_BYTES];
    let len = file.len().map_err(StoreError::io(IoVerb::Read, name))?;
    if len < HEADER_BYTES as u64 {
        return Err(damage(len, "the header of the snapshot is not as written"));
    }
    file.read_exact_at(&mut header, 0)
        .map_err(StoreError::io(IoVerb::Read, name))?;
    let (body, crc) = header.split_at(HEADER_BYTES - 4);
    if crc != crc_fast::crc32_iscsi(body).to_le_bytes() || !body.starts_with(MAGIC) {
        return Err(damage(0, "the header of the snapshot is not as written"));
    }
    let format = u16::from_le_bytes([header[8], header[9]]);
    let reserved = body
        .get(11..16)
        .into_iter()
        .chain(body.get(56..))
        .flatten()
        .any(|b| *b != 0)
        || header[10] & !HAS_MEMBERSHIP != 0;
    if format != FORMAT || reserved {
        let file = name.to_owned();
        return Err(StoreError::NewerFormat {
            file,
            found: format,
            supported: FORMAT,
        });
    }
    if body.get(16..32) != Some(&store_id[..]) {
        return Err(StoreError::ForeignStore {
            file: name.to_owned(),
        });
    }
    if word(&header, 32) != index.0 {
        return Err(damage(
            32,
            "the log index differs from that in the name of the snapshot",
        ));
    }
    Ok((file, len, header))
}

fn load(
    source: &mut dyn SnapshotSource,
    seed: u64,
    host: Option<Arc<dyn ProgramHost>>,
) -> Result<Machine, SnapshotError> {
    Machine::load_with(source, seed, host)
}

fn read_list(bytes: &[u8]) -> Option<Vec<(TopicId, SegmentList)>> {
    let mut r = Reader::new(bytes);
    let mut topics = Vec::new();
    for _ in 0..r.varint().ok()? {
        let id = TopicId(u32::try_from(r.varint().ok()?).ok()?);
        let next = u32::try_from(r.varint().ok()?).ok()?;
        let mut segments = Vec::new();
        for _ in 0..r.varint().ok()? {
            let number = u32::try_from(r.varint().ok()?)
                .ok()
                .filter(|number| (1..next).contains(number))?;
            let (bytes, first) = (r.varint().ok()?, r.varint().ok()?);
            let last = first.checked_add(r.varint().ok()?)?;
            let chain = u32::from_le_bytes(r.array().ok()?);
            segments.push(SegmentEntry {
                number,
                bytes,
                first,
                last,
                chain,
            });
        }
        let list = SegmentList { next, segments };
        topics.push((id, list));
    }
    r.is_empty().then_some(topics)
}

fn storage(error: SnapshotError) -> StoreError {
    let write_error = StoreError::io(IoVerb::Write, DIRECTORY);
    match error {
        SnapshotError::Storage(source) => match source.downcast::<StoreError>() {
            Ok(error) => *error,
            Err(source) => write_error(std::io::Error::other(source)),
        },
        other => write_error(std::io::Error::other(other)),
    }
}

fn own_crc(header: &Header) -> u32 {
    let Some(crc) = header.last_chunk::<4>() else {
        unreachable!("a header is longer than its checksum")
    };
    u32::from_le_bytes(*crc)
}

/// Returns the CRC of a chunk. It covers `before` (the checksum of the chunk before, or of the
/// header for the first chunk), and the number, length and content of the chunk. So a chunk of
/// another snapshot does not match.
fn chunk_crc(before: u32, number: u64, len: u32, content: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&before.to_le_bytes());
    digest.update(&number.to_le_bytes());
    digest.update(&len.to_le_bytes());
    digest.update(content);
    to_u32(digest.finalize(), "a CRC-32C has 32 bits")
}

struct ChunkWriter<'a> {
    file: &'a dyn DiskFile,
    path: &'a str,
    position: u64,
    number: u64,
    content: u64,
    before: u32,
    buffer: Vec<u8>,
}

impl<'a> ChunkWriter<'a> {
    fn new(file: &'a dyn DiskFile, path: &'a str, before: u32) -> Self {
        let position = HEADER_BYTES as u64;
        Self {
            file,
            path,
            position,
            number: 0,
            content: 0,
            before,
            buffer: Vec::new(),
        }
    }

    fn chunk(&mut self, len: u32, content: &[u8]) -> Result<(), StoreError> {
        let mut head = [0; 8];
        head[..4].copy_from_slice(&len.to_le_bytes());
        self.before = chunk_crc(self.before, self.number, len, content);
        head[4..].copy_from_slice(&self.before.to_le_bytes());
        let mut parts = [IoSlice::new(&head), IoSlice::new(content)];
        let written = self.file.write_all_at(&mut parts, self.position);
        written.map_err(StoreError::io(IoVerb::Write, self.path))?;
        self.position += 8 + content.len() as u64;
        self.number += 1;
        self.content += u64::from(len);
        Ok(())
    }

    fn finish(mut self) -> Result<(), StoreError> {
        let rest = std::mem::take(&mut self.buffer);
        if !rest.is_empty() {
            self.chunk(to_u32(rest.len(), "a chunk has at most 64 KiB"), &rest)?;
        }
        let total = self.content;
        self.chunk(0, &total.to_le_bytes())
    }
}

impl SnapshotSink for ChunkWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        // A section may have gigabytes: the buffer never holds more than one chunk.
        let mut rest = bytes;
        while self.buffer.len() + rest.len() >= CHUNK_BYTES {
            let (head, tail) = rest.split_at(CHUNK_BYTES - self.buffer.len());
            rest = tail;
            self.buffer.extend_from_slice(head);
            let mut chunk = std::mem::take(&mut self.buffer);
            let len = to_u32(CHUNK_BYTES, "a chunk has 64 KiB");
            self.chunk(len, &chunk)
                .map_err(|error| SnapshotError::Storage(Box::new(error)))?;
            chunk.clear();
            self.buffer = chunk;
        }
        self.buffer.extend_from_slice(rest);
        Ok(())
    }
}

/// Reads the content of a snapshot chunk by chunk. Each chunk is checked before its bytes are
/// returned. One chunk at a time is in memory.
struct Chunks<'a> {
    file: &'a dyn DiskFile,
    name: &'a str,
    len: u64,
    position: u64,
    number: u64,
    before: u32,
    /// Bytes of content in the chunks so far.
    content: u64,
    chunk: Vec<u8>,
    /// Bytes of `chunk` that were already returned.
    returned: usize,
    ended: bool,
}

impl<'a> Chunks<'a> {
    fn new(file: &'a dyn DiskFile, name: &'a str, len: u64, header: &Header) -> Self {
        Self {
            file,
            name,
            len,
            position: HEADER_BYTES as u64,
            number: 0,
            before: own_crc(header),
            content: 0,
            chunk: Vec::new(),
            returned: 0,
            ended: false,
        }
    }

    fn damage(&self, what: &'static str) -> StoreError {
        StoreError::damage(self.name, self.position, what, 0)
    }

    /// Reads the next chunk; false at the end of the file.
    fn advance(&mut self) -> Result<bool, StoreError> {
        if self.ended {
            return Ok(false);
        }
        let left = self.len - self.position;
        if left < 8 {
            return Err(self.damage("a chunk is incomplete"));
        }
        let mut head = [0; 8];
        let read = self.file.read_exact_at(&mut head, self.position);
        read.map_err(StoreError::io(IoVerb::Read, self.name))?;
        let [l0, l1, l2, l3, crc @ ..] = head;
        let len = u32::from_le_bytes([l0, l1, l2, l3]);
        let stored = if len == 0 { 8 } else { len as usize };
        if left - 8 < stored as u64 {
            return Err(self.damage("a chunk is incomplete"));
        }
        if stored > CHUNK_BYTES {
            return Err(self.damage("a chunk is too long"));
        }
        self.chunk.resize(stored, 0);
        let read = self.file.read_exact_at(&mut self.chunk, self.position + 8);
        read.map_err(StoreError::io(IoVerb::Read, self.name))?;
        self.before = chunk_crc(self.before, self.number, len, &self.chunk);
        if self.before.to_le_bytes() != crc {
            return Err(self.damage("the checksum of a chunk is wrong"));
        }
        self.returned = 0;
        self.number += 1;
        self.position += 8 + stored as u64;
        self.ended = len == 0;
        if self.ended {
            if self.chunk != self.content.to_le_bytes() || self.position != self.len {
                return Err(self.damage("the end of the snapshot is not as written"));
            }
            self.chunk.clear();
            return Ok(false);
        }
        self.content += stored as u64;
        Ok(true)
    }

    /// Reads and checks the file to its end.
    fn check(mut self) -> Result<(), StoreError> {
        while self.advance()? {}
        Ok(())
    }

    fn read_exact(&mut self, mut buffer: &mut [u8]) -> Result<(), StoreError> {
        while !buffer.is_empty() {
            let available = &self.chunk[self.returned..];
            if available.is_empty() {
                if !self.advance()? {
                    return Err(self.damage("the snapshot ends too early"));
                }
                continue;
            }
            let len = available.len().min(buffer.len());
            let (filled, rest) = buffer.split_at_mut(len);
            filled.copy_from_slice(&available[..len]);
            self.returned += len;
            buffer = rest;
        }
        Ok(())
    }

    /// Reads a length, and returns that many bytes after it.
    fn framed(&mut self) -> Result<Vec<u8>, StoreError> {
        let mut number = Vec::new();
        let len = loop {
            let mut byte = [0];
            self.read_exact(&mut byte)?;
            number.extend_from_slice(&byte);
            match Reader::new(&number).varint() {
                Ok(len) => break len,
                Err(_) if number.len() < VARINT_BYTES_MAX => {}
                Err(_) => return Err(self.damage("a length is not as written")),
            }
        };
        if len > self.len {
            return Err(self.damage("a length is not as written"));
        }
        let len = usize::try_from(len).map_err(|_| self.damage("a length is not as written"))?;
        let mut bytes = Vec::new();
        // Grow in steps: a wrong length must not allocate more memory than the file has bytes.
        while bytes.len() < len {
            let filled = bytes.len();
            bytes.resize(len.min(filled + CHUNK_BYTES), 0);
            self.read_exact(&mut bytes[filled..])?;
        }
        Ok(bytes)
    }

    /// Whether all content was read. Fails if the end of the file is invalid.
    fn is_at_end(&mut self) -> Result<bool, StoreError> {
        Ok(self.returned == self.chunk.len() && !self.advance()?)
    }
}

impl SnapshotSource for Chunks<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<(), SnapshotError> {
        self.read_exact(buffer)
            .map_err(|error| SnapshotError::Storage(Box::new(error)))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// A file that accepts no write.
    #[derive(Debug)]
    struct FullFile;

    fn full() -> io::Error {
        io::ErrorKind::StorageFull.into()
    }

    impl DiskFile for FullFile {
        fn read_exact_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
            Err(full())
        }

        fn write_all_at(&self, _: &mut [IoSlice<'_>], _: u64) -> io::Result<()> {
            Err(full())
        }

        fn sync_data(&self) -> io::Result<()> {
            Err(full())
        }

        fn len(&self) -> io::Result<u64> {
            Err(full())
        }

        fn set_len(&self, _: u64) -> io::Result<()> {
            Err(full())
        }

        fn allocate(&self, _: u64) -> io::Result<()> {
            Err(full())
        }
    }

    /// If the writer copied a whole section and split off one chunk at a time, its cost would be
    /// quadratic in the size of the section.
    #[test]
    fn the_buffer_of_a_writer_holds_at_most_one_chunk() {
        let section = vec![1; 100 * CHUNK_BYTES];
        let mut out = ChunkWriter::new(&FullFile, "a snapshot", 0);
        assert!(out.write(&section).is_err());
        assert!(out.buffer.capacity() <= 2 * CHUNK_BYTES);
    }
}
