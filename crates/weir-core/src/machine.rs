//! The machine: batches in, records and verdicts out.
//!
//! It is a deterministic function of the batches applied so far. Offsets are
//! assigned here and nowhere else, so that every node assigns the same ones
//! (I1); an intention whose effect is not VALID leaves no record (I10); a
//! repeated nonce is answered and not executed (I6).

pub mod deferred;
pub mod groups;
mod names;
mod programs;
mod saved;
mod start;

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use thiserror::Error;

use crate::batch::{Action, Batch, BatchError, Item, Items, Steps};
use crate::digest::{Digest, hash};
use crate::effect::{Commit, Detail, Effect, Outcome, Outcomes};
use crate::error_code::ErrorCode;
use crate::ids::{ClientId, ConsequenceOffset, IntentionOffset, TopicId, TopicName};
use crate::intention::TxnOp;
use crate::keys::KeyIndex;
use crate::limits::{
    KEY_BYTES_MAX, MACHINE_VERSION, OPTION_BYTES_MAX, TOPIC_NAME_BYTES_MAX, TOPICS_MAX,
};
use crate::options::TopicOptions;
use crate::program::{ProgramHost, ProgramView};
use crate::record::{ConsequenceSink, Record, RecordFlags, RecordKind};
use crate::session::{Seen, SessionTable};
use crate::snapshot::{Input, SnapshotError, SnapshotSink, SnapshotSource, Writer};
use crate::topic::{Live, No, Topic, holds};
pub(crate) use deferred::Away;
use deferred::{COSTLY_FUEL, Touches};
use programs::Codes;
pub(crate) use programs::Running;
use saved::Saved;

/// A batch could not be applied. The machine must not be used afterwards: it
/// may have applied a part.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The bytes are no batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The log names a program and this build runs none; skipping it would
    /// make another history.
    #[error("intention {0} creates a topic with a program, which this build cannot run")]
    ProgramNeeded(IntentionOffset),
    /// This node cannot run a program that other nodes may have run.
    #[error("intention {intention} needs a program that this node cannot run: {why}")]
    ProgramUnable {
        /// The intention.
        intention: IntentionOffset,
        /// What is missing.
        why: String,
    },
}

/// How much of a batch is applied in one piece.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// Items at most.
    pub items_max: u32,
    /// Ends behind the item with which its programs have used as much.
    pub fuel_max: u64,
    /// Whether it ends behind a costly call, and before one of a program that
    /// was costly lately or that nobody knows.
    pub stops: bool,
}

/// Tells how many nanoseconds have passed, for scheduling only.
pub type Watch<'a> = &'a mut dyn FnMut() -> u64;

/// Looks at the watch behind the first call of a slice and behind every so many
/// more, fewer while they take long: a look costs as much as a short call.
struct Pace<'a> {
    watch: Watch<'a>,
    /// When it was looked at last.
    now: u64,
    /// Calls until it is looked at again, and how many there were from then on.
    left: u64,
    stride: u64,
    /// Something that called no program was applied since then.
    plain: bool,
}

impl<'a> Pace<'a> {
    /// Calls between two looks.
    const STRIDE_MAX: u64 = 8;

    fn new(watch: Watch<'a>) -> Self {
        Self {
            watch,
            now: 0,
            left: 1,
            stride: 1,
            plain: false,
        }
    }

    /// A call comes: what was applied before it is not its time.
    fn before_call(&mut self) {
        if std::mem::take(&mut self.plain) {
            self.now = (self.watch)();
            (self.left, self.stride) = (1, 1);
        }
    }

    /// What a call that used this fuel counts for. Time counts no further than
    /// to be costly: it may have been somebody else's.
    fn of_call(&mut self, fuel: u64) -> u64 {
        if fuel == 0 {
            self.plain = true;
            return 0;
        }
        self.left -= 1;
        if self.left > 0 {
            return fuel;
        }
        let now = (self.watch)();
        let took = now.saturating_sub(self.now) / self.stride;
        self.now = now;
        self.stride = if took < COSTLY_FUEL / 16 {
            Self::STRIDE_MAX.min(2 * self.stride)
        } else {
            1
        };
        self.left = self.stride;
        fuel.max(took.min(COSTLY_FUEL))
    }
}

/// A call that took long, or may.
#[derive(Clone, Copy, Debug)]
pub struct Costly {
    /// The topic whose program was called; none where a program begins.
    pub topic: Option<TopicId>,
    /// What it used; 0 for one that stands before the next item.
    pub fuel: u64,
}

/// What an applied batch amounted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Intentions that took an offset.
    pub executed: u64,
    /// The newest intention offset afterwards.
    pub last: IntentionOffset,
}

