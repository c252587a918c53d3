//! The segments and blocks of one topic, which one writer and any number of readers share.

use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use weir_core::{ConsequenceOffset, TopicId};

use super::block::{BLOCK_BYTES, BlockLocation, DeltaBase, HEADER_BYTES, Header};
use super::cache::FileCache;
use super::signal::{Registration, Signal};
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{IoVerb, StoreError};

/// Maximum bytes of a block for a read that must not block. A copy of a larger block takes long
/// even from memory.
const NONBLOCKING_BYTES_MAX: usize = 256 << 10;

/// A segment file.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) number: u32,
    pub(crate) path: String,
    pub(crate) cache: Arc<FileCache>,
    /// Number of written bytes; `synced` is the number of bytes that are known to be durable.
    pub(crate) written: AtomicU64,
    pub(crate) synced: AtomicU64,
}

impl Segment {
    pub(crate) fn new(number: u32, path: String, cache: Arc<FileCache>, durable: u64) -> Self {
        let (written, synced) = (AtomicU64::new(durable), AtomicU64::new(durable));
        Self {
            number,
            path,
            cache,
            written,
            synced,
        }
    }

    pub(crate) fn file(&self) -> Result<Arc<dyn DiskFile>, StoreError> {
        self.cache
            .get(&self.path)
            .map_err(StoreError::io(IoVerb::Open, &self.path))
    }

    /// Whether some written bytes are not known to be durable.
    pub(crate) fn is_dirty(&self) -> bool {
        self.synced.load(Ordering::Acquire) < self.written.load(Ordering::Acquire)
    }

    /// Makes all bytes written so far durable, but not the name of the file. Returns the number of
    /// these bytes, for [`mark_durable`](Self::mark_durable).
    pub(crate) fn sync(&self) -> Result<u64, StoreError> {
        let written = self.written.load(Ordering::Acquire);
        let synced = self.file()?.sync_data();
        synced.map_err(StoreError::io(IoVerb::Sync, &self.path))?;
        Ok(written)
    }

    /// Counts the first `written` bytes as durable. The directory must be synced too.
    pub(crate) fn mark_durable(&self, written: u64) {
        self.synced.fetch_max(written, Ordering::AcqRel);
    }
}

/// A closed block: its location, or its bytes until they are written to a file.
#[derive(Clone, Debug)]
pub(crate) struct BlockRef {
    pub(crate) base: DeltaBase,
    pub(crate) last: u64,
    pub(crate) records: u32,
    pub(crate) bytes: u32,
    pub(crate) storage: BlockStorage,
    /// Checksum of the header in the file; 0 in memory.
    pub(crate) header_crc: u32,
}

/// The location of the records of a closed block.
#[derive(Clone, Debug)]
pub(crate) enum BlockStorage {
    /// In memory, not written yet.
    Memory(Bytes),
    /// In a segment, with the header at this position.
    File(Arc<Segment>, u64),
}

/// The part of a topic that is visible to readers.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) blocks: Vec<BlockRef>,
    /// The bytes of the records after the last closed block.
    pub(crate) open: Vec<u8>,
    pub(crate) open_base: DeltaBase,
    pub(crate) open_records: u32,
    /// Offset of the newest published record; 0 if there is none.
    pub(crate) last: u64,
    /// Offset of the newest record that retention has removed; 0 for none. Blocks may still have
    /// records up to this offset, which no reader may see.
    pub(crate) trimmed: u64,
}

impl Contents {
    /// Returns the offset of the newest record that can be read; 0 if there is none. It is less
    /// than `last` if a compaction removed the newest records.
    fn readable(&self) -> u64 {
        let newest = if self.open_records > 0 {
            self.last
        } else {
            self.blocks.last().map_or(0, |block| block.last)
        };
        if newest > self.trimmed { newest } else { 0 }
    }

    /// Returns the first offset at or after `from` that retention has not removed.
    pub(crate) fn start(&self, from: u64) -> u64 {
        from.max(self.trimmed.saturating_add(1))
    }
}

/// The result of a lookup of a block.
enum BlockLookup {
    Closed(BlockRef),
    Open(LoadedBlock),
    Nothing,
}

