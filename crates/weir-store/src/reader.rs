//! Readers of a topic, which return pages of records from an offset.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use weir_core::{ConsequenceOffset, Record};

use crate::engine::Engine;
use crate::error::StoreError;
use crate::topic::block::BlockCursor;
use crate::topic::files::{LoadedBlock, TopicFiles};
use crate::topic::signal::{Registration, Signal};

pub(crate) mod wire;

/// Reads the records of one topic from any offset, in ascending order, each once. A reader holds no
/// lock between two calls. A page uses the memory of one block until it is dropped.
#[derive(Clone, Debug)]
pub struct TopicReader {
    source: Source,
    next: u64,
    /// Whether the reader skips removed records, see [`or_earliest`](Self::or_earliest).
    skip_removed: bool,
}

#[derive(Clone)]
enum Source {
    Topic(Arc<TopicFiles>),
    /// The name of a topic that did not exist at the last lookup.
    Name(Arc<Engine>, Box<str>),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic(files) => write!(f, "topic {}", files.id.0),
            Self::Name(_, name) => write!(f, "{name}, which does not exist yet"),
        }
    }
}

impl Source {
    fn files(&self) -> Option<Arc<TopicFiles>> {
        match self {
            Self::Topic(files) => Some(Arc::clone(files)),
            Self::Name(engine, name) => engine.files_by_name(name),
        }
    }
}

/// Consecutive records of one block. The bytes stay valid until the page is dropped, also if
/// the topic is compacted or destroyed.
#[derive(Clone, Debug)]
pub struct Page {
    block: LoadedBlock,
    from: u64,
    file: String,
}

/// The records of a page.
#[derive(Debug)]
pub struct Records<'a> {
    page: &'a Page,
    cursor: BlockCursor,
}

impl TopicReader {
    pub(crate) fn new(files: Arc<TopicFiles>, after: ConsequenceOffset) -> Self {
        Self {
            source: Source::Topic(files),
            next: after.0.saturating_add(1),
            skip_removed: false,
        }
    }

    pub(crate) fn for_future_topic(
        engine: Arc<Engine>,
        name: &str,
        after: ConsequenceOffset,
    ) -> Self {
        Self {
            source: Source::Name(engine, name.into()),
            next: after.0.saturating_add(1),
            skip_removed: false,
        }
    }

    /// Makes the reader continue at the earliest remaining record if retention has removed the next
    /// records. Without this option, such a read fails with `RecordsGone`, unless the reader is at
    /// the start of the topic.
    #[must_use]
    pub fn or_earliest(mut self) -> Self {
        self.skip_removed = true;
        self
    }

    /// Returns the offset from which the next page has records. Fails with `RecordsGone` if the next
    /// record was removed and the reader must not skip it.
    fn start(&self, files: &TopicFiles) -> Result<u64, StoreError> {
        let first = files.trimmed().saturating_add(1);
        if self.skip_removed || self.next <= 1 || self.next >= first {
            return Ok(self.next.max(first));
        }
        Err(StoreError::RecordsGone {
            first,
            last: files.last().0,
        })
    }

    /// Moves to `n` offsets before the end, or to the first remaining record if that is later.
    pub fn seek_last(&mut self, n: u64) {
        let files = self.source.files();
        let (last, trimmed) = files.map_or((0, 0), |files| (files.last().0, files.trimmed()));
        let after = last.saturating_sub(n);
        self.next = if after < trimmed {
            1
        } else {
            after.saturating_add(1)
        };
    }

    /// Returns the files of the topic; `None` until the topic is created.
    fn files(&mut self) -> Option<Arc<TopicFiles>> {
        let files = self.source.files()?;
        if matches!(self.source, Source::Name(..)) {
            self.source = Source::Topic(Arc::clone(&files));
        }
        Some(files)
    }

    /// Returns the offset of the next record. If no record has this offset, the next page starts at
    /// the first record after it.
    #[must_use]
    pub fn position(&self) -> ConsequenceOffset {
        ConsequenceOffset(self.next)
    }

