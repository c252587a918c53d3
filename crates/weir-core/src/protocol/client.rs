//! The client's side of writing, without its I/O: what was sent and has no
//! answer, and what must be sent again on a new connection.
//!
//! Items are numbered from 1 in the order in which they are sent. In a session
//! these numbers are its nonces; without one they never leave the client.

use std::collections::VecDeque;

use crate::error_code::ErrorCode;
use crate::ids::ClientId;

use super::message::{Hello, HelloOk};

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

/// What one side learns that the other must not have said.
pub type Fault = &'static str;

/// State of a client's writes, over all of its connections.
#[derive(Clone, Debug)]
pub struct ClientConnection {
    client: ClientId,
    store: Option<[u8; 16]>,
    sent: VecDeque<Unanswered>,
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
        let in_flight = !self.client.is_none() && !self.sent.is_empty();
        Hello {
            versions: super::VERSION.as_bytes(),
            client: self.client,
            resume: in_flight.then(|| self.answered + 1),
            store: self.store.filter(|_| !self.client.is_none()),
            ..Hello::default()
        }
    }

    /// The server's answer to it. Returns how many writes at the front of
    /// [`unanswered`](Self::unanswered) need not be sent again: they will be
    /// answered without that. Behind an error nothing of what is in flight is
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
        if self.sent.is_empty() {
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
        self.sent.is_empty()
            || (self.last - self.answered + u64::from(count) <= self.window
                && (self.bytes + bytes) as u64 <= self.window_bytes)
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
    /// new behind those.
    pub fn answer(&mut self, nonce: u64, count: u32) -> Result<(u32, u32), Fault> {
        let first = if self.client.is_none() {
            if nonce != 0 {
                return Err("a nonce without session");
            }
            self.answered + 1
        } else {
            nonce
        };
        let Some(behind) = first.checked_add(u64::from(count)) else {
            return Err("a nonce behind the last one");
        };
        if behind > self.last + 1 && self.client.is_none() {
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
        let new = (behind.min(self.last + 1)).saturating_sub(first + known);
        let small = |number| u32::try_from(number).unwrap_or(count);
        let (known, new) = (small(known), small(new));
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
    /// Forgets everything in flight: in a session what is behind it is refused
    /// as well, and numbering goes on at the first of them. Returns the numbers
    /// that are free again.
    pub fn refused(&mut self, code: ErrorCode) -> std::ops::Range<u64> {
        debug_assert!(code.class() != crate::error_code::Class::Invalid);
        if self.client.is_none() {
            let first = self.answered + 1;
            let count = self
                .sent
                .front()
                .map_or(0, |write| write.last() - self.answered);
            self.answered += count;
            self.settle();
            return first..first + count;
        }
        self.give_up()
    }

    /// Goes on at this number instead of the next one; nothing may be in flight.
    pub fn rewind(&mut self, number: u64) {
        if self.sent.is_empty() && !self.client.is_none() {
            self.answered = number.saturating_sub(1);
            self.last = self.answered;
        }
    }

    /// Forgets everything in flight; in a session its numbers are free again.
    pub fn give_up(&mut self) -> std::ops::Range<u64> {
        let lost = self.answered + 1..self.last + 1;
        self.sent.clear();
        self.bytes = 0;
        if self.client.is_none() {
            self.answered = self.last;
        } else {
            self.last = self.answered;
        }
        lost
    }
}
