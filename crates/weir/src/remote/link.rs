//! A connection to a server, which reconnects after each break.
//!
//! Two threads serve the connection ([`run`]). Callers only queue writes ([`writes`]) and requests
//! ([`requests`]), and wait. They share the lock of [`lock`]. Invariant: every waiting caller gets
//! a response or an error, however often the connection breaks.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_core::batch::BatchBuilder;
use weir_core::intention::IntentionLimits;
use weir_core::{ClientId, ErrorCode};
use weir_protocol::{ClientConnection, Encoder, Message, Packet};
use weir_store::StoreError;

use self::leaderless::LeaderWait;
pub(super) use self::lock::Inner;
use self::lock::PendingWake;
use self::received::Queued;
use self::requests::Inbox;
pub(super) use self::requests::{PendingRequest, Received, packet_of};
use self::run::Broken;
use self::writes::{Call, Hold};
use super::address::{Address, Stream, Trust};
use super::{ConnectOptions, deadline_error};
use crate::clock::Alarm;
use crate::error::remote_error;
use crate::reply::block_on;

mod leaderless;
mod lock;
mod received;
mod requests;
mod run;
mod writes;

/// Bytes of packets that may wait for the socket.
const OUT_BYTES_MAX: usize = 1 << 20;
/// Addresses whose failures an error names. A server may redirect to ever new addresses.
const FAILURES_MAX: usize = 64;

/// What the server reported about itself when the connection started.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) store: [u8; 16],
    pub(crate) level: String,
    /// Why the server rejects writes, or why its log cannot shrink; empty if neither is the case.
    pub(crate) failure: String,
    pub(crate) limits: IntentionLimits,
    pub(crate) idle: Duration,
    /// The newest intention at that moment.
    pub(crate) applied: u64,
    /// Whether the server can run parts of queries over logs.
    pub(crate) queries: bool,
    /// Whether the server can run parts of queries over latest values.
    pub(crate) latest_queries: bool,
    /// Whether the server can reject a write without a session because it rejected the one before.
    pub(crate) chains: bool,
}

/// The error of a connection that ended for good.
#[derive(Clone, Debug)]
pub(super) struct FinalError {
    pub(super) code: ErrorCode,
    pub(super) text: String,
}

impl FinalError {
    pub(super) fn to_store_error(&self) -> StoreError {
        remote_error(self.code, self.text.clone())
    }
}

/// Why the last attempt to connect to an address failed.
#[derive(Debug)]
struct FailedAttempt {
    address: Address,
    /// The code of the server's refusal; `None` if the server did not respond.
    code: Option<ErrorCode>,
    text: String,
}

impl FailedAttempt {
    fn describe(&self) -> String {
        let Self { address, text, .. } = self;
        match self.code {
            Some(code) => format!("{address} answered {}: {text}", code.name()),
            None => format!("{address} cannot be reached: {text}"),
        }
    }
}

#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub(super) struct State {
    pub(super) address: Address,
    /// Servers of the cluster, from the last server that listed them.
    pub(super) nodes: Vec<Address>,
    /// The TLS configuration for `address`.
    pub(super) trust: Trust,
    pub(super) writes: ClientConnection,
    /// The nonce at which a session continues after `rewind`.
    rewound: Option<u64>,
    /// Whether the next number of the session is unknown until the next connection, because the
    /// outcomes of sent writes are.
    number_unknown: bool,
    hold: Option<Hold>,
    /// The next address. The connection moves there when no write is in flight.
    next_address: Option<Broken>,
    open: VecDeque<BatchBuilder>,
    open_items: u64,
    open_bytes: usize,
    calls: VecDeque<Call>,
    /// The calls whose intentions the server has queued for its log.
    queued: Queued,
    /// Responses to deliver when the state is unlocked.
    to_deliver: Vec<PendingWake>,
    /// Tasks that wait for the first connection.
    watchers: Vec<Waker>,
    /// Requests that were not sent yet. Some may have been cancelled.
    unsent: VecDeque<u64>,
    /// Whether the writing thread sleeps. Waking it is a system call, the largest cost of queueing
    /// a write.
    writer_sleeps: bool,
    pub(super) out: Vec<u8>,
    encoder: Encoder,
    inboxes: HashMap<u64, Inbox>,
    /// The progress of the server for the listeners of this connection, and the intention of the
    /// newest topic.
    marks: Option<(u64, u64)>,
    /// The number of packets and marks received.
    deliveries: u64,
    last_tag: u64,
    pub(super) stream: Option<Arc<Stream>>,
    pub(super) facts: Option<Facts>,
    /// The failed attempts since the last connection: one for each address, the newest last.
    failures: Vec<FailedAttempt>,
    /// When the current attempt to connect began.
    pub(super) attempt_since: Instant,
    /// The refusals because no leader is known.
    leader_wait: Option<LeaderWait>,
    pub(super) down_since: Instant,
    /// No server was reached within the patience, so the waiting callers failed.
    given_up: bool,
    pub(super) final_error: Option<FinalError>,
    /// The owner is closing the connection; no more calls will arrive.
    pub(super) closing: bool,
}

