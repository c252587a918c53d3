//! The requests of a connection and the packets received for them: responses, pages of listeners,
//! and marks, which report the progress of the server.
//!
//! Invariants: no packet is stored for a caller that has stopped waiting; a mark is delivered after
//! the records before it.

use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use weir_core::{ErrorCode, IntentionOffset};
use weir_protocol::{Consistency, Deframer, Encoder, Message, PACKET_BYTES_MAX, Packet};
use weir_store::StoreError;

use super::lock::{Inner, PendingWake};
use super::{FinalError, Link, OUT_BYTES_MAX, State, remote_error};
use crate::clock::{Alarm, Until};
use crate::remote::pause::BackOff;

/// Requests in flight and open listeners of a connection.
const REQUESTS_MAX: usize = 100_000;
/// Bytes of packets for one request that the caller has not read. A server that keeps to the credit
/// of a listener sends one long page and much less than 16 MiB of other packets.
const INBOX_BYTES_MAX: usize = PACKET_BYTES_MAX + (16 << 20);

/// The packets for one request, and its waiting task.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub(super) struct Inbox {
    packets: VecDeque<Vec<u8>>,
    /// Memory of `packets`.
    bytes: usize,
    /// Whether the newest packet is PROGRESS. The next one replaces it.
    ends_with_progress: bool,
    /// Whether the request asks for marks.
    marks: bool,
    /// Whether the server knows the request. Later marks then include it.
    answered: bool,
    /// All records up to this intention have arrived.
    mark: Option<u64>,
    /// Whether the connection of this request is lost.
    pub(super) lost: bool,
    /// The refusal after which the server closed this connection, if it may be of this request.
    refusal: Option<FinalError>,
    /// The encoded request, until it is sent.
    pub(super) unsent: Option<Vec<u8>>,
    /// The waiting task.
    pub(super) waker: Option<Waker>,
}

impl Link {
    /// Sends a request and waits until `until` for its response, which is one packet. Resends the
    /// request if the connection breaks, and after a pause if the server asks for one. So the
    /// request must be safe to repeat. Fails if two connections in a row end with a refusal that may
    /// be of this request.
    pub(crate) async fn request(
        &self,
        message: &Message<'_>,
        consistency: Option<Consistency>,
        until: Option<Instant>,
    ) -> Result<Vec<u8>, StoreError> {
        let mut backoff = BackOff::default();
        let mut refused = None;
        let mut ended_connection = false;
        loop {
            let request = self.begin(message, consistency)?;
            let received = self.receive(request.tag, until).await?;
            let refusal = match received {
                Received::Lost => self.refusal_of(request.tag),
                Received::Packet(_) | Received::Nothing => None,
            };
            drop(request);
            match received {
                Received::Packet(packet) => match backoff.of(&packet_of(&packet)?, until) {
                    Some(pause) => {
                        refused = Some(packet);
                        self.sleep(pause).await?;
                    }
                    None => return Ok(packet),
                },
                Received::Lost => match refusal {
                    Some(refusal) if ended_connection => return Err(refusal.to_store_error()),
                    refusal => ended_connection = refusal.is_some(),
                },
                // The earlier refusal is more precise than a timeout.
                Received::Nothing => return refused.ok_or_else(|| self.deadline_error()),
            }
        }
    }

    /// The error for a response that did not arrive in time.
    pub(in crate::remote) fn deadline_error(&self) -> StoreError {
        self.inner.lock().deadline_error()
    }

    /// The refusal that ended the connection of a request, if it may be of this request.
    pub(in crate::remote) fn refusal_of(&self, tag: u64) -> Option<FinalError> {
        let state = self.inner.lock();
        state.inboxes.get(&tag)?.refusal.clone()
    }

    /// Waits for `time`. Fails if the connection has ended for good.
    pub(in crate::remote) async fn sleep(&self, time: Duration) -> Result<(), StoreError> {
        if let Some(until) = Instant::now().checked_add(time) {
            Until::new(until).await;
        }
        match &self.inner.lock().final_error {
            Some(error) => Err(error.to_store_error()),
            None => Ok(()),
        }
    }

