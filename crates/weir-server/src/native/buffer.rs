//! Bytes that were received and not read, and bytes to be sent.

use std::cell::Cell;
use std::sync::Arc;

use tokio::time::Instant;

use super::Port;
use crate::config::ServerConfig;
use crate::limits::admission::{Admission, Permit};
use crate::limits::pace::Pace;
use crate::limits::room::SMALL_BYTES;

/// Bytes that a connection reads into at first. An idle one keeps none.
const FIRST_BYTES: usize = 8 << 10;
/// Bytes to be sent above which nothing is read, and no page is made.
pub(super) const OUT_BYTES_HIGH: usize = 256 << 10;

thread_local! {
    /// What the last connection of this thread that became idle had read into:
    /// the next one that becomes busy takes it, so nothing is allocated.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Received bytes. The memory is that of one unfinished packet; above
/// [`SMALL_BYTES`] it is taken from the budget of all ports.
#[derive(Debug)]
pub(super) struct Received {
    port: Arc<Port>,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes taken from the budget.
    large: usize,
    pace: Pace,
}

impl Received {
    pub(super) fn new(port: Arc<Port>) -> Self {
        Self {
            port,
            bytes: Vec::new(),
            start: 0,
            end: 0,
            large: 0,
            pace: Pace::default(),
        }
    }

    /// Until when the rest of a packet that takes from the budget comes fast
    /// enough, while it is only waited for.
    pub(super) fn due(&mut self, waits: bool) -> Option<Instant> {
        let config = &self.port.shared.config;
        self.pace.until(waits && self.large > 0, config)
    }

    /// What was received and not read.
    pub(super) fn unread(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// Packets at the front were dealt with.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(self.end);
    }

    /// So many bytes arrived in [`room`](Self::room).
    pub(super) fn arrived(&mut self, bytes: usize) {
        self.end = (self.end + bytes).min(self.bytes.len());
        self.pace.moved(bytes);
    }

    /// Memory to read into; the packet at the front is known to lack `lacks`
    /// bytes. `None` while the budget of the port is used up.
    pub(super) fn room(&mut self, lacks: usize) -> Option<&mut [u8]> {
        let unread = self.end - self.start;
        if unread == 0 {
            self.start = 0;
            self.end = 0;
            if self.bytes.len() > SMALL_BYTES {
                self.release();
            }
        }
        if self.end == self.bytes.len() && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.start = 0;
            self.end = unread;
        }
        if self.end == self.bytes.len() && !self.grow(unread, lacks) {
            return None;
        }
        self.bytes.get_mut(self.end..)
    }

    /// Grows with what arrives, never with what is only announced.
    fn grow(&mut self, unread: usize, lacks: usize) -> bool {
        let size = match self.bytes.len() {
            0 => {
                self.bytes = SPARE.take();
                FIRST_BYTES
            }
            size => (size * 2).min((unread + lacks.max(FIRST_BYTES)).max(SMALL_BYTES)),
        };
        if size > SMALL_BYTES {
            let more = size - self.large;
            if !self.port.shared.admission.take_body(more) {
                return false;
            }
            self.large = size;
        }
        self.bytes.resize(size, 0);
        true
    }

    /// The connection is idle: keeps nothing, as a new one.
    pub(super) fn shrink(&mut self) {
        if self.start < self.end {
            return;
        }
        if self.bytes.len() == FIRST_BYTES {
            SPARE.set(std::mem::take(&mut self.bytes));
        }
        self.release();
    }

    fn release(&mut self) {
        self.bytes = Vec::new();
        self.start = 0;
        self.end = 0;
        let large = std::mem::take(&mut self.large);
        self.port.shared.admission.give_body(large);
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.port.shared.admission.give_body(self.large);
    }
}

/// Bytes to be sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) bytes: Vec<u8>,
    sent: usize,
    admission: Admission,
    /// For long pages among the bytes.
    permits: Vec<Permit>,
    /// For a page that is being made.
    reserved: Option<(usize, Permit)>,
    pace: Pace,
}

impl Outgoing {
    pub(super) fn new(admission: Admission) -> Self {
        Self {
            bytes: Vec::new(),
            sent: 0,
            admission,
            permits: Vec::new(),
            reserved: None,
            pace: Pace::default(),
        }
    }

    /// Until when long answers are taken fast enough.
    pub(super) fn due(&mut self, config: &ServerConfig) -> Option<Instant> {
        self.pace.until(!self.permits.is_empty(), config)
    }

    /// Room for a page; a long one takes it from a budget of all connections.
    /// False: not now.
    pub(super) fn admit(&mut self, page: usize) -> bool {
        if page > OUT_BYTES_HIGH {
            let reserved = self.reserved.take().filter(|(size, _)| *size >= page);
            let permit = reserved.map(|(_, permit)| permit);
            let Some(permit) = permit.or_else(|| self.admission.admit_answer(page)) else {
                return false;
            };
            self.permits.push(permit);
        }
        true
    }

    /// Takes room for a page that found none before, so that it is not made for
    /// nothing. False: there still is none.
    pub(super) fn reserve(&mut self, page: usize) -> bool {
        if page > OUT_BYTES_HIGH && self.reserved.is_none() {
            let permit = self.admission.admit_answer(page);
            self.reserved = permit.map(|permit| (page, permit));
            return self.reserved.is_some();
        }
        true
    }

    /// Gives back room that was taken for a page and is not needed.
    pub(super) fn unreserve(&mut self) {
        self.reserved = None;
    }

    /// Keeps room that was given for what is sent now.
    pub(super) fn keep(&mut self, room: Permit) {
        self.permits.push(room);
    }

    pub(super) fn unsent(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    pub(super) fn is_high(&self) -> bool {
        self.bytes.len() - self.sent >= OUT_BYTES_HIGH
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
        self.pace.moved(bytes);
        if self.is_empty() {
            self.bytes.clear();
            self.sent = 0;
            self.bytes.shrink_to(2 * OUT_BYTES_HIGH);
        } else if self.sent > OUT_BYTES_HIGH
            && (!self.is_high() || self.sent > self.bytes.len() / 2)
        {
            // Not more often than it has halved: what is moved counts, too.
            self.bytes.drain(..self.sent);
            self.sent = 0;
            self.bytes.shrink_to(2 * OUT_BYTES_HIGH);
        }
        if !self.is_high() {
            self.permits.clear();
        }
    }
}