/// A connection to a server. Dropping it waits up to 5 s for the responses to queued writes.
pub(crate) struct Link {
    pub(super) inner: Arc<Inner>,
    /// How long a call waits for the first connection.
    first_wait: Duration,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("client", &self.inner.client)
            .finish_non_exhaustive()
    }
}

/// Reads the TLS files for connections to this address, before the first connection and after each
/// failed attempt.
#[cfg(feature = "tls")]
pub(super) fn trust(address: &Address, options: &ConnectOptions) -> Result<Trust, StoreError> {
    match address {
        Address::Tls(_) => super::tls::config(options).map(Some),
        _ => Ok(None),
    }
}

#[cfg(not(feature = "tls"))]
pub(super) fn trust(address: &Address, _: &ConnectOptions) -> Result<Trust, StoreError> {
    match address {
        Address::Tls(_) => Err(remote_error(
            ErrorCode::Unsupported,
            "this build has no TLS",
        )),
        _ => Ok(None),
    }
}

impl Link {
    /// Starts to connect, and retries until it succeeds.
    pub(crate) fn new(
        addresses: &[Address],
        client: ClientId,
        options: &ConnectOptions,
    ) -> Result<Self, StoreError> {
        let Some(address) = addresses.first().cloned() else {
            return Err(remote_error(ErrorCode::BadAddress, "no address was given"));
        };
        let trust = trust(&address, options)?;
        let configured_addresses = addresses.to_vec();
        let state = State {
            address,
            nodes: Vec::new(),
            trust,
            writes: ClientConnection::new(client),
            rewound: None,
            number_unknown: false,
            hold: None,
            next_address: None,
            open: VecDeque::new(),
            open_items: 0,
            open_bytes: 0,
            calls: VecDeque::new(),
            queued: Queued::default(),
            to_deliver: Vec::new(),
            writer_sleeps: false,
            watchers: Vec::new(),
            unsent: VecDeque::new(),
            out: Vec::new(),
            encoder: Encoder::default(),
            inboxes: HashMap::new(),
            marks: None,
            deliveries: 0,
            last_tag: 0,
            stream: None,
            facts: None,
            failures: Vec::new(),
            attempt_since: Instant::now(),
            leader_wait: None,
            down_since: Instant::now(),
            given_up: false,
            final_error: None,
            closing: false,
        };
        let inner = Arc::new(Inner::new(
            client,
            configured_addresses,
            options.clone(),
            state,
        ));
        let spawn = |name: &str, body: fn(&Inner)| {
            let inner = Arc::clone(&inner);
            std::thread::Builder::new()
                .name(name.into())
                .spawn(move || body(&inner))
                .map_err(|error| {
                    remote_error(ErrorCode::Io, format!("cannot start a thread: {error}"))
                })
        };
        // Dropping the link ends the first thread if the second one cannot be started.
        let link = Self {
            inner: Arc::clone(&inner),
            first_wait: options.connect_timeout,
            threads: Mutex::default(),
        };
        let reader = spawn("weir-read", run::read)?;
        link.threads.lock().push(reader);
        let writer = spawn("weir-write", run::write)?;
        link.threads.lock().push(writer);
        Ok(link)
    }

    /// Lets calls wait for the first connection for as long as for a later one: up to `patience`.
    pub(super) fn patient(mut self) -> Self {
        self.first_wait = self.inner.options.patience;
        self
    }

