//! One connection to a server, over all of its interruptions: what was asked,
//! what was written, what is not answered.
//!
//! Two threads serve it ([`super::run`]); callers only leave things here and
//! wait. A write that was handed over keeps its place and its number until its
//! answer is there, however often the connection breaks.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_core::batch::BatchBuilder;
use weir_core::intention::{Intention, IntentionLimits};
use weir_core::limits::{BATCH_BYTES_MAX, CALL_ITEMS_MAX};
use weir_core::protocol::{ClientConnection, Deframer, Encoder, Message, Packet};
use weir_core::{ClientId, ErrorCode, IntentionOffset, Outcome, OutcomeRun, Outcomes};
use weir_store::{Answer, Proposal, StoreError};

use super::address::{Address, Stream, Trust};
use super::{ConnectOptions, run};

/// Bytes of intentions that wait to be sent before callers wait themselves.
const OPEN_BYTES_MAX: usize = 16 << 20;
/// Intentions that wait to be sent before callers wait themselves.
const OPEN_ITEMS_MAX: u64 = 100_000;
/// Bytes of requests that wait to be sent.
const OUT_BYTES_MAX: usize = 1 << 20;

/// What the server said about itself.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) store: [u8; 16],
    pub(crate) level: String,
    pub(crate) limits: IntentionLimits,
    pub(crate) idle: Duration,
    /// Newest intention when it was said.
    pub(crate) applied: u64,
    /// Whether parts of queries can run there.
    pub(crate) queries: bool,
}

/// Somebody who waits for answers to intentions that were handed over together.
#[derive(Debug)]
struct Call {
    count: u32,
    done: u32,
    outcomes: Outcomes,
    answer: Answer,
}

/// Somebody who waits for an answer of another kind.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    pub(super) packets: VecDeque<Vec<u8>>,
    /// Marks are wanted.
    marks: bool,
    /// The server knows of the request: marks from now on are about it too.
    answered: bool,
    /// Everything up to this intention is among the packets that came.
    mark: Option<u64>,
    /// The connection on which it was asked is gone.
    pub(super) lost: bool,
}

/// A connection that will not come back.
#[derive(Clone, Debug)]
pub(super) struct Dead {
    pub(super) code: ErrorCode,
    pub(super) text: String,
}

impl Dead {
    pub(super) fn error(&self) -> StoreError {
        far(self.code, self.text.clone())
    }
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) address: Address,
    pub(super) writes: ClientConnection,
    /// Where a session goes on that was told to go back.
    rewound: Option<u64>,
    open: VecDeque<BatchBuilder>,
    open_items: u64,
    open_bytes: usize,
    calls: VecDeque<Call>,
    /// Answers to be given when the state is unlocked.
    given: Vec<(Answer, Result<Outcomes, StoreError>)>,
    pub(super) out: Vec<u8>,
    encoder: Encoder,
    inboxes: HashMap<u64, Inbox>,
    /// How far the server has got with the listeners of this connection, and
    /// the newest topic.
    marks: Option<(u64, u64)>,
    /// Packets and marks that came.
    deliveries: u64,
    last_tag: u64,
    pub(super) stream: Option<Arc<Stream>>,
    pub(super) facts: Option<Facts>,
    /// Why the last attempt to connect failed.
    pub(super) trouble: String,
    pub(super) down_since: Instant,
    /// Nothing was heard for so long that callers were told.
    given_up: bool,
    pub(super) dead: Option<Dead>,
    /// No more calls will come.
    pub(super) leaving: bool,
}

pub(super) struct Inner {
    pub(super) client: ClientId,
    pub(super) options: ConnectOptions,
    pub(super) trust: Trust,
    state: Mutex<State>,
    /// There is something to be sent.
    pub(super) work: Condvar,
    /// Something has changed for those who wait.
    pub(super) news: Condvar,
}

/// The state, locked. Answers are given when it is unlocked again: whoever they
/// wake may come straight back.
pub(super) struct Guard<'a> {
    inner: &'a Inner,
    state: Option<MutexGuard<'a, State>>,
}