impl Contents {
    /// Returns the block with the first record at or after `from`.
    fn find(&self, from: u64) -> BlockLookup {
        let at = self.blocks.partition_point(|block| block.last < from);
        match self.blocks.get(at) {
            Some(block) => BlockLookup::Closed(block.clone()),
            None if self.open_records > 0 && self.last >= from => BlockLookup::Open(LoadedBlock {
                base: self.open_base,
                last: self.last,
                records: self.open_records,
                bytes: Bytes::copy_from_slice(&self.open),
            }),
            None => BlockLookup::Nothing,
        }
    }
}

/// The records of one topic.
#[derive(Debug)]
pub(crate) struct TopicFiles {
    pub(crate) id: TopicId,
    pub(crate) store_tag: [u8; 8],
    pub(crate) cache: Arc<FileCache>,
    pub(crate) contents: RwLock<Contents>,
    signal: Signal,
}

/// The records of a block in memory, ready to read.
#[derive(Clone, Debug)]
pub(crate) struct LoadedBlock {
    pub(crate) base: DeltaBase,
    pub(crate) last: u64,
    pub(crate) records: u32,
    pub(crate) bytes: Bytes,
}

/// The rebuild mark. If this file exists and the log is complete, the next open derives all topics
/// from the log and ignores snapshots.
pub(crate) const REBUILD_MARK: &str = "rebuild";

/// Creates the rebuild mark. If this fails (for example on a full disk), the damage remains and is
/// reported again.
fn mark_for_rebuild(disk: &dyn Disk) {
    if disk.open(REBUILD_MARK, OpenMode::CreateNew).is_ok() {
        drop(disk.sync_dir(""));
    }
}

/// Returns the directory of the segments of a topic.
pub(crate) fn directory(id: TopicId) -> String {
    format!("topics/{:08x}", id.0)
}

/// Returns the path of a segment.
pub(crate) fn path(id: TopicId, number: u32) -> String {
    format!("{}/{number:010}.seg", directory(id))
}

/// Returns the topic of a directory name; `None` for a name that the store does not use.
pub(crate) fn parse_directory(name: &str) -> Option<TopicId> {
    let id = u32::from_str_radix(name, 16).ok().map(TopicId)?;
    directory(id)
        .strip_prefix("topics/")
        .is_some_and(|rendered| rendered == name)
        .then_some(id)
}

/// Returns the number in the file name of a segment; `None` for a name that the store does not use.
pub(crate) fn parse_segment(name: &str) -> Option<u32> {
    let digits = name
        .strip_suffix(".seg")
        .filter(|digits| digits.len() == 10)?;
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse().ok())?
}

impl TopicFiles {
    pub(crate) fn new(id: TopicId, store_tag: [u8; 8], cache: Arc<FileCache>) -> Self {
        let contents = RwLock::new(Contents::default());
        Self {
            id,
            store_tag,
            cache,
            contents,
            signal: Signal::default(),
        }
    }

    /// Returns the offset of the newest published record.
    pub(crate) fn last(&self) -> ConsequenceOffset {
        ConsequenceOffset(self.contents.read().last)
    }

    /// Returns the offset of the newest record that retention has removed; 0 for none.
    pub(crate) fn trimmed(&self) -> u64 {
        self.contents.read().trimmed
    }

    /// Returns the offset of the oldest remaining record; zero if there is none.
    pub(crate) fn first(&self) -> ConsequenceOffset {
        let contents = self.contents.read();
        let first = contents.blocks.first().map(|block| block.base.first);
        let open = (contents.open_records > 0).then_some(contents.open_base.first);
        let first = first.or(open).filter(|_| contents.readable() > 0);
        ConsequenceOffset(first.map_or(0, |first| contents.start(first)))
    }

    /// Returns the bytes of the closed blocks with their headers, and of the open block.
    pub(crate) fn bytes(&self) -> u64 {
        let contents = self.contents.read();
        let block = |block: &BlockRef| u64::from(block.bytes) + HEADER_BYTES as u64;
        contents.blocks.iter().map(block).sum::<u64>() + contents.open.len() as u64
    }

    /// Wakes readers that wait for new records.
    pub(crate) fn notify(&self) {
        self.signal.notify();
    }

    /// Ends all present and later waits for records.
    pub(crate) fn close(&self) {
        self.signal.close();
    }

