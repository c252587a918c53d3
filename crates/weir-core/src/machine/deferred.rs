//! Batches whose programs take long: judged elsewhere, while others go on.
//!
//! One batch is applied behind the other. When a program in one of them turns
//! out to be costly, everybody would wait for it. So whoever applies may
//! [`defer`](Machine::defer) the rest of that batch: its intention offsets are
//! taken at once, its calls are judged one after the other by another thread
//! ([`Judging::run`] needs no machine), and later batches are applied
//! meanwhile, unless they [conflict](Machine::conflicts) with it.
//!
//! Invariant: outcomes, records of each topic, digests and snapshots are those
//! of applying the batches in their order. What must never happen here: a
//! batch applied that shares a topic or a client with the deferred one, or a
//! snapshot taken while a program is away.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::programs::{self, Running};
use super::{ApplyError, Costly, Machine, Slice, Stamp, change};
use crate::batch::{Action, Batch, Item, Items, Mark};
use crate::effect::{Commit, Detail, Effect, Outcome, Outcomes};
use crate::error_code::ErrorCode;
use crate::ids::{ClientId, ConsequenceOffset, IntentionOffset, TopicId};
use crate::intention::ONCE;
use crate::program::{CodeHash, ProgramCounts, ProgramView, StateMode};
use crate::record::ConsequenceSink;
use crate::session::{Seen, SessionTable};
use crate::topic::{Bounds, No};

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
    topics: BTreeSet<TopicId>,
    clients: BTreeSet<ClientId>,
    arrivals: Arrivals,
    /// Topics that never were made are named.
    unknown: bool,
    /// Calls that still go to another thread: one of the last was costly.
    costly: u32,
}

/// What may take a new place in the table of sessions. While there is room
/// for all, the order in which they come does not matter.
#[derive(Clone, Copy, Debug, Default)]
struct Arrivals {
    clients: usize,
    ids: usize,
}

impl Arrivals {
    fn count(&mut self, item: &Item<'_>) {
        self.clients += usize::from(item.nonce == 1);
        self.ids += usize::from(item.nonce == ONCE);
    }

    fn fit(self, sessions: &SessionTable) -> bool {
        sessions.has_room(self.clients, self.ids)
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
    topic: TopicId,
    running: Box<Running>,
    bounds: Bounds,
    at: Mark,
    stamp: Stamp,
    fingerprint: u64,
    judged: Option<Result<Result<(), No>, ApplyError>>,
}

impl Judging {
    /// Lets the program judge, for as long as that takes. `batch` is the one
    /// that was deferred.
    pub fn run(&mut self, batch: &Batch<'_>) {
        let item = batch.items_from(&self.at).next();
        self.judged = item.map(|item| {
            let item = item?;
            programs::judge(&mut self.running, self.bounds, &item, &self.stamp)
        });
    }
}

impl Machine {
    /// Takes the offsets of a batch, or of what is left of one, so that later
    /// ones can be applied. `None` where that cannot be done without knowing verdicts:
    /// then the items must be applied here and now. At most one batch is
    /// deferred at a time.
    pub fn defer(&mut self, batch: &Batch<'_>, items: &Items<'_>) -> Option<Deferred> {
        self.time_ms = self.time_ms.max(batch.time_ms);
        let mut deferred = Deferred {
            mark: items.mark(),
            slots: VecDeque::new(),
            term: batch.term,
            time_ms: self.time_ms,
            topics: BTreeSet::new(),
            clients: BTreeSet::new(),
            arrivals: Arrivals::default(),
            unknown: false,
            costly: AWAY_AFTER,
        };
        let mut applied = self.applied;
        let mut last_nonces = BTreeMap::new();
        let mut topic = None;
        for item in items.clone() {
            let item = item.ok().filter(|item| item.action.is_write())?;
            if !item.same_topic || topic.is_none() {
                topic = self.topic_number(&item);
            }
            match topic {
                Some(id) => drop(deferred.topics.insert(id)),
                None => deferred.unknown = true,
            }
            deferred.arrivals.count(&item);
            let fingerprint = item
                .fingerprint
                .unwrap_or_else(|| self.content(&item, topic));
            let seen = self.foresee(&item, fingerprint, &mut last_nonces)?;
            deferred.slots.push_back(match seen {
                Seen::New => {
                    applied = applied.plus(1);
                    Slot::Execute {
                        intention: applied,
                        fingerprint,
                    }
                }
                Seen::Before(commit) => Slot::Answer(Outcome::Replayed(commit)),
                Seen::Refuse(code, expected) => Slot::Answer(Outcome::Refused { code, expected }),
            });
        }
        if !deferred.arrivals.fit(&self.sessions) {
            return None;
        }
        for (item, slot) in items.clone().zip(&deferred.slots) {
            let Ok(item) = item else { continue };
            if !item.client.is_none() {
                deferred.clients.insert(item.client);
            }
            if let (
                ONCE,
                Slot::Execute {
                    intention,
                    fingerprint,
                },
            ) = (item.nonce, slot)
            {
                // Such ids are kept in the order of their offsets.
                let place = unknown(*intention);
                self.sessions
                    .executed(item.client, &place, *fingerprint, self.time_ms);
            }
        }
        self.settled = Some(self.applied);
        self.applied = applied;
        Some(deferred)
    }

