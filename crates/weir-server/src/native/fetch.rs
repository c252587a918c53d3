//! Work of listeners that may block: pages that are not in memory, and values of keys.
//!
//! A connection fetches one page at a time, on a thread that may block. A page that was not used is
//! fetched again, so the connection holds at most one extra page. Abandoned work ends at the next
//! record; until then the connection fetches nothing else.
//!
//! Invariant: a result that was fetched for one listener is never used by another.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use weir_core::ConsequenceOffset;
use weir_store::{Page, PageBuilder, Store, StoreError, TopicReader};

use super::buffer::OUT_BYTES_HIGH;
use super::pushdown::{FilterResult, LatestKeys, Pushdown};
use crate::limits::BLOCK_BYTES_FREE;
use crate::limits::budget::{MemoryBudget, Reservation, ShareKey};
use crate::limits::readers::{READER_THREAD, Readers};

/// Keys of a `latest` listener in one look-up.
const REPLAY_KEYS: usize = 256;

/// The keys to look up.
#[derive(Debug)]
pub(super) struct KeyLookup {
    pub(super) store: Arc<Store>,
    pub(super) topic: Box<str>,
    pub(super) prefix: Box<[u8]>,
    /// Keys below this one are skipped.
    pub(super) from: Vec<u8>,
    /// Keys with a record after this offset arrive later as new records.
    pub(super) upto: u64,
    /// Budget for a long value, which is reserved before it is read.
    pub(super) budget: MemoryBudget,
    /// Bytes that are already reserved for a long value.
    pub(super) reserved: usize,
}

/// Result of a fetch.
#[derive(Debug)]
enum FetchResult {
    Page(TopicReader, Result<Option<Page>, StoreError>, Reservation),
    /// The page was dropped: this many bytes must be reserved first.
    NeedsMemory(usize),
    Keys(Result<LatestKeys, StoreError>),
    Filtered(Result<Box<FilterResult>, StoreError>),
    /// The thread panicked.
    Panicked,
}

/// A page that was fetched for a listener.
#[allow(clippy::large_enum_variant, reason = "taken apart at once")]
pub(super) enum Fetched {
    /// The page, and the reader after it.
    Page {
        reader: TopicReader,
        page: Option<Page>,
        reservation: Reservation,
    },
    /// There was no memory for the page: this many bytes must be reserved first.
    NeedsMemory(usize),
}

/// The fetch of a connection.
#[derive(Debug)]
pub(super) struct Fetch {
    /// Permits for filter tasks, shared by all connections.
    filters: Arc<Semaphore>,
    /// Reader threads, shared by all ports.
    readers: Readers,
    /// Budget for pages that were fetched and not sent.
    budget: MemoryBudget,
    /// The one permit of this connection for filter tasks.
    own_permits: Arc<Semaphore>,
    /// Number of the listener that the fetch is for.
    listener: u64,
    task: Option<Task>,
    result: Option<FetchResult>,
}

/// A running fetch; its result is discarded when dropped.
#[derive(Debug)]
struct Task {
    handle: JoinHandle<FetchResult>,
    stop: Arc<AtomicBool>,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Aborts a wait for a permit; work that has started checks `stop`.
        self.handle.abort();
    }
}

impl Fetch {
    pub(super) fn new(filters: Arc<Semaphore>, readers: Readers, budget: MemoryBudget) -> Self {
        Self {
            filters,
            readers,
            budget,
            own_permits: Arc::new(Semaphore::new(1)),
            listener: 0,
            task: None,
            result: None,
        }
    }

    /// Limits the memory of fetched pages to the share of a principal.
    pub(super) fn set_share(&mut self, share: Option<ShareKey>) {
        self.budget.set_share(share);
    }

    /// The budget for fetched pages.
    pub(super) fn budget(&self) -> MemoryBudget {
        self.budget.clone()
    }

    /// Discards the fetch and its result.
    pub(super) fn reset(&mut self) {
        self.listener = 0;
        self.task = None;
        self.result = None;
    }

    /// Starts to filter pages for a query, unless another fetch is running. The fetch then owns the
    /// pushdown until the result is taken.
    pub(super) fn filter(
        &mut self,
        listener: u64,
        reader: &TopicReader,
        pushdown: &mut Option<Box<Pushdown>>,
        reserved: usize,
    ) {
        if !self.is_idle() {
            return;
        }
        let (Some(pushdown), reader) = (pushdown.take(), reader.clone()) else {
            return;
        };
        let budget = self.budget.clone();
        self.run_filter(listener, move |stop| {
            let found = pushdown.scan(reader, stop, &budget, reserved);
            FetchResult::Filtered(found.map(Box::new))
        });
    }