impl Deref for Guard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        match &self.state {
            Some(state) => state,
            None => unreachable!("a guard that waits is not used"),
        }
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        match &mut self.state {
            Some(state) => state,
            None => unreachable!("a guard that waits is not used"),
        }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let given = self
            .state
            .as_mut()
            .map(|state| std::mem::take(&mut state.given));
        drop(self.state.take());
        for (answer, result) in given.into_iter().flatten() {
            answer.complete(result);
        }
    }
}

impl<'a> Guard<'a> {
    /// Waits for a signal. When there are answers to give it gives them
    /// instead, and asks to look again.
    fn sleep(mut self, signal: &Condvar, time: Option<Duration>) -> Guard<'a> {
        let inner = self.inner;
        if !self.given.is_empty() {
            drop(self);
            return inner.lock();
        }
        let Some(state) = self.state.take() else {
            return self;
        };
        let state = match time {
            None => signal.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(time) => {
                let waited = signal.wait_timeout(state, time);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        self.state = Some(state);
        self
    }
}

impl Inner {
    pub(super) fn lock(&self) -> Guard<'_> {
        // A panic under the lock is one of ours; what it left is still whole.
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Guard {
            inner: self,
            state: Some(state),
        }
    }

    /// Waits for news, at most until `until`; false when it is over.
    pub(super) fn wait<'a>(
        &'a self,
        state: Guard<'a>,
        until: Option<Instant>,
    ) -> (Guard<'a>, bool) {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return (state, false);
        }
        (state.sleep(&self.news, left), true)
    }

    /// Waits for something to be sent.
    pub(super) fn idle<'a>(&'a self, state: Guard<'a>) -> Guard<'a> {
        state.sleep(&self.work, None)
    }
}

/// A connection to a server. Dropping it waits a moment for what was handed
/// over.
pub(crate) struct Link {
    pub(super) inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("client", &self.inner.client)
            .finish_non_exhaustive()
    }
}

/// Builds the error of a store that is elsewhere.
pub(crate) fn far(code: ErrorCode, text: impl Into<String>) -> StoreError {
    StoreError::Far {
        code,
        text: text.into(),
    }
}

/// What connections to this address need; read once, before anything else.
#[cfg(feature = "tls")]
fn trust(address: &Address, options: &ConnectOptions) -> Result<Trust, StoreError> {
    match address {
        Address::Tls(_) => super::tls::config(options).map(Some),
        _ => Ok(None),
    }
}

#[cfg(not(feature = "tls"))]
fn trust(address: &Address, _: &ConnectOptions) -> Result<Trust, StoreError> {
    match address {
        Address::Tls(_) => Err(far(ErrorCode::Unsupported, "this build has no TLS")),
        _ => Ok(None),
    }
}

impl Link {
    /// Begins to connect, and goes on trying.
    pub(crate) fn new(
        address: Address,
        client: ClientId,
        options: &ConnectOptions,
    ) -> Result<Self, StoreError> {
        let trust = trust(&address, options)?;
        let state = State {
            address,
            writes: ClientConnection::new(client),
            rewound: None,
            open: VecDeque::new(),
            open_items: 0,
            open_bytes: 0,
            calls: VecDeque::new(),
            given: Vec::new(),
            out: Vec::new(),
            encoder: Encoder::default(),
            inboxes: HashMap::new(),
            marks: None,
            deliveries: 0,
            last_tag: 0,
            stream: None,
            facts: None,
            trouble: String::new(),
            down_since: Instant::now(),
            given_up: false,
            dead: None,
            leaving: false,
        };
        let inner = Arc::new(Inner {
            client,
            trust,
            options: options.clone(),
            state: Mutex::new(state),
            work: Condvar::new(),
            news: Condvar::new(),
        });
        let spawn = |name: &str, body: fn(&Inner)| {
            let inner = Arc::clone(&inner);
            std::thread::Builder::new()
                .name(name.into())
                .spawn(move || body(&inner))
                .map_err(|error| far(ErrorCode::Io, format!("cannot start a thread: {error}")))
        };
        let threads = vec![
            spawn("weir-read", run::read)?,
            spawn("weir-write", run::write)?,
        ];
        Ok(Self {
            inner,
            threads: Mutex::new(threads),
        })
    }

