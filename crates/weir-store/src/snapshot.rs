//! Snapshots: the machine and the list of topic segments after one log entry,
//! in one file (docs/formats/store.md, "Snapshot").
//!
//! A snapshot has a name only when all of it, and every segment it lists, is
//! durable. Nothing is loaded from one before all its checksums were checked.

use std::io::IoSlice;
use std::sync::Arc;

use crc_fast::{CrcAlgorithm, Digest};
use weir_core::codec::{Reader, put_varint};
use weir_core::{
    IntentionOffset, Machine, ProgramHost, SnapshotError, SnapshotSink, SnapshotSource, TopicId,
};

use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{IoVerb, StoreError};
use crate::log::LogIndex;
use crate::topic::files::Segment;
use crate::topic::writer::{SegmentEntry, SegmentList};

const MAGIC: &[u8; 8] = b"WEIRSNAP";
const FORMAT: u16 = 1;
const HEADER_BYTES: usize = 512;
const CHUNK_BYTES: usize = 64 << 10;
/// Directory of the snapshots.
pub(crate) const DIRECTORY: &str = "snapshots";

/// Path of the snapshot after a log entry.
pub(crate) fn path(index: LogIndex) -> String {
    format!("{DIRECTORY}/{:020}.snap", index.0)
}

/// Log indexes of the snapshots that are in place, newest first.
pub(crate) fn list(disk: &dyn Disk) -> Result<Vec<LogIndex>, StoreError> {
    let names = disk
        .list(DIRECTORY)
        .map_err(StoreError::io(IoVerb::List, DIRECTORY))?;
    let number = |name: &String| {
        let digits = name
            .strip_suffix(".snap")
            .filter(|digits| digits.len() == 20)?;
        let all = digits.bytes().all(|byte| byte.is_ascii_digit());
        all.then(|| digits.parse().ok().map(LogIndex))?
    };
    let mut indexes: Vec<LogIndex> = names.iter().filter_map(number).collect();
    indexes.sort_unstable_by(|a, b| b.cmp(a));
    Ok(indexes)
}

/// Everything a snapshot says.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) index: LogIndex,
    pub(crate) term: u64,
    pub(crate) machine: Machine,
    pub(crate) topics: Vec<(TopicId, SegmentList)>,
}

/// A snapshot that is not written yet, with what must be synced before it.
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
        // The names of both directories, before a snapshot can be seen that
        // relies on them.
        disk.create_dir(DIRECTORY)
            .map_err(StoreError::io(IoVerb::Open, DIRECTORY))?;
        sync_dir("")?;
        // Not before: when a step fails, the next checkpoint has to do it all.
        for (segment, written) in durable {
            segment.settle(written);
        }
        self.snapshot.write(disk, store_id)?;
        sync_dir(DIRECTORY)
    }
}

impl Snapshot {
    /// Writes and names the file; the name is not durable yet.
    fn write(&self, disk: &dyn Disk, store_id: [u8; 16]) -> Result<(), StoreError> {
        let name = path(self.index);
        let new = format!("{name}.new");
        if disk.open(&new, OpenMode::Read).is_ok() {
            disk.remove(&new)
                .map_err(StoreError::io(IoVerb::Remove, &new))?;
        }
        let written = self.write_content(disk, store_id, &new);
        if written.is_err() {
            // It would only hold space that may be what is missing.
            drop(disk.remove(&new));
        }
        written?;
        disk.rename(&new, &name)
            .map_err(StoreError::io(IoVerb::Rename, &name))
    }

