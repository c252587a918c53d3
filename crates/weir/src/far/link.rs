//! One connection to a server, over all of its interruptions: what was asked,
//! what was written, what is not answered.
//!
//! Two threads serve it ([`super::run`]); callers only leave things here and
//! wait. A write that was handed over keeps its place and its number until its
//! answer is there, however often the connection breaks.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_core::batch::BatchBuilder;
use weir_core::intention::{Intention, IntentionLimits};
use weir_core::limits::{BATCH_BYTES_MAX, CALL_ITEMS_MAX};
use weir_core::protocol::{
    CHAIN, ClientConnection, Deframer, Encoder, Message, Packet, RefusalMessage, is_for_now,
};
use weir_core::{ClientId, ErrorCode, IntentionOffset, Outcome, OutcomeRun, Outcomes};
use weir_store::{Answer, Proposal, StoreError};

use super::address::{Address, Stream, Trust};
use super::pause::{BackOff, PAUSE_FIRST, PAUSE_MAX, chance};
use super::run::Broken;
use super::{ConnectOptions, late, run};
use crate::clock::{Alarm, Until};
use crate::reply::{block_on, look, next_look};

/// Bytes of intentions that wait to be sent before callers wait themselves.
const OPEN_BYTES_MAX: usize = 16 << 20;
/// Intentions that wait to be sent before callers wait themselves.
const OPEN_ITEMS_MAX: u64 = 100_000;
/// Bytes of requests that wait to be sent.
const OUT_BYTES_MAX: usize = 1 << 20;
/// Requests of a connection that are on their way, or listened to.
const REQUESTS_MAX: usize = 100_000;

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
    /// Whether they can on the latest values.
    pub(crate) latest_queries: bool,
    /// Whether writes without session can be refused with those before them.
    pub(crate) chains: bool,
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
    /// The request, while it was not sent.
    unsent: Option<Vec<u8>>,
    /// Who waits.
    waker: Option<Waker>,
}

/// What is done when the state is unlocked.
#[derive(Debug)]
enum Given {
    Answer(Answer, Result<Outcomes, StoreError>),
    Wake(Waker),
}