    /// What the server reported about itself. Waits for the first connection.
    pub(crate) fn facts(&self) -> Result<Facts, StoreError> {
        if let Some(known) = self.inner.lock().known() {
            return known;
        }
        block_on(self.ready())
    }

    /// Whether the server can start a listener of the latest values at a key; `false` before the
    /// first connection.
    pub(in crate::remote) fn can_begin_at_a_key(&self) -> bool {
        let state = self.inner.lock();
        let facts = state.facts.as_ref();
        facts.is_some_and(|facts| facts.latest_queries)
    }

    /// Awaits the facts of a server without blocking a thread.
    pub(crate) async fn ready(&self) -> Result<Facts, StoreError> {
        let until = Instant::now().checked_add(self.first_wait);
        let mut alarm = Alarm::default();
        let facts = poll_fn(|context| {
            let mut state = self.inner.lock();
            if let Some(known) = state.known() {
                return Poll::Ready(known);
            }
            if let Some(until) = until {
                if until <= Instant::now() {
                    return Poll::Ready(Err(state.connect_error()));
                }
                alarm.set(until, context.waker());
            }
            if !state
                .watchers
                .iter()
                .any(|one| one.will_wake(context.waker()))
            {
                state.watchers.push(context.waker().clone());
            }
            Poll::Pending
        });
        facts.await
    }

    /// Waits up to `patience` for the responses to queued writes, then ends the connection.
    pub(crate) fn close(&self, patience: Duration) {
        let until = Instant::now().checked_add(patience);
        let mut state = self.inner.lock();
        state.closing = true;
        self.inner.work.notify_all();
        self.inner.changed.notify_all();
        while !state.calls.is_empty() && state.final_error.is_none() {
            let (next, has_time) = self.inner.wait(state, until);
            state = next;
            if !has_time {
                break;
            }
        }
        state.close_for_good(ErrorCode::Closed, "the connection is closed");
        let stream = state.stream.clone();
        drop(state);
        match stream {
            Some(stream) => stream.end(),
            // Connecting may take long, so the thread is not joined. It ends by itself.
            None => self.threads.lock().clear(),
        }
        self.inner.work.notify_all();
        self.inner.changed.notify_all();
        let mut threads = self.threads.lock();
        for thread in threads.drain(..) {
            // A panic of the thread was already printed.
            drop(thread.join());
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close(Duration::from_secs(5));
    }
}

impl State {
    /// The facts of the server, or the error if it cannot be reached; `None` while it is unknown.
    fn known(&self) -> Option<Result<Facts, StoreError>> {
        if let Some(error) = &self.final_error {
            return Some(Err(error.to_store_error()));
        }
        match &self.facts {
            Some(facts) => Some(Ok(facts.clone())),
            None => self.given_up.then(|| Err(self.connect_error())),
        }
    }

    /// The error for a response that did not arrive in time.
    fn deadline_error(&self) -> StoreError {
        match self.stream {
            Some(_) => deadline_error(),
            None => self.connect_error(),
        }
    }

    /// Wakes all waiting tasks.
    fn wake_all(&mut self) {
        let inboxes = self.inboxes.values_mut();
        let wakers = inboxes.filter_map(|inbox| inbox.waker.take());
        self.to_deliver.extend(wakers.map(PendingWake::Wake));
        let watchers = self.watchers.drain(..);
        self.to_deliver.extend(watchers.map(PendingWake::Wake));
    }

    /// The error while there is no connection.
    fn connect_error(&self) -> StoreError {
        remote_error(self.connect_code(), self.connect_failures())
    }

    /// The code of the newest refusal by a server; `Unreachable` if no server responded.
    fn connect_code(&self) -> ErrorCode {
        let refusal = self.failures.iter().rev().find_map(|failed| failed.code);
        refusal.unwrap_or(ErrorCode::Unreachable)
    }

    /// Names every address that was tried, with the cause.
    fn connect_failures(&self) -> String {
        let mut texts: Vec<_> = self.failures.iter().map(FailedAttempt::describe).collect();
        let is_known = |failed: &FailedAttempt| failed.address == self.address;
        if !self.failures.iter().any(is_known) {
            let since = self.attempt_since.elapsed().as_millis();
            let current = FailedAttempt {
                address: self.address.clone(),
                code: None,
                text: format!("no answer after {since} ms"),
            };
            texts.push(current.describe());
        }
        texts.join("; ")
    }