    fn write_content(
        &self,
        disk: &dyn Disk,
        store_id: [u8; 16],
        path: &str,
    ) -> Result<(), StoreError> {
        let file = disk
            .open(path, OpenMode::CreateNew)
            .map_err(StoreError::io(IoVerb::Open, path))?;
        let header = self.header(store_id);
        let written = file.write_all_at(&mut [IoSlice::new(&header)], 0);
        written.map_err(StoreError::io(IoVerb::Write, path))?;
        let mut out = ChunkWriter::new(&*file, path, own_crc(&header));
        out.write(&self.list_bytes()).map_err(storage)?;
        self.machine.save(&mut out).map_err(storage)?;
        out.finish()?;
        file.sync_data().map_err(StoreError::io(IoVerb::Sync, path))
    }

    fn header(&self, store_id: [u8; 16]) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&FORMAT.to_le_bytes());
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
            let removed = (list.removed > 0).then_some(SegmentEntry {
                number: 0,
                bytes: 0,
                first: 1,
                last: list.removed,
                chain: 0,
            });
            put_varint(
                &mut out,
                (list.segments.len() + usize::from(removed.is_some())) as u64,
            );
            for entry in removed.iter().chain(&list.segments) {
                put_varint(&mut out, u64::from(entry.number));
                for n in [entry.bytes, entry.first, entry.last - entry.first] {
                    put_varint(&mut out, n);
                }
                out.extend_from_slice(&entry.chain.to_le_bytes());
            }
        }
        // The list has its own length in front, so that it can be read apart.
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
        let file = disk
            .open(&name, OpenMode::Read)
            .map_err(StoreError::io(IoVerb::Open, &name))?;
        let mut header = [0; HEADER_BYTES];
        let len = file.len().map_err(StoreError::io(IoVerb::Read, &name))?;
        if len < HEADER_BYTES as u64 {
            return Err(damage(len, "header of a snapshot"));
        }
        file.read_exact_at(&mut header, 0)
            .map_err(StoreError::io(IoVerb::Read, &name))?;
        let (body, crc) = header.split_at(HEADER_BYTES - 4);
        if crc != crc_fast::crc32_iscsi(body).to_le_bytes() || !body.starts_with(MAGIC) {
            return Err(damage(0, "header of a snapshot"));
        }
        let word = |at: usize| {
            let bytes = body.get(at..at + 8).and_then(|b| b.first_chunk::<8>());
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let format = u16::from_le_bytes([header[8], header[9]]);
        let reserved = body
            .get(10..16)
            .into_iter()
            .chain(body.get(56..))
            .flatten()
            .any(|b| *b != 0);
        if format != FORMAT || reserved {
            let file = name.clone();
            return Err(StoreError::NewerFormat {
                file,
                found: format,
                supported: FORMAT,
            });
        }
        if body.get(16..32) != Some(&store_id[..]) {
            return Err(StoreError::ForeignStore { file: name.clone() });
        }
        if word(32) != index.0 {
            return Err(damage(32, "log index of a snapshot"));
        }
        let content = read_chunks(&*file, &name, len, own_crc(&header))?;
        let mut source = Reader::new(&content);
        let list = source
            .bytes()
            .map_err(|_| damage(512, "list of topic segments"))?;
        let topics = read_list(list).ok_or_else(|| damage(512, "list of topic segments"))?;
        let mut rest = source.rest();
        let machine = load(&mut rest, seed, host.cloned()).map_err(|error| match error {
            SnapshotError::Version { found, known } => StoreError::NewerFormat {
                file: name.clone(),
                found,
                supported: known,
            },
            SnapshotError::ProgramNeeded => StoreError::ProgramsOff,
            SnapshotError::Program(why) => StoreError::ProgramUnable { why },
            _ => damage(512, "machine state"),
        })?;
        if !rest.is_empty() || machine.applied() != IntentionOffset(word(48)) {
            return Err(damage(48, "machine state"));
        }
        Ok(Self {
            index,
            term: word(40),
            machine,
            topics,
        })
    }
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
        let (mut removed, mut segments) = (0, Vec::new());
        for _ in 0..r.varint().ok()? {
            let number = u32::try_from(r.varint().ok()?)
                .ok()
                .filter(|number| *number < next)?;
            let (bytes, first) = (r.varint().ok()?, r.varint().ok()?);
            let last = first.checked_add(r.varint().ok()?)?;
            let chain = u32::from_le_bytes(r.array().ok()?);
            if number == 0 {
                // No segment: what retention has removed.
                let fits =
                    segments.is_empty() && removed == 0 && (bytes, first, chain) == (0, 1, 0);
                removed = fits.then_some(last)?;
                continue;
            }
            segments.push(SegmentEntry {
                number,
                bytes,
                first,
                last,
                chain,
            });
        }
        let list = SegmentList {
            next,
            removed,
            segments,
        };
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

