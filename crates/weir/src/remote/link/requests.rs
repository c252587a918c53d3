//! The requests of a connection, and what came for them: answers to questions,
//! pages of listeners, and marks that say how far the server has got.
//!
//! Invariants: no packet is kept for a caller that has stopped waiting; a mark
//! follows the record that it is about.

use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use weir_core::{ErrorCode, IntentionOffset};
use weir_protocol::{Deframer, Encoder, Message, Packet};
use weir_store::StoreError;

use super::lock::{Inner, PendingWake};
use super::{Link, OUT_BYTES_MAX, State, remote_error};
use crate::clock::{Alarm, Until};
use crate::remote::pause::BackOff;

/// Requests of a connection that are on their way, or listened to.
const REQUESTS_MAX: usize = 100_000;

/// Somebody who waits for an answer of another kind.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    packets: VecDeque<Vec<u8>>,
    /// Marks are wanted.
    marks: bool,
    /// The server knows of the request: marks from now on are about it too.
    answered: bool,
    /// Everything up to this intention is among the packets that came.
    mark: Option<u64>,
    /// The connection on which it was asked is gone.
    pub(super) lost: bool,
    /// The request, while it was not sent.
    pub(super) unsent: Option<Vec<u8>>,
    /// Who waits.
    pub(super) waker: Option<Waker>,
}

impl Link {
    /// Asks, and waits for the answer until then: one packet. Asks again when
    /// the connection breaks, and later when the server says so: only for what
    /// may be asked twice.
    pub(crate) async fn ask(
        &self,
        message: &Message<'_>,
        until: Option<Instant>,
    ) -> Result<Vec<u8>, StoreError> {
        let mut backoff = BackOff::default();
        let mut refused = None;
        loop {
            let asked = self.begin(message)?;
            let received = self.receive(asked.tag, until).await?;
            drop(asked);
            match received {
                Received::Packet(packet) => match backoff.of(&packet_of(&packet)?, until) {
                    Some(pause) => {
                        refused = Some(packet);
                        self.rest(pause).await?;
                    }
                    None => return Ok(packet),
                },
                Received::Lost => {}
                // The refusal before says more than that the time is over.
                Received::Nothing => return refused.ok_or_else(|| self.late()),
            }
        }
    }

    /// The error for an answer that did not come in time.
    pub(in crate::remote) fn late(&self) -> StoreError {
        self.inner.lock().late()
    }

    /// Waits so long; fails when the connection has ended for good.
    pub(in crate::remote) async fn rest(&self, time: Duration) -> Result<(), StoreError> {
        if let Some(until) = Instant::now().checked_add(time) {
            Until::new(until).await;
        }
        match &self.inner.lock().dead {
            Some(dead) => Err(dead.error()),
            None => Ok(()),
        }
    }

    /// Sends a request, or keeps it until there is a connection. Its answers
    /// are fetched with [`receive`](Self::receive), as long as what is returned
    /// lives.
    pub(in crate::remote) fn begin(&self, message: &Message<'_>) -> Result<Asked, StoreError> {
        let mut state = self.inner.lock();
        if let Some(dead) = &state.dead {
            return Err(dead.error());
        }
        if state.given_up {
            return Err(state.unreachable());
        }
        if state.inboxes.len() >= REQUESTS_MAX {
            return Err(StoreError::LimitExceeded {
                what: "requests on their way",
                limit: REQUESTS_MAX as u64,
                value: state.inboxes.len() as u64 + 1,
            });
        }
        state.last_tag += 1;
        let tag = state.last_tag;
        let mut inbox = Inbox {
            marks: matches!(message, Message::Listen(listen) if listen.query.marks),
            ..Inbox::default()
        };
        if state.stream.is_some() && state.unsent.is_empty() && state.out.len() < OUT_BYTES_MAX {
            state.put(tag, message);
        } else {
            let mut packet = Vec::new();
            let digits = tag.to_string();
            Encoder::default().encode(&tagged(digits.as_bytes(), message), &mut packet);
            inbox.unsent = Some(packet);
            state.unsent.push_back(tag);
        }
        state.inboxes.insert(tag, inbox);
        self.inner.left(state);
        Ok(Asked {
            inner: Arc::clone(&self.inner),
            tag,
        })
    }

    /// Sends something more about a request, if its connection is still there.
    pub(in crate::remote) fn add(&self, tag: u64, message: &Message<'_>) {
        let mut state = self.inner.lock();
        let is_there = |inbox: &Inbox| !inbox.lost && inbox.unsent.is_none();
        if state.inboxes.get(&tag).is_some_and(is_there) {
            state.put(tag, message);
            self.inner.left(state);
        }
    }