    /// What the server said; waits for the first connection.
    pub(crate) fn facts(&self) -> Result<Facts, StoreError> {
        let until = Instant::now().checked_add(self.inner.options.connect_timeout);
        let mut state = self.inner.lock();
        loop {
            if let Some(dead) = &state.dead {
                return Err(dead.error());
            }
            if let Some(facts) = &state.facts {
                return Ok(facts.clone());
            }
            if state.given_up {
                return Err(state.unreachable());
            }
            let (next, goes_on) = self.inner.wait(state, until);
            state = next;
            if !goes_on {
                return Err(state.unreachable());
            }
        }
    }

    /// Number of the next intention of the session; 1 before the server was
    /// reached.
    pub(crate) fn next(&self) -> u64 {
        // Unreachable: the first use will say so.
        drop(self.facts());
        self.inner.lock().next()
    }

    /// The same, if the server was reached.
    pub(crate) fn try_next(&self) -> Result<u64, StoreError> {
        self.facts()?;
        Ok(self.inner.lock().next())
    }

    /// Goes back to a nonce, when nothing is in flight any more.
    pub(crate) fn rewind(&self, nonce: u64) {
        let mut state = self.inner.lock();
        while !state.calls.is_empty() && state.dead.is_none() {
            state = self.inner.wait(state, None).0;
        }
        state.rewound = Some(nonce);
        state.writes.rewind(nonce);
    }

