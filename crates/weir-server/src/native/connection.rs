//! One connection of the native port: reading, sending, and closing.

use std::collections::BTreeMap;
use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, Sleep};
use weir_core::{ConsequenceOffset, ErrorCode};
use weir_protocol::{
    After, CHAIN, Consistency, Encoder, FrameError, Listen, Message, Packet, Phase as State,
    ServerConnection,
};

use super::answers::Answers;
use super::buffer::{Outgoing, Received};
use super::listeners::Listeners;
use super::refuse::{self, Refused};
use super::{Port, reached};
use crate::cluster::Member;
use crate::connections::Slot;
use crate::limits::admission::NextWrite;
use crate::limits::budget::BudgetExhausted;
use crate::phase::Phase;
use crate::security::Principal;
use crate::sessions::SessionGuard;

mod groups;
mod guard;
mod hello;
mod reads;
mod writes;

use groups::Claims;
use hello::FEATURES;
use reads::Read;
use writes::WriteAdmission;

/// Deadline for HELLO after a connection opens.
const HELLO_TIME: Duration = Duration::from_secs(10);
/// Longest silence inside a packet, and longest wait of an incomplete packet for memory.
const STALL_TIME: Duration = Duration::from_secs(30);
/// First interval at which a connection polls for a state without a wake-up, such as free memory in
/// a budget. A queue of waiters would let a large packet block the small packets of others. The
/// interval doubles with each poll, so that many waiting connections use little time.
const POLL_FIRST: Duration = Duration::from_millis(2);
const POLL_DOUBLINGS_MAX: u32 = 4;
/// Packets that are processed before outcomes and pages are sent.
const TURN_PACKETS: usize = 64;

/// A connection and its state.
#[allow(clippy::struct_excessive_bools, reason = "the flags are independent")]
pub(super) struct Connection<S> {
    pub(super) port: Arc<Port>,
    pub(super) number: u64,
    stream: S,
    pub(super) state: ServerConnection,
    pub(super) principal: Arc<Principal>,
    /// The session, if HELLO named one.
    pub(super) session: Option<SessionGuard>,
    /// State of the identities when the rights of the listeners were last checked.
    pub(super) epoch: u64,
    pub(super) wants_received: bool,
    /// Why the previous write was refused for now, if it was.
    pub(super) chain_refusal: Option<ErrorCode>,
    pub(super) superseded: Arc<Notify>,
    pub(super) answers: Answers,
    pub(super) idle: Duration,
    /// Deadline until which the read at the front may wait for the node.
    pub(super) lag_deadline: Option<Instant>,
    /// Bytes of a response that had no memory: that of the read at the front.
    pub(super) needed_bytes: usize,
    /// Whether a read of this turn waited for other nodes.
    waited: bool,
    /// The consistency that no read of this turn could get, and the refusal.
    unconfirmed: Option<(Consistency, Refused)>,
    pub(super) listeners: Listeners,
    claims: Claims,
    received: Option<Received>,
    pub(super) out: Outgoing,
    pub(super) encoder: Encoder,
    /// The slot of a connection from another machine.
    pub(super) slot: Option<Arc<Slot>>,
    greeted: bool,
    /// The client will send no more requests.
    input_ended: bool,
    /// How the connection closes. After a refusal or BYE, nothing follows.
    closing: Closing,
    draining: bool,
    /// The packet at the front waits for memory or for the node.
    blocked: bool,
    /// Other connections have exhausted the budget for large packets.
    budget_exhausted: bool,
    /// Deadline for memory for the incomplete packet at the front, while it waits for memory.
    memory_deadline: Option<Instant>,
    /// Consecutive polls that found no progress.
    polls: u32,
    /// The write at the front waits for costly calls.
    pub(super) waits_for_costly: bool,
    /// How often the write at the front was not admitted.
    pub(super) write_attempts: u32,
    /// The write at the front, while it has priority over other writes.
    pub(super) next_write: Option<Box<NextWrite>>,
    started: Instant,
    last_received: Instant,
    pinged: bool,
    /// When the client last accepted bytes, or when bytes began to wait for it.
    last_sent: Instant,
    /// Whether bytes have waited for the client since `last_sent`.
    waits_for_client: bool,
    /// The stream, such as a TLS session, may still hold written bytes.
    unflushed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    No,
    /// After all responses are sent, with BYE.
    Bye,
    /// After all responses are sent.
    Plain,
}

/// Pause after this many polls without progress.
fn poll_pause(polls: u32) -> Duration {
    POLL_FIRST * (1 << polls.min(POLL_DOUBLINGS_MAX))
}