    /// Blocks until there is a record after `after`, until `deadline` (`None`: no deadline), or
    /// until the store is closed. Returns whether there is such a record.
    pub(crate) fn wait_past(&self, after: u64, deadline: Option<Instant>) -> bool {
        self.signal
            .wait(|| self.contents.read().readable() > after, deadline)
    }

    /// As `wait_past`, for a task. Calls `waker` when there may be a record after `after`.
    pub(crate) fn watch_past(&self, after: u64, waker: &Waker) -> Registration {
        self.signal
            .watch(|| self.contents.read().readable() > after, waker)
    }

    /// Returns the signal at which readers wait.
    pub(crate) fn signal(&self) -> &Signal {
        &self.signal
    }

    /// Returns the bytes of memory to load the block with the first record at or after `from`; 0 if
    /// there is none, or if a closed block is already in memory.
    pub(crate) fn block_bytes(&self, from: u64) -> usize {
        let contents = self.contents.read();
        let from = contents.start(from);
        let at = contents.blocks.partition_point(|block| block.last < from);
        match contents.blocks.get(at) {
            Some(block) if matches!(block.storage, BlockStorage::Memory(_)) => 0,
            Some(block) => HEADER_BYTES + block.bytes as usize,
            None if contents.open_records > 0 && contents.last >= from => contents.open.len(),
            None => 0,
        }
    }

    /// Returns the block with the first record at or after `from`; `None` if there is no such
    /// record yet.
    pub(crate) fn load_from(&self, from: u64) -> Result<Option<LoadedBlock>, StoreError> {
        loop {
            let found = match self.contents.read().find(from) {
                BlockLookup::Closed(block) => block,
                BlockLookup::Open(block) => return Ok(Some(block)),
                BlockLookup::Nothing => return Ok(None),
            };
            match self.load(&found) {
                Err(error) => {
                    self.cache.wait_installed();
                    if !self.is_replaced(&found) {
                        return Err(error);
                    }
                }
                loaded => return loaded.map(Some),
            }
        }
    }

    /// As `load_from`, but returns `Pending` for a long block, and if the read could block.
    pub(crate) fn try_load_from(&self, from: u64) -> Poll<Option<LoadedBlock>> {
        let contents = self.contents.read();
        if contents.open.len() > NONBLOCKING_BYTES_MAX {
            return Poll::Pending;
        }
        let found = contents.find(from);
        drop(contents);
        let block = match found {
            BlockLookup::Closed(block) => block,
            BlockLookup::Open(block) => return Poll::Ready(Some(block)),
            BlockLookup::Nothing => return Poll::Ready(None),
        };
        if block.bytes as usize > NONBLOCKING_BYTES_MAX {
            return Poll::Pending;
        }
        let read = |segment: &Segment, buffer: &mut [u8], position| {
            let open = segment.cache.get_open(&segment.path);
            Ok(open.is_some_and(|file| file.try_read_exact_at(buffer, position)))
        };
        // Not an error here: the blocking read finds the damage again and reports it.
        match self.load_checked(&block, read) {
            Ok(Some(loaded)) => Poll::Ready(Some(loaded)),
            Ok(None) | Err(_) => Poll::Pending,
        }
    }

    /// Whether the segment of this block is no longer part of the topic. Compaction, retention and
    /// installs replace or remove segments.
    pub(crate) fn is_replaced(&self, block: &BlockRef) -> bool {
        let BlockStorage::File(old, _) = &block.storage else {
            return false;
        };
        let contents = self.contents.read();
        !contents
            .blocks
            .iter()
            .any(|current| match &current.storage {
                BlockStorage::File(segment, _) => Arc::ptr_eq(segment, old),
                BlockStorage::Memory(_) => false,
            })
    }

    /// Loads the records of a closed block, and checks them if they come from disk. Damage creates
    /// the rebuild mark.
    pub(crate) fn load(&self, block: &BlockRef) -> Result<LoadedBlock, StoreError> {
        let loaded = self.check(block);
        if loaded.as_ref().is_err_and(StoreError::is_damage) && !self.is_replaced(block) {
            mark_for_rebuild(self.cache.disk());
        }
        loaded
    }

    /// Blocks until a running install has ended.
    pub(crate) fn wait_installed(&self) {
        self.cache.wait_installed();
    }

