//! Bytes that were received and not read, and bytes to be sent.

use std::cell::Cell;
use std::sync::Arc;

use tokio::time::Instant;

use super::Port;
use crate::config::ServerConfig;
use crate::limits::budget::{MemoryBudget, Reservation};
use crate::limits::minimum_rate::MinimumRate;

/// Bytes that a connection reads into at first. An idle one keeps none.
const FIRST_BYTES: usize = 8 << 10;
/// Bytes to be sent above which nothing is read, and no page is made; more where there is much
/// memory ([`MemoryBudget::small_bytes`]).
pub(super) const OUT_BYTES_HIGH: usize = 64 << 10;

thread_local! {
    /// What the last connection of this thread that became idle had read into:
    /// the next one that becomes busy takes it, so nothing is allocated.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Received bytes. The memory is that of one unfinished packet; what is not small of it is
/// reserved from the budget of all ports.
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

    /// Until when the rest of a packet that takes from the budget comes fast
    /// enough, while it is only waited for.
    pub(super) fn due(&mut self, waits: bool) -> Option<Instant> {
        let config = &self.port.shared.config;
        self.rate.until(waits && self.reservation.is_held(), config)
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
        self.rate.moved(bytes);
    }

    /// Memory to read into; the packet at the front is known to lack `lacks`
    /// bytes. `None` while the budget of the port is used up.
    pub(super) fn room(&mut self, lacks: usize) -> Option<&mut [u8]> {
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
            size => {
                let small = self.port.shared.admission.bodies.small_bytes();
                (size * 2).min((unread + lacks.max(FIRST_BYTES)).max(small))
            }
        };
        if !self.reservation.try_cover(size) {
            return false;
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
        self.reservation.shrink(0);
    }
}

/// Bytes to be sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) bytes: Vec<u8>,
    sent: usize,
    budget: MemoryBudget,
    /// Unsent bytes above which nothing is added.
    high: usize,
    /// For long pages among the bytes.
    reservations: Vec<Reservation>,
    /// For a page that is being made.
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

    /// Until when long answers are taken fast enough.
    pub(super) fn due(&mut self, config: &ServerConfig) -> Option<Instant> {
        self.rate.until(!self.reservations.is_empty(), config)
    }

    /// Room for a page; a long one takes it from a budget of all connections.
    /// False: not now.
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

    /// Takes room for a page that found none before, so that it is not made for
    /// nothing. False: there still is none.
    pub(super) fn reserve(&mut self, page: usize) -> bool {
        if page > self.high && self.reserved.is_none() {
            let reservation = self.budget.try_reserve(page);
            self.reserved = reservation.map(|reservation| (page, reservation));
            return self.reserved.is_some();
        }
        true
    }

    /// Whether a page of so many bytes needs a reservation.
    pub(super) fn is_long(&self, page: usize) -> bool {
        page > self.high
    }

    /// Bytes that are reserved for a page that is to come.
    pub(super) fn reserved_bytes(&self) -> usize {
        self.reserved.as_ref().map_or(0, |(bytes, _)| *bytes)
    }

    /// Keeps what was reserved for a page of so many bytes until it is sent.
    pub(super) fn offer(&mut self, page: usize, reservation: Reservation) {
        if reservation.is_held() && self.is_long(page) {
            self.reserved = Some((page, reservation));
        }
    }

    /// Lends the reservation for a page to the thread that reads it.
    pub(super) fn lend(&mut self) -> Option<(usize, Reservation)> {
        self.reserved.take()
    }

    /// Takes a lent reservation back.
    pub(super) fn returned(&mut self, room: Option<(usize, Reservation)>) {
        self.reserved = room;
    }

    /// Gives back room that was taken for a page and is not needed.
    pub(super) fn unreserve(&mut self) {
        self.reserved = None;
    }

    /// Keeps room that was given for what is sent now.
    pub(super) fn keep(&mut self, reservation: Reservation) {
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
        self.rate.moved(bytes);
        if self.is_empty() {
            self.bytes.clear();
            self.sent = 0;
            self.bytes.shrink_to(2 * self.high);
        } else if self.sent > self.high && (!self.is_high() || self.sent > self.bytes.len() / 2) {
            // Not more often than it has halved: what is moved counts, too.
            self.bytes.drain(..self.sent);
            self.sent = 0;
            self.bytes.shrink_to(2 * self.high);
        }
        if !self.is_high() {
            self.reservations.clear();
        }
    }
}