    /// Hands intentions over, to be executed in this order. In a session they
    /// get its next numbers; the first of them is returned.
    pub(crate) fn propose(
        &self,
        intentions: &[Intention<'_>],
    ) -> Result<(Proposal, u64), StoreError> {
        if intentions.len() > CALL_ITEMS_MAX {
            return Err(StoreError::LimitExceeded {
                what: "intentions in one call",
                limit: CALL_ITEMS_MAX as u64,
                value: intentions.len() as u64,
            });
        }
        let limits = self.facts()?.limits;
        let (proposal, answer) = Proposal::pair();
        let mut state = self.inner.lock();
        if intentions.is_empty() {
            answer.complete(Ok(Outcomes::default()));
            return Ok((proposal, state.next()));
        }
        while state.open_bytes >= OPEN_BYTES_MAX || state.open_items >= OPEN_ITEMS_MAX {
            state.usable()?;
            state = self.inner.wait(state, None).0;
        }
        state.usable()?;
        let first = state.next();
        state.push(self.inner.client, first, intentions, &limits)?;
        let count = u32::try_from(intentions.len()).unwrap_or(u32::MAX);
        state.calls.push_back(Call {
            count,
            done: 0,
            outcomes: Outcomes::default(),
            answer,
        });
        drop(state);
        self.inner.work.notify_one();
        Ok((proposal, first))
    }

    /// Asks, and waits for the answer: one packet. Asks again when the
    /// connection breaks: only for what may be asked twice.
    pub(crate) fn ask(&self, message: &Message<'_>) -> Result<Vec<u8>, StoreError> {
        let until = Instant::now().checked_add(self.inner.options.patience);
        loop {
            let tag = self.begin(message, until)?;
            let asked = self.receive(tag, until);
            self.forget(tag);
            match asked? {
                Received::Packet(packet) => return Ok(packet),
                Received::Lost => {}
                Received::Nothing => {
                    return Err(far(
                        ErrorCode::Deadline,
                        "the server did not answer in time",
                    ));
                }
            }
        }
    }

    /// Sends a request whose answers are fetched with
    /// [`receive`](Self::receive); waits for a connection.
    pub(super) fn begin(
        &self,
        message: &Message<'_>,
        until: Option<Instant>,
    ) -> Result<u64, StoreError> {
        let mut state = self.inner.lock();
        loop {
            if let Some(dead) = &state.dead {
                return Err(dead.error());
            }
            if state.stream.is_some() && state.out.len() < OUT_BYTES_MAX {
                break;
            }
            if state.given_up {
                return Err(state.unreachable());
            }
            let (next, goes_on) = self.inner.wait(state, until);
            state = next;
            if !goes_on {
                return Err(state.unreachable());
            }
        }
        state.last_tag += 1;
        let tag = state.last_tag;
        let inbox = Inbox {
            marks: matches!(message, Message::Listen(listen) if listen.query.marks),
            ..Inbox::default()
        };
        state.inboxes.insert(tag, inbox);
        state.put(tag, message);
        drop(state);
        self.inner.work.notify_one();
        Ok(tag)
    }

    /// Sends something more about a request, if its connection is still there.
    pub(super) fn add(&self, tag: u64, message: &Message<'_>) {
        let mut state = self.inner.lock();
        if state.inboxes.get(&tag).is_some_and(|inbox| !inbox.lost) {
            state.put(tag, message);
            drop(state);
            self.inner.work.notify_one();
        }
    }

    /// The next answer to a request, at most until `until`.
    pub(super) fn receive(&self, tag: u64, until: Option<Instant>) -> Result<Received, StoreError> {
        let mut state = self.inner.lock();
        loop {
            let Some(inbox) = state.inboxes.get_mut(&tag) else {
                return Ok(Received::Lost);
            };
            if let Some(packet) = inbox.packets.pop_front() {
                return Ok(Received::Packet(packet));
            }
            if inbox.lost {
                return Ok(Received::Lost);
            }
            let (next, goes_on) = self.inner.wait(state, until);
            state = next;
            if !goes_on {
                return Ok(Received::Nothing);
            }
        }
    }

    /// Up to where the records of a listener came, if all that came were taken.
    pub(super) fn mark(&self, tag: u64) -> Option<u64> {
        let state = self.inner.lock();
        let inbox = state.inboxes.get(&tag)?;
        let taken = inbox.packets.is_empty() && !inbox.lost;
        inbox.mark.filter(|_| taken)
    }

    /// What the server said last about how far it has got.
    pub(super) fn marks(&self) -> Option<(IntentionOffset, IntentionOffset)> {
        let marks = self.inner.lock().marks;
        marks.map(|(settled, created)| (IntentionOffset(settled), IntentionOffset(created)))
    }

    pub(super) fn set_marks(&self, settled: IntentionOffset, created: IntentionOffset) {
        self.inner.lock().marks = Some((settled.0, created.0));
    }

    /// Packets that came so far.
    pub(crate) fn deliveries(&self) -> u64 {
        self.inner.lock().deliveries
    }

    /// Waits until more packets have come than these, until `until` at most.
    pub(super) fn wait_news(&self, seen: u64, until: Option<Instant>) {
        let mut state = self.inner.lock();
        while state.deliveries <= seen && state.dead.is_none() {
            let (next, goes_on) = self.inner.wait(state, until);
            state = next;
            if !goes_on {
                break;
            }
        }
    }

    /// Nobody waits for answers to a request any more.
    pub(super) fn forget(&self, tag: u64) {
        self.inner.lock().inboxes.remove(&tag);
    }

    /// Waits until everything that was handed over is answered, then ends the
    /// connection.
    pub(crate) fn close(&self, patience: Duration) {
        let until = Instant::now().checked_add(patience);
        let mut state = self.inner.lock();
        state.leaving = true;
        self.inner.work.notify_all();
        self.inner.news.notify_all();
        while !state.calls.is_empty() && state.dead.is_none() {
            let (next, goes_on) = self.inner.wait(state, until);
            state = next;
            if !goes_on {
                break;
            }
        }
        state.die(ErrorCode::Closed, "the connection is closed");
        if let Some(stream) = &state.stream {
            stream.end();
        }
        drop(state);
        self.inner.work.notify_all();
        self.inner.news.notify_all();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            // A panic in it was printed when it happened.
            drop(thread.join());
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close(Duration::from_secs(5));
    }
}

/// What came for a request.
pub(super) enum Received {
    Packet(Vec<u8>),
    /// The connection broke: ask again.
    Lost,
    /// Nothing in time.
    Nothing,
}

impl State {
    fn next(&self) -> u64 {
        self.writes.last() + self.open_items + 1
    }

    fn unreachable(&self) -> StoreError {
        let text = format!("{} cannot be reached: {}", self.address, self.trouble);
        far(ErrorCode::Unreachable, text)
    }

    fn usable(&self) -> Result<(), StoreError> {
        match &self.dead {
            Some(dead) => Err(dead.error()),
            None if self.leaving => Err(StoreError::Closed),
            None if self.given_up => Err(self.unreachable()),
            None => Ok(()),
        }
    }