/// A live topic, as it can be seen from outside.
#[derive(Clone, Copy, Debug)]
pub struct TopicView<'a> {
    /// Its name.
    pub name: &'a TopicName,
    /// Its number.
    pub id: TopicId,
    /// Offset of its newest record.
    pub last: ConsequenceOffset,
    /// Intention offset of its CREATE; `None` when it does not live.
    pub incarnation: Option<IntentionOffset>,
    /// Offset of its CREATE record; `None` when it does not live.
    pub created: Option<ConsequenceOffset>,
    /// Options; `None` when it does not live.
    pub options: Option<&'a TopicOptions>,
    /// Keys; `None` when it does not live.
    pub keys: Option<&'a KeyIndex>,
    /// Its program; `None` for a plain topic and one that does not live.
    pub program: Option<ProgramView<'a>>,
    /// In quarantine: it takes no PUT, DELETE or transaction.
    pub quarantined: bool,
    /// Folded history.
    pub digest: Digest,
}

/// The state of a store's model. Cloning it takes time and memory linear in
/// the number of keys and sessions.
#[derive(Clone, Debug)]
pub struct Machine {
    seed: u64,
    applied: IntentionOffset,
    time_ms: u64,
    /// Folds what belongs to no topic.
    digest: Digest,
    topics: Vec<Topic>,
    by_name: BTreeMap<TopicName, TopicId>,
    sessions: SessionTable,
    host: Option<Arc<dyn ProgramHost>>,
    codes: Codes,
    /// Entries of all groups.
    pending: usize,
    /// The newest intention before each batch that is deferred, and what that
    /// touches, in their order.
    settled: VecDeque<(IntentionOffset, Arc<Touches>)>,
    /// Intention that made the newest topic.
    newest: IntentionOffset,
}

#[derive(Debug)]
struct Stamp {
    intention: IntentionOffset,
    term: u64,
    time_ms: u64,
    client: ClientId,
    nonce: u64,
    /// Fuel that a program used; set by whoever ran it.
    fuel: Cell<u64>,
}

/// First record and number of records.
type Emitted = (ConsequenceOffset, u32);