/// The event that ended a wait.
enum Event {
    Progress,
    Superseded,
    /// The members of the cluster have changed, or this node was removed from it.
    Members,
    Drain,
    /// The stream is broken, or the server ends.
    Broken,
}

type Members = Option<watch::Receiver<BTreeMap<u64, Member>>>;

/// Waits until the members of the cluster change, or this node was removed from it. Returns the
/// receiver for the next wait.
async fn changed(mut members: Members) -> Members {
    if let Some(receiver) = &mut members
        && receiver.changed().await.is_ok()
    {
        return members;
    }
    // There is no cluster, or its node has ended.
    pending().await
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) fn new(port: Arc<Port>, number: u64, stream: S, principal: Principal) -> Self {
        let now = Instant::now();
        let listeners = Listeners::new(Arc::clone(&port.filters), &port.shared);
        Self {
            received: Some(Received::new(Arc::clone(&port))),
            idle: port.shared.config.idle_timeout,
            out: Outgoing::new(port.shared.admission.answers.clone()),
            port,
            number,
            stream,
            state: ServerConnection::default(),
            principal: Arc::new(principal),
            session: None,
            epoch: 0,
            wants_received: false,
            chain_refusal: None,
            superseded: Arc::default(),
            answers: Answers::default(),
            lag_deadline: None,
            needed_bytes: 0,
            waited: false,
            unconfirmed: None,
            listeners,
            claims: Claims::default(),
            encoder: Encoder::default(),
            slot: None,
            greeted: false,
            input_ended: false,
            closing: Closing::No,
            draining: false,
            blocked: false,
            budget_exhausted: false,
            memory_deadline: None,
            polls: 0,
            waits_for_costly: false,
            write_attempts: 0,
            next_write: None,
            started: now,
            last_received: now,
            pinged: false,
            last_sent: now,
            waits_for_client: false,
            unflushed: false,
        }
    }

    /// Serves the connection until it ends. `self` is borrowed, because a future that owned it
    /// would need its memory twice.
    pub(super) async fn run(&mut self) {
        let mut phase = self.port.shared.phase.subscribe();
        let mut later = self.port.shared.phase.subscribe();
        let mut draining = pin!(reached(&mut phase, Phase::Draining));
        let mut cut = pin!(reached(&mut later, Phase::Cut));
        let superseded = Arc::clone(&self.superseded);
        let mut superseded = pin!(superseded.notified());
        let mut is_superseded = false;
        let cluster = self.port.shared.cluster.as_ref();
        let members = cluster.map(|node| node.subscribe_members());
        let mut members = pin!(changed(members));
        let mut timer = pin!(tokio::time::sleep(HELLO_TIME));
        loop {
            let progress = self.turn().await;
            if progress {
                self.polls = 0;
            }
            if self.is_finished() {
                self.finish().await;
                break;
            }
            // Let other connections of this thread run.
            if self.must_yield() {
                // Then poll the events of this connection.
                tokio::task::yield_now().await;
            } else if progress {
                tokio::task::consume_budget().await;
                continue;
            }
            let deadline = self.deadline();
            if timer.deadline() != deadline {
                timer.as_mut().reset(deadline);
            }
            let event = poll_fn(|context| {
                if !is_superseded && superseded.as_mut().poll(context).is_ready() {
                    is_superseded = true;
                    return Poll::Ready(Event::Superseded);
                }
                if cut.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Event::Broken);
                }
                if let Poll::Ready(next) = members.as_mut().poll(context) {
                    members.set(changed(next));
                    return Poll::Ready(Event::Members);
                }
                if !self.draining && draining.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Event::Drain);
                }
                self.poll(context, timer.as_mut())
            })
            .await;
            match event {
                Event::Progress => {}
                Event::Superseded => {
                    self.fatal(&Refused::plain(ErrorCode::Superseded).fatal());
                }
                Event::Members => self.members_changed(),
                Event::Drain => self.drain(),
                Event::Broken => break,
            }
        }
        if let Some(session) = self.session.take() {
            self.port.release(session.client, self.number);
            self.answers.hold(session);
        }
    }

    /// Does all work that needs no wait for the client. Returns whether there was any.
    async fn turn(&mut self) -> bool {
        let mut progress = false;
        self.blocked = false;
        self.waited = false;
        self.unconfirmed = None;
        if !self.may_process() {
            // Other writes must not wait for this client.
            self.next_write = None;
        }
        for _ in 0..TURN_PACKETS {
            if !self.may_process() || !self.next_packet().await {
                break;
            }
            progress = true;
            // Later packets have waited equally long, so they are refused without another wait.
            if self.waited && self.unconfirmed.is_none() {
                break;
            }
        }
        let (state, chain_refusal) = (&mut self.state, &mut self.chain_refusal);
        progress |= self
            .answers
            .collect(&mut self.encoder, &mut self.out, |answered| {
                state.answered(answered.count, answered.bytes);
                *chain_refusal = answered.chain_refusal.or(*chain_refusal);
                if let Some(expected) = answered.expected_nonce {
                    state.lower_expected_nonce(expected);
                }
            });
        if self.answers.has_unknown_outcome() {
            let text = "this node lost leadership while writes were in flight; resume the session";
            let mut refused = Refused::new(ErrorCode::NoLeader, text);
            refused.message.retry_ms = Some(0);
            self.fatal(&refused.fatal());
        }
        progress |= self.send_claims();
        self.recheck();
        if self.closing == Closing::No {
            let store = Arc::clone(&self.port.shared.store);
            progress |= self
                .listeners
                .send(&store, &mut self.encoder, &mut self.out);
        }
        // All complete packets were processed.
        if self.input_ended && !progress && self.may_process() {
            self.begin_close(Closing::Bye);
        }
        progress
    }

    /// Whether the turn ended only to let other connections run.
    fn must_yield(&self) -> bool {
        self.waited || self.listeners.must_yield()
    }

    /// Whether the next packet may be processed.
    fn may_process(&self) -> bool {
        self.closing == Closing::No
            && !self.out.is_high()
            && !self.answers.is_high()
            && !self.blocked
            && self.state.may_read()
    }

    /// Processes the packet at the front, if it is complete.
    async fn next_packet(&mut self) -> bool {
        // Moved out, so that the packet can borrow it while it is processed.
        let Some(mut received) = self.received.take() else {
            return false;
        };
        let before = self.state.clone();
        let was_open = before.phase() == State::Open;
        let result = match self.state.next(received.unread()) {
            Ok(None) => {
                let bytes = received.unread().len() + self.state.missing_bytes();
                let max = self.port.shared.admission.bodies.max();
                if bytes > max {
                    self.greet();
                    self.fatal(&over_memory(max));
                }
                PacketResult::Incomplete
            }
            Ok(Some((packet, size))) => {
                self.greet();
                let result = self.packet(&packet, size).await;
                if !matches!(result, PacketResult::Retry) {
                    self.lag_deadline = None;
                    self.needed_bytes = 0;
                    self.out.unreserve();
                    // A chained write may be refused while it waits with priority.
                    self.next_write = None;
                    self.write_attempts = 0;
                }
                if let PacketResult::Refused(refused) = &result {
                    self.refuse(packet.tag, refused, &packet.message);
                }
                if matches!(result, PacketResult::Retry) {
                    self.state = before;
                } else {
                    received.consume(size);
                }
                result
            }
            Err(error) => {
                self.greet();
                self.fatal(&malformed(&error));
                PacketResult::Incomplete
            }
        };
        if !was_open && self.state.phase() == State::Open {
            // The client has authenticated.
            let share = self.principal.share_key();
            received.set_share(share);
            self.out.set_share(share);
            self.listeners.set_share(share);
        }
        self.received = Some(received);
        match result {
            PacketResult::Incomplete => false,
            PacketResult::Retry => {
                self.blocked = true;
                false
            }
            PacketResult::Processed | PacketResult::Refused(_) => true,
        }
    }

    fn greet(&mut self) {
        if !self.greeted {
            self.greeted = true;
            self.send(&Packet::new(Message::Empty));
        }
    }

    async fn packet(&mut self, packet: &Packet<'_>, size: usize) -> PacketResult {
        let tag = packet.tag;
        let mut words = packet.require.split(|&byte| byte == b' ');
        let is_supported =
            |word: &[u8]| FEATURES.split(|&byte| byte == b' ').any(|one| one == word);
        if !packet.require.is_empty() && !words.all(is_supported) {
            return PacketResult::Refused(Refused::plain(ErrorCode::Unsupported));
        }
        match (self.state.phase(), &packet.message) {
            (_, Message::Empty) => return PacketResult::Processed,
            (State::AwaitingHello, Message::Hello(hello)) => {
                return match self.hello(hello).await {
                    Ok(()) => {
                        if let Some(slot) = &self.slot {
                            slot.authenticated();
                        }
                        PacketResult::Processed
                    }
                    Err(refused) => PacketResult::Refused(refused.fatal()),
                };
            }
            (State::AwaitingHello, _) => return unexpected("the first request must be HELLO"),
            (_, Message::Hello(_)) => return unexpected("HELLO must occur only once"),
            _ => {}
        }
        let listens = !tag.is_empty() && self.listeners.has(tag);
        let consistency = packet.effective_consistency();
        match &packet.message {
            Message::Credit { bytes, records } => {
                self.listeners.credit(tag, *bytes, *records);
                PacketResult::Processed
            }
            Message::Unlisten => {
                if let Some(position) = self.listeners.remove(tag) {
                    self.send(&Packet::tagged(tag, Message::End { position }));
                }
                PacketResult::Processed
            }
            _ if listens => unexpected("the tag is in use by a listener"),
            Message::Write { count, items } => {
                let chained = packet
                    .require
                    .split(|&byte| byte == b' ')
                    .any(|word| word == CHAIN);
                self.write(tag, *count, items, size, chained).await.into()
            }
            Message::TextWrite(one) => self.write_one(tag, one, size).into(),
            Message::GroupClaim(claim) => match self.claim(tag, claim, consistency) {
                Ok(()) => PacketResult::Processed,
                Err(refused) => PacketResult::Refused(refused),
            },
            Message::Listen(listen) => {
                if tag.is_empty() {
                    return unexpected("a listener needs a tag");
                }
                self.listen(tag, listen, consistency).await.into()
            }
            Message::Ping => {
                self.send(&Packet::tagged(tag, Message::Pong));
                PacketResult::Processed
            }
            Message::Pong => PacketResult::Processed,
            Message::Bye => {
                self.listeners.end(None, &mut self.encoder, &mut self.out);
                self.begin_close(Closing::Bye);
                PacketResult::Processed
            }
            // Only unknown requests are refused. Otherwise two peers could refuse each other's
            // responses forever.
            Message::Unknown { method } if !method.starts_with(b"_request_") => {
                PacketResult::Processed
            }
            message => self.read(tag, message, consistency).await.into(),
        }
    }

    /// Starts a listener.
    async fn listen(
        &mut self,
        tag: &[u8],
        listen: &Listen<'_>,
        consistency: Consistency,
    ) -> Result<Read, Refused> {
        if self.draining {
            return Err(Refused::plain(ErrorCode::Draining));
        }
        if !self.may_retry(listen.topic, consistency).await? {
            return Ok(Read::Wait);
        }
        let store = Arc::clone(&self.port.shared.store);
        let lags = |until| store.applied().0 < until;
        let ends = !listen.follow && listen.after != After::Latest;
        if ends && listen.query.until.is_some_and(lags) {
            // The listener would end before it has sent all records that it was asked for.
            return self.wait_for_node();
        }
        let start = self.start_offset(listen).await?;
        let answer = self.listeners.add(&store, tag, listen, start)?;
        self.send(&Packet::tagged(tag, answer));
        Ok(Read::Done)
    }

    /// Returns the position for a listener that starts at a time; `None` if it names no time.
    async fn start_offset(
        &self,
        listen: &Listen<'_>,
    ) -> Result<Option<ConsequenceOffset>, Refused> {
        let After::Time(ms) = listen.after else {
            return Ok(None);
        };
        let topic = listen.topic.to_owned();
        let offset = self.blocking(move |store| {
            let mut reader = store.listen(&topic, ConsequenceOffset::ZERO);
            reader.seek_time(ms)?;
            Ok(ConsequenceOffset(reader.position().0.saturating_sub(1)))
        });
        offset.await.map(Some)
    }

    /// Appends a packet to the bytes to send.
    pub(super) fn send(&mut self, packet: &Packet<'_>) {
        self.encoder.encode(packet, &mut self.out.bytes);
    }

    /// Refuses a request; refusals of writes keep the order of the writes.
    fn refuse(&mut self, tag: &[u8], refused: &Refused, message: &Message<'_>) {
        if refused.message.fatal {
            let mut bytes = Vec::new();
            refused.encode(tag, &mut self.encoder, &mut bytes);
            self.answers.packet(bytes);
            self.begin_close(Closing::Plain);
        } else if matches!(message, Message::Write { .. } | Message::TextWrite(_)) {
            let mut bytes = Vec::new();
            refused.encode(tag, &mut self.encoder, &mut bytes);
            self.answers.packet(bytes);
        } else {
            refused.encode(tag, &mut self.encoder, &mut self.out.bytes);
        }
    }

    /// Closes the connection after a refusal.
    pub(super) fn fatal(&mut self, refused: &Refused) {
        if self.closing == Closing::No {
            self.refuse(&[], refused, &Message::Empty);
        }
    }

    fn begin_close(&mut self, closing: Closing) {
        self.state.leave();
        self.closing = closing;
        self.last_sent = Instant::now();
        // An END would mean that the listener has sent all records.
        let text = "the connection closes before the listener has ended";
        let refused = Refused::new(ErrorCode::Draining, text);
        let (encoder, out) = (&mut self.encoder, &mut self.out);
        self.listeners.end(Some(&refused), encoder, out);
        self.claims.stop_waiting();
    }

    /// Sends CONFIG again. A removed node never gets the records that listeners and claims wait for,
    /// so it ends them.
    fn members_changed(&mut self) {
        if self.state.phase() != State::Open || self.closing != Closing::No {
            return;
        }
        self.send_config();
        if let Err(error) = self.port.shared.check_is_member() {
            let refused = refuse::of_store(&error);
            let (encoder, out) = (&mut self.encoder, &mut self.out);
            self.listeners.end(Some(&refused), encoder, out);
            self.claims.stop_waiting();
        }
    }

    fn drain(&mut self) {
        self.draining = true;
        if self.closing != Closing::No {
            return;
        }
        let within = self.port.shared.config.drain.as_millis();
        let within_ms = u64::try_from(within).unwrap_or(u64::MAX);
        if self.state.phase() == State::Open {
            self.send(&Packet::new(Message::Drain { within_ms }));
            // Requests that have arrived get their responses in order; then the connection closes.
            self.input_ended = true;
        } else {
            self.begin_close(Closing::Plain);
        }
    }

    /// Whether all responses are sent.
    fn is_finished(&mut self) -> bool {
        if self.closing == Closing::No || !self.answers.is_empty() || !self.claims.is_empty() {
            return false;
        }
        if self.closing == Closing::Bye {
            self.send(&Packet::new(Message::ByeNotice));
            self.closing = Closing::Plain;
        }
        self.is_sent()
    }

    /// Whether all written bytes have left the stream.
    fn is_sent(&self) -> bool {
        self.out.is_empty() && !self.unflushed
    }

    /// Closes the sending side, then reads and drops input for up to a second. Closing a socket
    /// with unread bytes would discard the last response.
    async fn finish(&mut self) {
        let end = async {
            let _ = poll_fn(|cx| Pin::new(&mut self.stream).poll_shutdown(cx)).await;
            // On the heap: on the stack, it would be part of the state of every connection.
            let mut discarded = vec![0; 4096];
            loop {
                let mut buffer = ReadBuf::new(&mut discarded);
                let read = poll_fn(|cx| Pin::new(&mut self.stream).poll_read(cx, &mut buffer));
                if read.await.is_err() || buffer.filled().is_empty() {
                    break;
                }
            }
        };
        drop(tokio::time::timeout(Duration::from_secs(1), end).await);
    }

    fn is_inside_packet(&self) -> bool {
        let unread = self.received.as_ref().map_or(0, |r| r.unread().len());
        unread > 0 && !self.blocked && self.state.may_read()
    }

    /// Whether the connection waits for a state that sends no wake-up.
    fn waits(&self) -> bool {
        let page = self.closing == Closing::No && self.listeners.needs_memory();
        self.blocked || self.budget_exhausted || (page && self.out.is_empty())
    }

    /// The time at which the connection must act even without an event.
    fn deadline(&mut self) -> Instant {
        if !self.is_sent() && !std::mem::replace(&mut self.waits_for_client, true) {
            // The connection may have sent nothing for longer than the time limit of the client.
            self.last_sent = Instant::now();
        }
        let due = [
            self.packet_deadline(),
            self.out.deadline(&self.port.shared.config),
        ];
        let usual = self.usual_deadline();
        let due = due.into_iter().flatten().fold(usual, Instant::min);
        self.marks_due().map_or(due, |marks| marks.min(due))
    }

    /// Time of the next mark, if any listener wants marks.
    fn marks_due(&self) -> Option<Instant> {
        if self.closing != Closing::No || !self.out.is_empty() {
            return None;
        }
        self.listeners.marks_due().map(Instant::from_std)
    }

    /// Returns the deadline for more bytes of a packet that holds contended memory.
    fn packet_deadline(&mut self) -> Option<Instant> {
        let waits = self.is_inside_packet() && self.may_process() && !self.budget_exhausted;
        self.received.as_mut()?.deadline(waits)
    }

    fn usual_deadline(&self) -> Instant {
        let long = Duration::from_hours(1);
        if self.waits() {
            return Instant::now() + poll_pause(self.polls);
        }
        let waits_for_store = !self.answers.is_empty() || !self.claims.is_empty();
        if !self.is_sent() || (self.closing != Closing::No && !waits_for_store) {
            return self.last_sent + self.port.shared.config.write_timeout;
        }
        match self.state.phase() {
            State::AwaitingHello => self.started + HELLO_TIME,
            // The connection waits for the store, not for the client.
            _ if waits_for_store => self.last_received.max(self.last_sent) + long,
            _ if self.is_inside_packet() => self.last_received + STALL_TIME,
            _ if self.idle.is_zero() => self.last_received + long,
            _ if self.pinged => self.last_received + self.idle,
            _ => self.last_received + self.idle / 2,
        }
    }

    /// Handles a deadline that has passed.
    fn on_deadline(&mut self) -> Event {
        let now = Instant::now();
        let due = [
            self.packet_deadline(),
            self.out.deadline(&self.port.shared.config),
        ];
        if due.into_iter().flatten().any(|due| due <= now) {
            return Event::Broken;
        }
        if self.waits() {
            if self.budget_exhausted && self.memory_deadline.is_some_and(|due| due <= now) {
                self.refuse_large_packet();
                return Event::Progress;
            }
            self.budget_exhausted = false;
            self.polls = self.polls.saturating_add(1);
            return Event::Progress;
        }
        // The timer was set for a mark, or for a deadline that has moved since.
        if self.usual_deadline() > now {
            return Event::Progress;
        }
        let is_quiet = self.state.phase() == State::Open
            && !self.is_inside_packet()
            && self.is_sent()
            && self.closing == Closing::No;
        if is_quiet && !self.pinged {
            self.pinged = true;
            self.send(&Packet::new(Message::Ping));
            return Event::Progress;
        }
        Event::Broken
    }

    /// Refuses the incomplete packet at the front, for which there was no memory for too long.
    /// Otherwise, connections that use parts of the budget could wait for each other forever.
    fn refuse_large_packet(&mut self) {
        self.budget_exhausted = false;
        if let Some(received) = &mut self.received {
            received.release();
        }
        let text = "large packets of other connections use the memory; send the packet again later";
        let limit = self.port.shared.admission.bodies.max();
        self.fatal(&Refused::exhausted(BudgetExhausted { text, limit }).fatal());
    }

    fn poll(&mut self, context: &mut Context<'_>, timer: Pin<&mut Sleep>) -> Poll<Event> {
        let mut ready = false;
        while !self.out.is_empty() {
            match Pin::new(&mut self.stream).poll_write(context, self.out.unsent()) {
                Poll::Ready(Ok(bytes)) if bytes > 0 => {
                    self.out.sent(bytes);
                    self.last_sent = Instant::now();
                    self.unflushed = true;
                    ready = true;
                }
                Poll::Ready(_) => return Poll::Ready(Event::Broken),
                Poll::Pending => break,
            }
        }
        if self.unflushed && self.out.is_empty() {
            match Pin::new(&mut self.stream).poll_flush(context) {
                Poll::Ready(Ok(())) => {
                    self.unflushed = false;
                    // Closing the connection may have waited for this flush.
                    ready |= self.closing != Closing::No;
                }
                Poll::Ready(Err(_)) => return Poll::Ready(Event::Broken),
                Poll::Pending => {}
            }
        }
        self.waits_for_client &= !self.is_sent();
        // After a wait, complete packets may be in the buffer.
        if self.may_process() && !self.input_ended && !self.budget_exhausted && !self.waited {
            match self.poll_read(context) {
                Poll::Ready(true) => ready = true,
                Poll::Ready(false) => return Poll::Ready(Event::Broken),
                Poll::Pending => {}
            }
        }
        if !self.answers.is_empty() {
            let waker = self.port.shared.wake_batches.waker(context.waker());
            let answered = self.answers.poll(&mut Context::from_waker(&waker));
            ready |= answered.is_ready() && !self.out.is_high();
        }
        ready |= self.listeners.poll(context).is_ready() || self.must_yield();
        if self.out.is_high() {
            // The pages are fetched again when the client accepts bytes.
            self.listeners.drop_fetched();
        }
        ready |= self.claims.poll(context).is_ready() && !self.out.is_high();
        if timer.poll(context).is_ready() {
            return Poll::Ready(self.on_deadline());
        }
        if ready {
            Poll::Ready(Event::Progress)
        } else {
            Poll::Pending
        }
    }

    /// Reads the available bytes; false if the stream is broken.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let missing = self.state.missing_bytes();
        let Some(received) = &mut self.received else {
            return Poll::Ready(false);
        };
        let Some(space) = received.free_space(missing) else {
            self.budget_exhausted = true;
            let due = Instant::now() + STALL_TIME;
            self.memory_deadline.get_or_insert(due);
            return Poll::Ready(true);
        };
        self.memory_deadline = None;
        let mut buffer = ReadBuf::new(space);
        match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
            Poll::Ready(Ok(())) => {
                let bytes = buffer.filled().len();
                received.arrived(bytes);
                self.input_ended = bytes == 0;
                self.last_received = Instant::now();
                self.pinged = false;
                Poll::Ready(true)
            }
            Poll::Ready(Err(_)) => Poll::Ready(false),
            Poll::Pending => {
                received.shrink();
                Poll::Pending
            }
        }
    }
}