    fn push(
        &mut self,
        client: ClientId,
        first: u64,
        intentions: &[Intention<'_>],
        limits: &IntentionLimits,
    ) -> Result<(), StoreError> {
        let size = intentions.iter().map(Intention::size_hint).sum::<usize>();
        let fits = self.open.back().is_some_and(|last| {
            last.bytes() + size <= BATCH_BYTES_MAX
                && last.len() + intentions.len() <= CALL_ITEMS_MAX
        });
        if !fits {
            self.open.push_back(BatchBuilder::default());
        }
        let Some(batch) = self.open.back_mut() else {
            return Err(StoreError::Closed);
        };
        let before = batch.bytes();
        let pushed = match intentions {
            [one] => {
                let one = numbered(client, first, one);
                batch.push(&one, limits).map_err(|error| (0, error))
            }
            many => {
                let all: Vec<_> = (first..)
                    .zip(many)
                    .map(|(nonce, intention)| numbered(client, nonce, intention))
                    .collect();
                batch.push_all(&all, limits)
            }
        };
        self.open_bytes += batch.bytes() - before;
        if let Err((index, error)) = pushed {
            if batch.is_empty() {
                self.open.pop_back();
            }
            return Err(StoreError::Refused { index, error });
        }
        self.open_items += intentions.len() as u64;
        Ok(())
    }

    fn put(&mut self, tag: u64, message: &Message<'_>) {
        let digits = tag.to_string();
        let packet = Packet {
            require: message.feature(),
            ..Packet::tagged(digits.as_bytes(), *message)
        };
        self.encoder.encode(&packet, &mut self.out);
    }

    /// Appends a packet that belongs to no request.
    pub(super) fn say(&mut self, packet: &Packet<'_>) {
        self.encoder.encode(packet, &mut self.out);
    }

    /// Moves what may be sent to the bytes that are sent next.
    pub(super) fn fill(&mut self) {
        if self.stream.is_none() {
            return;
        }
        while self.out.len() < OUT_BYTES_MAX
            && let Some(batch) = self.open.front()
        {
            let count = u32::try_from(batch.len()).unwrap_or(u32::MAX);
            if !self.writes.may_send(count, batch.bytes()) {
                break;
            }
            let items = batch.items().to_vec();
            self.open.pop_front();
            self.open_items -= u64::from(count);
            self.open_bytes -= items.len();
            self.rewound = None;
            let message = Message::Write {
                count,
                items: &items,
            };
            self.encoder.encode(&Packet::new(message), &mut self.out);
            self.writes.sent(count, items);
        }
    }

    /// A connection is there: what has to be sent again goes first.
    pub(super) fn up(&mut self, stream: Arc<Stream>, facts: Facts, again: usize) {
        self.out.clear();
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
        self.given_up = false;
    }

    /// The connection is gone.
    pub(super) fn down(&mut self) {
        if let Some(stream) = self.stream.take() {
            stream.end();
            self.down_since = Instant::now();
        }
        self.out.clear();
        self.marks = None;
        self.deliveries += 1;
        for inbox in self.inboxes.values_mut() {
            inbox.lost = true;
        }
        if self.writes.client().is_none() {
            self.lose("the connection broke before the answer came");
        }
    }

    /// What was sent and not answered is not known any more.
    pub(super) fn lose(&mut self, why: &str) {
        let lost = self.writes.give_up();
        self.fail_calls(lost.end - lost.start, |_| {
            far(ErrorCode::Indeterminate, why)
        });
    }

    /// Answers the calls of so many intentions, oldest first.
    fn fail_calls(&mut self, mut items: u64, error: impl Fn(u64) -> StoreError) {
        while items > 0 {
            let Some(call) = self.calls.pop_front() else {
                break;
            };
            let left = u64::from(call.count - call.done);
            self.given.push((call.answer, Err(error(items))));
            items = items.saturating_sub(left);
        }
    }

    /// What was never sent is dropped.
    fn fail_open(&mut self, error: impl Fn() -> StoreError) {
        self.open.clear();
        self.open_bytes = 0;
        self.open_items = 0;
        for call in self.calls.drain(..) {
            self.given.push((call.answer, Err(error())));
        }
    }

    /// Nobody was reached for too long: whoever waits is told.
    pub(super) fn give_up(&mut self) {
        if self.given_up {
            return;
        }
        self.given_up = true;
        let why = format!("{} cannot be reached: {}", self.address, self.trouble);
        self.lose(&why);
        self.fail_open(|| far(ErrorCode::Unreachable, why.clone()));
    }

    /// The connection will not come back.
    pub(super) fn die(&mut self, code: ErrorCode, text: &str) {
        if self.dead.is_some() {
            return;
        }
        self.lose(text);
        self.fail_open(|| far(code, text));
        self.dead = Some(Dead {
            code,
            text: text.to_owned(),
        });
    }

    /// A run of answers to intentions.
    pub(super) fn answered(&mut self, nonce: u64, run: &OutcomeRun) -> Result<(), &'static str> {
        let (known, new) = self.writes.answer(nonce, run.count)?;
        let mut at = u64::from(known);
        let mut left = new;
        while left > 0 {
            let Some(call) = self.calls.front_mut() else {
                return Err("an answer that nobody waits for");
            };
            let count = left.min(call.count - call.done);
            call.outcomes.push_run(OutcomeRun {
                count,
                outcome: run.outcome.nth(at),
            });
            call.done += count;
            at += u64::from(count);
            left -= count;
            if call.done == call.count
                && let Some(call) = self.calls.pop_front()
            {
                self.given.push((call.answer, Ok(call.outcomes)));
            }
        }
        Ok(())
    }