impl Machine {
    /// A machine that has seen nothing. `seed` goes into hash tables only and
    /// changes no outcome.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            applied: IntentionOffset::ZERO,
            time_ms: 0,
            digest: Digest::default(),
            topics: Vec::new(),
            by_name: BTreeMap::new(),
            sessions: SessionTable::default(),
            host: None,
            codes: Codes::default(),
            pending: 0,
            settled: VecDeque::new(),
            newest: IntentionOffset::ZERO,
        }
    }

    /// The same machine with an engine for programs.
    #[must_use]
    pub fn with_host(mut self, host: Option<Arc<dyn ProgramHost>>) -> Self {
        self.host = host;
        self
    }

    /// Newest intention offset.
    #[must_use]
    pub fn applied(&self) -> IntentionOffset {
        self.applied
    }

    /// Newest intention up to which every record is there: below
    /// [`applied`](Self::applied) while a batch is [deferred](Self::defer).
    #[must_use]
    pub fn settled(&self) -> IntentionOffset {
        self.settled
            .front()
            .map_or(self.applied, |(before, _)| *before)
    }

    /// The same for the records of one topic: whatever waits for others does
    /// not count.
    #[must_use]
    pub fn settled_of(&self, topic: &str) -> IntentionOffset {
        let id = self.by_name.get(topic).copied();
        let mut parts = self.settled.iter();
        parts
            .find(|(_, touches)| touches.concerns(topic, id))
            .map_or(self.applied, |(before, _)| *before)
    }

    /// The newest CREATE that a topic which lives came from; what has listed
    /// topics since then knows them all.
    #[must_use]
    pub fn newest_topic(&self) -> IntentionOffset {
        self.newest
    }

    /// Newest stamp, milliseconds since 1970-01-01 UTC. A proposer stamps the
    /// next batch with at least this.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// The session table.
    #[must_use]
    pub fn sessions(&self) -> &SessionTable {
        &self.sessions
    }

    /// Every name that ever was created, in order of its number.
    pub fn topics(&self) -> impl Iterator<Item = TopicView<'_>> {
        (0_u32..)
            .zip(&self.topics)
            .map(|(number, topic)| view(TopicId(number), topic))
    }

    /// A topic by name, live or not; `None` when it never was created.
    #[must_use]
    pub fn topic(&self, name: &str) -> Option<TopicView<'_>> {
        self.topic_by_id(*self.by_name.get(name)?)
    }

    /// A topic by number.
    #[must_use]
    pub fn topic_by_id(&self, id: TopicId) -> Option<TopicView<'_>> {
        self.topics.get(id.index()).map(|topic| view(id, topic))
    }

    /// Hash of the whole history. Equal logs give equal digests (I4).
    #[must_use]
    pub fn digest(&self) -> Digest {
        let start = self.digest.fold(self.applied.0).fold(self.time_ms);
        let topics = self.topics.iter().fold(start, |digest, topic| {
            let live = topic.live.as_ref();
            let groups = topic.groups.values();
            let digest = groups.fold(digest, |digest, group| group.fold(digest));
            digest
                .fold(topic.digest.0)
                .fold(topic.last.0)
                .fold(live.map_or(0, |live| live.incarnation.0))
                .fold(live.map_or(0, |live| live.keys.len() as u64))
        });
        self.sessions.fold(topics)
    }

    /// Applies a batch. Each item is answered in `outcomes`, in order, behind
    /// what is there already; records go to `sink`.
    pub fn apply<S: ConsequenceSink + ?Sized>(
        &mut self,
        batch: &Batch<'_>,
        sink: &mut S,
        outcomes: &mut Outcomes,
    ) -> Result<Applied, ApplyError> {
        let before = self.applied;
        let no_limit = Slice {
            items_max: u32::MAX,
            fuel_max: u64::MAX,
            stops: false,
        };
        let mut items = batch.items();
        self.apply_slice(batch, &mut items, &no_limit, &mut || 0, sink, outcomes)?;
        Ok(Applied {
            executed: self.applied.0 - before.0,
            last: self.applied,
        })
    }

    /// The same for some of a batch's items: takes them from `items` until
    /// there are none, a limit of the slice is reached, or a call was
    /// [costly](deferred::COSTLY_FUEL); then it says which one. The rest must
    /// be applied before any other batch, or be [deferred](Self::defer).
    ///
    /// `watch` tells the nanoseconds since the slice began. Much that a call
    /// makes a host do costs no fuel: a fresh instance, a memory put back. So a
    /// nanosecond counts like a unit of fuel here. That decides when a call is
    /// judged and by which thread, and never what comes of it.
    pub fn apply_slice<S: ConsequenceSink + ?Sized>(
        &mut self,
        batch: &Batch<'_>,
        items: &mut Items<'_>,
        slice: &Slice,
        watch: Watch<'_>,
        sink: &mut S,
        outcomes: &mut Outcomes,
    ) -> Result<Option<Costly>, ApplyError> {
        self.time_ms = self.time_ms.max(batch.time_ms);
        let (mut topic, mut left, mut fuel) = (None, slice.items_max, 0_u64);
        let mut pace = Pace::new(watch);
        while left > 0 && fuel.max(pace.now) < slice.fuel_max {
            let watched = slice.stops && !self.codes.is_empty();
            let before = watched.then(|| items.clone());
            let Some(item) = items.next() else { break };
            let item = item?;
            if !item.same_topic || topic.is_none() {
                topic = self.topic_number(&item);
            }
            if let Some(before) = before {
                let writes = topic.filter(|_| item.action.is_write());
                let running = writes.and_then(|topic| self.running(topic));
                if running.is_some() {
                    pace.before_call();
                }
                let waits = running.is_some_and(|running| running.is_costly());
                if waits || start::is_start(&item.action) {
                    *items = before;
                    let topic = writes;
                    return Ok(Some(Costly { topic, fuel: 0 }));
                }
            }
            let outcome = self.item(&item, topic, batch.term, sink)?;
            let spent = match &outcome {
                Outcome::Committed(commit) => commit.fuel,
                _ => 0,
            };
            outcomes.push(outcome);
            let used = spent;
            let spent = pace.of_call(used);
            if spent > 0 {
                self.used(topic, spent);
            }
            if spent >= COSTLY_FUEL && slice.stops && self.was_costly(topic, used) {
                return Ok(Some(Costly { topic, fuel: spent }));
            }
            fuel = fuel.saturating_add(spent);
            left -= 1;
        }
        Ok(None)
    }

    #[inline]
    fn running(&mut self, topic: TopicId) -> Option<&mut Running> {
        let live = self.topics.get_mut(topic.index())?.live.as_mut()?;
        live.program.as_deref_mut()
    }

    #[inline]
    fn used(&mut self, topic: Option<TopicId>, spent: u64) {
        if let Some(running) = topic.and_then(|topic| self.running(topic)) {
            running.used(spent);
        }
    }

    /// Whether a call that used this fuel, and looked costly, was. By time alone
    /// one call is not believed: this thread may not have run for a moment. Then
    /// others of its program must have looked so, too.
    fn was_costly(&mut self, topic: Option<TopicId>, fuel: u64) -> bool {
        let running = topic.and_then(|topic| self.running(topic));
        fuel >= COSTLY_FUEL && topic.is_some() || running.is_some_and(|running| running.is_costly())
    }

    fn topic_number(&self, item: &Item<'_>) -> Option<TopicId> {
        let name = std::str::from_utf8(item.topic).ok()?;
        self.by_name.get(name).copied()
    }

    #[inline]
    fn item<S: ConsequenceSink + ?Sized>(
        &mut self,
        item: &Item<'_>,
        topic: Option<TopicId>,
        term: u64,
        sink: &mut S,
    ) -> Result<Outcome, ApplyError> {
        let content = self.content(item, topic);
        let fingerprint = item.fingerprint.unwrap_or(content);
        if !item.client.is_none() {
            match self
                .sessions
                .check(item.client, item.nonce, fingerprint, self.time_ms)
            {
                Seen::New => {}
                Seen::Before(commit) => return Ok(Outcome::Replayed(commit)),
                Seen::Refuse(code, expected) => return Ok(Outcome::Refused { code, expected }),
            }
        }
        let intention = self.applied.plus(1);
        let stamp = Stamp {
            intention,
            term,
            time_ms: self.time_ms,
            client: item.client,
            nonce: item.nonce,
            fuel: Cell::new(0),
        };
        let verdict = self.execute(item, topic, &stamp, sink)?;
        self.applied = intention;
        let commit = self.conclude(topic, content, &stamp, verdict);
        if !item.client.is_none() {
            self.remember(item.client, &commit, fingerprint, stamp.time_ms);
        }
        sink.executed(intention, commit.effect);
        Ok(Outcome::Committed(commit))
    }

    /// Hash of what an item says about which topic.
    #[inline]
    fn content(&self, item: &Item<'_>, topic: Option<TopicId>) -> u64 {
        let known = topic.and_then(|id| self.topics.get(id.index()));
        let name_hash = known.map_or_else(|| hash(0, item.topic), |topic| topic.name_hash);
        hash(name_hash ^ u64::from(item.shape), item.content)
    }

    /// Folds an executed intention into its history.
    #[inline]
    fn conclude(
        &mut self,
        topic: Option<TopicId>,
        content: u64,
        stamp: &Stamp,
        verdict: Result<Emitted, No>,
    ) -> Commit {
        let intention = stamp.intention;
        let commit = commit(stamp, verdict);
        let verdict_word = (commit.effect as u64) << 16
            | commit.reason.map_or(0, |reason| u64::from(reason.number()));
        let fold = |digest: Digest| digest.fold(intention.0).fold(verdict_word).fold(content);
        match topic.and_then(|id| self.topics.get_mut(id.index())) {
            Some(topic) => topic.digest = fold(topic.digest),
            None => self.digest = fold(self.digest),
        }
        commit
    }

    #[inline]
    fn remember(&mut self, client: ClientId, commit: &Commit, fingerprint: u64, time_ms: u64) {
        if commit.fuel == 0 {
            self.sessions.executed(client, commit, fingerprint, time_ms);
        } else {
            // Fuel is no part of an outcome: engines count it differently.
            let commit = Commit {
                fuel: 0,
                ..commit.clone()
            };
            self.sessions
                .executed(client, &commit, fingerprint, time_ms);
        }
    }

    #[inline]
    fn execute<S: ConsequenceSink + ?Sized>(
        &mut self,
        item: &Item<'_>,
        topic: Option<TopicId>,
        stamp: &Stamp,
        sink: &mut S,
    ) -> Result<Result<Emitted, No>, ApplyError> {
        match item.action {
            Action::ExpireSessions { idle_ms } => {
                self.sessions
                    .expire(self.time_ms.saturating_sub(idle_ms), item.client);
                return Ok(Ok((ConsequenceOffset::ZERO, 0)));
            }
            Action::Cursor { group, step } => {
                return Ok(self.cursor(topic, group, &step, stamp));
            }
            _ => {}
        }
        if let Err(no) = self.guard(item, topic) {
            return Ok(Err(no));
        }
        if start::is_start(&item.action) {
            let mut start = match self.begin(item, topic, stamp)? {
                Ok(start) => start,
                Err(no) => return Ok(Err(no)),
            };
            let judged = start.run(item, stamp);
            return self.begun(start, judged, (item, topic, stamp), sink);
        }
        if let Action::Create { options, args, .. } = item.action {
            return self.create(item, topic, options, args, stamp, sink);
        }
        let Some((id, topic)) = topic.and_then(|id| Some((id, self.topics.get_mut(id.index())?)))
        else {
            return Ok(Err(No::bare(ErrorCode::NoTopic)));
        };
        if let Some(running) = topic.live.as_ref().and_then(|live| live.program.as_ref()) {
            if item.action.is_write() {
                return programs::write(id, topic, item, stamp, sink);
            }
            if matches!(item.action, Action::Destroy) {
                self.codes.release(running.code);
            }
        }
        Ok(change(id, topic, item, stamp, sink))
    }

    /// What is asked before an intention is executed.
    #[inline]
    fn guard(&self, item: &Item<'_>, topic: Option<TopicId>) -> Result<(), No> {
        let seen = topic.and_then(|id| self.topics.get(id.index()));
        let live = seen.and_then(|topic| topic.live.as_ref());
        let writes = item.action.is_write();
        match (&item.action, live) {
            (Action::Create { .. }, Some(_)) => return Err(No::bare(ErrorCode::TopicExists)),
            (_, None) if writes => return Err(No::bare(ErrorCode::NoTopic)),
            (
                Action::Destroy
                | Action::Alter { .. }
                | Action::Replace { .. }
                | Action::Quarantine { .. },
                None,
            ) => return Err(No::bare(ErrorCode::TopicAbsent)),
            _ => {}
        }
        if writes && live.is_some_and(|live| live.stopped) {
            return Err(No::bare(ErrorCode::Quarantined));
        }
        if item.expects.is_empty() {
            return Ok(());
        }
        let own_key = match item.action {
            Action::Put { key, .. } | Action::Delete { key } => key,
            _ => &[],
        };
        item.expects
            .iter()
            .try_for_each(|expect| holds(&expect, seen, own_key))
    }

    fn create<S: ConsequenceSink + ?Sized>(
        &mut self,
        item: &Item<'_>,
        known: Option<TopicId>,
        options: &[u8],
        args: &[u8],
        stamp: &Stamp,
        sink: &mut S,
    ) -> Result<Result<Emitted, No>, ApplyError> {
        let full = No {
            reason: ErrorCode::Limit,
            detail: Detail::Limit(TOPICS_MAX as u64),
        };
        let id = match known {
            Some(id) => id,
            None if self.topics.len() >= TOPICS_MAX => return Ok(Err(full)),
            None => self.name(item.topic, sink)?,
        };
        let seed = self.seed;
        let Some(topic) = self.topics.get_mut(id.index()) else {
            return Ok(Err(full));
        };
        let offset = emit(
            id,
            topic,
            stamp,
            sink,
            RecordKind::Create,
            RecordFlags::LAST,
            |r| {
                r.value = args;
                r.meta = item.meta;
            },
        );
        self.newest = self.newest.max(stamp.intention);
        topic.live = Some(Live {
            incarnation: stamp.intention,
            created: offset,
            options: TopicOptions::decode(options).unwrap_or_default(),
            keys: KeyIndex::new(seed),
            program: None,
            away: None,
            stopped: false,
        });
        Ok(Ok((offset, 1)))
    }

    fn name<S: ConsequenceSink + ?Sized>(
        &mut self,
        name: &[u8],
        sink: &mut S,
    ) -> Result<TopicId, ApplyError> {
        let bad = BatchError {
            at: 0,
            item: 0,
            what: "a topic name",
        };
        let text = std::str::from_utf8(name).map_err(|_| bad)?;
        let name = TopicName::any(text).map_err(|_| bad)?;
        let id = TopicId(u32::try_from(self.topics.len()).unwrap_or(u32::MAX));
        sink.topic(id, &name);
        self.by_name.insert(name.clone(), id);
        self.topics.push(Topic {
            name_hash: hash(0, name.as_str().as_bytes()),
            name,
            last: ConsequenceOffset::ZERO,
            digest: Digest::default(),
            live: None,
            groups: groups::Groups::new(),
        });
        Ok(id)
    }

    /// Writes the state. Equal states give equal bytes, whatever the seeds.
    pub fn save(&self, to: &mut dyn SnapshotSink) -> Result<(), SnapshotError> {
        assert!(!self.is_waiting(), "no snapshot while a program is away");
        let mut out = Writer::new(to);
        out.number(u64::from(MACHINE_VERSION))?;
        out.number(self.applied.0)?;
        out.number(self.time_ms)?;
        out.word(self.digest.0)?;
        out.number(self.topics.len() as u64)?;
        for topic in &self.topics {
            out.bytes(topic.name.as_str().as_bytes())?;
            out.number(topic.last.0)?;
            out.word(topic.digest.0)?;
            let Some(live) = &topic.live else {
                out.number(0)?; // does not live
                out.number(u64::from(!topic.groups.is_empty()))?; // further sections
                if !topic.groups.is_empty() {
                    groups::saved::save(&topic.groups, &mut out)?;
                }
                continue;
            };
            out.number(live.incarnation.0)?;
            out.number(live.created.0)?;
            let mut options = Vec::new();
            live.options.encode(&mut options);
            out.bytes(&options)?;
            out.number(live.keys.len() as u64)?;
            for (key, offset) in live.keys.sorted() {
                out.bytes(key)?;
                out.number(offset.0)?;
            }
            let sections = u64::from(live.program.is_some())
                + u64::from(live.stopped)
                + u64::from(!topic.groups.is_empty());
            out.number(sections)?;
            if let Some(running) = &live.program {
                saved::save(running, &live.keys, &mut out)?;
            }
            if live.stopped {
                out.number(saved::STOPPED)?;
                out.bytes(&[])?;
            }
            if !topic.groups.is_empty() {
                groups::saved::save(&topic.groups, &mut out)?;
            }
        }
        self.sessions.save(&mut out)?;
        out.number(u64::from(!self.codes.is_empty()))?; // further sections
        if !self.codes.is_empty() {
            saved::save_codes(&self.codes, &mut out)?;
        }
        out.finish()
    }

    /// Reads a state without programs that [`save`](Self::save) wrote.
    pub fn load(from: &mut dyn SnapshotSource, seed: u64) -> Result<Self, SnapshotError> {
        Self::load_with(from, seed, None)
    }

    /// Reads a state that [`save`](Self::save) wrote; its programs run on
    /// `host`.
    pub fn load_with(
        from: &mut dyn SnapshotSource,
        seed: u64,
        host: Option<Arc<dyn ProgramHost>>,
    ) -> Result<Self, SnapshotError> {
        let mut input = Input::new(from);
        let version = input.count(u64::from(u16::MAX), "a machine version")?;
        if version != u64::from(MACHINE_VERSION) {
            let found = u16::try_from(version).unwrap_or(u16::MAX);
            return Err(SnapshotError::Version {
                found,
                known: MACHINE_VERSION,
            });
        }
        let mut machine = Self::new(seed).with_host(host);
        let mut programs = Vec::new();
        machine.applied = IntentionOffset(input.counter()?);
        machine.time_ms = input.number()?;
        machine.digest = Digest(input.word()?);
        for number in 0..input.count(TOPICS_MAX as u64, "at most 2^20 topics")? {
            let id = TopicId(u32::try_from(number).unwrap_or(u32::MAX));
            let (topic, program) = load_topic(&mut input, seed, machine.applied)?;
            programs.extend(program.map(|program| (id, program)));
            if machine.by_name.insert(topic.name.clone(), id).is_some() {
                return Err(SnapshotError::Malformed("each topic name once"));
            }
            let entries = topic.groups.values().map(|group| group.entries().len());
            machine.pending += entries.sum::<usize>();
            let incarnation = topic.live.as_ref().map(|live| live.incarnation);
            machine.newest = machine.newest.max(incarnation.unwrap_or_default());
            machine.topics.push(topic);
        }
        machine.sessions = SessionTable::load(&mut input, machine.applied)?;
        let sections = input.count(1, SECTIONS)?;
        if (sections == 1) == programs.is_empty() {
            return Err(SnapshotError::Malformed("the code of the programs"));
        }
        if sections == 1 {
            section(&mut input, saved::CODES)?;
            let host = machine.host.clone().ok_or(SnapshotError::ProgramNeeded)?;
            machine.codes = saved::load_codes(&mut input, &*host)?;
            for (id, program) in programs {
                if let Some(topic) = machine.topics.get_mut(id.index()) {
                    saved::revive(topic, program, &mut machine.codes, &*host)?;
                }
            }
            if machine.codes.iter().any(|code| code.topics == 0) {
                return Err(SnapshotError::Malformed("only modules that are used"));
            }
        }
        Ok(machine)
    }
}