    /// Sends a request, or stores it until there is a connection. [`receive`](Self::receive)
    /// returns its responses while the returned value exists.
    pub(in crate::remote) fn begin(
        &self,
        message: &Message<'_>,
        consistency: Option<Consistency>,
    ) -> Result<PendingRequest, StoreError> {
        let mut state = self.inner.lock();
        if let Some(error) = &state.final_error {
            return Err(error.to_store_error());
        }
        if state.given_up {
            return Err(state.connect_error());
        }
        if state.inboxes.len() >= REQUESTS_MAX {
            return Err(StoreError::LimitExceeded {
                what: "requests in flight",
                limit: REQUESTS_MAX as u64,
                value: state.inboxes.len() as u64 + 1,
            });
        }
        state.last_tag += 1;
        let tag = state.last_tag;
        let digits = tag.to_string();
        let packet = Packet::request(digits.as_bytes(), *message, consistency);
        let mut inbox = Inbox {
            marks: matches!(message, Message::Listen(listen) if listen.query.marks),
            ..Inbox::default()
        };
        if state.stream.is_some() && state.unsent.is_empty() && state.out.len() < OUT_BYTES_MAX {
            state.append(&packet);
        } else {
            let mut bytes = Vec::new();
            Encoder::default().encode(&packet, &mut bytes);
            inbox.unsent = Some(bytes);
            state.unsent.push_back(tag);
        }
        state.inboxes.insert(tag, inbox);
        self.inner.notify_writer(state);
        Ok(PendingRequest {
            inner: Arc::clone(&self.inner),
            tag,
        })
    }

    /// Sends a further packet of a request, if the connection of the request still exists.
    pub(in crate::remote) fn add(&self, tag: u64, message: &Message<'_>) {
        let mut state = self.inner.lock();
        let is_sent = |inbox: &Inbox| !inbox.lost && inbox.unsent.is_none();
        if state.inboxes.get(&tag).is_some_and(is_sent) {
            state.append(&Packet::tagged(tag.to_string().as_bytes(), *message));
            self.inner.notify_writer(state);
        }
    }

