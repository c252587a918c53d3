//! Reads the records of a topic, local or at a server.

use std::task::Poll;
use std::time::Instant;

use weir_core::{ConsequenceOffset, IntentionOffset};
use weir_protocol::After;
use weir_store::{Page, ReadFrom, StoreError};

use crate::blocking_pool;
use crate::error::WeirError;
use crate::remote::listener::{Listener, Next};
use crate::remote::pushdown::{Fault, PushdownRequest};
use crate::reply::block_on;

/// Reads the records of one topic in ascending order of offsets, each once, from any offset. A
/// reader of a local store keeps one page in memory. A reader of a server also keeps the pages that
/// it received and has not returned yet.
#[derive(Clone, Debug)]
pub struct TopicReader {
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Local(weir_store::TopicReader),
    Remote(Box<Listener>),
}

impl TopicReader {
    pub(crate) fn local(reader: weir_store::TopicReader) -> Self {
        Self {
            source: Source::Local(reader),
        }
    }

    pub(crate) fn remote(listener: Listener) -> Self {
        Self {
            source: Source::Remote(Box::new(listener)),
        }
    }

    /// The next page starts at this offset, or at the first record after it.
    #[must_use]
    pub fn position(&self) -> ConsequenceOffset {
        match &self.source {
            Source::Local(reader) => reader.position(),
            Source::Remote(listener) => listener.position(),
        }
    }

    /// Moves the reader to the first record after `after`.
    pub fn seek(&mut self, after: ConsequenceOffset) {
        match &mut self.source {
            Source::Local(reader) => reader.seek(after),
            Source::Remote(listener) => listener.seek(after),
        }
    }

    /// Offset of the newest record that can be read. Zero if a server does not respond.
    #[must_use]
    pub fn last(&self) -> ConsequenceOffset {
        match &self.source {
            Source::Local(reader) => reader.last(),
            Source::Remote(listener) => block_on(listener.last()).unwrap_or_default(),
        }
    }

    /// Returns the next records; `None` if there is none yet. Never waits for a new record.
    pub fn next_page(&mut self) -> Result<Option<Page>, StoreError> {
        match &mut self.source {
            Source::Local(reader) => reader.next_page(),
            Source::Remote(listener) => block_on(listener.next_page()),
        }
    }

    /// Returns the next records if there are any. Waits for a server until `deadline` at most.
    pub(crate) fn next_by(&mut self, deadline: Option<Instant>) -> Result<Next, StoreError> {
        match &mut self.source {
            Source::Local(reader) => Ok(reader.next_page()?.map_or(Next::End, Next::Page)),
            Source::Remote(listener) => block_on(listener.next_by(deadline)),
        }
    }

    /// Waits until `deadline` at most for a record that was not read yet. Returns whether there is
    /// one. An error of a server is returned with the next page.
    #[must_use]
    pub fn wait(&mut self, deadline: Option<Instant>) -> bool {
        match &mut self.source {
            Source::Local(reader) => reader.wait(deadline),
            Source::Remote(listener) => block_on(listener.wait(deadline)).unwrap_or(true),
        }
    }

    /// Returns the next records. Waits for one without a limit. Only one task may poll it at a
    /// time. Dropping the future loses no record.
    ///
    /// # Errors
    /// As for [`next_page`](Self::next_page); `Closed` when the store is closed.
    pub async fn next(&mut self) -> Result<Page, StoreError> {
        let reader = match &mut self.source {
            Source::Local(reader) => reader,
            Source::Remote(listener) => loop {
                if let Some(page) = listener.next_or_wait().await? {
                    return Ok(page);
                }
            },
        };
        loop {
            match reader.try_next_page() {
                Poll::Ready(Some(page)) => return Ok(page),
                Poll::Ready(None) => {}
                Poll::Pending => {
                    let mut owned = reader.clone();
                    let read = blocking_pool::run(move || (owned.next_page(), owned));
                    let (page, owned) = read.await?;
                    *reader = owned;
                    if let Some(page) = page? {
                        return Ok(page);
                    }
                }
            }
            if !reader.changed().await {
                return Err(StoreError::Closed);
            }
        }
    }

    /// Moves a new reader to the start position.
    pub(crate) fn starting(mut self, from: ReadFrom) -> Result<Self, WeirError> {
        match from {
            ReadFrom::Start => {}
            ReadFrom::End => self.seek_back(0)?,
            ReadFrom::After(offset) => self.seek(offset),
            ReadFrom::Last(n) => self.seek_back(n)?,
            ReadFrom::Time(time_ms) => self.seek_time(time_ms)?,
        }
        Ok(self)
    }

    /// Asynchronous [`starting`](Self::starting): the response of a server wakes the task, and
    /// another thread reads the disk.
    pub(crate) async fn starting_async(mut self, from: ReadFrom) -> Result<Self, WeirError> {
        let listener = match &mut self.source {
            Source::Local(_) => return blocking_pool::run(move || self.starting(from)).await?,
            Source::Remote(listener) => listener,
        };
        match from {
            ReadFrom::Start => {}
            ReadFrom::After(offset) => listener.seek(offset),
            ReadFrom::End => listener.seek_to(After::Last(0)).await?,
            ReadFrom::Last(n) => listener.seek_to(After::Last(n)).await?,
            ReadFrom::Time(time_ms) => listener.seek_to(After::Time(time_ms)).await?,
        }
        Ok(self)
    }

    /// If retention has removed the next records, the reader continues at the earliest record that
    /// still exists.
    pub(crate) fn or_earliest(self) -> Self {
        let source = match self.source {
            Source::Local(reader) => Source::Local(reader.or_earliest()),
            Source::Remote(listener) => Source::Remote(Box::new(listener.or_earliest())),
        };
        Self { source }
    }

    /// Requests the records of a query from a server in advance.
    pub(crate) fn prepare(&mut self, pushdown: PushdownRequest) -> Result<(), StoreError> {
        match &mut self.source {
            Source::Local(_) => Ok(()),
            Source::Remote(listener) => listener.prepare(pushdown),
        }
    }

    /// The number of values that were not JSON and that the server skipped.
    pub(crate) fn skipped(&self) -> u64 {
        match &self.source {
            Source::Local(_) => 0,
            Source::Remote(listener) => listener.skipped(),
        }
    }

    /// The record at which the server's part of a query stopped.
    pub(crate) fn fault(&self) -> Option<Fault> {
        match &self.source {
            Source::Local(_) => None,
            Source::Remote(listener) => listener.fault(),
        }
    }

    /// The intention up to which everything was read, if nothing is left to read. `local` is the
    /// result for a local store.
    pub(crate) fn mark(&self, local: IntentionOffset) -> Option<IntentionOffset> {
        match &self.source {
            Source::Local(_) => Some(local),
            Source::Remote(listener) => listener.mark(),
        }
    }

    /// Moves the reader to the first record with a time stamp of `time_ms` or later.
    pub fn seek_time(&mut self, time_ms: u64) -> Result<(), StoreError> {
        match &mut self.source {
            Source::Local(reader) => reader.seek_time(time_ms),
            Source::Remote(listener) => block_on(listener.seek_to(After::Time(time_ms))),
        }
    }

    /// Moves the reader to `records` offsets before the end of the topic.
    pub(crate) fn seek_back(&mut self, records: u64) -> Result<(), StoreError> {
        match &mut self.source {
            Source::Local(reader) => {
                reader.seek_last(records);
                Ok(())
            }
            Source::Remote(listener) => block_on(listener.seek_to(After::Last(records))),
        }
    }
}