/// What a snapshot of this version has none of.
const SECTIONS: &str = "no sections that this build does not know";

fn section(input: &mut Input<'_>, tag: u64) -> Result<(), SnapshotError> {
    match input.number()? {
        found if found == tag => Ok(()),
        _ => Err(SnapshotError::Malformed(SECTIONS)),
    }
}

fn load_topic(
    input: &mut Input<'_>,
    seed: u64,
    applied: IntentionOffset,
) -> Result<(Topic, Option<Saved>), SnapshotError> {
    let what = "a topic name of at most 255 bytes";
    let name = String::from_utf8(input.bytes(TOPIC_NAME_BYTES_MAX, what)?).ok();
    let name = name.and_then(|name| TopicName::any(&name).ok());
    let name = name.ok_or(SnapshotError::Malformed(what))?;
    let mut topic = Topic {
        name_hash: hash(0, name.as_str().as_bytes()),
        name,
        last: ConsequenceOffset(input.counter()?),
        digest: Digest(input.word()?),
        live: None,
        groups: groups::Groups::new(),
    };
    if topic.last == ConsequenceOffset::ZERO {
        return Err(SnapshotError::Malformed("a topic with a record"));
    }
    let incarnation = IntentionOffset(input.number()?);
    if incarnation == IntentionOffset::ZERO {
        if input.count(1, SECTIONS)? == 1 {
            section(input, groups::saved::GROUPS)?;
            let name = topic.name.as_str();
            topic.groups = groups::saved::load(input, name, topic.last, applied.0)?;
        }
        return Ok((topic, None));
    }
    let created = ConsequenceOffset(input.number()?);
    if incarnation > applied || created > topic.last || created == ConsequenceOffset::ZERO {
        return Err(SnapshotError::Malformed(
            "a creation before the last record",
        ));
    }
    let options = TopicOptions::decode(&input.bytes(OPTION_BYTES_MAX, "topic options")?);
    let options = options.ok_or(SnapshotError::Malformed("topic options"))?;
    let mut keys = KeyIndex::new(seed);
    let mut before = Vec::new();
    for _ in 0..input.number()? {
        let key = input.bytes(KEY_BYTES_MAX, "a key of at most 65,535 bytes")?;
        let offset = ConsequenceOffset(input.number()?);
        if key <= before {
            return Err(SnapshotError::Malformed("keys in ascending order"));
        }
        if offset <= created || offset > topic.last {
            return Err(SnapshotError::Malformed("the offset of a key"));
        }
        keys.set(&key, offset);
        before = key;
    }
    let (mut program, mut stopped) = (None, false);
    let mut before = 0;
    for _ in 0..input.count(3, SECTIONS)? {
        let tag = input.number()?;
        match tag {
            _ if tag <= before => return Err(SnapshotError::Malformed(SECTIONS)),
            saved::PROGRAM => program = Some(saved::load(input, &options, &keys)?),
            saved::STOPPED => {
                input.bytes(0, "a mark without content")?;
                stopped = true;
            }
            groups::saved::GROUPS => {
                let name = topic.name.as_str();
                topic.groups = groups::saved::load(input, name, topic.last, applied.0)?;
            }
            _ => return Err(SnapshotError::Malformed(SECTIONS)),
        }
        before = tag;
    }
    topic.live = Some(Live {
        incarnation,
        created,
        options,
        keys,
        program: None,
        away: None,
        stopped,
    });
    Ok((topic, program))
}

