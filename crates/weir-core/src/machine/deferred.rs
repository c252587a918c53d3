//! Batches whose programs take long: judged elsewhere, while others go on.
//!
//! One batch is applied behind the other. When a program in one of them turns
//! out to be costly, everybody would wait for it. So whoever applies may
//! [`defer`](Machine::defer) the rest of that batch: its intention offsets are
//! taken at once, its calls are judged one after the other by another thread
//! ([`Judging::run`] needs no machine), and later batches are applied
//! meanwhile, unless they [conflict](Machine::conflicts) with it: those are
//! deferred behind it.
//!
//! Invariant: outcomes, records of each topic, digests and snapshots are those
//! of applying the batches in their order. What must never happen here: a
//! batch applied that shares a topic or a client with a deferred one, or a
//! snapshot taken while a program is away.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::programs::{self, Running};
use super::start::{Start, is_start, module_bytes};
use super::{ApplyError, Costly, Machine, Pace, Slice, Stamp, Watch};
use crate::batch::{Action, Batch, Item, Items, Mark};
use crate::effect::{Commit, Detail, Effect, Outcome, Outcomes};
use crate::ids::{ClientId, ConsequenceOffset, IntentionOffset, TopicId};
use crate::intention::ONCE;
use crate::limits::{CODES_BYTES_MAX, GROUP_LIST_MAX, GROUPS_PENDING_MAX, ONCE_MS_MIN};
use crate::program::{CodeHash, ProgramCounts, ProgramView, StateMode};
use crate::record::ConsequenceSink;
use crate::session::Seen;
use crate::topic::{Bounds, Live, No};

/// Fuel from which on a call is costly: some 50 us of a fast machine. Handing
/// a call to another thread takes about half of that.
pub const COSTLY_FUEL: u64 = 100_000;

/// So many calls behind a costly one are judged elsewhere too.
const AWAY_AFTER: u32 = 16;

/// What is told of a program that judges elsewhere: how it was before.
#[derive(Clone, Debug)]
pub(crate) struct Away {
    code: CodeHash,
    args: Arc<[u8]>,
    meter: u32,
    mode: StateMode,
    state_entries: u64,
    state_bytes: u64,
    counts: ProgramCounts,
}

impl Away {
    fn of(running: &Running) -> Self {
        Self {
            code: running.code,
            args: Arc::clone(&running.args),
            meter: running.meter,
            mode: running.mode,
            state_entries: running.desk.state().len() as u64,
            state_bytes: running.state_bytes(),
            counts: running.counts,
        }
    }

    pub(super) fn view(&self) -> ProgramView<'_> {
        ProgramView {
            code: self.code,
            args: &self.args,
            meter: self.meter,
            mode: self.mode,
            state: None,
            state_entries: self.state_entries,
            state_bytes: self.state_bytes,
            counts: self.counts,
        }
    }
}

/// What becomes of an item, decided when its batch was deferred.
#[derive(Debug)]
enum Slot {
    /// Not executed.
    Answer(Outcome),
    /// Not executed either; what it is answered is known when those before it
    /// are done.
    Ask(u64),
    Execute {
        intention: IntentionOffset,
        fingerprint: u64,
    },
}

/// The rest of a batch that has its offsets and waits for its turn.
#[derive(Debug)]
pub struct Deferred {
    mark: Mark,
    slots: VecDeque<Slot>,
    term: u64,
    time_ms: u64,
    touches: Arc<Touches>,
    /// Calls that still go to another thread: one of the last was costly.
    costly: u32,
}

/// What later batches must not touch before.
#[derive(Debug, Default)]
pub(super) struct Touches {
    topics: BTreeSet<TopicId>,
    /// Names of topics that were not made yet; what is done to them counts in
    /// one history.
    names: BTreeSet<Box<[u8]>>,
    /// Clients with the newest nonce that is executed here.
    clients: BTreeMap<ClientId, Option<u64>>,
    arrivals: Arrivals,
    /// What some item is answered will be looked up.
    asks: bool,
    /// Topics are made.
    makes: bool,
}

impl Touches {
    fn add(&mut self, item: &Item<'_>, topic: Option<TopicId>) {
        match topic {
            Some(id) => drop(self.topics.insert(id)),
            None if self.names.contains(item.topic) => {}
            None => drop(self.names.insert(Box::from(item.topic))),
        }
        if !item.client.is_none() {
            self.clients.entry(item.client).or_default();
        }
        self.arrivals.count(item);
        self.makes |= makes(item);
    }

