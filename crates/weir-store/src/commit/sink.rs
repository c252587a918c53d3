//! The destination of the machine's records: the writers of all topics.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_core::exact::to_u32;
use weir_core::{ConsequenceOffset, ConsequenceSink, Record, TopicId, TopicName};

use super::discard::Discard;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::snapshot::{self, Snapshot};
use crate::topic::cache::FileCache;
use crate::topic::files::{Contents, Segment, TopicFiles};
use crate::topic::writer::{FLUSH_BYTES, TopicWriter};

/// Bytes of closed blocks of all topics in memory above which all of them are written.
const UNWRITTEN_BYTES_MAX: usize = 64 << 20;
/// Bytes of unwritten blocks above which a sink that cannot write accepts no more records.
const STUCK_BYTES_MAX: usize = 2 * UNWRITTEN_BYTES_MAX;

/// Writes the closed blocks of one topic.
fn flush(
    engine: &Engine,
    writer: &mut TopicWriter,
    unwritten_bytes: &mut usize,
) -> Result<(), StoreError> {
    *unwritten_bytes -= writer.unwritten_bytes();
    let flushed = writer.flush();
    if flushed.is_err() {
        engine.counters.derived_write_errors.add(1);
    }
    *unwritten_bytes += writer.unwritten_bytes();
    flushed
}

/// Writers that continue after the segments that a snapshot lists, by topic number.
pub(crate) fn attached(
    cache: &Arc<FileCache>,
    tag: [u8; 8],
    snapshot: &Snapshot,
) -> Result<Vec<TopicWriter>, StoreError> {
    let mut writers = Vec::new();
    for view in snapshot.machine.topics() {
        let files = Arc::new(TopicFiles::new(view.id, tag, Arc::clone(cache)));
        let mut writer = TopicWriter::new(files);
        writer.restore(view.last.0, view.trimmed.0);
        writers.push(writer);
    }
    for (id, list) in &snapshot.topics {
        let writer = writers.get_mut(id.index()).ok_or_else(|| {
            let file = snapshot::path(snapshot.index);
            StoreError::damage(
                &file,
                512,
                "the list of segments has a topic that the machine lacks",
                0,
            )
        })?;
        writer.attach(list)?;
    }
    Ok(writers)
}

/// All topic writers, by topic number.
pub(crate) struct Topics {
    engine: Arc<Engine>,
    cache: Arc<FileCache>,
    pub(crate) writers: Vec<TopicWriter>,
    touched: Vec<TopicId>,
    /// Topics with enough closed blocks to write.
    full: Vec<TopicId>,
    unwritten_bytes: usize,
    /// Bytes of all published blocks, whether they are in files or not.
    published_bytes: u64,
    discard: Discard,
    /// For each topic without a writer, the highest segment number on disk.
    skip: BTreeMap<TopicId, u32>,
    /// Segments that compaction or retention has taken out of their topics. Their files are removed
    /// after the next snapshot, which does not list them.
    pub(crate) retired: Vec<Arc<Segment>>,
}

impl Topics {
    pub(crate) fn new(engine: Arc<Engine>, cache: Arc<FileCache>) -> Self {
        Self {
            engine,
            cache,
            writers: Vec::new(),
            touched: Vec::new(),
            full: Vec::new(),
            unwritten_bytes: 0,
            published_bytes: 0,
            discard: Discard::default(),
            skip: BTreeMap::new(),
            retired: Vec::new(),
        }
    }

    /// Creates writers for all topics with a number up to `id`.
    pub(crate) fn grow(&mut self, id: TopicId) {
        while self.writers.len() <= id.index() {
            let number = to_u32(self.writers.len(), "there are at most 2^20 topics");
            let files = Arc::new(TopicFiles::new(
                TopicId(number),
                self.engine.identity.tag(),
                Arc::clone(&self.cache),
            ));
            self.engine.topics.write().push(Arc::clone(&files));
            let mut writer = TopicWriter::new(files);
            if let Some(skip) = self.skip.remove(&TopicId(number)) {
                writer.skip_segments(skip);
            }
            self.writers.push(writer);
        }
    }

    /// Replaces all topics by those of an installed snapshot. Readers of a topic continue in the
    /// new one at their offset.
    pub(crate) fn replace(&mut self, fresh: Vec<TopicWriter>) {
        let mut live = self.engine.topics.write();
        let mut before = std::mem::take(&mut self.writers).into_iter();
        for mut writer in fresh {
            if let Some(before) = before.next() {
                let contents = std::mem::take(&mut *writer.files.contents.write());
                *before.files.contents.write() = contents;
                writer.files = before.files;
            } else {
                live.push(Arc::clone(&writer.files));
            }
            self.writers.push(writer);
        }
        drop(live);
        // Topics that the new state lacks. Only a state that had diverged has such topics.
        for before in before {
            *before.files.contents.write() = Contents::default();
            self.writers.push(TopicWriter::new(before.files));
        }
        self.touched.clear();
        self.full.clear();
        self.unwritten_bytes = 0;
        self.skip.clear();
        // Files of the snapshot may have the paths of retired segments.
        self.retired.clear();
    }

