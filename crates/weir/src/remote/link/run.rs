//! The two threads of a connection: one connects and reads, one writes.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_core::ErrorCode;
use weir_core::intention::IntentionLimits;
use weir_protocol::{
    CHAIN, Deframer, Encoder, Hello, HelloOk, Message, OutcomeLines, Packet, QUERY, QUERY_LATEST,
    RefusalMessage,
};

use super::{Facts, Inner, State, trust};
use crate::remote::address::{Address, Stream};
use crate::remote::pause::{PAUSE_FIRST, PAUSE_MAX, pause_after_refusal, random_fraction};

/// The longest pause that a server may ask for.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Time limit for a connection and for the response to HELLO.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Least time limit for one of several addresses.
const ATTEMPT_TIME_MIN: Duration = Duration::from_millis(300);
/// Least time limit of a session for an address that was tried before. A node without a leader waits
/// for one for 2 s before it refuses the HELLO of a session.
const SESSION_ATTEMPT_TIME_MIN: Duration = Duration::from_secs(3);
/// Redirects that a client follows without a pause.
const HOPS_MAX: u32 = 8;
/// Age of a connection from which an answer other than an outcome ends a chain of redirects. A node
/// that redirects all writes may answer reads.
const CHAIN_END_TIME: Duration = Duration::from_secs(2);
/// Maximum number of servers of a cluster that a client remembers.
const NODES_MAX: usize = 64;
/// Bytes of one read.
const READ_BYTES: usize = 128 << 10;

/// The text for `ConnectOptions::on_wait`.
const WAITS_FOR_LEADER: &str = "waiting for a leader";

/// First byte of an alert record of TLS.
const TLS_ALERT: u8 = 0x15;

/// Why a connection ended or failed.
#[derive(Debug)]
pub(super) enum Broken {
    /// Try the next server.
    Again(String),
    /// Connect to this server instead.
    Redirect(Address),
    /// The server refuses with this code, and asks for a pause.
    Pause(ErrorCode, Duration, String),
    /// Does not reconnect: the error is final.
    Final(ErrorCode, String),
    /// The client closed the connection.
    Closed,
}

impl Broken {
    /// Adds advice to the error text.
    fn with(self, hint: &str) -> Self {
        let text = |text| format!("{text}; {hint}");
        match self {
            Self::Again(why) => Self::Again(text(why)),
            Self::Final(code, why) => Self::Final(code, text(why)),
            other => other,
        }
    }
}

/// Returns advice for a peer whose response to HELLO is not of the native protocol.
fn wrong_protocol_hint(address: &Address, answer: &[u8]) -> Option<&'static str> {
    match (address, answer) {
        (_, [b'H', b'T', b'T', b'P', ..]) => {
            Some("this port is for HTTP; the native protocol has a separate port, 7071 by default")
        }
        (Address::Tcp(_), [TLS_ALERT, 3, ..]) => {
            Some("the port has TLS: the address begins with weirs://")
        }
        (Address::Tcp(_), []) => Some("if the port has TLS, the address begins with weirs://"),
        _ => None,
    }
}