/// Writes were refused for now: they are sent again, the first of them alone.
#[derive(Clone, Copy, Debug)]
struct Hold {
    /// When the first of them was, with no write answered since.
    since: Instant,
    /// Not before.
    until: Instant,
    /// The next pause, if the server names none.
    pause: Duration,
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
    /// For `address`.
    pub(super) trust: Trust,
    pub(super) writes: ClientConnection,
    /// Where a session goes on that was told to go back.
    rewound: Option<u64>,
    hold: Option<Hold>,
    /// Where the connection goes when no write is in flight any more.
    pub(super) moving: Option<Broken>,
    open: VecDeque<BatchBuilder>,
    open_items: u64,
    open_bytes: usize,
    calls: VecDeque<Call>,
    /// Answers to be given when the state is unlocked.
    given: Vec<Given>,
    /// Who waits for the first connection.
    watchers: Vec<Waker>,
    /// Requests that were not sent, some of them not wanted any more.
    unsent: VecDeque<u64>,
    /// The thread that writes sleeps: it has to be woken, which is a system call
    /// and dearer than all else that handing a write over takes.
    idles: bool,
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

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

pub(super) struct Inner {
    pub(super) client: ClientId,
    pub(super) options: ConnectOptions,
    /// The address that the caller named.
    pub(super) home: Address,
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
        // Who waits for the oldest is woken once for all of them.
        for given in given.into_iter().flatten().rev() {
            match given {
                Given::Answer(answer, result) => answer.complete(result),
                Given::Wake(waker) => {
                    // Foreign code: a panic in it must not end this thread.
                    let woken = AssertUnwindSafe(|| waker.wake());
                    drop(std::panic::catch_unwind(woken));
                }
            }
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
    pub(super) fn idle<'a>(&'a self, mut state: Guard<'a>) -> Guard<'a> {
        let due = state.due();
        let time = due.map(|due| due.saturating_duration_since(Instant::now()));
        state.idles = true;
        let mut state = state.sleep(&self.work, time);
        state.idles = false;
        state
    }

    /// There is something to be sent.
    fn left(&self, mut state: Guard<'_>) {
        let idles = std::mem::take(&mut state.idles);
        drop(state);
        if idles {
            self.work.notify_one();
        }
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
pub(super) fn trust(address: &Address, options: &ConnectOptions) -> Result<Trust, StoreError> {
    match address {
        Address::Tls(_) => super::tls::config(options).map(Some),
        _ => Ok(None),
    }
}

#[cfg(not(feature = "tls"))]
pub(super) fn trust(address: &Address, _: &ConnectOptions) -> Result<Trust, StoreError> {
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
        let home = address.clone();
        let state = State {
            address,
            trust,
            writes: ClientConnection::new(client),
            rewound: None,
            hold: None,
            moving: None,
            open: VecDeque::new(),
            open_items: 0,
            open_bytes: 0,
            calls: VecDeque::new(),
            given: Vec::new(),
            idles: false,
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
            trouble: String::new(),
            down_since: Instant::now(),
            given_up: false,
            dead: None,
            leaving: false,
        };
        let inner = Arc::new(Inner {
            client,
            home,
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
        if let Some(known) = self.inner.lock().known() {
            return known;
        }
        block_on(self.ready())
    }

    /// The same without a thread that waits.
    pub(crate) async fn ready(&self) -> Result<Facts, StoreError> {
        let until = Instant::now().checked_add(self.inner.options.connect_timeout);
        let mut alarm = Alarm::default();
        let facts = poll_fn(|context| {
            let mut state = self.inner.lock();
            if let Some(known) = state.known() {
                return Poll::Ready(known);
            }
            if let Some(until) = until {
                if until <= Instant::now() {
                    return Poll::Ready(Err(state.unreachable()));
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
    pub(crate) fn rewind(&self, nonce: u64) -> Result<(), StoreError> {
        let mut state = self.inner.lock();
        while !state.calls.is_empty() && state.dead.is_none() {
            state = self.pause(state)?;
        }
        state.rewound = Some(nonce);
        state.writes.rewind(nonce);
        Ok(())
    }

    /// Waits for news, unless this thread shall wait no longer.
    fn pause<'a>(&'a self, state: Guard<'a>) -> Result<Guard<'a>, StoreError> {
        drop(self.inner.wait(state, next_look()));
        look()?;
        Ok(self.inner.lock())
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
        let (proposal, answer) = Proposal::pair();
        let mut state = self.inner.lock();
        let known = state.facts.as_ref().map(|facts| facts.limits);
        let limits = if let Some(limits) = known {
            limits
        } else {
            drop(state);
            let limits = self.facts()?.limits;
            state = self.inner.lock();
            limits
        };
        if intentions.is_empty() {
            answer.complete(Ok(Outcomes::default()));
            return Ok((proposal, state.next()));
        }
        while state.open_bytes >= OPEN_BYTES_MAX || state.open_items >= OPEN_ITEMS_MAX {
            state.usable()?;
            state = self.pause(state)?;
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
        self.inner.left(state);
        Ok((proposal, first))
    }

    /// Asks, and waits for the answer until then: one packet. Asks again when
    /// the connection breaks, and later when the server says so: only for what
    /// may be asked twice.
    pub(crate) async fn ask(
        &self,
        message: &Message<'_>,
        until: Option<Instant>,
    ) -> Result<Vec<u8>, StoreError> {
        let mut backoff = BackOff::default();
        loop {
            let asked = self.begin(message)?;
            let received = self.receive(asked.tag, until).await?;
            drop(asked);
            match received {
                Received::Packet(packet) => match backoff.of(&packet_of(&packet)?, until) {
                    Some(pause) => self.rest(pause).await?,
                    None => return Ok(packet),
                },
                Received::Lost => {}
                Received::Nothing => return Err(self.late()),
            }
        }
    }

    /// The error for an answer that did not come in time.
    pub(super) fn late(&self) -> StoreError {
        self.inner.lock().late()
    }

    /// Waits so long; fails when the connection has ended for good.
    pub(super) async fn rest(&self, time: Duration) -> Result<(), StoreError> {
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
    pub(super) fn begin(&self, message: &Message<'_>) -> Result<Asked, StoreError> {
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
    pub(super) fn add(&self, tag: u64, message: &Message<'_>) {
        let mut state = self.inner.lock();
        let is_there = |inbox: &Inbox| !inbox.lost && inbox.unsent.is_none();
        if state.inboxes.get(&tag).is_some_and(is_there) {
            state.put(tag, message);
            self.inner.left(state);
        }
    }

    /// The next answer to a request, at most until `until`.
    pub(super) async fn receive(
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
        let stream = state.stream.clone();
        drop(state);
        match stream {
            Some(stream) => stream.end(),
            // The one that connects may take its time; it ends by itself.
            None => self
                .threads
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clear(),
        }
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

/// A request; nobody waits for its answers when this is dropped.
#[derive(Debug)]
pub(super) struct Asked {
    inner: Arc<Inner>,
    pub(super) tag: u64,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.inner.lock().inboxes.remove(&self.tag);
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

    /// What the server said, or why it never will; none: not yet.
    fn known(&self) -> Option<Result<Facts, StoreError>> {
        if let Some(dead) = &self.dead {
            return Some(Err(dead.error()));
        }
        match &self.facts {
            Some(facts) => Some(Ok(facts.clone())),
            None => self.given_up.then(|| Err(self.unreachable())),
        }
    }

    /// The error for an answer that did not come in time.
    fn late(&self) -> StoreError {
        match self.stream {
            Some(_) => late(),
            None => self.unreachable(),
        }
    }

    /// Wakes everybody who waits for anything.
    fn wake_all(&mut self) {
        let inboxes = self.inboxes.values_mut();
        let wakers = inboxes.filter_map(|inbox| inbox.waker.take());
        self.given.extend(wakers.map(Given::Wake));
        let watchers = self.watchers.drain(..);
        self.given.extend(watchers.map(Given::Wake));
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
        let packet = tagged(digits.as_bytes(), message);
        self.encoder.encode(&packet, &mut self.out);
    }

    /// Appends a packet that belongs to no request.
    pub(super) fn say(&mut self, packet: &Packet<'_>) {
        self.encoder.encode(packet, &mut self.out);
    }

    /// When something may be sent that may not be sent now.
    fn due(&self) -> Option<Instant> {
        let waits = self.writes.held().is_some() || !self.open.is_empty();
        let hold = self.hold.filter(|_| waits && self.stream.is_some())?;
        self.writes
            .unanswered()
            .next()
            .is_none()
            .then_some(hold.until)
    }

    /// Whether nothing may be sent now, or only if nothing is in flight.
    fn is_held(&self) -> bool {
        let alone = self.writes.unanswered().next().is_none();
        self.hold
            .is_some_and(|hold| !alone || Instant::now() < hold.until)
    }

    /// Appends a write that was noted as sent.
    fn write(&mut self, count: u32, items: &[u8], chained: bool) {
        let chains = self.facts.as_ref().is_some_and(|facts| facts.chains);
        let chained = chained && chains && self.writes.client().is_none();
        let packet = Packet {
            require: if chained { CHAIN } else { &[] },
            ..Packet::new(Message::Write { count, items })
        };
        self.encoder.encode(&packet, &mut self.out);
    }

    /// Moves what may be sent to the bytes that are sent next.
    pub(super) fn fill(&mut self) {
        if self.stream.is_none() || self.moving.is_some() {
            return;
        }
        while self.out.len() < OUT_BYTES_MAX
            && let Some(tag) = self.unsent.pop_front()
        {
            let inbox = self.inboxes.get_mut(&tag);
            if let Some(packet) = inbox.and_then(|inbox| inbox.unsent.take()) {
                self.out.extend_from_slice(&packet);
            }
        }
        while self.out.len() < OUT_BYTES_MAX
            && !self.is_held()
            && let Some(held) = self.writes.held()
            && self.writes.may_send(held.count, held.items.len())
        {
            let chained = self.writes.unanswered().next().is_some();
            if let Some(write) = self.writes.again() {
                let (count, items) = (write.count, write.items.clone());
                self.write(count, &items, chained);
            }
        }
        while self.out.len() < OUT_BYTES_MAX
            && !self.is_held()
            && self.writes.held().is_none()
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
            let chained = self.writes.unanswered().next().is_some();
            self.write(count, &items, chained);
            self.writes.sent(count, items);
        }
    }

    /// A connection is there: what has to be sent again goes first.
    pub(super) fn up(&mut self, stream: Arc<Stream>, facts: Facts, again: usize) {
        self.out.clear();
        if self.hold.is_some() {
            self.writes.hold_behind(again);
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
        self.given_up = false;
        self.wake_all();
    }

    /// The connection is gone.
    pub(super) fn down(&mut self) {
        if let Some(stream) = self.stream.take() {
            stream.end();
            self.down_since = Instant::now();
        }
        self.out.clear();
        self.moving = None;
        self.marks = None;
        self.deliveries += 1;
        for inbox in self.inboxes.values_mut() {
            inbox.lost = inbox.unsent.is_none();
        }
        self.wake_all();
        let lost = self.writes.broke();
        let why = "the connection broke before the answer came";
        self.fail_calls(lost.end - lost.start, |_| {
            far(ErrorCode::Indeterminate, why)
        });
    }

    /// What was sent and not answered is not known any more.
    pub(super) fn lose(&mut self, why: &str) {
        let lost = self.writes.give_up();
        self.hold = None;
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
            self.given
                .push(Given::Answer(call.answer, Err(error(items))));
            items = items.saturating_sub(left);
        }
    }

    /// What was never sent is dropped.
    fn fail_open(&mut self, error: impl Fn() -> StoreError) {
        self.open.clear();
        self.open_bytes = 0;
        self.open_items = 0;
        for call in self.calls.drain(..) {
            self.given.push(Given::Answer(call.answer, Err(error())));
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
        self.wake_all();
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
        for inbox in self.inboxes.values_mut() {
            inbox.lost = true;
        }
        self.wake_all();
    }

    /// A run of answers to intentions.
    pub(super) fn answered(&mut self, nonce: u64, run: &OutcomeRun) -> Result<(), &'static str> {
        let (known, new) = self.writes.answer(nonce, run.count)?;
        if new > 0 {
            self.hold = None;
        }
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
                self.given
                    .push(Given::Answer(call.answer, Ok(call.outcomes)));
            }
        }
        Ok(())
    }

    /// A write was refused as a whole. It is kept, to be sent again, if nothing
    /// was taken, not behind it either, and there is time.
    pub(super) fn refused(
        &mut self,
        refusal: &RefusalMessage<'_>,
        code: ErrorCode,
        text: &str,
        patience: Duration,
    ) {
        let session = !self.writes.client().is_none();
        let mut in_flight = self.writes.unanswered();
        let front = in_flight.next().map(|write| write.first);
        let alone = in_flight.next().is_none();
        drop(in_flight);
        let Some(front) = front else {
            return;
        };
        if session && refusal.nonce != Some(front) {
            // The echo of a refusal that came before.
            return;
        }
        let chains = self.facts.as_ref().is_some_and(|facts| facts.chains);
        let echo = session && code == ErrorCode::NonceGap && self.hold.is_some();
        let passes = is_for_now(code) && (session || alone || chains);
        if echo || (passes && self.holds(front, refusal, patience)) {
            self.writes.hold();
            return;
        }
        let expected = refusal.expected.unwrap_or(0);
        self.refused_for_good(expected, code, text);
        if self.writes.held().is_none() && self.writes.unanswered().next().is_none() {
            self.hold = None;
        }
    }

    /// Whether the write with this number may wait until it is sent again. What
    /// was refused before it is behind it waits with it.
    fn holds(&mut self, first: u64, refusal: &RefusalMessage<'_>, patience: Duration) -> bool {
        let leads = self.writes.held().is_none_or(|held| first < held.first);
        let now = Instant::now();
        let hold = self.hold.get_or_insert(Hold {
            since: now,
            until: now,
            pause: PAUSE_FIRST,
        });
        if !leads {
            return true;
        }
        let asked = refusal.retry_ms.map(Duration::from_millis);
        let pause = match (asked, refusal.code()) {
            (Some(asked), _) => asked,
            (None, Some(ErrorCode::Redirect)) => Duration::ZERO,
            (None, _) => hold.pause,
        };
        if hold.since.elapsed().saturating_add(pause) > patience {
            return false;
        }
        if asked.is_none() {
            hold.pause = (hold.pause * 2).min(PAUSE_MAX);
        }
        // Some of it by chance, so that clients do not come all at once.
        hold.until = now + pause + pause.mul_f64(chance() / 8.0);
        true
    }

    fn refused_for_good(&mut self, expected: u64, code: ErrorCode, text: &str) {
        let session = !self.writes.client().is_none();
        let freed = self.writes.refused(code);
        let items = freed.end - freed.start;
        let of_nonce = matches!(
            code,
            ErrorCode::NonceGap | ErrorCode::NonceReused | ErrorCode::SessionExpired
        );
        if session {
            // Their numbers are used up, as in a store of this process.
            if of_nonce {
                self.writes.rewind(freed.end);
            }
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
                self.given.push(Given::Answer(call.answer, result));
            }
        } else {
            self.fail_calls(items, |_| far(code, text));
        }
    }

    /// Whether anybody waits for answers with this tag.
    pub(super) fn is_asked(&self, tag: &[u8]) -> bool {
        number(tag).is_some_and(|tag| self.inboxes.contains_key(&tag))
    }

    /// Puts a packet into the inbox that its tag names, if anybody waits.
    pub(super) fn deliver(&mut self, tag: &[u8], packet: &[u8]) {
        if let Some(inbox) = number(tag).and_then(|tag| self.inboxes.get_mut(&tag)) {
            inbox.answered = true;
            inbox.packets.push_back(packet.to_vec());
            self.given.extend(inbox.waker.take().map(Given::Wake));
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