    /// What the table will say about an item when those before it are done.
    fn foresee(
        &mut self,
        item: &Item<'_>,
        fingerprint: u64,
        last_nonces: &mut BTreeMap<ClientId, u64>,
    ) -> Option<Seen> {
        if item.client.is_none() {
            return Some(Seen::New);
        }
        let seen = match last_nonces.get(&item.client) {
            Some(last) if item.nonce == last + 1 && item.nonce != ONCE => Seen::New,
            Some(_) => return None,
            // Which ids are over is found when the items before are done.
            None if item.nonce != ONCE && self.sessions.has_ended_id(item.client, self.time_ms) => {
                return None;
            }
            None => self
                .sessions
                .check(item.client, item.nonce, fingerprint, self.time_ms),
        };
        if seen == Seen::New {
            last_nonces.insert(item.client, item.nonce);
        }
        Some(seen)
    }

    /// Whether a batch must wait until the deferred one has ended.
    #[must_use]
    pub fn conflicts(&self, deferred: &Deferred, batch: &Batch<'_>) -> bool {
        let mut arrivals = deferred.arrivals;
        // Without ids there, those of later batches come in their order.
        let ids_too = arrivals.ids > 0;
        let mut topic = None;
        for item in batch.items() {
            let Ok(item) = item else { return true };
            if !item.same_topic || topic.is_none() {
                topic = self.topic_number(&item);
            }
            arrivals.count(&item);
            if matches!(item.action, Action::ExpireSessions { .. })
                || topic.map_or(deferred.unknown, |id| deferred.topics.contains(&id))
                || deferred.clients.contains(&item.client)
            {
                return true;
            }
        }
        if !ids_too {
            arrivals.ids = 0;
        }
        !arrivals.fit(&self.sessions)
    }