impl<S> Drop for Connection<S> {
    /// Releases the session of a connection that was evicted, which does not reach the end of
    /// [`run`](Self::run).
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            self.port.release(session.client, self.number);
        }
    }
}

/// Result of processing the packet at the front.
enum PacketResult {
    Processed,
    /// The packet is not complete.
    Incomplete,
    /// The packet stays in the buffer and is retried.
    Retry,
    Refused(Refused),
}

impl From<Result<Read, Refused>> for PacketResult {
    fn from(read: Result<Read, Refused>) -> Self {
        match read {
            Ok(Read::Done) => Self::Processed,
            Ok(Read::Wait) => Self::Retry,
            Err(refused) => Self::Refused(refused),
        }
    }
}

impl From<Result<WriteAdmission, Refused>> for PacketResult {
    fn from(admission: Result<WriteAdmission, Refused>) -> Self {
        match admission {
            Ok(WriteAdmission::Admitted) => Self::Processed,
            Ok(WriteAdmission::NoMemory) => Self::Retry,
            Err(refused) => Self::Refused(refused),
        }
    }
}

fn unexpected(what: &str) -> PacketResult {
    PacketResult::Refused(Refused::new(ErrorCode::BadRequest, what).fatal())
}

/// Refuses a packet of more bytes than the memory allows.
fn over_memory(max: usize) -> Refused {
    let text = "a packet is larger than memory_max allows";
    let mut refused = Refused::new(ErrorCode::TooLarge, text).fatal();
    refused.message.limit = Some(max as u64);
    refused
}