    /// Returns the next packet for a request. Waits until `until` at most.
    pub(in crate::remote) async fn receive(
        &self,
        tag: u64,
        until: Option<Instant>,
    ) -> Result<Received, StoreError> {
        let mut alarm = Alarm::default();
        let received = poll_fn(|context| {
            let mut state = self.inner.lock();
            let gone = state.given_up.then(|| state.connect_error());
            let Some(inbox) = state.inboxes.get_mut(&tag) else {
                return Poll::Ready(Ok(Received::Lost));
            };
            if let Some(packet) = inbox.packets.pop_front() {
                inbox.bytes -= memory_of(&packet);
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

    /// The intention up to which the caller has all records of a listener; `None` while there are
    /// received packets that the caller has not read.
    pub(in crate::remote) fn mark(&self, tag: u64) -> Option<u64> {
        let state = self.inner.lock();
        let inbox = state.inboxes.get(&tag)?;
        let all_read = inbox.packets.is_empty() && !inbox.lost;
        inbox.mark.filter(|_| all_read)
    }

    /// The progress that the server reported last.
    pub(in crate::remote) fn marks(&self) -> Option<(IntentionOffset, IntentionOffset)> {
        let marks = self.inner.lock().marks;
        marks.map(|(settled, created)| (IntentionOffset(settled), IntentionOffset(created)))
    }

    pub(in crate::remote) fn set_marks(&self, settled: IntentionOffset, created: IntentionOffset) {
        self.inner.lock().marks = Some((settled.0, created.0));
    }

    /// The number of packets and marks received.
    pub(crate) fn deliveries(&self) -> u64 {
        self.inner.lock().deliveries
    }

    /// Waits for a packet after the first `seen` ones, until `until` at most.
    pub(in crate::remote) fn wait_news(&self, seen: u64, until: Option<Instant>) {
        let mut state = self.inner.lock();
        while state.deliveries <= seen && state.final_error.is_none() {
            let (next, has_time) = self.inner.wait(state, until);
            state = next;
            if !has_time {
                break;
            }
        }
    }
}

/// A request. When it is dropped, its packets are discarded.
#[derive(Debug)]
pub(in crate::remote) struct PendingRequest {
    inner: Arc<Inner>,
    pub(in crate::remote) tag: u64,
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.inner.lock().inboxes.remove(&self.tag);
    }
}

/// What was received for a request.
pub(in crate::remote) enum Received {
    Packet(Vec<u8>),
    /// The connection broke: send the request again.
    Lost,
    /// Nothing arrived in time.
    Nothing,
}

impl State {
    /// Moves stored requests into the output buffer.
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

    /// Notes a refusal that may be of any request in flight.
    pub(super) fn refuse_requests(&mut self, refusal: &FinalError) {
        let inboxes = self.inboxes.values_mut();
        for inbox in inboxes.filter(|inbox| inbox.unsent.is_none()) {
            inbox.refusal = Some(refusal.clone());
        }
    }

    /// Whether a caller waits for packets with this tag.
    pub(in crate::remote) fn has_request(&self, tag: &[u8]) -> bool {
        number(tag).is_some_and(|tag| self.inboxes.contains_key(&tag))
    }

    /// Adds a packet to the inbox of its tag, if a caller waits for it. If the server sends more
    /// than a caller has requested, ends the request. The caller sends it again.
    pub(in crate::remote) fn deliver(&mut self, packet: &Packet<'_>, bytes: &[u8]) {
        self.deliveries += 1;
        let inbox = number(packet.tag).and_then(|tag| self.inboxes.get_mut(&tag));
        let Some(inbox) = inbox.filter(|inbox| !inbox.lost) else {
            return;
        };
        inbox.answered = true;
        let is_progress = matches!(packet.message, Message::Progress { .. });
        if is_progress
            && inbox.ends_with_progress
            && let Some(before) = inbox.packets.pop_back()
        {
            inbox.bytes -= memory_of(&before);
        }
        let is_full = inbox.bytes >= INBOX_BYTES_MAX;
        if is_full {
            inbox.packets = VecDeque::new();
            inbox.bytes = 0;
            inbox.lost = true;
        } else {
            inbox.bytes += memory_of(bytes);
            inbox.packets.push_back(bytes.to_vec());
            inbox.ends_with_progress = is_progress;
        }
        self.to_deliver
            .extend(inbox.waker.take().map(PendingWake::Wake));
        if is_full {
            self.append(&Packet::tagged(packet.tag, Message::Unlisten));
        }
    }

    /// Notes that the server has sent everything up to `settled`, except to the listeners in
    /// `lagging`.
    pub(in crate::remote) fn marked(&mut self, settled: u64, created: u64, lagging: &[u8]) {
        let lagging: HashSet<u64> = (lagging.split(|&byte| byte == b'\n'))
            .filter_map(number)
            .filter(|tag| self.inboxes.contains_key(tag))
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

/// Memory of a packet in an inbox, in bytes.
fn memory_of(packet: &[u8]) -> usize {
    packet.len() + size_of::<Vec<u8>>()
}

/// The number of a tag.
fn number(tag: &[u8]) -> Option<u64> {
    std::str::from_utf8(tag).ok()?.parse().ok()
}

/// Parses a complete packet.
pub(in crate::remote) fn packet_of(bytes: &[u8]) -> Result<Packet<'_>, StoreError> {
    let wrong = |_| remote_error(ErrorCode::Protocol, "the server sent a malformed packet");
    let mut deframer = Deframer::default();
    deframer.find(bytes).map_err(wrong)?;
    deframer.read(bytes).map_err(wrong)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use std::net::TcpListener;

    use weir_core::ClientId;

    use super::*;
    use crate::remote::ConnectOptions;
    use crate::remote::address::Address;

    /// A link to a listener that accepts no connection.
    fn link() -> (TcpListener, Link) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("weir://{}", listener.local_addr().unwrap());
        let addresses: [Address; 1] = [address.parse().unwrap()];
        let link = Link::new(&addresses, ClientId::NONE, &ConnectOptions::default());
        (listener, link.unwrap())
    }

    #[test]
    fn unread_packets_are_bounded() {
        let (_listener, link) = link();
        let request = link.begin(&Message::Status, None).unwrap();
        let tag = request.tag.to_string();
        let mut state = link.inner.lock();
        let progress = Packet::tagged(tag.as_bytes(), Message::Progress { position: 1 });
        for _ in 0..1000 {
            state.deliver(&progress, b"a packet");
        }
        assert_eq!(state.inboxes[&request.tag].packets.len(), 1);
        let bytes = vec![0; 1 << 20];
        let response = Packet::tagged(tag.as_bytes(), Message::Synced);
        while !state.inboxes[&request.tag].lost {
            state.deliver(&response, &bytes);
            let inbox = &state.inboxes[&request.tag];
            assert!(inbox.bytes < INBOX_BYTES_MAX + 2 * bytes.len());
        }
        assert!(state.inboxes[&request.tag].packets.is_empty());
        state.deliver(&response, &bytes);
        assert!(state.inboxes[&request.tag].packets.is_empty());
    }

    #[test]
    fn a_server_that_does_not_read_gets_no_more_responses() {
        let (_listener, link) = link();
        let mut state = link.inner.lock();
        for _ in 0..OUT_BYTES_MAX {
            state.pong(b"1");
        }
        assert!(state.out.len() < OUT_BYTES_MAX + 100);
    }
}