fn view(id: TopicId, topic: &Topic) -> TopicView<'_> {
    let live = topic.live.as_ref();
    TopicView {
        name: &topic.name,
        id,
        last: topic.last,
        incarnation: live.map(|live| live.incarnation),
        created: live.map(|live| live.created),
        options: live.map(|live| &live.options),
        keys: live.map(|live| &live.keys),
        program: live.and_then(program_view),
        quarantined: live.is_some_and(|live| live.stopped),
        digest: topic.digest,
    }
}

fn program_view(live: &Live) -> Option<ProgramView<'_>> {
    if let Some(away) = &live.away {
        return Some(away.view());
    }
    let running = live.program.as_deref()?;
    Some(ProgramView {
        code: running.code,
        args: &running.args,
        meter: running.meter,
        mode: running.mode,
        state: Some(running.desk.state()),
        state_entries: running.desk.state().len() as u64,
        state_bytes: running.state_bytes(),
        counts: running.counts,
    })
}

fn commit(stamp: &Stamp, verdict: Result<Emitted, No>) -> Commit {
    let base = Commit {
        nonce: stamp.nonce,
        effect: Effect::Valid,
        reason: None,
        detail: Detail::None,
        intention: stamp.intention,
        first: ConsequenceOffset::ZERO,
        records: 0,
        fuel: stamp.fuel.get(),
    };
    match verdict {
        Ok((first, records)) => Commit {
            first,
            records,
            ..base
        },
        Err(No { reason, detail }) => {
            // Reasons are numbered by their effect: 1xx said no, 2xx fell over.
            let effect = if reason.number() < 200 {
                Effect::Invalid
            } else {
                Effect::Error
            };
            Commit {
                effect,
                reason: Some(reason),
                detail,
                ..base
            }
        }
    }
}