    /// Runs a filter task when permits are free.
    fn run_filter(
        &mut self,
        listener: u64,
        work: impl FnOnce(&Arc<AtomicBool>) -> FetchResult + Send + 'static,
    ) {
        let (own_permits, filters) = (Arc::clone(&self.own_permits), Arc::clone(&self.filters));
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        self.listener = listener;
        let handle = tokio::spawn(async move {
            // The permit of this connection comes first, so that one connection never waits for two
            // shared permits.
            let Ok(own_permit) = own_permits.acquire_owned().await else {
                return FetchResult::Panicked;
            };
            let Ok(permit) = filters.acquire_owned().await else {
                return FetchResult::Panicked;
            };
            let filtered = tokio::task::spawn_blocking(move || {
                let result = work(&stopped);
                drop((permit, own_permit));
                result
            });
            filtered.await.unwrap_or(FetchResult::Panicked)
        });
        self.task = Some(Task { handle, stop });
    }

    /// Removes and returns the result of a filter task for this listener.
    pub(super) fn take_filtered(
        &mut self,
        listener: u64,
    ) -> Option<Result<Box<FilterResult>, StoreError>> {
        match self.take(listener)? {
            FetchResult::Filtered(found) => Some(found),
            FetchResult::Panicked => Some(Err(StoreError::Panicked {
                thread: READER_THREAD,
            })),
            FetchResult::Page(..) | FetchResult::NeedsMemory(_) | FetchResult::Keys(_) => None,
        }
    }

    fn is_idle(&self) -> bool {
        self.task.is_none() && self.result.is_none()
    }

    fn start(&mut self, listener: u64, work: impl FnOnce() -> FetchResult + Send + 'static) {
        if self.is_idle() {
            self.listener = listener;
            let readers = self.readers.clone();
            let handle = tokio::spawn(async move {
                let Ok(permit) = readers.permit_without_deadline().await else {
                    return FetchResult::Panicked;
                };
                let fetched = readers.run(move || {
                    let result = work();
                    drop(permit);
                    result
                });
                fetched.await.unwrap_or(FetchResult::Panicked)
            });
            self.task = Some(Task {
                handle,
                stop: Arc::default(),
            });
        }
    }

    /// Drops a fetched page that was not taken; it is fetched again.
    pub(super) fn drop_page(&mut self) {
        if matches!(self.result, Some(FetchResult::Page(..))) {
            self.result = None;
        }
    }

    /// Starts to fetch the next page of this reader, unless another fetch is running. `reserved`
    /// bytes of it are already reserved.
    pub(super) fn page(&mut self, listener: u64, reader: &TopicReader, reserved: usize) {
        let (mut reader, budget) = (reader.clone(), self.budget.clone());
        self.start(listener, move || {
            let mut reservation = Reservation::new(&budget);
            let covers = |bytes, reservation: &mut Reservation| {
                bytes <= reserved || reservation.try_cover(bytes)
            };
            // Checked before the block is read; a compaction may change its size meanwhile, so it
            // is checked again.
            let bytes = reader.next_page_bytes();
            if !covers(bytes, &mut reservation) {
                return FetchResult::NeedsMemory(bytes);
            }
            let page = reader.next_page();
            let bytes = match &page {
                Ok(Some(page)) => page.wire_bytes(),
                _ => 0,
            };
            if covers(bytes, &mut reservation) {
                FetchResult::Page(reader, page, reservation)
            } else {
                FetchResult::NeedsMemory(bytes)
            }
        });
    }

    /// Removes and returns the page that was fetched for this listener.
    pub(super) fn take_page(&mut self, listener: u64) -> Option<Result<Fetched, StoreError>> {
        match self.take(listener)? {
            FetchResult::Page(reader, page, reservation) => Some(page.map(|page| Fetched::Page {
                reader,
                page,
                reservation,
            })),
            FetchResult::NeedsMemory(bytes) => Some(Ok(Fetched::NeedsMemory(bytes))),
            FetchResult::Panicked => Some(Err(StoreError::Panicked {
                thread: READER_THREAD,
            })),
            FetchResult::Keys(_) | FetchResult::Filtered(_) => None,
        }
    }

    /// Starts to look up keys, unless another fetch is running. Then the fetch owns the pushdown,
    /// if there is one, until the result is taken.
    pub(super) fn keys(
        &mut self,
        listener: u64,
        lookup: KeyLookup,
        pushdown: &mut Option<Box<Pushdown>>,
    ) {
        if !self.is_idle() {
            return;
        }
        match pushdown.take() {
            None => self.start(listener, move || FetchResult::Keys(lookup.keys())),
            Some(pushdown) => self.run_filter(listener, move |stop| {
                FetchResult::Keys(lookup.keys().and_then(|keys| pushdown.look_up(keys, stop)))
            }),
        }
    }

    /// Removes and returns the keys that were looked up for this listener.
    pub(super) fn take_keys(&mut self, listener: u64) -> Option<Result<LatestKeys, StoreError>> {
        match self.take(listener)? {
            FetchResult::Keys(keys) => Some(keys),
            FetchResult::Panicked => Some(Err(StoreError::Panicked {
                thread: READER_THREAD,
            })),
            FetchResult::Page(..) | FetchResult::NeedsMemory(_) | FetchResult::Filtered(_) => None,
        }
    }

