//! A file descriptor for event loops. It is readable while a query over topics may have results.
//!
//! A thread of the library waits for new results, and does not lock the query.
//!
//! Invariants:
//! - While no call is running, the descriptor is readable, unless the last call found nothing and
//!   nothing has arrived since.
//! - No lock of the query is held during a wait.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir::TopicQueryNews;

use crate::deadline::{CancelSource as _, CancelToken};

/// How often the thread checks whether the query has ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Pause between calls of a query whose server reports no news, and of one whose server may have
/// stopped responding.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const SILENT_POLL_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    /// Signals that there is something to wait for, or that the query has ended.
    changed: Condvar,
    /// The caller's end, which becomes readable.
    caller_end: UnixStream,
    /// The other end, to which the library writes.
    library_end: UnixStream,
}

#[derive(Debug, Default)]
struct State {
    /// The number of calls that have begun.
    calls: u64,
    /// What the last call waits for.
    news: Option<TopicQueryNews>,
    /// Whether the query was released.
    released: bool,
}

/// The descriptor of a query.
#[derive(Debug)]
pub(crate) struct Descriptor(Arc<Inner>);

impl Descriptor {
    /// Creates a readable descriptor, because the query was not called yet.
    pub(crate) fn new(cancel_token: &Arc<CancelToken>) -> io::Result<Self> {
        let (caller_end, library_end) = UnixStream::pair()?;
        caller_end.set_nonblocking(true)?;
        library_end.set_nonblocking(true)?;
        let inner = Arc::new(Inner {
            state: Mutex::default(),
            changed: Condvar::new(),
            caller_end,
            library_end,
        });
        let (shared, cancel_token) = (Arc::clone(&inner), Arc::clone(cancel_token));
        std::thread::Builder::new()
            .name("weir-query-fd".to_owned())
            .spawn(move || shared.wait(&cancel_token))?;
        inner.set_readable();
        Ok(Self(inner))
    }

    pub(crate) fn number(&self) -> i32 {
        self.0.caller_end.as_raw_fd()
    }

    /// A call begins: clears the descriptor.
    pub(crate) fn begin(&self) {
        let mut state = self.0.lock();
        state.calls += 1;
        state.news = None;
        let mut bytes = [0; 64];
        while matches!((&self.0.caller_end).read(&mut bytes), Ok(1..)) {}
    }

    /// A call ends. `news` is what it waits for; `None` if it has returned results or the end.
    pub(crate) fn end(&self, news: Option<TopicQueryNews>) {
        if news.is_none() {
            return self.0.set_readable();
        }
        self.0.lock().news = news;
        self.0.changed.notify_one();
    }

    /// Makes the descriptor readable.
    pub(crate) fn set_readable(&self) {
        self.0.set_readable();
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.0.lock().released = true;
        self.0.changed.notify_one();
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the descriptor readable. A failed write is harmless: it means that the socket is full
    /// of unread bytes, so it is readable.
    fn set_readable(&self) {
        let _ = (&self.library_end).write(&[1]);
    }

    /// The thread: waits for what the last call waits for, until the query has ended.
    fn wait(&self, cancel_token: &CancelToken) {
        loop {
            let mut state = self.lock();
            while state.news.is_none() && !state.released {
                let woken = self.changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
            }
            if state.released {
                return;
            }
            let (call, news) = (state.calls, state.news.take());
            drop(state);
            if let Some(news) = news
                && self.has_news(&news, call, cancel_token)
            {
                let state = self.lock();
                // A call that has begun since then checks for results itself.
                if state.calls == call {
                    self.set_readable();
                }
            }
        }
    }

    /// Whether the query may have results. `false` if another call has begun or the query has
    /// ended.
    fn has_news(&self, news: &TopicQueryNews, call: u64, cancel_token: &CancelToken) -> bool {
        let every = if news.detects_news() {
            SILENT_POLL_INTERVAL
        } else {
            POLL_INTERVAL
        };
        let due = Instant::now() + every;
        loop {
            let next_check = due.min(Instant::now() + CHECK_INTERVAL);
            if news.wait(next_check) || cancel_token.is_over() || cancel_token.is_closed() {
                return true;
            }
            if !news.is_local() && Instant::now() >= due {
                return true;
            }
            let state = self.lock();
            if state.released || state.calls != call {
                return false;
            }
        }
    }
}
