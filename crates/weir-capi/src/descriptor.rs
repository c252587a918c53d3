//! A descriptor for event loops, readable when it is worth asking a query over topics.
//!
//! A thread waits in place of the caller, and does not hold the query.
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

use crate::term::{CancelSource as _, Mark};

/// How often the thread looks whether the query shall end.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// When a server is asked that says nothing by itself, and one that may say nothing any more.
const ASK_EVERY: Duration = Duration::from_millis(100);
const PATIENCE_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    /// There is something to wait for, or the query is gone.
    changed: Condvar,
    /// Of the caller, who waits until it can be read.
    ours: UnixStream,
    /// What is written here can be read there.
    other: UnixStream,
}

#[derive(Debug, Default)]
struct State {
    /// Calls that have begun.
    calls: u64,
    /// What the last of them waits for.
    news: Option<TopicQueryNews>,
    gone: bool,
}

/// The descriptor of a query.
#[derive(Debug)]
pub(crate) struct Descriptor(Arc<Inner>);

impl Descriptor {
    /// Readable, since the query was not asked yet.
    pub(crate) fn new(mark: &Arc<Mark>) -> io::Result<Self> {
        let (ours, other) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        other.set_nonblocking(true)?;
        let inner = Arc::new(Inner {
            state: Mutex::default(),
            changed: Condvar::new(),
            ours,
            other,
        });
        let (beside, mark) = (Arc::clone(&inner), Arc::clone(mark));
        std::thread::Builder::new()
            .name("weir-query-fd".to_owned())
            .spawn(move || beside.wait(&mark))?;
        inner.tell();
        Ok(Self(inner))
    }

    pub(crate) fn number(&self) -> i32 {
        self.0.ours.as_raw_fd()
    }

    /// A call begins.
    pub(crate) fn begin(&self) {
        let mut state = self.0.lock();
        state.calls += 1;
        state.news = None;
        let mut bytes = [0; 64];
        while matches!((&self.0.ours).read(&mut bytes), Ok(1..)) {}
    }

    /// It is over, and waits for this; none: it has something, or an end.
    pub(crate) fn end(&self, news: Option<TopicQueryNews>) {
        if news.is_none() {
            return self.0.tell();
        }
        self.0.lock().news = news;
        self.0.changed.notify_one();
    }

    /// The query is to be asked.
    pub(crate) fn tell(&self) {
        self.0.tell();
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.0.lock().gone = true;
        self.0.changed.notify_one();
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics under it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One byte more makes it no more readable than one.
    fn tell(&self) {
        let _ = (&self.other).write(&[1]);
    }

    /// The thread: waits for what the last call waits for, until the query is gone.
    fn wait(&self, mark: &Mark) {
        loop {
            let mut state = self.lock();
            while state.news.is_none() && !state.gone {
                let woken = self.changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
            }
            if state.gone {
                return;
            }
            let (call, news) = (state.calls, state.news.take());
            drop(state);
            if let Some(news) = news
                && self.comes(&news, call, mark)
            {
                let state = self.lock();
                // A call that began meanwhile looks itself.
                if state.calls == call {
                    self.tell();
                }
            }
        }
    }

    /// Whether something came; not when another call has begun, or the query is gone.
    fn comes(&self, news: &TopicQueryNews, call: u64, mark: &Mark) -> bool {
        let every = if news.tells() {
            PATIENCE_EVERY
        } else {
            ASK_EVERY
        };
        let due = Instant::now() + every;
        loop {
            let soon = due.min(Instant::now() + LOOK_EVERY);
            if news.wait(soon) || mark.is_over() || mark.is_closed() {
                return true;
            }
            if !news.is_near() && Instant::now() >= due {
                return true;
            }
            let state = self.lock();
            if state.gone || state.calls != call {
                return false;
            }
        }
    }
}