    /// A write was refused as a whole. Returns false for the echo of a refusal
    /// that came before.
    pub(super) fn refused(
        &mut self,
        nonce: u64,
        expected: u64,
        code: ErrorCode,
        text: &str,
    ) -> bool {
        let session = !self.writes.client().is_none();
        let front = self.writes.unanswered().next().map(|write| write.first);
        if front.is_none() || (session && front != Some(nonce)) {
            return false;
        }
        let freed = self.writes.refused(code);
        let items = freed.end - freed.start;
        let of_nonce = matches!(
            code,
            ErrorCode::NonceGap | ErrorCode::NonceReused | ErrorCode::SessionExpired
        );
        if session {
            // Everything behind it is refused as well, sent or not.
            self.open.clear();
            self.open_bytes = 0;
            self.open_items = 0;
            for call in std::mem::take(&mut self.calls) {
                let result = if of_nonce {
                    Ok(refusals(call.count, code, expected))
                } else {
                    Err(far(code, text))
                };
                self.given.push((call.answer, result));
            }
        } else {
            self.fail_calls(items, |_| far(code, text));
        }
        true
    }

    /// Puts a packet into the inbox that its tag names, if anybody waits.
    pub(super) fn deliver(&mut self, tag: &[u8], packet: &[u8]) {
        let tag = std::str::from_utf8(tag)
            .ok()
            .and_then(|tag| tag.parse().ok());
        if let Some(inbox) = tag.and_then(|tag: u64| self.inboxes.get_mut(&tag)) {
            inbox.answered = true;
            inbox.packets.push_back(packet.to_vec());
        }
        self.deliveries += 1;
    }

    /// The server has sent everything up to this intention, but to these
    /// listeners.
    pub(super) fn marked(&mut self, settled: u64, created: u64, behind: &[u8]) {
        let behind = behind.split(|&byte| byte == b'\n');
        let behind: HashSet<u64> = behind
            .filter_map(|tag| std::str::from_utf8(tag).ok()?.parse().ok())
            .collect();
        for (tag, inbox) in &mut self.inboxes {
            if inbox.marks && inbox.answered && !behind.contains(tag) {
                inbox.mark = Some(settled);
            }
        }
        self.marks = Some((settled, created));
        self.deliveries += 1;
    }
}

/// The intention under the number that it has on this connection.
fn numbered<'a>(client: ClientId, number: u64, intention: &Intention<'a>) -> Intention<'a> {
    let nonce = if client.is_none() { 0 } else { number };
    intention.under(client, nonce)
}

fn refusals(count: u32, code: ErrorCode, expected: u64) -> Outcomes {
    let mut outcomes = Outcomes::default();
    outcomes.push_run(OutcomeRun {
        count,
        outcome: Outcome::Refused { code, expected },
    });
    outcomes
}

/// Reads a packet that was received whole.
pub(super) fn packet_of(bytes: &[u8]) -> Result<Packet<'_>, StoreError> {
    let wrong = |_| far(ErrorCode::Protocol, "the server sent a packet that is none");
    let mut deframer = Deframer::default();
    deframer.find(bytes).map_err(wrong)?;
    deframer.read(bytes).map_err(wrong)
}