    /// Moves to the first record after `after`.
    pub fn seek(&mut self, after: ConsequenceOffset) {
        self.next = after.0.saturating_add(1);
    }

    /// Returns the offset of the newest record; zero if the topic has none.
    #[must_use]
    pub fn last(&self) -> ConsequenceOffset {
        self.source
            .files()
            .map_or(ConsequenceOffset::ZERO, |files| files.last())
    }

    /// Returns the offset of the oldest remaining record; zero if there is none.
    #[must_use]
    pub fn first(&self) -> ConsequenceOffset {
        self.source
            .files()
            .map_or(ConsequenceOffset::ZERO, |files| files.first())
    }

    /// Returns the bytes of memory that the next page needs: those of a block that must be read or
    /// copied, otherwise 0. Never blocks and reads no file, so that a caller can reserve the memory
    /// first. A compaction may replace the block before the page is read.
    #[must_use]
    pub fn next_page_bytes(&self) -> usize {
        match self.source.files() {
            Some(files) => files.block_bytes(self.next),
            None => 0,
        }
    }

    /// Returns the next page, or `None` at the end of the topic. Does not wait for new records.
    pub fn next_page(&mut self) -> Result<Option<Page>, StoreError> {
        let Some(files) = self.files() else {
            return Ok(None);
        };
        loop {
            let from = self.start(&files)?;
            let Some(block) = files.load_from(from)? else {
                return Ok(None);
            };
            // The next records may have been removed since the first check.
            if block.base.first <= from || self.start(&files)? == from {
                return Ok(Some(self.page(&files, block, from)));
            }
        }
    }

    /// Returns the next page if this needs no wait for a device. Returns `Pending` for a block that
    /// must be read from a device, for a long block, and for an error. The caller then calls
    /// [`next_page`](Self::next_page) on a thread that may block.
    pub fn try_next_page(&mut self) -> Poll<Option<Page>> {
        let files = match &self.source {
            Source::Topic(files) => Arc::clone(files),
            Source::Name(..) => return Poll::Pending,
        };
        let Ok(from) = self.start(&files) else {
            return Poll::Pending;
        };
        match files.try_load_from(from) {
            Poll::Ready(None) => Poll::Ready(None),
            // The next records may have been removed since the first check.
            Poll::Ready(Some(block))
                if block.base.first <= from
                    || self.start(&files).is_ok_and(|start| start == from) =>
            {
                Poll::Ready(Some(self.page(&files, block, from)))
            }
            _ => Poll::Pending,
        }
    }

    /// Returns the records of a loaded block from the offset `from` as a page, and moves the reader
    /// after the block.
    fn page(&mut self, files: &TopicFiles, block: LoadedBlock, from: u64) -> Page {
        let page = Page {
            from,
            file: crate::topic::files::directory(files.id),
            block,
        };
        self.next = page.block.last.saturating_add(1);
        page
    }

    /// Blocks until there is an unread record, or until `deadline`; `None` is no deadline. Returns
    /// whether there is an unread record.
    #[must_use]
    pub fn wait(&self, deadline: Option<Instant>) -> bool {
        if let Source::Name(engine, _) = &self.source
            && !engine
                .topic_created
                .wait(|| self.source.files().is_some(), deadline)
        {
            return false;
        }
        let files = self.source.files();
        files.is_some_and(|files| files.wait_past(self.next - 1, deadline))
    }

    /// Returns a future that is true once there is an unread record, and false once the store is
    /// closed. It works with any runtime and may be dropped at any time.
    #[must_use]
    pub fn changed(&self) -> Changed {
        Changed {
            source: self.source.clone(),
            after: self.next - 1,
            registration: None,
        }
    }

