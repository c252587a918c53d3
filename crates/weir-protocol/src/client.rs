//! The client's side of writing, without its I/O: what was sent and has no
//! answer, and what must be sent again on a new connection.
//!
//! Items are numbered from 1 in the order in which they are sent. In a session
//! these numbers are its nonces; without one they never leave the client.

use std::collections::VecDeque;

use weir_core::ClientId;
use weir_core::error_code::ErrorCode;

use crate::message::{Hello, HelloOk};

/// A write that was sent and is not answered, or not all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// Number of its first item.
    pub first: u64,
    /// Its items.
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

/// Whether a refusal says that nothing was taken and the same may be sent again,
/// later or elsewhere.
#[must_use]
pub const fn is_for_now(code: ErrorCode) -> bool {
    use ErrorCode::{Busy, Draining, NoLeader, Opening, Rate, Redirect};
    matches!(code, Busy | Draining | NoLeader | Opening | Rate | Redirect)
}

/// What one side learns that the other must not have said.
pub type Fault = &'static str;

/// State of a client's writes, over all of its connections.
#[derive(Clone, Debug)]
pub struct ClientConnection {
    client: ClientId,
    store: Option<[u8; 16]>,
    sent: VecDeque<Unanswered>,
    /// What was refused for now and is not in the log: to be sent again, in
    /// this order.
    held: VecDeque<Unanswered>,
    held_items: u64,
    /// Bytes of `sent`.
    bytes: usize,
    /// Highest number that was answered, all below it too.
    answered: u64,
    /// Highest number that was sent.
    last: u64,
    window: u64,
    window_bytes: u64,
}

impl ClientConnection {
    /// A client that has sent nothing; `NONE` for no session.
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

    /// Highest number that was answered, with all below it.
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

    /// The server's answer to it. Returns how many writes at the front of
    /// [`unanswered`](Self::unanswered) need not be sent again: they will be
    /// answered without that. After an error nothing of what is in flight is
    /// known.
    ///
    /// Without a session nothing may be sent again; the caller takes what is in
    /// flight with [`give_up`](Self::give_up) first.
    pub fn opened(&mut self, hello: &HelloOk<'_>) -> Result<usize, Fault> {
        let other = self.store.is_some_and(|store| store != hello.store);
        if other && !self.client.is_none() {
            return Err("another store answers at this address");
        }
        self.store = Some(hello.store);
        self.window = hello.window;
        self.window_bytes = hello.window_bytes;
        if self.client.is_none() {
            return Ok(0);
        }
        let Some(known) = hello.next.checked_sub(1) else {
            return Err("a session without a next nonce");
        };
        if self.sent.is_empty() && self.held.is_empty() {
            // Nothing in flight: goes on where the store stands.
            self.answered = known;
            self.last = known;
            return Ok(0);
        }
        if known < self.answered {
            return Err("the store has lost answers that it gave");
        }
        // Above `last` when the client had gone back to older numbers.
        Ok(self
            .sent
            .iter()
            .take_while(|write| write.last() <= known)
            .count())
    }

    /// What is in flight, oldest first.
    pub fn unanswered(&self) -> impl Iterator<Item = &Unanswered> {
        self.sent.iter()
    }

    /// Whether a write of so many items and bytes is within the credit.
    #[must_use]
    pub fn may_send(&self, count: u32, bytes: usize) -> bool {
        let items = (self.last - self.answered).saturating_sub(self.held_items);
        self.sent.is_empty()
            || (items + u64::from(count) <= self.window
                && (self.bytes + bytes) as u64 <= self.window_bytes)
    }

    /// What was refused for now, oldest first.
    #[must_use]
    pub fn held(&self) -> Option<&Unanswered> {
        self.held.front()
    }

    /// The oldest write in flight was refused for now: it keeps its numbers and
    /// is to be sent [`again`](Self::again).
    pub fn hold(&mut self) {
        if let Some(write) = self.sent.pop_front() {
            self.bytes -= write.items.len();
            self.keep(write);
        }
    }

    fn keep(&mut self, write: Unanswered) {
        let at = self.held.partition_point(|other| other.first < write.first);
        self.held_items += u64::from(write.count);
        self.held.insert(at, write);
    }

    /// Takes note that the oldest write that was held is about to be sent again,
    /// and returns it.
    pub fn again(&mut self) -> Option<&Unanswered> {
        let write = self.held.pop_front()?;
        self.held_items -= u64::from(write.count);
        self.bytes += write.items.len();
        self.sent.push_back(write);
        self.sent.back()
    }

    /// The connection is gone. In a session everything is still to be answered
    /// and is in flight. Without one, what was sent after a write that is held
    /// was refused with it (feature `chain`), and the numbers are returned of
    /// what was sent in front of it: its outcome is not known.
    pub fn broke(&mut self) -> std::ops::Range<u64> {
        if !self.client.is_none() {
            for write in std::mem::take(&mut self.sent) {
                self.keep(write);
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
                self.keep(write);
            }
        }
        self.bytes = 0;
        self.answered = after - 1;
        from..after
    }