    /// Records why the current address cannot be used. `code` is that of the server's refusal.
    pub(super) fn failed(&mut self, code: Option<ErrorCode>, text: String) {
        let address = self.address.clone();
        self.failures.retain(|failed| failed.address != address);
        if self.failures.len() >= FAILURES_MAX {
            self.failures.remove(0);
        }
        self.failures.push(FailedAttempt {
            address,
            code,
            text,
        });
    }

    fn usable(&self) -> Result<(), StoreError> {
        match &self.final_error {
            Some(error) => Err(error.to_store_error()),
            None if self.closing => Err(StoreError::Closed),
            None if self.given_up => Err(self.connect_error()),
            None => Ok(()),
        }
    }

    /// Appends a packet that is not a write.
    pub(super) fn append(&mut self, packet: &Packet<'_>) {
        self.encoder.encode(packet, &mut self.out);
    }

    /// Responds to a PING. A server that does not read gets no more responses.
    pub(super) fn pong(&mut self, tag: &[u8]) {
        if self.out.len() < OUT_BYTES_MAX {
            self.append(&Packet::tagged(tag, Message::Pong));
        }
    }

    /// Moves packets that may be sent now into the output buffer.
    pub(super) fn fill(&mut self) {
        if self.stream.is_none() || self.next_address.is_some() {
            return;
        }
        self.fill_requests();
        self.fill_writes();
    }

    /// Starts to use a new connection. Resends the unanswered writes first.
    pub(super) fn connected(&mut self, stream: Arc<Stream>, facts: Facts, again: usize) {
        self.out.clear();
        if self.hold.is_some() {
            self.writes.hold_after(again);
        }
        for write in self.writes.unanswered().skip(again) {
            let message = Message::Write {
                count: write.count,
                items: &write.items,
            };
            self.encoder.encode(&Packet::new(message), &mut self.out);
        }
        if let Some(nonce) = self.rewound {
            self.writes.rewind(nonce);
        }
        self.stream = Some(stream);
        self.facts = Some(facts);
        self.number_unknown = false;
        self.given_up = false;
        self.failures.clear();
        self.wake_all();
    }

    /// Records that the connection is lost.
    pub(super) fn disconnected(&mut self) {
        if let Some(stream) = self.stream.take() {
            stream.end();
            self.down_since = Instant::now();
        }
        self.out.clear();
        self.next_address = None;
        self.marks = None;
        self.deliveries += 1;
        for inbox in self.inboxes.values_mut() {
            inbox.lost = inbox.unsent.is_none();
        }
        self.wake_all();
        let lost = self.writes.connection_lost();
        let why = "the connection broke before the response arrived";
        self.fail_calls(lost.end - lost.start, |_| {
            remote_error(ErrorCode::Indeterminate, why)
        });
    }

    /// When the waiting calls fail because there is no connection. `None` while there is one, after
    /// the calls have failed, and before the first connection, for which each call has a time limit.
    pub(super) fn gives_up_at(&self, patience: Duration) -> Option<Instant> {
        let waits = self.stream.is_none() && self.facts.is_some() && !self.given_up;
        self.down_since.checked_add(patience).filter(|_| waits)
    }

    /// Fails all waiting calls, because no server was reached for too long.
    pub(super) fn give_up(&mut self) {
        if self.given_up {
            return;
        }
        self.given_up = true;
        let code = self.connect_code();
        let why = self.connect_failures();
        self.fail_in_flight(&why);
        self.fail_open(|| remote_error(code, why.clone()));
        self.wake_all();
    }

    /// Ends the connection for good.
    pub(super) fn close_for_good(&mut self, code: ErrorCode, text: &str) {
        if self.final_error.is_some() {
            return;
        }
        self.fail_in_flight(text);
        self.fail_open(|| remote_error(code, text));
        self.final_error = Some(FinalError {
            code,
            text: text.to_owned(),
        });
        for inbox in self.inboxes.values_mut() {
            inbox.lost = true;
        }
        self.wake_all();
    }
}