    /// As `load`, but damage does not create the rebuild mark.
    pub(crate) fn check(&self, block: &BlockRef) -> Result<LoadedBlock, StoreError> {
        let read = |segment: &Segment, buffer: &mut [u8], position| {
            let file = segment.file().map_err(|error| self.map_removed(error))?;
            let read = file.read_exact_at(buffer, position);
            read.map_err(StoreError::io(IoVerb::Read, &segment.path))?;
            Ok(true)
        };
        let loaded = self.load_checked(block, read)?;
        loaded.ok_or_else(|| StoreError::damage(&directory(self.id), 0, "a block is missing", 0))
    }

    /// Converts the error of a missing file in a read-only store to `ChangedWhileRead`: retention
    /// or a compaction of the writing process has removed the file.
    fn map_removed(&self, error: StoreError) -> StoreError {
        if self.cache.disk().is_read_only() && error.is_missing_file() {
            let cause = Box::new(error);
            return StoreError::ChangedWhileRead { attempts: 1, cause };
        }
        error
    }

    /// Loads and checks a block. `read` fills the buffer and returns true, or returns false if it
    /// cannot read now; the result is then `None`.
    fn load_checked(
        &self,
        block: &BlockRef,
        read: impl FnOnce(&Segment, &mut [u8], u64) -> Result<bool, StoreError>,
    ) -> Result<Option<LoadedBlock>, StoreError> {
        let loaded = |bytes: Bytes| LoadedBlock {
            base: block.base,
            last: block.last,
            records: block.records,
            bytes,
        };
        let (segment, position) = match &block.storage {
            BlockStorage::Memory(bytes) => return Ok(Some(loaded(bytes.clone()))),
            BlockStorage::File(segment, position) => (segment, *position),
        };
        let mut buffer = vec![0; HEADER_BYTES + block.bytes as usize];
        if !read(segment, &mut buffer, position)? {
            return Ok(None);
        }
        let damaged = |what| StoreError::damage(&segment.path, position, what, 0);
        let mut bytes = Bytes::from(buffer);
        let records = bytes.split_off(HEADER_BYTES);
        let header = bytes
            .first_chunk()
            .ok_or_else(|| damaged("a block header is incomplete"))?;
        let header = Header::read(header, &self.location(segment, position))
            .map_err(|bad| bad.error(&segment.path, position))?;
        if header.base != block.base || !header.covers(&records) {
            return Err(damaged("the checksum of a block is wrong"));
        }
        Ok(Some(loaded(records)))
    }

    pub(crate) fn location(&self, segment: &Segment, position: u64) -> BlockLocation {
        BlockLocation {
            store_tag: self.store_tag,
            topic: self.id,
            segment: segment.number,
            position,
        }
    }

    /// Reads the block headers in the first `bytes` bytes of a segment. Later bytes were written
    /// after the snapshot and are ignored.
    pub(crate) fn attach(&self, number: u32, bytes: u64) -> Result<Vec<BlockRef>, StoreError> {
        let path = path(self.id, number);
        let segment = Arc::new(Segment::new(number, path, Arc::clone(&self.cache), bytes));
        let path = &segment.path;
        let file = segment.file()?;
        let len = file.len().map_err(StoreError::io(IoVerb::Read, path))?;
        let damage = |position, what| StoreError::damage(path, position, what, 0);
        if len < bytes {
            return Err(damage(
                len,
                "a topic segment is shorter than in the snapshot",
            ));
        }
        let mut blocks = Vec::new();
        let mut position = 0;
        while position < bytes {
            let mut header = [0; HEADER_BYTES];
            if bytes - position < HEADER_BYTES as u64 {
                return Err(damage(position, "a block header is incomplete"));
            }
            let read = file.read_exact_at(&mut header, position);
            read.map_err(StoreError::io(IoVerb::Read, path))?;
            let header = Header::read(&header, &self.location(&segment, position))
                .map_err(|bad| bad.error(path, position))?;
            let end = position + HEADER_BYTES as u64 + u64::from(header.bytes);
            if end > bytes {
                return Err(damage(position, "a block ends after its segment"));
            }
            blocks.push(BlockRef {
                base: header.base,
                last: header.last,
                records: header.records,
                bytes: header.bytes,
                storage: BlockStorage::File(Arc::clone(&segment), position),
                header_crc: header.own_crc,
            });
            position = end;
        }
        Ok(blocks)
    }
}

const _: () = assert!(BLOCK_BYTES < u32::MAX as usize / 2);