    /// The next answer to a request, at most until `until`.
    pub(in crate::remote) async fn receive(
        &self,
        tag: u64,
        until: Option<Instant>,
    ) -> Result<Received, StoreError> {
        let mut alarm = Alarm::default();
        let received = poll_fn(|context| {
            let mut state = self.inner.lock();
            let gone = state.given_up.then(|| state.unreachable());
            let Some(inbox) = state.inboxes.get_mut(&tag) else {
                return Poll::Ready(Ok(Received::Lost));
            };
            if let Some(packet) = inbox.packets.pop_front() {
                return Poll::Ready(Ok(Received::Packet(packet)));
            }
            if inbox.lost {
                return Poll::Ready(Ok(Received::Lost));
            }
            if let Some(error) = gone {
                return Poll::Ready(Err(error));
            }
            if let Some(until) = until {
                if until <= Instant::now() {
                    return Poll::Ready(Ok(Received::Nothing));
                }
                alarm.set(until, context.waker());
            }
            inbox.waker = Some(context.waker().clone());
            Poll::Pending
        });
        received.await
    }

    /// Up to where the records of a listener came, if all that came were taken.
    pub(in crate::remote) fn mark(&self, tag: u64) -> Option<u64> {
        let state = self.inner.lock();
        let inbox = state.inboxes.get(&tag)?;
        let taken = inbox.packets.is_empty() && !inbox.lost;
        inbox.mark.filter(|_| taken)
    }

    /// What the server said last about how far it has got.
    pub(in crate::remote) fn marks(&self) -> Option<(IntentionOffset, IntentionOffset)> {
        let marks = self.inner.lock().marks;
        marks.map(|(settled, created)| (IntentionOffset(settled), IntentionOffset(created)))
    }

    pub(in crate::remote) fn set_marks(&self, settled: IntentionOffset, created: IntentionOffset) {
        self.inner.lock().marks = Some((settled.0, created.0));
    }

    /// Packets that came so far.
    pub(crate) fn deliveries(&self) -> u64 {
        self.inner.lock().deliveries
    }

    /// Waits until more packets have come than these, until `until` at most.
    pub(in crate::remote) fn wait_news(&self, seen: u64, until: Option<Instant>) {
        let mut state = self.inner.lock();
        while state.deliveries <= seen && state.dead.is_none() {
            let (next, goes_on) = self.inner.wait(state, until);
            state = next;
            if !goes_on {
                break;
            }
        }
    }
}

/// A request; nobody waits for its answers when this is dropped.
#[derive(Debug)]
pub(in crate::remote) struct Asked {
    inner: Arc<Inner>,
    pub(in crate::remote) tag: u64,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.inner.lock().inboxes.remove(&self.tag);
    }
}

/// What came for a request.
pub(in crate::remote) enum Received {
    Packet(Vec<u8>),
    /// The connection broke: ask again.
    Lost,
    /// Nothing in time.
    Nothing,
}

impl State {
    fn put(&mut self, tag: u64, message: &Message<'_>) {
        let digits = tag.to_string();
        let packet = tagged(digits.as_bytes(), message);
        self.encoder.encode(&packet, &mut self.out);
    }

    /// Moves requests that were not sent to the bytes that are sent next.
    pub(super) fn fill_requests(&mut self) {
        while self.out.len() < OUT_BYTES_MAX
            && let Some(tag) = self.unsent.pop_front()
        {
            let inbox = self.inboxes.get_mut(&tag);
            if let Some(packet) = inbox.and_then(|inbox| inbox.unsent.take()) {
                self.out.extend_from_slice(&packet);
            }
        }
    }

    /// Whether anybody waits for answers with this tag.
    pub(in crate::remote) fn is_asked(&self, tag: &[u8]) -> bool {
        number(tag).is_some_and(|tag| self.inboxes.contains_key(&tag))
    }

    /// Puts a packet into the inbox that its tag names, if anybody waits.
    pub(in crate::remote) fn deliver(&mut self, tag: &[u8], packet: &[u8]) {
        if let Some(inbox) = number(tag).and_then(|tag| self.inboxes.get_mut(&tag)) {
            inbox.answered = true;
            inbox.packets.push_back(packet.to_vec());
            self.given.extend(inbox.waker.take().map(PendingWake::Wake));
        }
        self.deliveries += 1;
    }

    /// The server has sent everything up to this intention, but to these
    /// listeners.
    pub(in crate::remote) fn marked(&mut self, settled: u64, created: u64, lagging: &[u8]) {
        let lagging = lagging.split(|&byte| byte == b'\n');
        let lagging: HashSet<u64> = lagging
            .filter_map(|tag| std::str::from_utf8(tag).ok()?.parse().ok())
            .collect();
        for (tag, inbox) in &mut self.inboxes {
            if inbox.marks && inbox.answered && !lagging.contains(tag) {
                inbox.mark = Some(settled);
            }
        }
        self.marks = Some((settled, created));
        self.deliveries += 1;
    }
}

fn tagged<'a>(tag: &'a [u8], message: &Message<'a>) -> Packet<'a> {
    Packet {
        require: message.feature(),
        ..Packet::tagged(tag, *message)
    }
}

/// The number of a tag.
fn number(tag: &[u8]) -> Option<u64> {
    std::str::from_utf8(tag).ok()?.parse().ok()
}

/// Reads a packet that was received whole.
pub(in crate::remote) fn packet_of(bytes: &[u8]) -> Result<Packet<'_>, StoreError> {
    let wrong = |_| remote_error(ErrorCode::Protocol, "the server sent a packet that is none");
    let mut deframer = Deframer::default();
    deframer.find(bytes).map_err(wrong)?;
    deframer.read(bytes).map_err(wrong)
}