    /// Whether records of a topic may be missing until this is done.
    pub(super) fn concerns(&self, name: &str, topic: Option<TopicId>) -> bool {
        topic.is_some_and(|id| self.topics.contains(&id)) || self.names.contains(name.as_bytes())
    }

    fn shares(&self, item: &Item<'_>, topic: Option<TopicId>) -> bool {
        let named = !self.names.is_empty();
        topic.map_or(named, |id| self.topics.contains(&id))
            || (named && self.names.contains(item.topic))
            || self.clients.contains_key(&item.client)
            || (self.makes && makes(item))
    }
}

/// Whether an id that one of these will look up may be so old at this time that
/// it is forgotten before.
fn outlive(deferred: &[&Deferred], time_ms: u64) -> bool {
    let since = deferred.first().map_or(time_ms, |first| first.time_ms);
    time_ms.saturating_sub(since) >= ONCE_MS_MIN && deferred.iter().any(|part| part.touches.asks)
}

/// Whether a topic is made: they are numbered in the order in which they come.
fn makes(item: &Item<'_>) -> bool {
    matches!(item.action, Action::Create { .. })
}

/// What may take new places where all topics and clients share a limit. While
/// there is room for all, the order in which they come does not matter.
#[derive(Clone, Copy, Debug, Default)]
struct Arrivals {
    clients: usize,
    /// Steps of groups.
    steps: usize,
    /// Bytes of modules.
    modules: u64,
}

impl Arrivals {
    fn of(parts: &[&Deferred]) -> Self {
        let mut sum = Self::default();
        for part in parts {
            let one = part.touches.arrivals;
            sum.clients += one.clients;
            sum.steps += one.steps;
            sum.modules += one.modules;
        }
        sum
    }

    fn count(&mut self, item: &Item<'_>) {
        self.clients += usize::from(item.nonce == 1);
        self.steps += usize::from(matches!(item.action, Action::Cursor { .. }));
        self.modules += module_bytes(&item.action);
    }

    fn fit(self, machine: &Machine) -> bool {
        let entries = self.steps.saturating_mul(GROUP_LIST_MAX);
        machine.sessions.has_room(self.clients)
            && (self.modules == 0 || machine.codes.fits(self.modules, CODES_BYTES_MAX))
            && machine.pending.saturating_add(entries) <= GROUPS_PENDING_MAX
    }
}

/// What a deferred batch needs next.
#[derive(Debug)]
pub enum Turn {
    /// Somebody to judge a call.
    Judge(Box<Judging>),
    /// Nothing: the slice is used up, by a costly call if there is one.
    Pause(Option<Costly>),
    /// Nothing: all items are answered.
    End,
}

/// A call that waits for its program's verdict. It owns the program; the
/// machine has it no more until the call is [settled](Machine::settle).
#[derive(Debug)]
pub struct Judging {
    topic: Option<TopicId>,
    work: Work,
    at: Mark,
    stamp: Stamp,
    fingerprint: u64,
    judged: Option<Result<Result<(), No>, ApplyError>>,
    took: u64,
}

#[derive(Debug)]
enum Work {
    /// A write.
    Write {
        running: Box<Running>,
        bounds: Bounds,
        /// Whether the verdict depends on how many keys there are.
        counts_keys: bool,
    },
    /// A program that begins.
    Start(Box<Start>),
}

impl Judging {
    /// Lets the program judge, for as long as that takes, and takes back or
    /// keeps what it did where that is known already. `batch` is the one that
    /// was deferred.
    pub fn run(&mut self, batch: &Batch<'_>) {
        let item = batch.items_from(&self.at).next();
        self.judged = item.map(|item| {
            let item = item?;
            match &mut self.work {
                Work::Write {
                    running,
                    bounds,
                    counts_keys,
                } => {
                    let judged = programs::judge(running, *bounds, &item, &self.stamp);
                    match &judged {
                        Ok(Err(_)) => running.settle(false),
                        Ok(Ok(())) if !*counts_keys => running.settle(true),
                        _ => {}
                    }
                    judged
                }
                Work::Start(start) => start.run(&item, &self.stamp),
            }
        });
    }

    /// The call took so many nanoseconds: see [`Machine::apply_slice`].
    pub fn took(&mut self, nanoseconds: u64) {
        self.took = nanoseconds;
    }
}