fn malformed(error: &FrameError) -> Refused {
    let mut refused = Refused::new(ErrorCode::BadRequest, error.to_string()).fatal();
    refused.message.at = Some(error.at());
    refused
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use std::sync::Arc;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use weir_core::intention::IntentionLimits;
    use weir_core::{BatchBuilder, ClientId, ErrorCode, Intention, Operation};
    use weir_protocol::{CHAIN, Encoder, Hello, Message, Packet};

    use super::{Connection, poll_pause};
    use crate::config::{ServerConfig, Size};
    use crate::native::{Port, connect, late};

    /// Connects a client, and sends HELLO and these bytes.
    async fn client(port: &Arc<Port>, bytes: &[u8]) -> DuplexStream {
        let (server_io, mut client) = duplex(4 << 20);
        let (port, owner) = (Arc::clone(port), port.shared.security.owner());
        tokio::spawn(async move { connect(&port, server_io, owner, None).await });
        client.write_all(b"|\n\n_request_hello\n|\n").await.unwrap();
        client.write_all(bytes).await.unwrap();
        client
    }

    /// The packets of two connections use the whole budget, and each needs more.
    #[test]
    fn connections_do_not_wait_for_the_memory_of_each_other_forever() {
        const BUDGET_BYTES: usize = 1 << 20;
        let folder = tempfile::tempdir().unwrap();
        let config = ServerConfig {
            bodies_budget: Some(Size(BUDGET_BYTES)),
            ..ServerConfig::default()
        };
        let port = late::port(folder.path(), config);
        let items = vec![0; 900 << 10];
        let write = Message::Write {
            count: 1,
            items: &items,
        };
        let mut packet = Vec::new();
        Encoder::default().encode(&Packet::new(write), &mut packet);
        let (first, rest) = packet.split_at(400 << 10);
        let (second, _) = rest.split_at(200 << 10);
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let bodies = &port.shared.admission.bodies;
            let mut clients = [client(&port, first).await, client(&port, first).await];
            while bodies.used() < BUDGET_BYTES {
                tokio::task::yield_now().await;
            }
            for client in &mut clients {
                client.write_all(second).await.unwrap();
            }
            for client in &mut clients {
                let mut received = Vec::new();
                let end = client.read_to_end(&mut received);
                // The time is simulated.
                let end = tokio::time::timeout(Duration::from_hours(1), end).await;
                assert!(end.is_ok(), "the connection waits");
                let received = String::from_utf8_lossy(&received);
                assert!(received.contains("_failure_busy"), "{received}");
            }
            assert_eq!(bodies.used(), 0);
        });
    }

    #[test]
    fn smaller_writes_do_not_overtake_a_write_over_the_limit_forever() {
        let folder = tempfile::tempdir().unwrap();
        let config = ServerConfig {
            memory_max: Some(Size(32 << 20)),
            bodies_budget: Some(Size(16 << 20)),
            ..ServerConfig::default()
        };
        let port = late::port(folder.path(), config);
        let value = vec![0; 900 << 10];
        let (key, value) = (&b"k"[..], &value[..]);
        let put = Intention::new("t", Operation::Put { key, value });
        let (mut builder, count) = (BatchBuilder::default(), 6);
        for _ in 0..count {
            builder.push(&put, &IntentionLimits::default()).unwrap();
        }
        let items = builder.items();
        let mut packet = Vec::new();
        let write = Message::Write { count, items };
        Encoder::default().encode(&Packet::new(write), &mut packet);
        late::run(async {
            let shared = Arc::clone(&port.shared);
            tokio::spawn(async move { shared.wake_batches.run(&shared.store).await });
            let admission = &port.shared.admission;
            assert!(packet.len() > admission.limits().writes);
            let mut smaller = admission.admit(1);
            let mut client = client(&port, &packet).await;
            // There is always a smaller write in progress.
            while let Some(next) = admission.admit(1) {
                smaller = Some(next);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            drop(smaller);
            let mut received = Vec::new();
            while !String::from_utf8_lossy(&received).contains(" VALID ") {
                assert!(client.read_buf(&mut received).await.unwrap() > 0);
            }
            assert_eq!(admission.bytes(), 0);
        });
    }

    #[test]
    fn a_chained_write_that_is_refused_loses_its_priority() {
        let folder = tempfile::tempdir().unwrap();
        let port = late::port(folder.path(), ServerConfig::default());
        let put = Operation::Put {
            key: b"k",
            value: b"1",
        };
        let mut builder = BatchBuilder::default();
        let limits = IntentionLimits::default();
        builder.push(&Intention::new("t", put), &limits).unwrap();
        let mut packets = b"|\n\n_request_hello\n|\n".to_vec();
        let items = builder.items();
        let mut packet = Packet::new(Message::Write { count: 1, items });
        packet.require = CHAIN;
        Encoder::default().encode(&packet, &mut packets);
        late::run(async {
            let (stream, _client) = duplex(1 << 10);
            let owner = port.shared.security.owner();
            let mut connection = Connection::new(Arc::clone(&port), 1, stream, owner);
            let received = connection.received.as_mut().unwrap();
            let space = received.free_space(packets.len()).unwrap();
            space[..packets.len()].copy_from_slice(&packets);
            received.arrived(packets.len());
            for _greeting_or_hello in 0..2 {
                assert!(connection.next_packet().await);
            }
            let admission = port.shared.admission.clone();
            let writes_max = admission.limits().writes;
            let others = admission.admit(writes_max);
            assert!(others.is_some());
            while connection.next_write.is_none() {
                assert!(!connection.next_packet().await);
            }
            assert!(admission.bytes() > writes_max);
            // The previous write of the chain is refused meanwhile.
            connection.chain_refusal = Some(ErrorCode::NoLeader);
            assert!(connection.next_packet().await);
            assert_eq!(admission.bytes(), writes_max);
        });
    }

    /// A connection that is evicted is dropped before its task has ended.
    #[test]
    fn a_dropped_connection_releases_its_session() {
        let folder = tempfile::tempdir().unwrap();
        let port = late::port(folder.path(), ServerConfig::default());
        let mut packets = b"|\n".to_vec();
        let hello = Hello {
            client: ClientId([1; 16]),
            ..Hello::default()
        };
        Encoder::default().encode(&Packet::new(Message::Hello(hello)), &mut packets);
        late::run(async {
            let (stream, _client) = duplex(1 << 10);
            let owner = port.shared.security.owner();
            let mut connection = Connection::new(Arc::clone(&port), 1, stream, owner);
            let received = connection.received.as_mut().unwrap();
            let space = received.free_space(packets.len()).unwrap();
            space[..packets.len()].copy_from_slice(&packets);
            received.arrived(packets.len());
            for _greeting_or_hello in 0..2 {
                assert!(connection.next_packet().await);
            }
            assert_eq!(port.lock().len(), 1);
            drop(connection);
            assert!(port.lock().is_empty());
        });
    }

    #[test]
    fn pauses_between_polls_grow_to_a_bound() {
        let pauses = [0, 1, 4, 5, u32::MAX].map(poll_pause);
        assert_eq!(pauses, [2, 4, 32, 32, 32].map(Duration::from_millis));
    }
}
