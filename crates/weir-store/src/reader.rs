//! Readers: pages of records from an offset on.

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

/// Reads the records of one topic in ascending offset, each once, from any
/// offset on. It needs nothing from the store between two calls, holds no
/// lock, and costs one block of memory while a page is alive.
#[derive(Clone, Debug)]
pub struct TopicReader {
    source: Source,
    next: u64,
    /// Whether it goes on at the first record that is left.
    skips: bool,
}

#[derive(Clone)]
enum Source {
    Topic(Arc<TopicFiles>),
    /// A name that was not created when it was last looked for.
    Name(Arc<Engine>, Box<str>),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic(files) => write!(f, "topic {}", files.id.0),
            Self::Name(_, name) => write!(f, "{name}, not there yet"),
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

/// A run of records that lie together. The bytes stay valid as long as the
/// page lives, whatever happens to the topic.
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
            skips: false,
        }
    }

    pub(crate) fn awaiting(engine: Arc<Engine>, name: &str, after: ConsequenceOffset) -> Self {
        Self {
            source: Source::Name(engine, name.into()),
            next: after.0.saturating_add(1),
            skips: false,
        }
    }

    /// Lets the reader continue at the earliest record that is left when retention has removed
    /// those that it would read next. Without this, such a read is an error unless the
    /// reader starts at the first record.
    #[must_use]
    pub fn or_earliest(mut self) -> Self {
        self.skips = true;
        self
    }

    /// Whether what it would read next was removed.
    fn gone(&self, files: &TopicFiles) -> Result<(), StoreError> {
        let removed = files.removed();
        if self.skips || self.next <= 1 || self.next > removed {
            return Ok(());
        }
        Err(StoreError::RecordsGone {
            first: removed.saturating_add(1),
            last: files.last().0,
        })
    }

    /// Continues so many offsets before the end, or at the first record that
    /// is left.
    pub fn seek_last(&mut self, n: u64) {
        let files = self.source.files();
        let (last, removed) = files.map_or((0, 0), |files| (files.last().0, files.removed()));
        let after = last.saturating_sub(n);
        self.next = if after < removed {
            1
        } else {
            after.saturating_add(1)
        };
    }

    /// The topic's records, once it is there.
    fn files(&mut self) -> Option<Arc<TopicFiles>> {
        let files = self.source.files()?;
        if matches!(self.source, Source::Name(..)) {
            self.source = Source::Topic(Arc::clone(&files));
        }
        Some(files)
    }

    /// Offset from which the next page starts, or the first one after it.
    #[must_use]
    pub fn position(&self) -> ConsequenceOffset {
        ConsequenceOffset(self.next)
    }

    /// Continues at the first record after `after`.
    pub fn seek(&mut self, after: ConsequenceOffset) {
        self.next = after.0.saturating_add(1);
    }

    /// Offset of the newest record that can be read.
    #[must_use]
    pub fn last(&self) -> ConsequenceOffset {
        self.source
            .files()
            .map_or(ConsequenceOffset::ZERO, |files| files.last())
    }

    /// Offset of the oldest record that is still there; zero for none.
    #[must_use]
    pub fn first(&self) -> ConsequenceOffset {
        self.source
            .files()
            .map_or(ConsequenceOffset::ZERO, |files| files.first())
    }

    /// Bytes of memory that the next page takes: those of a block that has to be read or copied;
    /// 0 without one. Reads nothing and never waits, so that a caller can reserve them first. A
    /// compaction may change the block until the page is read.
    #[must_use]
    pub fn next_page_bytes(&self) -> usize {
        match self.source.files() {
            Some(files) => files.block_bytes(self.next),
            None => 0,
        }
    }

    /// The next records, or `None` when there is none yet. Never waits.
    pub fn next_page(&mut self) -> Result<Option<Page>, StoreError> {
        let Some(files) = self.files() else {
            return Ok(None);
        };
        self.gone(&files)?;
        let Some(block) = files.load_from(self.next)? else {
            return Ok(None);
        };
        if block.base.first > self.next {
            // They may have been removed in between.
            self.gone(&files)?;
        }
        Ok(Some(self.page(&files, block)))
    }

    /// Returns the next page if no device has to be waited for. After `Pending`, the caller
    /// calls [`next_page`](Self::next_page) on a thread that may block: for a
    /// block that has to be read, for a long one, for an error.
    pub fn next_page_now(&mut self) -> Poll<Option<Page>> {
        let files = match &self.source {
            Source::Topic(files) => Arc::clone(files),
            Source::Name(..) => return Poll::Pending,
        };
        if self.gone(&files).is_err() {
            return Poll::Pending;
        }
        match files.load_from_now(self.next) {
            Poll::Ready(None) => Poll::Ready(None),
            // They may have been removed in between.
            Poll::Ready(Some(block))
                if block.base.first <= self.next || self.gone(&files).is_ok() =>
            {
                Poll::Ready(Some(self.page(&files, block)))
            }
            _ => Poll::Pending,
        }
    }

    /// A block that was read, as a page; the reader goes after it.
    fn page(&mut self, files: &TopicFiles, block: LoadedBlock) -> Page {
        let page = Page {
            from: self.next,
            file: crate::topic::files::directory(files.id),
            block,
        };
        self.next = page.block.last.saturating_add(1);
        page
    }

    /// Waits for a record that was not read yet, until `deadline` at most.
    /// Returns whether there is one.
    #[must_use]
    pub fn wait(&self, deadline: Option<Instant>) -> bool {
        if let Source::Name(engine, _) = &self.source
            && !engine
                .arrivals
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
            place: None,
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
            block.map_or(0, |block| block.base.first)
        };
        self.next = from.max(1);
        loop {
            let mut at = self.clone().or_earliest();
            let Some(page) = at.next_page()? else {
                return Ok(());
            };
            for record in &page {
                let record = record?;
                if record.time_ms >= time_ms {
                    self.next = record.offset.0;
                    return Ok(());
                }
            }
            self.next = at.next;
        }
    }
}