    fn take(&mut self, listener: u64) -> Option<FetchResult> {
        if self.listener != listener {
            return None;
        }
        self.result.take()
    }

    /// Discards the fetch of this listener.
    pub(super) fn cancel(&mut self, listener: u64) {
        if self.listener == listener {
            self.reset();
        }
    }

    /// Ready once when a result has arrived; otherwise wakes the task when it does.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(task) = &mut self.task else {
            return Poll::Pending;
        };
        match Pin::new(&mut task.handle).poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(result) => {
                self.task = None;
                self.result = Some(result.unwrap_or(FetchResult::Panicked));
                Poll::Ready(())
            }
        }
    }
}

impl KeyLookup {
    fn keys(&self) -> Result<LatestKeys, StoreError> {
        let (store, topic) = (&self.store, &*self.topic);
        let (prefix, from) = (&self.prefix, &self.from);
        let (entries, more) =
            store.scan_page(topic, prefix, from, REPLAY_KEYS, BLOCK_BYTES_FREE)?;
        let mut keys = LatestKeys {
            ends: !more,
            ..LatestKeys::default()
        };
        let mut bytes = 0;
        let mut entries = entries.into_iter();
        while let Some(entry) = entries.next() {
            if bytes >= OUT_BYTES_HIGH {
                keys.ends = false;
                break;
            }
            let before = ConsequenceOffset(entry.offset.0.saturating_sub(1));
            let long = match store.read(topic, before) {
                Ok(reader) if entry.offset.0 <= self.upto => reader.next_page_bytes(),
                _ => 0,
            };
            if long > BLOCK_BYTES_FREE {
                // A long value is returned alone, so that one reservation covers it.
                if !keys.found.is_empty() {
                    keys.ends = false;
                    break;
                }
                let mut reservation = Reservation::new(&self.budget);
                if long > self.reserved && !reservation.try_cover(long) {
                    keys.needed_bytes = long;
                    return Ok(keys);
                }
                keys.reservation = Some((long, reservation));
            }
            let mut page = None;
            let block = if self.upto == u64::MAX {
                // The value may be newer than the list of keys.
                store.retained_value(topic, &entry.key)?
            } else if entry.offset.0 <= self.upto {
                store.value(topic, &entry)?
            } else {
                None
            };
            if let Some(block) = block
                && let Some(record) = block.iter().next().transpose()?
            {
                let mut one = PageBuilder::default();
                one.push(&record);
                page = one.take();
            }
            bytes += page.as_ref().map_or(0, Page::wire_bytes);
            keys.found.push_back((entry.key, page));
            if long > BLOCK_BYTES_FREE {
                keys.ends &= entries.len() == 0;
                break;
            }
        }
        Ok(keys)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use tokio::sync::Semaphore;

    use super::{Fetch, FetchResult, Readers};
    use crate::limits::budget::MemoryBudget;

    /// Work that reports its start, waits for `finish`, and then reports whether a caller still
    /// waits for it.
    struct Work {
        started: Receiver<()>,
        finish: Sender<()>,
        wanted: Receiver<bool>,
    }

    fn work(fetch: &mut Fetch, listener: u64) -> Work {
        let (start, started) = channel();
        let (finish, finish_signal) = channel();
        let (end, wanted) = channel();
        fetch.run_filter(listener, move |stop| {
            let _ = (start.send(()), finish_signal.recv());
            let _ = end.send(!stop.load(Ordering::Relaxed));
            FetchResult::Panicked
        });
        Work {
            started,
            finish,
            wanted,
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_connection_runs_one_filter_task_at_a_time_and_can_stop_it() {
        let permits = Arc::new(Semaphore::new(2));
        let [mut one, mut other] = [0; 2].map(|_| {
            let budget = MemoryBudget::new("", 1 << 20, 1 << 10);
            Fetch::new(Arc::clone(&permits), Readers::new(2).unwrap(), budget)
        });
        let first = work(&mut one, 1);
        assert!(first.started.recv().is_ok());
        one.cancel(1);
        // The second and third tasks wait for the first one, and occupy no shared permit.
        let second = work(&mut one, 2);
        one.cancel(2);
        let third = work(&mut one, 3);
        let other_work = work(&mut other, 1);
        assert!(other_work.finish.send(()).is_ok());
        let done = tokio::time::timeout(Duration::from_secs(20), poll_fn(|c| other.poll(c)));
        assert!(done.await.is_ok(), "the other connection has a permit");
        assert_eq!(other_work.wanted.recv(), Ok(true));
        assert!(third.started.try_recv().is_err());
        assert!(first.finish.send(()).is_ok());
        assert_eq!(first.wanted.recv(), Ok(false));
        assert!(third.started.recv().is_ok());
        assert!(
            second.started.recv().is_err(),
            "cancelled before it started"
        );
        assert!(third.finish.send(()).is_ok());
        assert_eq!(third.wanted.recv(), Ok(true));
        poll_fn(|c| one.poll(c)).await;
        // All tasks have returned their permits.
        assert!(Arc::clone(&permits).acquire_many_owned(2).await.is_ok());
    }
}