impl Machine {
    /// Takes the offsets of a batch, or of what is left of one, so that later
    /// ones can be applied. It takes from `items` as many as it can without
    /// knowing verdicts; the others must be applied when nothing is deferred
    /// any more. `None` when there is none that it can take. `earlier` are those
    /// that are deferred already, oldest first; all must be
    /// [resumed](Self::resume) in their order, each to its end.
    pub fn defer(
        &mut self,
        earlier: &[&Deferred],
        batch: &Batch<'_>,
        items: &mut Items<'_>,
    ) -> Option<Deferred> {
        self.time_ms = self.time_ms.max(batch.time_ms);
        if outlive(earlier, self.time_ms) {
            return None;
        }
        let before = self.applied;
        let mut deferred = Deferred {
            mark: items.mark(),
            slots: VecDeque::new(),
            term: batch.term,
            time_ms: self.time_ms,
            touches: Arc::default(),
            costly: AWAY_AFTER,
        };
        let mut touches = Touches::default();
        let mut arrivals = Arrivals::of(earlier);
        let mut topic = None;
        loop {
            let mut ahead = items.clone();
            let Some(Ok(item)) = ahead.next() else { break };
            arrivals.count(&item);
            if matches!(item.action, Action::ExpireSessions { .. }) || !arrivals.fit(self) {
                break;
            }
            if !item.same_topic || topic.is_none() {
                topic = self.topic_number(&item);
            }
            let Some(slot) = self.foresee(&item, topic, earlier, &touches) else {
                break;
            };
            touches.add(&item, topic);
            touches.asks |= matches!(slot, Slot::Ask(_));
            if let Slot::Execute {
                intention,
                fingerprint,
            } = slot
            {
                self.applied = intention;
                if let Some(newest) = touches.clients.get_mut(&item.client) {
                    *newest = Some(item.nonce);
                }
                if item.nonce == ONCE && !item.client.is_none() {
                    // Such ids are kept in the order of their offsets.
                    let place = unknown(intention);
                    self.sessions
                        .executed(item.client, &place, fingerprint, self.time_ms);
                }
            }
            deferred.slots.push_back(slot);
            *items = ahead;
        }
        if deferred.slots.is_empty() {
            return None;
        }
        deferred.touches = Arc::new(touches);
        let touches = Arc::clone(&deferred.touches);
        self.settled.push_back((before, touches));
        Some(deferred)
    }

    /// What becomes of an item when those before it are done; `None` when that
    /// cannot be told.
    fn foresee(
        &mut self,
        item: &Item<'_>,
        topic: Option<TopicId>,
        earlier: &[&Deferred],
        own: &Touches,
    ) -> Option<Slot> {
        let content = || self.content(item, topic);
        let fingerprint = item.fingerprint.unwrap_or_else(content);
        let execute = Slot::Execute {
            intention: self.applied.plus(1),
            fingerprint,
        };
        if item.client.is_none() {
            return Some(execute);
        }
        let parts = earlier.iter().map(|part| &*part.touches).chain([own]);
        let mut newest = parts
            .rev()
            .filter_map(|touches| *touches.clients.get(&item.client)?);
        let newest = newest.next();
        // Which ids are over is found when the items before are done.
        if (item.nonce != ONCE || newest.is_some())
            && self.sessions.has_ended_id(item.client, self.time_ms)
        {
            return None;
        }
        Some(match newest {
            // Forgotten by now, or not: found when the items before are done.
            Some(ONCE) if !self.sessions.has_id(item.client) => return None,
            Some(ONCE) => Slot::Ask(fingerprint),
            Some(last) if item.nonce == last + 1 && item.nonce != ONCE => execute,
            Some(_) => Slot::Ask(fingerprint),
            None => {
                let (client, nonce) = (item.client, item.nonce);
                match self
                    .sessions
                    .check(client, nonce, fingerprint, self.time_ms)
                {
                    Seen::New => execute,
                    Seen::Before(commit) => Slot::Answer(Outcome::Replayed(commit)),
                    Seen::Refuse(code, expected) => {
                        Slot::Answer(Outcome::Refused { code, expected })
                    }
                }
            }
        })
    }

