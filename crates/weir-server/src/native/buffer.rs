//! The receive and send buffers of a connection.

use std::cell::Cell;
use std::sync::Arc;

use tokio::time::Instant;

use super::Port;
use crate::config::ServerConfig;
use crate::limits::budget::{MemoryBudget, Reservation, ShareKey};
use crate::limits::minimum_rate::MinimumRate;

/// Initial size of the receive buffer. An idle connection has none.
const FIRST_BYTES: usize = 8 << 10;
/// Above this many bytes to send, the connection neither reads nor fetches pages. With much memory,
/// the limit is higher ([`MemoryBudget::small_bytes`]).
pub(super) const OUT_BYTES_HIGH: usize = 64 << 10;

thread_local! {
    /// The receive buffer of the last connection on this thread that became idle. The next
    /// connection that becomes busy reuses it, which avoids an allocation.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Received bytes. The buffer has the size of one unfinished packet; a large one is reserved from
/// the budget of all ports.
#[derive(Debug)]
pub(super) struct Received {
    port: Arc<Port>,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    reservation: Reservation,
    rate: MinimumRate,
}

impl Received {
    pub(super) fn new(port: Arc<Port>) -> Self {
        Self {
            reservation: Reservation::new(&port.shared.admission.bodies),
            port,
            bytes: Vec::new(),
            start: 0,
            end: 0,
            rate: MinimumRate::default(),
        }
    }

    /// Limits the memory of packets to the share of a principal.
    pub(super) fn set_share(&mut self, share: Option<ShareKey>) {
        self.reservation.set_share(share);
    }

    /// Returns the deadline for more bytes of a large packet that holds memory of the budget.
    /// `waits` is whether the connection is waiting only for the client.
    pub(super) fn deadline(&mut self, waits: bool) -> Option<Instant> {
        let config = &self.port.shared.config;
        self.rate
            .deadline(waits && self.reservation.is_held(), config)
    }

    /// Bytes that were received and not read.
    pub(super) fn unread(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// Removes processed packets from the front.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(self.end);
    }

    /// Records that this many bytes arrived in [`free_space`](Self::free_space).
    pub(super) fn arrived(&mut self, bytes: usize) {
        self.end = (self.end + bytes).min(self.bytes.len());
        self.rate.transferred(bytes);
    }

    /// Returns memory to read into. The packet at the front lacks at least `missing` bytes. `None`
    /// while the budget is exhausted.
    pub(super) fn free_space(&mut self, missing: usize) -> Option<&mut [u8]> {
        let unread = self.end - self.start;
        if unread == 0 {
            self.start = 0;
            self.end = 0;
            if self.reservation.is_held() {
                self.release();
            }
        }
        if self.end == self.bytes.len() && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.start = 0;
            self.end = unread;
        }
        if self.end == self.bytes.len() && !self.grow(unread, missing) {
            return None;
        }
        self.bytes.get_mut(self.end..)
    }

    /// Grows the buffer with the bytes that arrive, never to an announced length.
    fn grow(&mut self, unread: usize, missing: usize) -> bool {
        let size = match self.bytes.len() {
            0 => {
                self.bytes = SPARE.take();
                FIRST_BYTES
            }
            size => {
                let small = self.port.shared.admission.bodies.small_bytes();
                (size * 2).min((unread + missing.max(FIRST_BYTES)).max(small))
            }
        };
        if !self.reservation.try_cover(size) {
            return false;
        }
        self.bytes.resize(size, 0);
        true
    }

    /// Frees the buffer of an idle connection.
    pub(super) fn shrink(&mut self) {
        if self.start < self.end {
            return;
        }
        if self.bytes.len() == FIRST_BYTES {
            SPARE.set(std::mem::take(&mut self.bytes));
        }
        self.release();
    }

    /// Drops all received bytes, and releases their memory.
    pub(super) fn release(&mut self) {
        self.bytes = Vec::new();
        self.start = 0;
        self.end = 0;
        self.reservation.shrink(0);
    }
}