/// A record to come; see [`TopicReader::changed`].
#[derive(Debug)]
pub struct Changed {
    source: Source,
    after: u64,
    /// Where the waker is kept, and its number there.
    place: Option<(WaitSource, u64)>,
}

#[derive(Clone)]
enum WaitSource {
    Arrivals(Arc<Engine>),
    Topic(Arc<TopicFiles>),
}

impl fmt::Debug for WaitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Arrivals(_) => "arrivals",
            Self::Topic(_) => "topic",
        })
    }
}

impl WaitSource {
    fn signal(&self) -> &Signal {
        match self {
            Self::Arrivals(engine) => &engine.arrivals,
            Self::Topic(files) => files.signal(),
        }
    }
}

impl Changed {
    fn leave(&mut self) {
        if let Some((place, id)) = self.place.take() {
            place.signal().forget(id);
        }
    }
}

impl Future for Changed {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        self.leave();
        if let Source::Name(engine, _) = &self.source {
            let engine = Arc::clone(engine);
            let found = || self.source.files().is_some();
            match engine.arrivals.watch(found, context.waker()) {
                Registration::Found => {}
                Registration::Closed => return Poll::Ready(false),
                Registration::Waits(id) => {
                    self.place = Some((WaitSource::Arrivals(engine), id));
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
            Registration::Waits(id) => {
                self.place = Some((WaitSource::Topic(files), id));
                Poll::Pending
            }
        }
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Page {
    /// Returns the part of the page from this record on.
    #[must_use]
    pub fn starting(&self, offset: ConsequenceOffset) -> Self {
        Self {
            from: offset.0.max(self.from),
            ..self.clone()
        }
    }

    /// The records, in order.
    #[must_use]
    pub fn iter(&self) -> Records<'_> {
        Records {
            page: self,
            cursor: BlockCursor::new(&self.block.base, self.block.records),
        }
    }

    /// The bytes that the keys, values and metadata of its records lie in: to be
    /// handed on without a copy.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.block.bytes.clone()
    }

    /// Offset of the last record.
    #[must_use]
    pub fn last(&self) -> ConsequenceOffset {
        ConsequenceOffset(self.block.last)
    }

    /// Number of records at most.
    #[must_use]
    pub fn len(&self) -> usize {
        self.block.records as usize
    }

    /// Whether there is no record.
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