    /// Whether a batch must wait until one of those that are deferred has ended.
    #[must_use]
    pub fn conflicts(&self, deferred: &[&Deferred], batch: &Batch<'_>) -> bool {
        if outlive(deferred, self.time_ms.max(batch.time_ms)) {
            return true;
        }
        let before = Arrivals::of(deferred);
        let mut arrivals = before;
        let mut topic = None;
        for item in batch.items() {
            let Ok(item) = item else { return true };
            if !item.same_topic || topic.is_none() {
                topic = self.topic_number(&item);
            }
            arrivals.count(&item);
            if matches!(item.action, Action::ExpireSessions { .. })
                || deferred
                    .iter()
                    .any(|part| part.touches.shares(&item, topic))
            {
                return true;
            }
        }
        // Without steps of groups there, those of later batches come in their
        // order; modules likewise.
        if before.steps == 0 {
            arrivals.steps = 0;
        }
        if before.modules == 0 {
            arrivals.modules = 0;
        }
        !arrivals.fit(self)
    }

    /// Goes on with a deferred batch as far as it can be done here: calls are
    /// judged on the spot while they are not costly. Answers go to `outcomes`
    /// in the order of the items.
    pub fn resume<S: ConsequenceSink + ?Sized>(
        &mut self,
        deferred: &mut Deferred,
        batch: &Batch<'_>,
        slice: &Slice,
        watch: Watch<'_>,
        sink: &mut S,
        outcomes: &mut Outcomes,
    ) -> Result<Turn, ApplyError> {
        let mut items = batch.items_from(&deferred.mark);
        let (mut left, mut fuel) = (slice.items_max, 0_u64);
        let mut pace = Pace::new(watch);
        loop {
            if left == 0 || fuel.max(pace.now) >= slice.fuel_max {
                return Ok(Turn::Pause(None));
            }
            left -= 1;
            let at = items.mark();
            let (Some(slot), Some(item)) = (deferred.slots.pop_front(), items.next()) else {
                self.settled.pop_front();
                return Ok(Turn::End);
            };
            let item = item?;
            deferred.mark = items.mark();
            let (intention, fingerprint) = match slot {
                Slot::Answer(outcome) => {
                    outcomes.push(outcome);
                    continue;
                }
                Slot::Ask(fingerprint) => {
                    outcomes.push(self.ask(&item, fingerprint, deferred.time_ms));
                    continue;
                }
                Slot::Execute {
                    intention,
                    fingerprint,
                } => (intention, fingerprint),
            };
            let stamp = Stamp {
                intention,
                term: deferred.term,
                time_ms: deferred.time_ms,
                client: item.client,
                nonce: item.nonce,
                fuel: Cell::new(0),
            };
            let topic = self.topic_number(&item);
            let programmed = item.action.is_write() && self.has_program(topic);
            if programmed {
                pace.before_call();
            }
            let begins = is_start(&item.action);
            let verdict = if begins || (programmed && deferred.costly > 0) {
                match self.send_away(topic, &item, &stamp)? {
                    Err(no) => Err(no),
                    Ok(work) => {
                        return Ok(Turn::Judge(Box::new(Judging {
                            topic,
                            work,
                            at,
                            stamp,
                            fingerprint,
                            judged: None,
                            took: 0,
                        })));
                    }
                }
            } else {
                self.execute(&item, topic, &stamp, sink)?
            };
            let spent = pace.of_call(stamp.fuel.get());
            if spent > 0 {
                self.used(topic, spent);
            }
            fuel = fuel.saturating_add(spent);
            self.answer(topic, &item, &stamp, fingerprint, verdict, sink, outcomes);
            if spent >= COSTLY_FUEL && self.was_costly(topic, stamp.fuel.get()) {
                deferred.costly = AWAY_AFTER;
                let costly = Costly { topic, fuel: spent };
                return Ok(Turn::Pause(Some(costly)));
            }
        }
    }

    fn has_program(&self, topic: Option<TopicId>) -> bool {
        let topic = topic.and_then(|id| self.topics.get(id.index()));
        let live = topic.and_then(|topic| topic.live.as_ref());
        live.is_some_and(|live| live.program.is_some())
    }

    /// Answers an item that is not executed, behind those before it.
    fn ask(&mut self, item: &Item<'_>, fingerprint: u64, time_ms: u64) -> Outcome {
        let (client, nonce) = (item.client, item.nonce);
        match self.sessions.check(client, nonce, fingerprint, time_ms) {
            Seen::Before(commit) => Outcome::Replayed(commit),
            Seen::Refuse(code, expected) => Outcome::Refused { code, expected },
            Seen::New => unreachable!("a nonce that was executed before, or has a gap (I6)"),
        }
    }