    /// Wakes all callers that wait for a record.
    pub(crate) fn notify_all(&self) {
        for writer in &self.writers {
            writer.files.notify();
        }
    }

    /// Records that a segment file with this number exists. The topic may still be unknown, if its
    /// first records have not been replayed yet.
    pub(crate) fn skip_segments(&mut self, id: TopicId, number: u32) {
        if let Some(writer) = self.writers.get_mut(id.index()) {
            writer.skip_segments(number);
        } else {
            let skip = self.skip.entry(id).or_default();
            *skip = number.max(*skip);
        }
    }

    /// Returns the writer of a topic, whose changes the next publish makes visible.
    #[inline]
    fn touch(&mut self, id: TopicId) -> &mut TopicWriter {
        let Some(writer) = self.writers.get_mut(id.index()) else {
            unreachable!("every topic is created before its first record")
        };
        if !writer.touched {
            writer.touched = true;
            self.touched.push(id);
        }
        writer
    }

    /// Makes all applied records visible. Must be called before the machine is unlocked, so that no
    /// reader finds a key whose record is not visible.
    pub(crate) fn publish(&mut self) {
        for id in self.touched.drain(..) {
            let Some(writer) = self.writers.get_mut(id.index()) else {
                unreachable!("a touched topic has a writer")
            };
            writer.touched = false;
            let before = writer.unwritten_bytes();
            writer.publish();
            let added = writer.unwritten_bytes() - before;
            self.unwritten_bytes += added;
            self.published_bytes += added as u64;
            if writer.unwritten_bytes() >= FLUSH_BYTES {
                self.full.push(id);
            }
        }
    }

    /// Bytes of all closed blocks that were published, whether they are in files or not.
    pub(crate) fn published_bytes(&self) -> u64 {
        self.published_bytes
    }

    /// Writes the blocks of full topics, or of all topics if too many bytes are unwritten. A failed
    /// write is counted and retried later; the log has the records. Returns the last failure.
    pub(crate) fn write_out(&mut self) -> Option<StoreError> {
        let all = self.unwritten_bytes > UNWRITTEN_BYTES_MAX;
        let full = std::mem::take(&mut self.full);
        let mut failure = None;
        for id in &full {
            if let Some(writer) = self.writers.get_mut(id.index()) {
                let flushed = flush(&self.engine, writer, &mut self.unwritten_bytes);
                failure = flushed.err().or(failure);
            }
        }
        self.full = full;
        self.full.clear();
        if all {
            for writer in &mut self.writers {
                let flushed = flush(&self.engine, writer, &mut self.unwritten_bytes);
                failure = flushed.err().or(failure);
            }
        }
        failure
    }

    /// Retries the writes. If there are still too many unwritten bytes to accept more, returns their
    /// number and the last failure.
    pub(crate) fn stuck(&mut self) -> Option<(u64, Option<StoreError>)> {
        if self.unwritten_bytes <= STUCK_BYTES_MAX {
            return None;
        }
        let failure = self.write_out();
        (self.unwritten_bytes > STUCK_BYTES_MAX).then_some((self.unwritten_bytes as u64, failure))
    }

    /// Closes, publishes and writes the open blocks of all topics.
    pub(crate) fn flush_all(&mut self) -> Result<(), StoreError> {
        for number in 0..self.writers.len() {
            let id = TopicId(to_u32(number, "there are at most 2^20 topics"));
            self.flush_topic(id)?;
        }
        Ok(())
    }

    /// Like `flush_all`, for one topic. The counters include success and failure.
    pub(crate) fn flush_topic(&mut self, id: TopicId) -> Result<(), StoreError> {
        let Some(writer) = self.writers.get_mut(id.index()) else {
            return Ok(());
        };
        self.unwritten_bytes -= writer.unwritten_bytes();
        let flushed = writer.flush_all();
        self.unwritten_bytes += writer.unwritten_bytes();
        flushed
    }
}

impl ConsequenceSink for Topics {
    fn topic(&mut self, id: TopicId, _name: &TopicName) {
        self.grow(id);
    }

    #[inline]
    fn record(&mut self, id: TopicId, record: &Record<'_>) {
        self.touch(id).push(record);
    }

    fn trimmed(&mut self, id: TopicId, through: ConsequenceOffset) {
        self.touch(id).trimmed = through.0;
    }

    fn discard(&mut self, state: Box<dyn Send + Sync>) {
        self.discard.add(state);
    }
}