/// Connects and reads until the connection ends for good.
pub(super) fn read(inner: &Inner) {
    let mut pause = PAUSE_FIRST;
    let mut hops = 0;
    let mut attempts = 0;
    loop {
        let broken = serve(inner, &mut pause, &mut hops, attempts);
        let mut state = inner.lock();
        let was_open = state.stream.is_some();
        let broken = match broken {
            Broken::Again(why) => state.next_address.take().unwrap_or(Broken::Again(why)),
            other => other,
        };
        attempts = if was_open { 0 } else { attempts + 1 };
        state.disconnected();
        let wait = match broken {
            Broken::Closed => break,
            Broken::Final(code, text) => {
                state.close_for_good(code, &text);
                break;
            }
            Broken::Redirect(to) => {
                if let Err((code, text)) = follow_redirect(inner, &mut state, to) {
                    state.close_for_good(code, &text);
                    break;
                }
                hops += 1;
                if hops <= HOPS_MAX {
                    // A node responded, so the cluster exists and may be electing a leader.
                    pause = PAUSE_FIRST;
                    Duration::ZERO
                } else {
                    pause
                }
            }
            Broken::Again(text) => {
                state.failed(None, text);
                if !was_open {
                    state.continue_leader_wait();
                    // The chain of redirects has ended: the server does not respond.
                    hops = 0;
                    if let Err((code, text)) = try_next(inner, &mut state) {
                        state.close_for_good(code, &text);
                        break;
                    }
                }
                pause
            }
            Broken::Pause(code, time, text) => {
                if code == ErrorCode::NoLeader
                    && !was_open
                    && state.leader_missing_at_connect().reports
                    && let Some(on_wait) = inner.options.on_wait
                {
                    drop(state);
                    report_wait(on_wait);
                    state = inner.lock();
                }
                state.failed(Some(code), text);
                if let Err((code, text)) = try_next(inner, &mut state) {
                    state.close_for_good(code, &text);
                    break;
                }
                if code == ErrorCode::NoLeader {
                    pause = PAUSE_FIRST;
                    pause_after_refusal(time, Some(code), attempts)
                } else {
                    time.max(pause)
                }
            }
        };
        if state.final_error.is_some() {
            break;
        }
        if state.down_since.elapsed() >= inner.options.patience {
            state.give_up();
        }
        inner.changed.notify_all();
        // The writing thread ends the wait of the calls during a long pause or attempt.
        inner.work.notify_all();
        // Half of the pause is random, so that clients do not reconnect at the same time.
        let until = Instant::now() + wait / 2 + wait.mul_f64(random_fraction() / 2.0);
        while state.final_error.is_none() {
            let (next, has_time) = inner.wait(state, Some(until));
            state = next;
            if !has_time {
                break;
            }
        }
        if state.final_error.is_some() {
            break;
        }
        if !wait.is_zero() {
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
    inner.lock().disconnected();
    inner.changed.notify_all();
    inner.work.notify_all();
}

/// Calls foreign code, whose panic must not end this thread.
fn report_wait(on_wait: fn(&str)) {
    drop(std::panic::catch_unwind(|| on_wait(WAITS_FOR_LEADER)));
}

/// Follows a redirect. A client that uses TLS does not follow a redirect to an address without TLS.
/// It sends its token in clear text only to hosts that the caller named.
fn follow_redirect(
    inner: &Inner,
    state: &mut State,
    to: Address,
) -> Result<(), (ErrorCode, String)> {
    check_redirect(inner, &state.address, &to)?;
    set_address(inner, state, to)
}

/// Whether the redirect leads from TLS to clear text on a network. A socket in the file system has
/// no TLS, so a redirect from it is not a downgrade.
fn is_downgrade(from: &Address, to: &Address) -> bool {
    matches!(from, Address::Tls(_)) && !to.is_private()
}

/// Whether the client may follow a redirect from one address to another. A server on the network
/// must not choose a socket in the file system of the client.
fn check_redirect(inner: &Inner, from: &Address, to: &Address) -> Result<(), (ErrorCode, String)> {
    if matches!(to, Address::Unix(_)) && !matches!(from, Address::Unix(_)) {
        let text = format!("{from} redirects to {to}, a socket of this machine");
        return Err((ErrorCode::Protocol, text));
    }
    if is_downgrade(from, to) {
        let text = format!("{from} redirects to {to}, which has no TLS");
        return Err((ErrorCode::Protocol, text));
    }
    if inner.options.token.is_some() && to.is_exposed() && !is_configured(inner, to) {
        let text = format!("{from} redirects to {to}, which would get the token without TLS");
        return Err((ErrorCode::Protocol, text));
    }
    Ok(())
}

/// Returns whether the caller has named this host.
fn is_configured(inner: &Inner, to: &Address) -> bool {
    inner
        .configured_addresses
        .iter()
        .any(|configured| configured.host() == to.host())
}

/// Selects the next of the servers that the caller or the cluster has named, in turn. Called when
/// the current server does not respond or knows no leader.
fn try_next(inner: &Inner, state: &mut State) -> Result<(), (ErrorCode, String)> {
    let known = || inner.configured_addresses.iter().chain(&state.nodes);
    let at = known().position(|known| *known == state.address);
    let next = known().nth(at.map_or(0, |at| at + 1));
    let next = next.or(inner.configured_addresses.first()).cloned();
    let next = next.unwrap_or_else(|| state.address.clone());
    set_address(inner, state, next)
}

/// Whether the client knows an address other than the current one.
fn has_other(inner: &Inner, state: &State) -> bool {
    let mut known = inner.configured_addresses.iter().chain(&state.nodes);
    known.any(|known| *known != state.address)
}

/// Time limit for the connection to one address and for its response to HELLO. With several known
/// addresses, each gets a part of the time, so that a silent server does not use all of it. The
/// time doubles after each round.
fn attempt_time(inner: &Inner, state: &State, attempts: u32) -> Duration {
    let known = inner.configured_addresses.len() + state.nodes.len();
    let known = u32::try_from(known).unwrap_or(u32::MAX);
    if known < 2 {
        return CONNECT_TIME;
    }
    let part = inner.options.connect_timeout / known;
    let factor = 1 << (attempts / known).min(8);
    let doubled = part.max(ATTEMPT_TIME_MIN).saturating_mul(factor);
    let is_session = !inner.client.is_none();
    let least = if is_session && attempts >= known {
        SESSION_ATTEMPT_TIME_MIN
    } else {
        Duration::ZERO
    };
    doubled.clamp(least, CONNECT_TIME)
}

/// The servers of a cluster in a list from one of them. Excludes those to which a redirect from the
/// caller's addresses would not be followed.
fn nodes_of(inner: &Inner, lines: &[u8]) -> Vec<Address> {
    let address = |line: &[u8]| {
        let (_, address) = std::str::from_utf8(line).ok()?.split_once(' ')?;
        let address: Address = address.parse().ok()?;
        let is_allowed = inner
            .configured_addresses
            .iter()
            .any(|configured| check_redirect(inner, configured, &address).is_ok());
        (is_allowed && !inner.configured_addresses.contains(&address)).then_some(address)
    };
    let lines = lines.split(|byte| *byte == b'\n');
    lines.filter_map(address).take(NODES_MAX).collect()
}

/// Sets the address of the next connection, and reads the TLS files again: a certificate may have
/// been renewed.
fn set_address(inner: &Inner, state: &mut State, to: Address) -> Result<(), (ErrorCode, String)> {
    match trust(&to, &inner.options) {
        Ok(trust) => state.trust = trust,
        // A file may be about to be replaced. Its earlier content may still be valid.
        Err(_) if state.trust.is_some() => {}
        Err(error) => return Err((error.code(), error.to_string())),
    }
    state.address = to;
    Ok(())
}

/// Runs one connection from its start to its end.
fn serve(inner: &Inner, pause: &mut Duration, hops: &mut u32, attempts: u32) -> Broken {
    let (address, trust, hello, time) = {
        let mut state = inner.lock();
        if state.final_error.is_some() {
            return Broken::Closed;
        }
        let trust = state.trust.clone();
        state.attempt_since = Instant::now();
        let time = attempt_time(inner, &state, attempts);
        (state.address.clone(), trust, state.writes.hello(), time)
    };
    let again = |error: std::io::Error| Broken::Again(cause(&error, time));
    let early = |broken: Broken, answer: &[u8]| match wrong_protocol_hint(&address, answer) {
        Some(hint) => broken.with(hint),
        None => broken,
    };
    let stream = match Stream::connect(&address, &trust, time) {
        Ok(stream) => Arc::new(stream),
        Err(error) => return again(error),
    };
    let mut input = Input::new(Arc::clone(&stream), time);
    let hello = Hello {
        token: inner
            .options
            .token
            .as_deref()
            .unwrap_or_default()
            .trim_ascii()
            .as_bytes(),
        agent: inner.options.agent.as_bytes(),
        received: inner.options.received,
        ..hello
    };
    let mut bytes = greeting();
    Encoder::default().encode(&Packet::new(Message::Hello(hello)), &mut bytes);
    let sent = stream
        .set_read_timeout(time)
        .and_then(|()| stream.write_all(&bytes));
    if let Err(error) = sent {
        return early(again(error), &[]);
    }
    loop {
        let ended = input.packet(|packet, _| match packet.message {
            Message::HelloOk(hello) => {
                let facts = facts_of(&hello);
                let idle = facts.idle;
                let mut state = inner.lock();
                if state.final_error.is_some() {
                    return Some(Err(Broken::Closed));
                }
                match state.opened(&hello) {
                    Ok(done) => state.connected(Arc::clone(&stream), facts, done),
                    Err(why) => {
                        return Some(Err(Broken::Final(ErrorCode::SessionExpired, why.into())));
                    }
                }
                Some(Ok(idle))
            }
            Message::Refusal(refusal) => Some(Err(refused_hello(&refusal))),
            _ => None,
        });
        match ended {
            Ok(None) => {}
            Ok(Some(Err(broken))) => return broken,
            // A server with TLS closes the connection.
            Err(broken) if input.timed_out => return broken,
            Err(broken) => return early(broken, input.unread()),
            Ok(Some(Ok(idle))) => {
                if let Err(error) = stream.set_read_timeout(idle) {
                    return again(error);
                }
                input.opened(idle);
                break;
            }
        }
    }
    if *hops == 0 {
        *pause = PAUSE_FIRST;
    }
    inner.work.notify_all();
    inner.changed.notify_all();
    process_packets(inner, &mut input, hops)
}

/// Processes packets until the connection ends.
fn process_packets(inner: &Inner, input: &mut Input, hops: &mut u32) -> Broken {
    let opened = Instant::now();
    loop {
        let mut received_any = false;
        let ended = input.packets(|packet, bytes| {
            received_any = true;
            let broken = take(inner, packet, bytes);
            let redirect = matches!(&packet.message, Message::Refusal(refusal)
                if code_of(refusal) == ErrorCode::Redirect);
            let committed = matches!(packet.message, Message::Committed { .. });
            let is_answer = || !packet.tag.is_empty() && opened.elapsed() >= CHAIN_END_TIME;
            if *hops > 0 && !redirect && (committed || is_answer()) {
                // This server responds, so the chain of redirects has ended.
                *hops = 0;
            }
            broken
        });
        if received_any {
            inner.changed.notify_all();
            inner.work.notify_one();
        }
        match ended {
            Ok(None) => {}
            Ok(Some(broken)) | Err(broken) => {
                let left = inner.lock().final_error.is_some();
                return if left { Broken::Closed } else { broken };
            }
        }
    }
}

/// The facts of the server from its response to HELLO.
fn facts_of(hello: &HelloOk<'_>) -> Facts {
    let features = hello.features.split(|b| *b == b' ');
    let knows = |feature: &[u8]| features.clone().any(|word| word == feature);
    let bytes = |number| usize::try_from(number).unwrap_or(usize::MAX);
    Facts {
        store: hello.store,
        level: String::from_utf8_lossy(hello.level).into_owned(),
        failure: String::from_utf8_lossy(hello.failure).into_owned(),
        limits: IntentionLimits {
            key_bytes_max: bytes(hello.key_bytes_max),
            value_bytes_max: bytes(hello.value_bytes_max),
        },
        idle: Duration::from_millis(hello.idle_ms),
        applied: hello.applied,
        queries: knows(QUERY),
        latest_queries: knows(QUERY_LATEST),
        chains: knows(CHAIN),
    }
}

fn greeting() -> Vec<u8> {
    let mut bytes = Vec::new();
    Encoder::default().encode(&Packet::new(Message::Empty), &mut bytes);
    bytes
}

fn text_of(refusal: &RefusalMessage<'_>) -> String {
    String::from_utf8_lossy(refusal.text).into_owned()
}

fn code_of(refusal: &RefusalMessage<'_>) -> ErrorCode {
    refusal.code().unwrap_or(ErrorCode::Protocol)
}

fn refused_hello(refusal: &RefusalMessage<'_>) -> Broken {
    let text = text_of(refusal);
    match code_of(refusal) {
        ErrorCode::Redirect => {
            let address = std::str::from_utf8(refusal.address).ok();
            match address.and_then(|text| text.parse().ok()) {
                Some(address) => Broken::Redirect(address),
                None => Broken::Again(text),
            }
        }
        code @ (ErrorCode::Busy
        | ErrorCode::Rate
        | ErrorCode::NoLeader
        | ErrorCode::Draining
        | ErrorCode::Opening) => {
            // A server may name any pause, so the client limits it.
            let pause = refusal
                .retry_ms
                .map_or(Duration::ZERO, Duration::from_millis)
                .min(RETRY_MAX);
            Broken::Pause(code, pause, text)
        }
        code => Broken::Final(code, text),
    }
}

/// Whether a fatal refusal with this code concerns one request and not the connection. Later calls
/// then use a new connection.
fn is_of_request(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::TooLarge | ErrorCode::Internal)
}

/// Handles a packet of an open connection.
fn take(inner: &Inner, packet: &Packet<'_>, bytes: &[u8]) -> Option<Broken> {
    let protocol = |why: &str| Some(Broken::Final(ErrorCode::Protocol, why.to_owned()));
    let mut state = inner.lock();
    let mut reports = false;
    if let Message::Refusal(refusal) = &packet.message
        && code_of(refusal) == ErrorCode::NoLeader
        && !refusal.fatal
    {
        let step = state.leader_missing();
        reports = step.reports;
        if step.moves && has_other(inner, &state) {
            // The callers resend the refused requests.
            state.next_address.get_or_insert(refused_hello(refusal));
        }
    }
    match &packet.message {
        Message::Committed { lines } => {
            state.leader_found();
            for line in OutcomeLines::new(lines) {
                let Some((nonce, run)) = line else {
                    return protocol("the server sent an answer that cannot be read");
                };
                if let Err(why) = state.answered(nonce, &run) {
                    return protocol(why);
                }
            }
        }
        Message::Received { nonce, count } => state.received(*nonce, *count),
        Message::Refusal(refusal) if refusal.fatal => {
            let code = code_of(refusal);
            if !is_of_request(code) {
                return Some(refused_hello(refusal));
            }
            let text = text_of(refusal);
            state.refused_unnamed(code, &text);
            return Some(Broken::Again(text));
        }
        Message::Refusal(refusal)
            if code_of(refusal) == ErrorCode::Redirect && !refusal.is_of_write() =>
        {
            // The caller repeats the call at the new address when the outcome of the writes in
            // flight is known.
            let to = refused_hello(refusal);
            if state.has_request(packet.tag) {
                state.next_address.get_or_insert(to);
            }
        }
        Message::Refusal(refusal) if refusal.is_of_write() => {
            let code = code_of(refusal);
            state.refused(refusal, code, &text_of(refusal), inner.options.patience);
            if code == ErrorCode::Redirect {
                // The server also refuses all writes that were sent after it.
                state.next_address.get_or_insert(refused_hello(refusal));
            }
        }
        Message::Config { nodes, .. } => state.nodes = nodes_of(inner, nodes),
        Message::Window {
            window,
            window_bytes,
        } => state.writes.credit(*window, *window_bytes),
        Message::AppliedResponse {
            settled,
            created,
            lagging,
            ..
        } if packet.tag.is_empty() => state.marked(*settled, *created, lagging),
        Message::Ping => state.pong(packet.tag),
        Message::ByeNotice => return Some(Broken::Again("the server ends the connection".into())),
        _ if !packet.tag.is_empty() => state.deliver(packet, bytes),
        _ => {}
    }
    // No more writes are sent to this server until the client reconnects.
    let moves = state.next_address.is_some() && state.writes.unanswered().next().is_none();
    drop(state);
    if reports && let Some(on_wait) = inner.options.on_wait {
        report_wait(on_wait);
    }
    moves.then(|| Broken::Again("redirected".to_owned()))
}

/// Writes until the connection ends for good. Fails the waiting calls when the connection is lost
/// for longer than the patience.
pub(super) fn write(inner: &Inner) {
    let mut state = inner.lock();
    let mut bytes = Vec::new();
    loop {
        state.fill();
        if let Some(stream) = state.stream.clone()
            && !state.out.is_empty()
        {
            std::mem::swap(&mut bytes, &mut state.out);
            drop(state);
            inner.changed.notify_all();
            if stream.write_all(&bytes).is_err() {
                // The reading thread notices the end and reconnects.
                stream.end();
            }
            bytes.clear();
            bytes.shrink_to(2 << 20);
            state = inner.lock();
            continue;
        }
        if state.final_error.is_some() {
            break;
        }
        let gives_up_at = state.gives_up_at(inner.options.patience);
        if gives_up_at.is_some_and(|at| at <= Instant::now()) {
            state.give_up();
            inner.changed.notify_all();
        }
        state = inner.wait_for_work(state);
    }
}

/// Whether a time limit has ended. The system reports it under two names.
fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// The cause of a failed attempt.
fn cause(error: &std::io::Error, limit: Duration) -> String {
    if is_timeout(error) {
        format!("no answer within {} ms", limit.as_millis())
    } else {
        error.to_string()
    }
}

/// Packets from a stream.
struct Input {
    stream: Arc<Stream>,
    /// The longest silence of the server.
    silence: Duration,
    /// When the response to HELLO must have arrived; `None` after it.
    until: Option<Instant>,
    /// Whether the server was silent for longer, or `until` has passed.
    timed_out: bool,
    deframer: Deframer,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    /// The response to HELLO must arrive within `time`.
    fn new(stream: Arc<Stream>, time: Duration) -> Self {
        Self {
            stream,
            silence: time,
            until: Instant::now().checked_add(time),
            timed_out: false,
            deframer: Deframer::default(),
            bytes: vec![0; READ_BYTES],
            start: 0,
            end: 0,
        }
    }

    /// Notes that the response to HELLO has arrived.
    fn opened(&mut self, silence: Duration) {
        self.silence = silence;
        self.until = None;
    }

    /// Reads the next packet and handles it.
    fn packet<T>(
        &mut self,
        deal: impl FnOnce(&Packet<'_>, &[u8]) -> Option<T>,
    ) -> Result<Option<T>, Broken> {
        let size = loop {
            if let Some(size) = self.find()? {
                break size;
            }
            self.read_more()?;
        };
        let whole = self.bytes.get(self.start..self.start + size);
        let whole = whole.unwrap_or_default();
        self.start += size;
        let packet = self.deframer.read(whole).map_err(|error| broken(&error))?;
        Ok(deal(&packet, whole))
    }

    /// Handles all received packets; reads if there are none.
    fn packets<T>(
        &mut self,
        mut deal: impl FnMut(&Packet<'_>, &[u8]) -> Option<T>,
    ) -> Result<Option<T>, Broken> {
        let mut some = false;
        loop {
            let Some(size) = self.find()? else {
                if some {
                    return Ok(None);
                }
                self.read_more()?;
                continue;
            };
            some = true;
            let whole = self.bytes.get(self.start..self.start + size);
            let whole = whole.unwrap_or_default();
            self.start += size;
            let packet = self.deframer.read(whole).map_err(|error| broken(&error))?;
            if let Some(found) = deal(&packet, whole) {
                return Ok(Some(found));
            }
        }
    }

    /// Received bytes that are not parsed yet.
    fn unread(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    fn find(&mut self) -> Result<Option<usize>, Broken> {
        let unread = self.bytes.get(self.start..self.end).unwrap_or_default();
        self.deframer.find(unread).map_err(|error| broken(&error))
    }

    fn read_more(&mut self) -> Result<(), Broken> {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == 0 && self.bytes.len() > 4 * READ_BYTES {
            self.bytes = vec![0; READ_BYTES];
        }
        if self.end == self.bytes.len() {
            // Grows with the received bytes, never by an announced length.
            let size = self.bytes.len() * 2;
            self.bytes.resize(size, 0);
        }
        let left = self
            .until
            .map(|until| until.saturating_duration_since(Instant::now()));
        let room = self.bytes.get_mut(self.end..).unwrap_or_default();
        let read = match left {
            None => self.stream.read(room),
            Some(left) if left.is_zero() => Err(ErrorKind::TimedOut.into()),
            Some(left) => self
                .stream
                .set_read_timeout(left)
                .and_then(|()| self.stream.read(room)),
        };
        match read {
            Ok(0) => Err(Broken::Again("the server closed the connection".into())),
            Ok(bytes) => {
                self.end += bytes;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => {
                self.timed_out = is_timeout(&error);
                Err(Broken::Again(cause(&error, self.silence)))
            }
        }
    }
}

fn broken(error: &weir_protocol::FrameError) -> Broken {
    let text = format!("the server broke the protocol: {error}");
    Broken::Final(ErrorCode::Protocol, text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use weir_core::intention::{Intention, Operation};
    use weir_core::{ClientId, Outcome};

    use super::*;
    use crate::remote::ConnectOptions;
    use crate::remote::link::Link;
    use crate::reply::interruptible;

    #[test]
    fn a_redirect_from_tls_to_clear_text_is_a_downgrade() {
        let address = |text: &str| text.parse::<Address>().unwrap();
        let (tls, tcp) = (address("weirs://a:1"), address("weir://b:2"));
        assert!(is_downgrade(&tls, &tcp));
        assert!(!is_downgrade(&tls, &tls));
        assert!(!is_downgrade(&tcp, &tcp));
    }

    #[test]
    fn the_time_limit_of_an_attempt_does_not_overflow() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("weir://{}", listener.local_addr().unwrap());
        let address: Address = address.parse().unwrap();
        let options = ConnectOptions {
            connect_timeout: Duration::MAX,
            ..ConnectOptions::default()
        };
        let addresses = [address.clone(), address];
        let link = Link::new(&addresses, ClientId::NONE, &options).unwrap();
        let state = link.inner.lock();
        assert_eq!(attempt_time(&link.inner, &state, 100), CONNECT_TIME);
    }

    #[test]
    fn a_session_gives_a_node_time_to_wait_for_a_leader_after_the_first_round() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("weir://{}", listener.local_addr().unwrap());
        let address: Address = address.parse().unwrap();
        let options = ConnectOptions {
            connect_timeout: Duration::from_secs(1),
            ..ConnectOptions::default()
        };
        let addresses = [address.clone(), address];
        let times = |client| {
            let link = Link::new(&addresses, client, &options).unwrap();
            let state = link.inner.lock();
            [1, 2].map(|attempts| attempt_time(&link.inner, &state, attempts))
        };
        let half = Duration::from_millis(500);
        assert_eq!(times(ClientId::NONE), [half, 2 * half]);
        assert_eq!(times(ClientId([1; 16])), [half, SESSION_ATTEMPT_TIME_MIN]);
    }

    /// The response to HELLO of a server that expects the nonce `next`.
    fn hello_ok(next: u64) -> Vec<u8> {
        let hello = HelloOk {
            version: b"weir/1",
            level: b"memory",
            next,
            window: 1,
            window_bytes: 1,
            key_bytes_max: 1,
            value_bytes_max: 1,
            ..HelloOk::default()
        };
        let mut bytes = greeting();
        Encoder::default().encode(&Packet::new(Message::HelloOk(hello)), &mut bytes);
        bytes
    }

    #[test]
    fn unsent_writes_of_a_session_keep_their_numbers_on_the_next_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("weir://{}", listener.local_addr().unwrap());
        let addresses: [Address; 1] = [address.parse().unwrap()];
        let client = ClientId([1; 16]);
        let link = Link::new(&addresses, client, &ConnectOptions::default()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&hello_ok(5)).unwrap();
        assert_eq!(link.next(), 5);
        drop(stream);
        while link.inner.lock().stream.is_some() {
            std::thread::yield_now();
        }
        let (key, value) = (&b"k"[..], &b"1"[..]);
        let put = Intention::new("t", Operation::Put { key, value });
        let (proposal, number) = link.propose(&[put]).unwrap();
        assert_eq!(number, 5);
        // The server has lost the session, for example because it was not used for 24 hours.
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&hello_ok(1)).unwrap();
        let (mut bytes, mut chunk) = (Vec::new(), [0; 1024]);
        while !String::from_utf8_lossy(&bytes).contains("_request_write") {
            let count = stream.read(&mut chunk).unwrap();
            assert!(count > 0);
            bytes.extend(chunk.iter().take(count));
        }
        let sent = link.inner.lock().writes.unanswered().next().cloned();
        assert_eq!(sent.map(|write| write.first), Some(5));
        let code = ErrorCode::NonceGap;
        let refusal = RefusalMessage {
            nonce: Some(5),
            count: Some(1),
            expected: Some(1),
            ..RefusalMessage::new(code)
        };
        bytes.clear();
        Encoder::default().encode(&Packet::new(Message::Refusal(refusal)), &mut bytes);
        stream.write_all(&bytes).unwrap();
        let outcomes = proposal.wait().unwrap();
        let refused = Outcome::Refused { code, expected: 1 };
        assert_eq!(outcomes.iter().next(), Some(refused));
    }

    /// A refusal that names no write, after which the server closes the connection.
    fn too_large() -> Packet<'static> {
        Packet::new(Message::Refusal(RefusalMessage {
            fatal: true,
            ..RefusalMessage::new(ErrorCode::TooLarge)
        }))
    }

    #[test]
    fn a_session_waits_for_its_number_after_a_refusal_that_names_no_write() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("weir://{}", listener.local_addr().unwrap());
        let addresses: [Address; 1] = [address.parse().unwrap()];
        let client = ClientId([1; 16]);
        let link = Link::new(&addresses, client, &ConnectOptions::default()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&hello_ok(5)).unwrap();
        let (key, value) = (&b"k"[..], &b"1"[..]);
        let put = Intention::new("t", Operation::Put { key, value });
        let (proposal, number) = link.propose(&[put]).unwrap();
        assert_eq!(number, 5);
        let mut bytes = Vec::new();
        Encoder::default().encode(&too_large(), &mut bytes);
        stream.write_all(&bytes).unwrap();
        assert!(proposal.wait().is_err());
        // The outcome of write 5 is unknown, so the next number may be 5 or 6.
        let numbered = interruptible(Duration::ZERO, Arc::new(|| true), || {
            link.propose(&[put]).map(|(_, number)| number)
        });
        assert!(numbered.is_err(), "{numbered:?}");
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&hello_ok(6)).unwrap();
        assert_eq!(link.try_next().unwrap(), 6);
    }

    #[test]
    fn unsent_writes_wait_for_the_next_connection_after_a_refusal_that_names_no_write() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("weir://{}", listener.local_addr().unwrap());
        let addresses: [Address; 1] = [address.parse().unwrap()];
        let link = Link::new(&addresses, ClientId::NONE, &ConnectOptions::default()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&hello_ok(0)).unwrap();
        link.facts().unwrap();
        let (key, value) = (&b"k"[..], &b"1"[..]);
        let put = Intention::new("t", Operation::Put { key, value });
        let (sent, _) = link.propose(&[put]).unwrap();
        link.inner.lock().fill();
        // The server allows one write in flight, so this one is not sent.
        let (unsent, _) = link.propose(&[put]).unwrap();
        // The reading thread has not closed the connection yet.
        let broken = take(&link.inner, &too_large(), &[]);
        assert!(matches!(broken, Some(Broken::Again(_))), "{broken:?}");
        assert!(sent.wait().is_err());
        let mut state = link.inner.lock();
        state.fill();
        assert!(state.writes.unanswered().next().is_none());
        drop(state);
        assert!(!unsent.is_done());
        link.close(Duration::ZERO);
        assert!(unsent.wait().is_err());
    }

    #[test]
    fn calls_fail_after_the_patience_during_a_pause_and_during_an_attempt() {
        for retry_ms in [Some(30_000), None] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = format!("weir://{}", listener.local_addr().unwrap());
            let addresses: [Address; 1] = [address.parse().unwrap()];
            let options = ConnectOptions {
                patience: Duration::from_secs(1),
                ..ConnectOptions::default()
            };
            let link = Link::new(&addresses, ClientId::NONE, &options).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&hello_ok(0)).unwrap();
            link.facts().unwrap();
            drop(stream);
            let since = Instant::now();
            // The server refuses the next HELLO and asks for a pause, or is silent.
            let (mut stream, _) = listener.accept().unwrap();
            if retry_ms.is_some() {
                let refusal = RefusalMessage {
                    fatal: true,
                    retry_ms,
                    ..RefusalMessage::new(ErrorCode::Busy)
                };
                let mut bytes = greeting();
                Encoder::default().encode(&Packet::new(Message::Refusal(refusal)), &mut bytes);
                stream.write_all(&bytes).unwrap();
            }
            let (key, value) = (&b"k"[..], &b"1"[..]);
            let put = Intention::new("t", Operation::Put { key, value });
            let proposed = link.propose(&[put]);
            let outcomes = proposed.and_then(|(proposal, _)| proposal.wait());
            assert!(outcomes.is_err());
            // The pause takes at least 15 s, the attempt 10 s.
            let waited = since.elapsed();
            assert!(waited < Duration::from_secs(8), "{retry_ms:?}: {waited:?}");
        }
    }

    #[test]
    fn a_link_that_is_dropped_while_it_connects_ends_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("weir://{}", listener.local_addr().unwrap());
        let addresses: [Address; 1] = [address.parse().unwrap()];
        let link = Link::new(&addresses, ClientId::NONE, &ConnectOptions::default());
        let (mut stream, _) = listener.accept().unwrap();
        drop(link.unwrap());
        stream.write_all(&hello_ok(0)).unwrap();
        // Only a connection that stays open takes so long.
        let limit = Some(Duration::from_mins(1));
        stream.set_read_timeout(limit).unwrap();
        let end = stream.read_to_end(&mut Vec::new());
        let is_reset = |error: std::io::Error| error.kind() == ErrorKind::ConnectionReset;
        assert!(end.is_ok() || end.is_err_and(is_reset));
    }
}