    fn send_away(
        &mut self,
        topic: Option<TopicId>,
        item: &Item<'_>,
        stamp: &Stamp,
    ) -> Result<Result<Work, No>, ApplyError> {
        if let Err(no) = self.guard(item, topic) {
            return Ok(Err(no));
        }
        if is_start(&item.action) {
            let start = self.begin(item, topic, stamp)?;
            return Ok(start.map(|start| {
                if let Some((old, live)) = start.old().zip(self.live(topic)) {
                    live.away = Some(Box::new(Away::of(old)));
                }
                Work::Start(Box::new(start))
            }));
        }
        let known = topic.and_then(|id| self.topics.get_mut(id.index()));
        let taken = known.and_then(|topic| {
            let live = topic.live.as_mut()?;
            let mut running = live.program.take()?;
            live.away = Some(Box::new(Away::of(&running)));
            running.open(topic.last.plus(1), item);
            let counts_keys = live.options.keys_max.is_some();
            Some(Work::Write {
                running,
                bounds: live.bounds(),
                counts_keys,
            })
        });
        taken
            .map(Ok)
            .ok_or(ApplyError::ProgramNeeded(stamp.intention))
    }

    fn live(&mut self, topic: Option<TopicId>) -> Option<&mut Live> {
        self.topics.get_mut(topic?.index())?.live.as_mut()
    }

    /// Takes a program back and draws the consequences of its verdict. Answers
    /// what the call used.
    pub fn settle<S: ConsequenceSink + ?Sized>(
        &mut self,
        deferred: &mut Deferred,
        judging: Judging,
        batch: &Batch<'_>,
        sink: &mut S,
        outcomes: &mut Outcomes,
    ) -> Result<Costly, ApplyError> {
        let Judging {
            topic,
            work,
            at,
            stamp,
            fingerprint,
            judged,
            took,
        } = judging;
        let lost = || ApplyError::ProgramNeeded(stamp.intention);
        let (Some(item), Some(judged)) = (batch.items_from(&at).next(), judged) else {
            return Err(lost());
        };
        let item = item?;
        if let Some(live) = self.live(topic) {
            live.away = None;
        }
        let begins = matches!(work, Work::Start(_));
        let verdict = match work {
            Work::Write { running, .. } => {
                let id = topic.ok_or_else(lost)?;
                let topic = self.topics.get_mut(id.index()).ok_or_else(lost)?;
                programs::settle((id, topic), running, judged, &item, &stamp, sink)?
            }
            Work::Start(start) => self.begun(*start, judged, (&item, topic, &stamp), sink)?,
        };
        let fuel = stamp.fuel.get().max(took.min(COSTLY_FUEL));
        // What a start uses says nothing about the calls behind it.
        let called = topic.filter(|_| !begins);
        self.used(called, fuel);
        deferred.costly = if begins || fuel >= COSTLY_FUEL {
            AWAY_AFTER
        } else {
            deferred.costly.saturating_sub(1)
        };
        self.answer(topic, &item, &stamp, fingerprint, verdict, sink, outcomes);
        Ok(Costly {
            topic: called,
            fuel,
        })
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "all that is known of one intention"
    )]
    fn answer<S: ConsequenceSink + ?Sized>(
        &mut self,
        topic: Option<TopicId>,
        item: &Item<'_>,
        stamp: &Stamp,
        fingerprint: u64,
        verdict: Result<super::Emitted, No>,
        sink: &mut S,
        outcomes: &mut Outcomes,
    ) {
        let content = self.content(item, topic);
        let commit = self.conclude(topic, content, stamp, verdict);
        if item.nonce == ONCE {
            let known = Commit {
                fuel: 0,
                ..commit.clone()
            };
            self.sessions.fill(item.client, known);
        } else if !item.client.is_none() {
            self.remember(item.client, &commit, fingerprint, stamp.time_ms);
        }
        sink.executed(stamp.intention, commit.effect);
        outcomes.push(Outcome::Committed(commit));
    }

    /// Whether something is deferred.
    pub(super) fn is_waiting(&self) -> bool {
        !self.settled.is_empty()
    }
}

/// Stands for an outcome that is not known yet.
fn unknown(intention: IntentionOffset) -> Commit {
    Commit {
        nonce: ONCE,
        effect: Effect::Error,
        reason: None,
        detail: Detail::None,
        intention,
        first: ConsequenceOffset::ZERO,
        records: 0,
        fuel: 0,
    }
}