/// Bytes to send.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) bytes: Vec<u8>,
    sent: usize,
    budget: MemoryBudget,
    /// Above this many unsent bytes, nothing is added.
    high: usize,
    /// Reservations of long pages that are being sent.
    reservations: Vec<Reservation>,
    /// The reservation for a page that is not read yet, with its size.
    reserved: Option<(usize, Reservation)>,
    rate: MinimumRate,
}

impl Outgoing {
    pub(super) fn new(budget: MemoryBudget) -> Self {
        Self {
            bytes: Vec::new(),
            sent: 0,
            high: OUT_BYTES_HIGH.max(budget.small_bytes()),
            budget,
            reservations: Vec::new(),
            reserved: None,
            rate: MinimumRate::default(),
        }
    }

    /// Limits the memory of long pages to the share of a principal.
    pub(super) fn set_share(&mut self, share: Option<ShareKey>) {
        self.budget.set_share(share);
    }

    /// Returns the deadline by which the client must accept more of a long response.
    pub(super) fn deadline(&mut self, config: &ServerConfig) -> Option<Instant> {
        self.rate.deadline(!self.reservations.is_empty(), config)
    }

    /// Admits a page of this many bytes. Reserves memory for a long page; returns false if the
    /// memory is not free.
    pub(super) fn admit(&mut self, page: usize) -> bool {
        if page > self.high {
            let reserved = self.reserved.take().filter(|(size, _)| *size >= page);
            let reserved = reserved.map(|(_, reservation)| reservation);
            let Some(reservation) = reserved.or_else(|| self.budget.try_reserve(page)) else {
                return false;
            };
            self.reservations.push(reservation);
        }
        true
    }

    /// Reserves memory in advance for a page that was not admitted, so that the page is not fetched
    /// again without memory for it. Returns false if the memory is still not free.
    pub(super) fn reserve(&mut self, page: usize) -> bool {
        if page > self.high && self.reserved.is_none() {
            let reservation = self.budget.try_reserve(page);
            self.reserved = reservation.map(|reservation| (page, reservation));
            return self.reserved.is_some();
        }
        true
    }

    /// Whether a page of this many bytes needs a reservation.
    pub(super) fn is_long(&self, page: usize) -> bool {
        page > self.high
    }

    /// Bytes that are reserved for the next page.
    pub(super) fn reserved_bytes(&self) -> usize {
        self.reserved.as_ref().map_or(0, |(bytes, _)| *bytes)
    }

    /// Stores a reservation for the next page, of this many bytes, if the page needs one.
    pub(super) fn set_reserved(&mut self, page: usize, reservation: Reservation) {
        if reservation.is_held() && self.is_long(page) {
            self.reserved = Some((page, reservation));
        }
    }

    /// Returns the reservation for a page, for the thread that reads it.
    pub(super) fn take_reserved(&mut self) -> Option<(usize, Reservation)> {
        self.reserved.take()
    }

    /// Stores a reservation that the thread has returned.
    pub(super) fn restore_reserved(&mut self, reserved: Option<(usize, Reservation)>) {
        self.reserved = reserved;
    }

    /// Releases memory that was reserved for a page and is not needed.
    pub(super) fn unreserve(&mut self) {
        self.reserved = None;
    }

    /// Holds a reservation until the bytes are sent.
    pub(super) fn hold(&mut self, reservation: Reservation) {
        self.reservations.push(reservation);
    }

    pub(super) fn unsent(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    pub(super) fn is_high(&self) -> bool {
        self.bytes.len() - self.sent >= self.high
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
        self.rate.transferred(bytes);
        if self.is_empty() {
            self.bytes.clear();
            self.sent = 0;
            self.bytes.shrink_to(2 * self.high);
        } else if self.sent > self.high && (!self.is_high() || self.sent > self.bytes.len() / 2) {
            // Moves the rest to the front only after half of the buffer was sent, because a move
            // has a cost.
            self.bytes.drain(..self.sent);
            self.sent = 0;
            self.bytes.shrink_to(2 * self.high);
        }
        if !self.is_high() {
            self.reservations.clear();
        }
    }
}