    /// Goes on with a deferred batch as far as it can be done here: calls are
    /// judged on the spot while they are not costly. Answers go to `outcomes`
    /// in the order of the items.
    pub fn resume<S: ConsequenceSink + ?Sized>(
        &mut self,
        deferred: &mut Deferred,
        batch: &Batch<'_>,
        slice: &Slice,
        sink: &mut S,
        outcomes: &mut Outcomes,
    ) -> Result<Turn, ApplyError> {
        let mut items = batch.items_from(&deferred.mark);
        let (mut left, mut fuel) = (slice.items_max, 0_u64);
        loop {
            if left == 0 || fuel >= slice.fuel_max {
                return Ok(Turn::Pause(None));
            }
            left -= 1;
            let at = items.mark();
            let (Some(slot), Some(item)) = (deferred.slots.pop_front(), items.next()) else {
                self.settled = None;
                return Ok(Turn::End);
            };
            let item = item?;
            deferred.mark = items.mark();
            let (intention, fingerprint) = match slot {
                Slot::Answer(outcome) => {
                    outcomes.push(outcome);
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
            let verdict = match self.guard(&item, topic) {
                Err(no) => Err(no),
                Ok(()) if deferred.costly > 0 && self.has_program(topic) => {
                    let judging = self.send_away(topic, &item, at, stamp, fingerprint);
                    return judging.map(|judging| Turn::Judge(Box::new(judging)));
                }
                Ok(()) => self.write_here(topic, &item, &stamp, sink)?,
            };
            let spent = stamp.fuel.get();
            fuel = fuel.saturating_add(spent);
            let costly = topic.filter(|_| spent >= COSTLY_FUEL);
            self.answer(topic, &item, &stamp, fingerprint, verdict, sink, outcomes);
            if let Some(topic) = costly {
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

    fn write_here<S: ConsequenceSink + ?Sized>(
        &mut self,
        topic: Option<TopicId>,
        item: &Item<'_>,
        stamp: &Stamp,
        sink: &mut S,
    ) -> Result<Result<super::Emitted, No>, ApplyError> {
        let programmed = self.has_program(topic);
        let Some((id, topic)) = topic.and_then(|id| Some((id, self.topics.get_mut(id.index())?)))
        else {
            return Ok(Err(No::bare(ErrorCode::NoTopic)));
        };
        if programmed {
            return programs::write(id, topic, item, stamp, sink);
        }
        Ok(change(id, topic, item, stamp, sink))
    }

    fn send_away(
        &mut self,
        topic: Option<TopicId>,
        item: &Item<'_>,
        at: Mark,
        stamp: Stamp,
        fingerprint: u64,
    ) -> Result<Judging, ApplyError> {
        let known = topic.and_then(|id| Some((id, self.topics.get_mut(id.index())?)));
        let taken = known.and_then(|(id, topic)| {
            let live = topic.live.as_mut()?;
            let mut running = live.program.take()?;
            live.away = Some(Box::new(Away::of(&running)));
            running.open(topic.last.plus(1), item);
            Some((id, running, live.bounds()))
        });
        let Some((topic, running, bounds)) = taken else {
            return Err(ApplyError::ProgramNeeded(stamp.intention));
        };
        Ok(Judging {
            topic,
            running,
            bounds,
            at,
            stamp,
            fingerprint,
            judged: None,
        })
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
            topic: id,
            running,
            at,
            stamp,
            fingerprint,
            judged,
            ..
        } = judging;
        let lost = ApplyError::ProgramNeeded(stamp.intention);
        let (Some(item), Some(judged)) = (batch.items_from(&at).next(), judged) else {
            return Err(lost);
        };
        let item = item?;
        let topic = self.topics.get_mut(id.index()).ok_or(lost)?;
        if let Some(live) = &mut topic.live {
            live.away = None;
        }
        let verdict = programs::settle((id, topic), running, judged, &item, &stamp, sink)?;
        let fuel = stamp.fuel.get();
        deferred.costly = if fuel >= COSTLY_FUEL {
            AWAY_AFTER
        } else {
            deferred.costly.saturating_sub(1)
        };
        self.answer(
            Some(id),
            &item,
            &stamp,
            fingerprint,
            verdict,
            sink,
            outcomes,
        );
        Ok(Costly { topic: id, fuel })
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

    /// Whether a program judges elsewhere.
    pub(super) fn is_waiting(&self) -> bool {
        let mut live = self.topics.iter().filter_map(|topic| topic.live.as_ref());
        live.any(|live| live.away.is_some())
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