    /// Moves to the first record that was stamped at `time_ms` or later.
    pub fn seek_time(&mut self, time_ms: u64) -> Result<(), StoreError> {
        let Some(files) = self.files() else {
            return Ok(());
        };
        let from = {
            let contents = files.contents.read();
            let after = contents
                .blocks
                .partition_point(|block| block.base.time_ms < time_ms);
            let block = after.checked_sub(1).and_then(|at| contents.blocks.get(at));
            block.map_or(0, |block| contents.start(block.base.first))
        };
        self.next = from.max(1);
        loop {
            let mut reader = self.clone().or_earliest();
            let Some(page) = reader.next_page()? else {
                return Ok(());
            };
            for record in &page {
                let record = record?;
                if record.time_ms >= time_ms {
                    self.next = record.offset.0;
                    return Ok(());
                }
            }
            self.next = reader.next;
        }
    }
}

/// A future that waits for an unread record; see [`TopicReader::changed`].
#[derive(Debug)]
pub struct Changed {
    source: Source,
    after: u64,
    /// The signal at which the waker is registered, and the number of the registration.
    registration: Option<(WaitSource, u64)>,
}

#[derive(Clone)]
enum WaitSource {
    TopicCreated(Arc<Engine>),
    Topic(Arc<TopicFiles>),
}

impl fmt::Debug for WaitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TopicCreated(_) => "topic created",
            Self::Topic(_) => "topic",
        })
    }
}

impl WaitSource {
    fn signal(&self) -> &Signal {
        match self {
            Self::TopicCreated(engine) => &engine.topic_created,
            Self::Topic(files) => files.signal(),
        }
    }
}

impl Changed {
    fn unregister(&mut self) {
        if let Some((source, id)) = self.registration.take() {
            source.signal().cancel(id);
        }
    }
}

impl Future for Changed {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        self.unregister();
        if let Source::Name(engine, _) = &self.source {
            let engine = Arc::clone(engine);
            let found = || self.source.files().is_some();
            match engine.topic_created.watch(found, context.waker()) {
                Registration::Found => {}
                Registration::Closed => return Poll::Ready(false),
                Registration::Registered(id) => {
                    self.registration = Some((WaitSource::TopicCreated(engine), id));
                    return Poll::Pending;
                }
            }
        }
        let Some(files) = self.source.files() else {
            return Poll::Ready(false);
        };
        match files.watch_past(self.after, context.waker()) {
            Registration::Found => Poll::Ready(true),
            Registration::Closed => Poll::Ready(false),
            Registration::Registered(id) => {
                self.registration = Some((WaitSource::Topic(files), id));
                Poll::Pending
            }
        }
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        self.unregister();
    }
}

impl Page {
    /// Returns the part of the page that starts at `offset`.
    #[must_use]
    pub fn starting(&self, offset: ConsequenceOffset) -> Self {
        Self {
            from: offset.0.max(self.from),
            ..self.clone()
        }
    }

    /// Returns the records, in order.
    #[must_use]
    pub fn iter(&self) -> Records<'_> {
        Records {
            page: self,
            cursor: BlockCursor::new(&self.block.base, self.block.records),
        }
    }

    /// Returns the bytes that contain the keys, values and metadata of the records. The bytes are
    /// shared, not copied.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.block.bytes.clone()
    }

    /// Returns the offset of the last record.
    #[must_use]
    pub fn last(&self) -> ConsequenceOffset {
        ConsequenceOffset(self.block.last)
    }

    /// Returns the number of records in the block of the page. The page may skip some of them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.block.records as usize
    }

    /// Whether the page has no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.block.records == 0
    }
}

impl<'a> IntoIterator for &'a Page {
    type Item = Result<Record<'a>, StoreError>;
    type IntoIter = Records<'a>;

    fn into_iter(self) -> Records<'a> {
        self.iter()
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, StoreError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.cursor.next(&self.page.block.bytes)? {
                Ok(record) if record.offset.0 < self.page.from => {}
                Ok(record) => return Some(Ok(record)),
                Err(what) => {
                    return Some(Err(StoreError::damage(&self.page.file, 0, what, 0)));
                }
            }
        }
    }
}