#[inline]
fn emit<'a, S: ConsequenceSink + ?Sized>(
    id: TopicId,
    topic: &mut Topic,
    stamp: &Stamp,
    sink: &mut S,
    kind: RecordKind,
    flags: u8,
    fill: impl FnOnce(&mut Record<'a>),
) -> ConsequenceOffset {
    let offset = topic.last.plus(1);
    let mut record = Record {
        offset,
        intention: stamp.intention,
        term: stamp.term,
        time_ms: stamp.time_ms,
        client: stamp.client,
        nonce: stamp.nonce,
        flags: RecordFlags(flags),
        kind,
        key: &[],
        value: &[],
        meta: &[],
    };
    fill(&mut record);
    sink.record(id, &record);
    topic.last = offset;
    offset
}

/// Changes a live topic.
#[inline]
fn change<S: ConsequenceSink + ?Sized>(
    id: TopicId,
    topic: &mut Topic,
    item: &Item<'_>,
    stamp: &Stamp,
    sink: &mut S,
) -> Result<Emitted, No> {
    let last = RecordFlags::LAST;
    let absent = No::bare(ErrorCode::NoTopic);
    match item.action {
        Action::Put { key, value } => {
            let live = topic.live.as_ref().ok_or(absent)?;
            live.admits(key, Some(value))?;
            live.has_room(key)?;
            Ok((
                put(id, topic, stamp, sink, last, (key, value, item.meta)),
                1,
            ))
        }
        Action::Delete { key } => {
            topic.live.as_ref().ok_or(absent)?.admits(key, None)?;
            Ok((delete(id, topic, stamp, sink, last, (key, item.meta)), 1))
        }
        Action::Txn(steps) => transaction(id, topic, steps, stamp, sink),
        Action::Destroy => {
            let offset = emit(id, topic, stamp, sink, RecordKind::Destroy, last, |r| {
                r.meta = item.meta;
            });
            topic.live = None;
            Ok((offset, 1))
        }
        Action::Alter { options } => {
            let decoded = TopicOptions::decode(options).unwrap_or_default();
            if let Some(running) = topic.live.as_mut().and_then(|live| live.program.as_mut()) {
                running.may_have(&decoded)?;
                running.desk.set_limits(decoded.program_limits());
            }
            let offset = emit(id, topic, stamp, sink, RecordKind::Alter, last, |r| {
                r.value = options;
                r.meta = item.meta;
            });
            if let Some(live) = &mut topic.live {
                live.options = decoded;
            }
            Ok((offset, 1))
        }
        Action::Quarantine { stopped } => {
            if let Some(live) = &mut topic.live {
                live.stopped = stopped;
            }
            Ok((ConsequenceOffset::ZERO, 0))
        }
        Action::Create { .. }
        | Action::Replace { .. }
        | Action::Cursor { .. }
        | Action::ExpireSessions { .. } => Err(absent),
    }
}

