//! The writes of a client, without I/O: the writes in flight, and the writes to send again
//! on a new connection.
//!
//! Items are numbered from 1 in the order in which they are sent. In a session, these
//! numbers are the nonces. Without a session, the numbers are never sent to the server.

use std::collections::VecDeque;

use weir_core::ClientId;
use weir_core::error_code::ErrorCode;

use crate::message::{Hello, HelloOk};

/// The highest nonce after which a client continues a session. No client sends as many writes, so
/// its next nonces cannot overflow.
const NONCE_MAX: u64 = u64::MAX / 2;

/// The largest credit that a client uses, in bytes of writes in flight. It bounds the memory of a
/// client that gets no answers. Servers of this version grant 16 MiB.
const WINDOW_BYTES_MAX: u64 = 64 << 20;

/// A write that was sent and is not completely answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// Number of its first item.
    pub first: u64,
    /// Number of its items.
    pub count: u32,
    /// The items, encoded.
    pub items: Vec<u8>,
}

impl Unanswered {
    /// Number of its last item.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.first + self.count as u64 - 1
    }
}

/// Returns whether a refusal with this code means that nothing was executed. The client may
/// then send the request again, later or to another server.
#[must_use]
pub const fn is_retryable(code: ErrorCode) -> bool {
    use ErrorCode::{Busy, Draining, NoLeader, Opening, Rate, Redirect};
    matches!(code, Busy | Draining | NoLeader | Opening | Rate | Redirect)
}

/// A violation of the protocol by the server.
pub type Fault = &'static str;

/// State of a client's writes, over all of its connections.
#[derive(Clone, Debug)]
pub struct ClientConnection {
    client: ClientId,
    store: Option<[u8; 16]>,
    sent: VecDeque<Unanswered>,
    /// Writes that were refused with a retryable error and are not in the log. They are sent
    /// again in this order.
    held: VecDeque<Unanswered>,
    held_items: u64,
    /// Bytes of `sent`.
    bytes: usize,
    /// Highest answered number. All numbers below it are answered too.
    answered: u64,
    /// Highest number that was sent.
    last: u64,
    window: u64,
    window_bytes: u64,
}

impl ClientConnection {
    /// A client that has sent nothing. `NONE`: no session.
    #[must_use]
    pub const fn new(client: ClientId) -> Self {
        Self {
            client,
            store: None,
            sent: VecDeque::new(),
            held: VecDeque::new(),
            held_items: 0,
            bytes: 0,
            answered: 0,
            last: 0,
            window: 0,
            window_bytes: 0,
        }
    }

    /// The session.
    #[must_use]
    pub const fn client(&self) -> ClientId {
        self.client
    }

    /// Highest answered number. All numbers below it are answered too.
    #[must_use]
    pub const fn answered(&self) -> u64 {
        self.answered
    }

