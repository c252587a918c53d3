//! What the streams of one connection are doing, so that somebody can see those
//! that do nothing: hyper looks after the protocol, not after the time.
//!
//! Invariant: every stream that the server waits for is listed.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::config::ServerConfig;
use crate::limits::admission::{Admission, Permit};
use crate::limits::minimum_rate::MinimumRate;

/// Longest time between two looks.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Streams {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Requests and answers that are under way.
    open: usize,
    tails: usize,
    /// Since when there is none.
    idle: Instant,
    /// Number of the newest one.
    last: u64,
    /// Until when the client has to take some of each answer.
    due: HashMap<u64, Instant>,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            open: 0,
            tails: 0,
            idle: Instant::now(),
            last: 0,
            due: HashMap::new(),
        }
    }
}

/// What a look at the connection shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Somebody works.
    Busy,
    /// Nobody does, for so long.
    Idle(Duration),
    /// The client takes nothing of an answer.
    Stalled,
}

impl Streams {
    pub(super) fn open(self: &Arc<Self>) -> Open {
        let mut inner = self.lock();
        inner.open += 1;
        inner.last += 1;
        Open {
            number: inner.last,
            is_first: inner.open == 1,
            permit: None,
            is_tail: false,
            rate: MinimumRate::default(),
            streams: Arc::clone(self),
        }
    }

    /// How often to look.
    pub(super) fn every(config: &ServerConfig) -> Duration {
        let least = config.write_timeout.min(config.idle_timeout) / 4;
        least.clamp(Duration::from_millis(10), LOOK_MAX)
    }

    pub(super) fn look(&self) -> Look {
        let inner = self.lock();
        let now = Instant::now();
        if inner.due.values().any(|due| *due <= now) {
            Look::Stalled
        } else if inner.open == 0 {
            Look::Idle(now - inner.idle)
        } else {
            Look::Busy
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

/// A request and its answer, until the last of it is handed over.
#[derive(Debug)]
pub(super) struct Open {
    number: u64,
    /// No other one of its connection was open.
    is_first: bool,
    permit: Option<Permit>,
    is_tail: bool,
    rate: MinimumRate,
    streams: Arc<Streams>,
}

impl Open {
    /// Takes a permit if other streams of the connection are open; false: there is none.
    pub(super) fn admitted(&mut self, admission: &Admission) -> bool {
        if !self.is_first {
            self.permit = admission.admit_stream();
        }
        self.is_first || self.permit.is_some()
    }

    /// Makes it a tail if there are fewer than `most` of them.
    pub(super) fn tails(&mut self, most: usize) -> bool {
        let mut inner = self.streams.lock();
        let fits = inner.tails < most;
        if fits && !self.is_tail {
            inner.tails += 1;
            drop(inner);
            self.is_tail = true;
        }
        fits
    }

    /// So many bytes were handed over; with `holds` there are more, which take
    /// room that others wait for.
    pub(super) fn gave(&mut self, bytes: usize, holds: bool, config: &ServerConfig) {
        let due = Instant::now() + config.write_timeout;
        let held = self.rate.until(holds, config);
        self.rate.moved(bytes);
        let due = held.map_or(due, |held| held.min(due));
        self.streams.lock().due.insert(self.number, due);
    }

    /// The client has room for more.
    pub(super) fn taken(&self) {
        self.streams.lock().due.remove(&self.number);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut inner = self.streams.lock();
        inner.due.remove(&self.number);
        inner.tails -= usize::from(self.is_tail);
        inner.open -= 1;
        if inner.open == 0 {
            inner.idle = Instant::now();
        }
    }
}