    /// Holds what is in flight after so many writes at the front.
    pub fn hold_after(&mut self, writes: usize) {
        for write in self.sent.split_off(writes.min(self.sent.len())) {
            self.bytes -= write.items.len();
            self.keep(write);
        }
    }

    /// A credit that the server changed.
    pub fn credit(&mut self, window: u64, window_bytes: u64) {
        self.window = window;
        self.window_bytes = window_bytes;
    }

    /// Takes note of a write that is about to be sent.
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

    /// A run of answers: how many of them are known already, and how many are
    /// new after those.
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
            return Err("a nonce after the last one");
        };
        if after > self.last + 1 && self.client.is_none() {
            return Err("an answer to what was never sent");
        }
        if first > self.last {
            // A resumed session is told of all that the store knows.
            return Ok((count, 0));
        }
        if first > self.answered + 1 {
            return Err("an answer was left out");
        }
        let known = (self.answered + 1 - first).min(u64::from(count));
        let new = (after.min(self.last + 1)).saturating_sub(first + known);
        let small = |number| u32::try_from(number).unwrap_or(count);
        let (known, new) = (small(known), small(new));
        let to = self.sent.front().map_or(u64::MAX, |write| write.first);
        let sent = self.sent.back().map_or(self.answered, Unanswered::last);
        if new > 0 && (self.answered + 1 < to || self.answered + u64::from(new) > sent) {
            return Err("an answer to what was refused");
        }
        self.answered += u64::from(new);
        self.settle();
        Ok((known, new))
    }

    fn settle(&mut self) {
        while let Some(write) = self.sent.front()
            && write.last() <= self.answered
        {
            self.bytes -= write.items.len();
            self.sent.pop_front();
        }
    }

    /// The oldest write in flight was refused as a whole and is not in the log.
    /// Forgets everything in flight: in a session what is after it is refused
    /// as well, and numbering goes on at the first of them. Returns the numbers
    /// that are free again.
    pub fn refused(&mut self, code: ErrorCode) -> std::ops::Range<u64> {
        debug_assert!(code.class() != weir_core::error_code::Class::Invalid);
        if self.client.is_none() {
            let first = self.answered + 1;
            let count = self
                .sent
                .front()
                .map_or(0, |write| write.last() - self.answered);
            self.answered += count;
            self.settle();
            // Those in front of it that are held have waited longer.
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
        self.give_up()
    }

    /// Goes on at this number instead of the next one; nothing may be in flight.
    pub fn rewind(&mut self, number: u64) {
        if self.sent.is_empty() && self.held.is_empty() && !self.client.is_none() {
            self.answered = number.saturating_sub(1);
            self.last = self.answered;
        }
    }

    /// Forgets everything in flight and held; in a session its numbers are free
    /// again. Returns the numbers of what was in flight.
    pub fn give_up(&mut self) -> std::ops::Range<u64> {
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
    fn what_was_refused_for_now_goes_again_in_its_order() {
        for client in [ClientId::NONE, ClientId([1; 16])] {
            let mut writes = opened(client);
            for count in [2, 3, 4] {
                writes.sent(count, vec![0; 10]);
            }
            writes.hold();
            writes.hold();
            // The second one is sent, and refused again, while the third is held.
            writes.hold();
            assert_eq!(writes.again().unwrap().first, 1);
            let nonce = u64::from(!client.is_none());
            assert_eq!(writes.answer(nonce, 2), Ok((0, 2)));
            assert_eq!(writes.again().unwrap().first, 3);
            writes.hold();
            assert_eq!(writes.held().unwrap().first, 3);
            assert!(writes.may_send(100, 1000), "what is held takes no credit");
            assert_eq!(writes.again().unwrap().first, 3);
            assert_eq!(writes.again().unwrap().first, 6);
            assert!(writes.again().is_none());
        }
    }

    #[test]
    fn a_connection_that_breaks_leaves_open_what_is_not_known() {
        let mut writes = opened(ClientId::NONE);
        for count in [1, 1, 1] {
            writes.sent(count, vec![0; 10]);
        }
        writes.hold();
        // The two after it were refused with it.
        assert_eq!(writes.broke(), 1..1);
        assert_eq!(writes.held().unwrap().first, 1);
        writes.again();
        writes.again();
        // Now two are in flight, in front of the third.
        assert_eq!(writes.broke(), 1..3);
        assert_eq!(writes.again().unwrap().first, 3);

        let mut writes = opened(ClientId([1; 16]));
        for count in [1, 1] {
            writes.sent(count, vec![0; 10]);
        }
        writes.hold();
        assert!(writes.broke().is_empty());
        assert_eq!(first_of(&writes), [1, 2]);
    }

    #[test]
    fn an_answer_to_what_was_refused_is_a_fault() {
        let mut writes = opened(ClientId::NONE);
        writes.sent(1, vec![0]);
        writes.sent(1, vec![0]);
        writes.hold();
        assert!(writes.answer(0, 1).is_err());
    }
}