fn own_crc(header: &[u8; HEADER_BYTES]) -> u32 {
    header
        .last_chunk::<4>()
        .map_or(0, |crc| u32::from_le_bytes(*crc))
}

/// CRC of a chunk: the checksum of the chunk before it (of the header for the
/// first), its number, its length and its content. So a chunk of another
/// snapshot never fits.
fn chunk_crc(before: u32, number: u64, len: u32, content: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&before.to_le_bytes());
    digest.update(&number.to_le_bytes());
    digest.update(&len.to_le_bytes());
    digest.update(content);
    u32::try_from(digest.finalize()).unwrap_or(u32::MAX)
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
            self.chunk(u32::try_from(rest.len()).unwrap_or(u32::MAX), &rest)?;
        }
        let total = self.content;
        self.chunk(0, &total.to_le_bytes())
    }
}

impl SnapshotSink for ChunkWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.buffer.extend_from_slice(bytes);
        while self.buffer.len() >= CHUNK_BYTES {
            let rest = self.buffer.split_off(CHUNK_BYTES);
            let chunk = std::mem::replace(&mut self.buffer, rest);
            let len = u32::try_from(CHUNK_BYTES).unwrap_or(u32::MAX);
            self.chunk(len, &chunk)
                .map_err(|error| SnapshotError::Storage(Box::new(error)))?;
        }
        Ok(())
    }
}

/// The joined content of all chunks, every checksum checked.
fn read_chunks(
    file: &dyn DiskFile,
    name: &str,
    len: u64,
    mut before: u32,
) -> Result<Vec<u8>, StoreError> {
    let damage = |position: usize, what| StoreError::damage(name, position as u64, what, 0);
    let size = usize::try_from(len).map_err(|_| damage(0, "a snapshot that fits memory"))?;
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(size).is_err() {
        return Err(damage(0, "a snapshot that fits memory"));
    }
    bytes.resize(size, 0);
    file.read_exact_at(&mut bytes, 0)
        .map_err(StoreError::io(IoVerb::Read, name))?;
    let mut content = Vec::with_capacity(size);
    let mut at = HEADER_BYTES;
    for number in 0.. {
        let head = bytes
            .get(at..at + 8)
            .and_then(|head| head.first_chunk::<8>());
        let [l0, l1, l2, l3, crc @ ..] = head.ok_or_else(|| damage(at, "a chunk"))?;
        let chunk_len = u32::from_le_bytes([*l0, *l1, *l2, *l3]);
        let stored = if chunk_len == 0 {
            8
        } else {
            chunk_len as usize
        };
        let chunk = bytes
            .get(at + 8..at + 8 + stored)
            .ok_or_else(|| damage(at, "a chunk"))?;
        before = chunk_crc(before, number, chunk_len, chunk);
        if stored > CHUNK_BYTES || before.to_le_bytes() != *crc {
            return Err(damage(at, "checksum of a chunk"));
        }
        at += 8 + stored;
        if chunk_len == 0 {
            if chunk != (content.len() as u64).to_le_bytes() || at != size {
                return Err(damage(at, "end of a snapshot"));
            }
            return Ok(content);
        }
        content.extend_from_slice(chunk);
    }
    Err(damage(at, "end of a snapshot"))
}
