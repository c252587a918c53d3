//! Tracks the streams of one HTTP/2 connection, to detect idle and stalled connections: hyper
//! implements the protocol without time limits.
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

/// Longest time between two checks.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// The streams of one connection.
#[derive(Debug, Default)]
pub(super) struct Streams {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Number of requests whose responses are not sent completely.
    open: usize,
    tails: usize,
    /// When the last open request ended. Used only while no request is open.
    idle_since: Instant,
    /// Number of the newest request.
    last: u64,
    /// For each response, the time until which the client must accept more of it.
    due: HashMap<u64, Instant>,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            open: 0,
            tails: 0,
            idle_since: Instant::now(),
            last: 0,
            due: HashMap::new(),
        }
    }
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionState {
    /// At least one request is open.
    Busy,
    /// No request is open, for this time.
    Idle(Duration),
    /// The client accepts nothing of a response.
    Stalled,
}

impl Streams {
    pub(super) fn open(self: &Arc<Self>) -> OpenRequest {
        let mut inner = self.lock();
        inner.open += 1;
        inner.last += 1;
        OpenRequest {
            number: inner.last,
            is_first: inner.open == 1,
            permit: None,
            is_tail: false,
            rate: MinimumRate::default(),
            streams: Arc::clone(self),
        }
    }

    /// Time between two checks.
    pub(super) fn check_interval(config: &ServerConfig) -> Duration {
        let shortest = config.write_timeout.min(config.idle_timeout) / 4;
        shortest.clamp(Duration::from_millis(10), CHECK_INTERVAL_MAX)
    }

    pub(super) fn state(&self) -> ConnectionState {
        let inner = self.lock();
        let now = Instant::now();
        if inner.due.values().any(|due| *due <= now) {
            ConnectionState::Stalled
        } else if inner.open == 0 {
            ConnectionState::Idle(now - inner.idle_since)
        } else {
            ConnectionState::Busy
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

/// A request, until its response is sent completely.
#[derive(Debug)]
pub(super) struct OpenRequest {
    number: u64,
    /// Whether no other request of the connection was open.
    is_first: bool,
    permit: Option<Permit>,
    is_tail: bool,
    rate: MinimumRate,
    streams: Arc<Streams>,
}

impl OpenRequest {
    /// Takes a permit if other streams of the connection are open. Returns false if there is none.
    pub(super) fn admit(&mut self, admission: &Admission) -> bool {
        if !self.is_first {
            self.permit = admission.admit_stream();
        }
        self.is_first || self.permit.is_some()
    }

    /// Turns the request into a tail if the connection has fewer than `max` tails.
    pub(super) fn become_tail(&mut self, max: usize) -> bool {
        let mut inner = self.streams.lock();
        let fits = inner.tails < max;
        if fits && !self.is_tail {
            inner.tails += 1;
            drop(inner);
            self.is_tail = true;
        }
        fits
    }

    /// Records that `bytes` were passed to hyper. With `holds`, more bytes follow, and they use
    /// memory that other requests wait for.
    pub(super) fn passed_on(&mut self, bytes: usize, holds: bool, config: &ServerConfig) {
        let due = Instant::now() + config.write_timeout;
        let held = self.rate.deadline(holds, config);
        self.rate.transferred(bytes);
        let due = held.map_or(due, |held| held.min(due));
        self.streams.lock().due.insert(self.number, due);
    }

    /// Records that the client accepts more bytes.
    pub(super) fn accepted(&self) {
        self.streams.lock().due.remove(&self.number);
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut inner = self.streams.lock();
        inner.due.remove(&self.number);
        inner.tails -= usize::from(self.is_tail);
        inner.open -= 1;
        if inner.open == 0 {
            inner.idle_since = Instant::now();
        }
    }
}