    /// Highest number that was sent.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// The HELLO for a new connection.
    #[must_use]
    pub fn hello(&self) -> Hello<'static> {
        let waits = !self.sent.is_empty() || !self.held.is_empty();
        let in_flight = !self.client.is_none() && waits;
        Hello {
            versions: crate::VERSION.as_bytes(),
            client: self.client,
            resume: in_flight.then(|| self.answered + 1),
            store: self.store.filter(|_| !self.client.is_none()),
            ..Hello::default()
        }
    }

    /// Processes the answer of the server to HELLO. Returns the number of writes at the
    /// front of [`unanswered`](Self::unanswered) that need not be sent again, because the
    /// server will answer them. After an error, the outcome of the writes in flight is
    /// unknown.
    ///
    /// Without a session, writes must not be sent again: the caller first drops the writes
    /// in flight with [`drop_all`](Self::drop_all).
    pub fn opened(&mut self, hello: &HelloOk<'_>) -> Result<usize, Fault> {
        let other = self.store.is_some_and(|store| store != hello.store);
        if other && !self.client.is_none() {
            return Err("another store answers at this address");
        }
        self.store = Some(hello.store);
        self.credit(hello.window, hello.window_bytes);
        if self.client.is_none() {
            return Ok(0);
        }
        let Some(known) = hello.next.checked_sub(1) else {
            return Err("a session without a next nonce");
        };
        if known > NONCE_MAX {
            return Err("the next nonce of the session is too large");
        }
        if self.sent.is_empty() && self.held.is_empty() {
            // Nothing is in flight: continue after the last nonce that the store knows.
            self.answered = known;
            self.last = known;
            return Ok(0);
        }
        if known < self.answered {
            return Err("the store has lost answers that it gave");
        }
        // `known` is above `last` if the client has rewound to lower numbers.
        Ok(self
            .sent
            .iter()
            .take_while(|write| write.last() <= known)
            .count())
    }

    /// The writes in flight, oldest first.
    pub fn unanswered(&self) -> impl Iterator<Item = &Unanswered> {
        self.sent.iter()
    }

    /// Returns whether a write of `count` items and `bytes` bytes is within the credit.
    #[must_use]
    pub fn may_send(&self, count: u32, bytes: usize) -> bool {
        let items = (self.last - self.answered).saturating_sub(self.held_items);
        self.sent.is_empty()
            || (items + u64::from(count) <= self.window
                && (self.bytes + bytes) as u64 <= self.window_bytes)
    }

    /// The oldest held write: one that was refused with a retryable error.
    #[must_use]
    pub fn held(&self) -> Option<&Unanswered> {
        self.held.front()
    }

    /// Moves the oldest write in flight, which was refused with a retryable error, to the held
    /// writes. It retains its numbers, and [`resend_held`](Self::resend_held) sends it again.
    pub fn hold_refused(&mut self) {
        if let Some(write) = self.sent.pop_front() {
            self.bytes -= write.items.len();
            self.hold(write);
        }
    }

    fn hold(&mut self, write: Unanswered) {
        let at = self.held.partition_point(|other| other.first < write.first);
        self.held_items += u64::from(write.count);
        self.held.insert(at, write);
    }

    /// Moves the oldest held write back to the writes in flight, and returns it. The caller
    /// sends it.
    pub fn resend_held(&mut self) -> Option<&Unanswered> {
        let write = self.held.pop_front()?;
        self.held_items -= u64::from(write.count);
        self.bytes += write.items.len();
        self.sent.push_back(write);
        self.sent.back()
    }

    /// Handles a broken connection, and returns the numbers whose outcome is unknown. In a
    /// session, all writes count as in flight until they are answered, and the result is
    /// empty. Without a session, writes sent after the first held write were refused with
    /// it (feature `chain`), and become held too. Then the result is the unanswered numbers
    /// before the first held write.
    pub fn connection_lost(&mut self) -> std::ops::Range<u64> {
        if !self.client.is_none() {
            for write in std::mem::take(&mut self.sent) {
                self.hold(write);
            }
            self.sent = std::mem::take(&mut self.held);
            self.held_items = 0;
            self.bytes = self.sent.iter().map(|write| write.items.len()).sum();
            return self.last + 1..self.last + 1;
        }
        let from = self.answered + 1;
        let after = self.held.front().map_or(self.last + 1, |held| held.first);
        for write in std::mem::take(&mut self.sent) {
            if write.first > after {
                self.hold(write);
            }
        }
        self.bytes = 0;
        self.answered = after - 1;
        from..after
    }

    /// Holds all writes in flight except the first `writes`.
    pub fn hold_after(&mut self, writes: usize) {
        for write in self.sent.split_off(writes.min(self.sent.len())) {
            self.bytes -= write.items.len();
            self.hold(write);
        }
    }

    /// Sets the credit to new values from the server.
    pub fn credit(&mut self, window: u64, window_bytes: u64) {
        self.window = window.min(crate::WINDOW_MAX);
        self.window_bytes = window_bytes.min(WINDOW_BYTES_MAX);
    }

    /// Records a write that the caller is about to send.
    pub fn sent(&mut self, count: u32, items: Vec<u8>) {
        assert!(count > 0, "a write has items");
        let first = self.last + 1;
        self.last += u64::from(count);
        self.bytes += items.len();
        self.sent.push_back(Unanswered {
            first,
            count,
            items,
        });
    }

    /// Processes a run of answers. Returns how many answers were known, and how many are
    /// new. The new answers follow the known answers.
    pub fn answer(&mut self, nonce: u64, count: u32) -> Result<(u32, u32), Fault> {
        let first = if self.client.is_none() {
            if nonce != 0 {
                return Err("a nonce without session");
            }
            self.answered + 1
        } else {
            nonce
        };
        let Some(after) = first.checked_add(u64::from(count)) else {
            return Err("a nonce above 2^64 - 1");
        };
        if after > self.last + 1 && self.client.is_none() {
            return Err("an answer to a write that was never sent");
        }
        if first > self.last {
            // For a resumed session, the server repeats all answers that the store knows.
            return Ok((count, 0));
        }
        if first > self.answered + 1 {
            return Err("an answer is missing");
        }
        let known = (self.answered + 1 - first).min(u64::from(count));
        let new = (after.min(self.last + 1)).saturating_sub(first + known);
        let small = |number| u32::try_from(number).unwrap_or(count);
        let (known, new) = (small(known), small(new));
        let to = self.sent.front().map_or(u64::MAX, |write| write.first);
        let sent = self.sent.back().map_or(self.answered, Unanswered::last);
        if new > 0 && (self.answered + 1 < to || self.answered + u64::from(new) > sent) {
            return Err("an answer to a refused write");
        }
        self.answered += u64::from(new);
        self.remove_answered();
        Ok((known, new))
    }

    fn remove_answered(&mut self) {
        while let Some(write) = self.sent.front()
            && write.last() <= self.answered
        {
            self.bytes -= write.items.len();
            self.sent.pop_front();
        }
    }

    /// Handles the refusal of the oldest write in flight, which is not in the log. In a
    /// session, the server refuses all later writes too, so all writes in flight are
    /// dropped and numbering continues at the first of them. Without a session, only that
    /// write and the held writes before it are dropped. Returns the numbers of the dropped
    /// writes.
    pub fn refused(&mut self, code: ErrorCode) -> std::ops::Range<u64> {
        debug_assert!(code.class() != weir_core::error_code::Class::Invalid);
        if self.client.is_none() {
            let first = self.answered + 1;
            let count = self
                .sent
                .front()
                .map_or(0, |write| write.last() - self.answered);
            self.answered += count;
            self.remove_answered();
            // Held writes with lower numbers have waited longer, so they are dropped too.
            while self
                .held
                .front()
                .is_some_and(|held| held.first < first + count)
            {
                if let Some(held) = self.held.pop_front() {
                    self.held_items -= u64::from(held.count);
                }
            }
            return first..first + count;
        }
        self.drop_all()
    }

    /// Continues at `number`. A no-op without a session, or while writes are in flight or
    /// held.
    pub fn rewind(&mut self, number: u64) {
        if self.sent.is_empty() && self.held.is_empty() && !self.client.is_none() {
            self.answered = number.saturating_sub(1);
            self.last = self.answered;
        }
    }

    /// Drops all writes in flight and held. In a session, their numbers are used again.
    /// Returns the numbers of the writes in flight.
    pub fn drop_all(&mut self) -> std::ops::Range<u64> {
        let session = !self.client.is_none();
        let held = self.held.front().filter(|_| !session);
        let lost = self.answered + 1..held.map_or(self.last + 1, |held| held.first);
        self.sent.clear();
        self.bytes = 0;
        self.held.clear();
        self.held_items = 0;
        if self.client.is_none() {
            self.answered = self.last;
        } else {
            self.last = self.answered;
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::ClientConnection;
    use crate::HelloOk;
    use weir_core::ClientId;

    fn opened(client: ClientId) -> ClientConnection {
        let mut writes = ClientConnection::new(client);
        let hello = HelloOk {
            next: 1,
            window: 100,
            window_bytes: 1000,
            ..HelloOk::default()
        };
        writes.opened(&hello).unwrap();
        writes
    }

    fn first_of(writes: &ClientConnection) -> Vec<u64> {
        writes.unanswered().map(|write| write.first).collect()
    }

    #[test]
    fn refused_writes_are_resent_in_order() {
        for client in [ClientId::NONE, ClientId([1; 16])] {
            let mut writes = opened(client);
            for count in [2, 3, 4] {
                writes.sent(count, vec![0; 10]);
            }
            writes.hold_refused();
            writes.hold_refused();
            // The second write is sent, and refused again, while the third is held.
            writes.hold_refused();
            assert_eq!(writes.resend_held().unwrap().first, 1);
            let nonce = u64::from(!client.is_none());
            assert_eq!(writes.answer(nonce, 2), Ok((0, 2)));
            assert_eq!(writes.resend_held().unwrap().first, 3);
            writes.hold_refused();
            assert_eq!(writes.held().unwrap().first, 3);
            assert!(writes.may_send(100, 1000), "held writes use no credit");
            assert_eq!(writes.resend_held().unwrap().first, 3);
            assert_eq!(writes.resend_held().unwrap().first, 6);
            assert!(writes.resend_held().is_none());
        }
    }

    #[test]
    fn a_next_nonce_that_could_overflow_is_refused() {
        for (next, accepted) in [(1 << 63, true), ((1 << 63) + 1, false), (u64::MAX, false)] {
            let mut writes = ClientConnection::new(ClientId([1; 16]));
            let hello = HelloOk {
                next,
                ..HelloOk::default()
            };
            assert_eq!(writes.opened(&hello).is_ok(), accepted, "{next}");
        }
    }

    #[test]
    fn writes_in_flight_are_bounded_whatever_the_server_grants() {
        let mut writes = opened(ClientId::NONE);
        writes.credit(u64::MAX, u64::MAX);
        for _ in 0..64 {
            assert!(writes.may_send(1, 1 << 20));
            writes.sent(1, vec![0; 1 << 20]);
        }
        assert!(!writes.may_send(1, 1));
    }

    #[test]
    fn a_lost_connection_returns_the_numbers_without_outcome() {
        let mut writes = opened(ClientId::NONE);
        for count in [1, 1, 1] {
            writes.sent(count, vec![0; 10]);
        }
        writes.hold_refused();
        // The two writes after the first were refused with it.
        assert_eq!(writes.connection_lost(), 1..1);
        assert_eq!(writes.held().unwrap().first, 1);
        writes.resend_held();
        writes.resend_held();
        // Two writes are in flight, with lower numbers than the third.
        assert_eq!(writes.connection_lost(), 1..3);
        assert_eq!(writes.resend_held().unwrap().first, 3);

        let mut writes = opened(ClientId([1; 16]));
        for count in [1, 1] {
            writes.sent(count, vec![0; 10]);
        }
        writes.hold_refused();
        assert!(writes.connection_lost().is_empty());
        assert_eq!(first_of(&writes), [1, 2]);
    }

    #[test]
    fn an_answer_to_a_refused_write_is_a_fault() {
        let mut writes = opened(ClientId::NONE);
        writes.sent(1, vec![0]);
        writes.sent(1, vec![0]);
        writes.hold_refused();
        assert!(writes.answer(0, 1).is_err());
    }
}