#[inline]
fn put<S: ConsequenceSink + ?Sized>(
    id: TopicId,
    topic: &mut Topic,
    stamp: &Stamp,
    sink: &mut S,
    flags: u8,
    (key, value, meta): (&[u8], &[u8], &[u8]),
) -> ConsequenceOffset {
    let offset = emit(id, topic, stamp, sink, RecordKind::Put, flags, |r| {
        (r.key, r.value, r.meta) = (key, value, meta);
    });
    if !key.is_empty()
        && let Some(live) = &mut topic.live
    {
        live.keys.set(key, offset);
    }
    offset
}

fn delete<S: ConsequenceSink + ?Sized>(
    id: TopicId,
    topic: &mut Topic,
    stamp: &Stamp,
    sink: &mut S,
    flags: u8,
    (key, meta): (&[u8], &[u8]),
) -> ConsequenceOffset {
    let offset = emit(id, topic, stamp, sink, RecordKind::Delete, flags, |r| {
        (r.key, r.meta) = (key, meta);
    });
    if let Some(live) = &mut topic.live {
        live.keys.remove(key);
    }
    offset
}

/// All steps or none: everything that can say no is asked before the first
/// record is written.
fn transaction<S: ConsequenceSink + ?Sized>(
    id: TopicId,
    topic: &mut Topic,
    steps: Steps<'_>,
    stamp: &Stamp,
    sink: &mut S,
) -> Result<Emitted, No> {
    let live = topic.live.as_ref().ok_or(No::bare(ErrorCode::NoTopic))?;
    live.admits_all(steps.iter())?;
    let first = topic.last.plus(1);
    let count = steps.len();
    for (number, step) in (1_u32..).zip(steps.iter()) {
        let end = if number == count {
            RecordFlags::LAST
        } else {
            0
        };
        let flags = RecordFlags::TXN | end;
        match step {
            TxnOp::Put { key, value, meta } => {
                put(id, topic, stamp, sink, flags, (key, value, meta));
            }
            TxnOp::Delete { key, meta } => {
                delete(id, topic, stamp, sink, flags, (key, meta));
            }
        }
    }
    Ok((first, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_plain_items_is_not_that_of_the_next_call() {
        let now = Cell::new(0);
        let mut watch = || now.get();
        let mut pace = Pace::new(&mut watch);
        let pass = |time: u64| now.set(now.get() + time);
        for _ in 0..10 {
            pass(3 * COSTLY_FUEL);
            assert_eq!(pace.of_call(0), 0);
            pace.before_call();
            pass(1_000);
            assert_eq!(pace.of_call(10), 1_000);
        }
        // One that does take long is seen, behind plain ones as well.
        assert_eq!(pace.of_call(0), 0);
        pace.before_call();
        pass(2 * COSTLY_FUEL);
        assert_eq!(pace.of_call(10), COSTLY_FUEL);
    }
}
