//! The machine: applies batches and produces records and verdicts.
//!
//! Its state is a deterministic function of the batches applied so far. Invariants:
//! - Only the machine assigns offsets, so every node assigns the same ones (I1).
//! - An intention whose effect is not VALID leaves no record (I10).
//! - An intention with a repeated nonce is not executed again; its first outcome is returned (I6).

mod change;
pub mod groups;
mod names;
mod programs;
mod running;
mod saved;
mod snapshot;
mod start;
mod states;
mod topic;
mod view;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;

use crate::batch::{Action, Batch, BatchError, Item, Items};
use crate::digest::{Digest, hash};
use crate::effect::Rejection;
use crate::effect::{Commit, Detail, Effect, Outcome, Outcomes};
use crate::error_code::ErrorCode;
use crate::exact::to_u32;
use crate::ids::{ClientId, ConsequenceOffset, IntentionOffset, TopicId, TopicName};
use crate::keys::KeyIndex;
use crate::limits::TOPICS_MAX;
use crate::options::TopicOptions;
use crate::program::ProgramHost;
use crate::record::{ConsequenceSink, RecordFlags, RecordKind};
use crate::session::{NonceCheck, SessionTable};
use change::{change, emit};
use programs::Codes;
use states::States;
use topic::{LiveTopic, Topic, check_condition};
pub use view::TopicView;

/// A batch could not be applied. The machine must not be used afterwards, because it may have
/// applied a part of the batch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The bytes are not a valid batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The log contains a program, and this build cannot run programs. To skip it would produce a
    /// different history.
    #[error("intention {0} creates a topic with a program, which this build cannot run")]
    ProgramNeeded(IntentionOffset),
    /// This node cannot run a program that other nodes may have run.
    #[error("intention {intention} needs a program that this node cannot run: {why}")]
    ProgramUnable {
        /// Offset of the intention.
        intention: IntentionOffset,
        /// The missing feature or resource.
        why: String,
    },
}

/// Result of an applied batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Number of intentions that were assigned an offset.
    pub executed: u64,
    /// The newest intention offset after the batch.
    pub last: IntentionOffset,
}

/// Limits on the part of a batch that [`Machine::apply_some`] applies in one call.
#[derive(Clone, Copy, Debug)]
pub struct Portion {
    /// Maximum number of items.
    pub items_max: u32,
    /// Fuel: the portion ends after the item with which its programs have used this much.
    pub fuel_max: u64,
}

impl Portion {
    /// The whole rest of a batch.
    pub const WHOLE: Self = Self {
        items_max: u32::MAX,
        fuel_max: u64::MAX,
    };
}

/// The state of a store's model. A clone takes time and memory linear in the number of topics,
/// sessions and keys. After [`freeze`](Self::freeze), a clone shares all sessions and nearly all
/// keys.
#[derive(Clone, Debug)]
pub struct Machine {
    seed: u64,
    applied: IntentionOffset,
    time_ms: u64,
    /// Digest of everything that belongs to no topic.
    digest: Digest,
    topics: Vec<Topic>,
    by_name: BTreeMap<TopicName, TopicId>,
    sessions: SessionTable,
    host: Option<Arc<dyn ProgramHost>>,
    codes: Codes,
    states: States,
    /// Number of entries of all groups.
    pending: usize,
    /// Intention offset of the newest CREATE.
    newest: IntentionOffset,
}

#[derive(Debug)]
struct Stamp {
    intention: IntentionOffset,
    term: u64,
    time_ms: u64,
    client: ClientId,
    nonce: u64,
    /// Fuel that the program used; set by the code that ran the program.
    fuel: Cell<u64>,
}

/// Offset of the first record, and number of records.
type RecordRange = (ConsequenceOffset, u32);

impl Machine {
    /// An empty machine. `seed` is used only in hash tables and changes no outcome.
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
            states: States::default(),
            pending: 0,
            newest: IntentionOffset::ZERO,
        }
    }

    /// Sets the engine that runs programs.
    #[must_use]
    pub fn with_host(mut self, host: Option<Arc<dyn ProgramHost>>) -> Self {
        self.host = host;
        self
    }

    /// Makes the next clone cheap: the clone shares all sessions, and the keys of topics that have
    /// many.
    pub fn freeze(&mut self) {
        self.sessions.freeze();
        for live in self.topics.iter_mut().filter_map(|t| t.live.as_mut()) {
            live.keys.freeze();
        }
    }

    /// Bytes charged for the state of programs: of all topics, and of the topics that `principal`
    /// created. The limits are [`STATES_BYTES_MAX`](crate::limits::STATES_BYTES_MAX) and
    /// [`PRINCIPAL_STATES_BYTES_MAX`](crate::limits::PRINCIPAL_STATES_BYTES_MAX).
    #[must_use]
    pub fn state_bytes(&self, principal: &[u8]) -> (u64, u64) {
        (self.states.total(), self.states.principal(principal))
    }

    /// The newest intention offset.
    #[must_use]
    pub fn applied(&self) -> IntentionOffset {
        self.applied
    }

    /// Intention offset of the newest CREATE of a topic. A list of topics that was read at or after
    /// this offset contains every live topic.
    #[must_use]
    pub fn newest_topic(&self) -> IntentionOffset {
        self.newest
    }

    /// The newest time stamp, milliseconds since 1970-01-01 UTC. The next batch must not have an
    /// earlier one.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// The session table.
    #[must_use]
    pub fn sessions(&self) -> &SessionTable {
        &self.sessions
    }

    /// Hash of the whole history. Equal logs give equal digests (I4).
    #[must_use]
    pub fn digest(&self) -> Digest {
        let start = self.digest.fold(self.applied.0).fold(self.time_ms);
        let topics = self.topics.iter().fold(start, topic::fold);
        self.sessions.fold(topics)
    }

    /// The name and digest of each topic that was ever created, in order of topic ids. Shows which
    /// topics differ between two machines that applied the same log.
    pub fn topic_digests(&self) -> impl Iterator<Item = (&str, Digest)> {
        let topics = self.topics.iter();
        topics.map(|topic| (topic.name.as_str(), topic::fold(Digest::default(), topic)))
    }

    /// Applies a batch. Appends the outcome of each item to `outcomes`, in item order, and sends
    /// the records to `sink`.
    pub fn apply<S: ConsequenceSink + ?Sized>(
        &mut self,
        batch: &Batch<'_>,
        sink: &mut S,
        outcomes: &mut Outcomes,
    ) -> Result<Applied, ApplyError> {
        let before = self.applied;
        let mut items = batch.items();
        self.apply_some(batch, &mut items, &Portion::WHOLE, sink, outcomes)?;
        Ok(Applied {
            executed: self.applied.0 - before.0,
            last: self.applied,
        })
    }

    /// Whether any topic has a program.
    #[must_use]
    pub fn has_programs(&self) -> bool {
        !self.codes.is_empty()
    }

    /// Applies the next items of a batch, for a caller that admits readers between two portions.
    /// Reads from `items` until it is empty or the limits of the portion are reached. The rest of
    /// the batch must be applied before any other batch. The outcome does not depend on the
    /// portions.
    pub fn apply_some<S: ConsequenceSink + ?Sized>(
        &mut self,
        batch: &Batch<'_>,
        items: &mut Items<'_>,
        portion: &Portion,
        sink: &mut S,
        outcomes: &mut Outcomes,
    ) -> Result<(), ApplyError> {
        let host = self.host.clone().filter(|_| self.has_programs());
        let Some(host) = host else {
            return self.apply_on_this_stack(batch, items, portion, sink, outcomes);
        };
        let mut applied = Ok(());
        host.on_deep_stack(&mut || {
            applied = self.apply_on_this_stack(batch, items, portion, sink, outcomes);
        });
        applied
    }

    fn apply_on_this_stack<S: ConsequenceSink + ?Sized>(
        &mut self,
        batch: &Batch<'_>,
        items: &mut Items<'_>,
        portion: &Portion,
        sink: &mut S,
        outcomes: &mut Outcomes,
    ) -> Result<(), ApplyError> {
        self.time_ms = self.time_ms.max(batch.time_ms);
        let (mut topic, mut left, mut fuel) = (None, portion.items_max, 0_u64);
        while left > 0 && fuel < portion.fuel_max {
            let Some(item) = items.next() else { break };
            let item = item?;
            if !item.same_topic || topic.is_none() {
                topic = self.topic_id(&item);
            }
            let outcome = self.apply_item(&item, topic, batch.term, sink)?;
            if let Outcome::Committed(commit) = &outcome {
                fuel = fuel.saturating_add(commit.fuel);
            }
            outcomes.push(outcome);
            left -= 1;
        }
        Ok(())
    }

    fn topic_id(&self, item: &Item<'_>) -> Option<TopicId> {
        let name = std::str::from_utf8(item.topic).ok()?;
        self.by_name.get(name).copied()
    }

    #[inline]
    fn apply_item<S: ConsequenceSink + ?Sized>(
        &mut self,
        item: &Item<'_>,
        topic: Option<TopicId>,
        term: u64,
        sink: &mut S,
    ) -> Result<Outcome, ApplyError> {
        let content = self.content_hash(item, topic);
        let fingerprint = item.fingerprint.unwrap_or(content);
        if !item.client.is_none() {
            match self
                .sessions
                .check(item.client, item.nonce, fingerprint, self.time_ms)
            {
                NonceCheck::New => {}
                NonceCheck::Before(commit) => return Ok(Outcome::Replayed(commit)),
                NonceCheck::Refuse(code, expected) => {
                    return Ok(Outcome::Refused { code, expected });
                }
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
        let commit = self.record_verdict(topic, content, &stamp, verdict);
        if !item.client.is_none() {
            self.save_outcome(item.client, &commit, fingerprint, stamp.time_ms);
        }
        sink.executed(intention, commit.effect);
        Ok(Outcome::Committed(commit))
    }

    /// Hash of the content of an item and of its topic name.
    #[inline]
    fn content_hash(&self, item: &Item<'_>, topic: Option<TopicId>) -> u64 {
        let known = topic.and_then(|id| self.topics.get(id.index()));
        let name_hash = known.map_or_else(|| hash(0, item.topic), |topic| topic.name_hash);
        hash(name_hash ^ u64::from(item.shape), item.content)
    }

    /// Folds an executed intention into the digest of its topic, or of the machine.
    #[inline]
    fn record_verdict(
        &mut self,
        topic: Option<TopicId>,
        content: u64,
        stamp: &Stamp,
        verdict: Result<RecordRange, Rejection>,
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
    fn save_outcome(&mut self, client: ClientId, commit: &Commit, fingerprint: u64, time_ms: u64) {
        if commit.fuel == 0 {
            self.sessions.executed(client, commit, fingerprint, time_ms);
        } else {
            // Fuel is not part of an outcome: engines count it differently.
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
    ) -> Result<Result<RecordRange, Rejection>, ApplyError> {
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
        if let Err(rejection) = self.check_preconditions(item, topic) {
            return Ok(Err(rejection));
        }
        if let Action::Trim { through } = item.action {
            self.trim(topic, ConsequenceOffset(through), sink);
            return Ok(Ok((ConsequenceOffset::ZERO, 0)));
        }
        if start::is_start(&item.action) {
            let mut start = match self.begin(item, topic, stamp)? {
                Ok(start) => start,
                Err(rejection) => return Ok(Err(rejection)),
            };
            let judged = start.run(item, stamp);
            return self.finish_start(start, judged, (item, topic, stamp), sink);
        }
        if let Action::Create { options, args, .. } = item.action {
            return self.create(item, topic, options, args, stamp, sink);
        }
        let Some((id, topic)) = topic.and_then(|id| Some((id, self.topics.get_mut(id.index())?)))
        else {
            return Ok(Err(Rejection::without_detail(ErrorCode::NoTopic)));
        };
        if let Some(running) = topic.live.as_ref().and_then(|live| live.program.as_ref()) {
            if item.action.is_write() {
                return programs::write(id, topic, &mut self.states, item, stamp, sink);
            }
            if matches!(item.action, Action::Destroy) {
                self.codes.remove_topic(running.code);
                self.states.release(&running.owner, running.charged);
            }
        }
        Ok(change(id, topic, item, stamp, sink))
    }

    /// Checks that precede the execution of an intention.
    #[inline]
    fn check_preconditions(
        &self,
        item: &Item<'_>,
        topic: Option<TopicId>,
    ) -> Result<(), Rejection> {
        let seen = topic.and_then(|id| self.topics.get(id.index()));
        let live = seen.and_then(|topic| topic.live.as_ref());
        let writes = item.action.is_write();
        match (&item.action, live) {
            (Action::Create { .. }, Some(_)) => {
                return Err(Rejection::without_detail(ErrorCode::TopicExists));
            }
            (_, None) if writes => return Err(Rejection::without_detail(ErrorCode::NoTopic)),
            (
                Action::Destroy
                | Action::Alter { .. }
                | Action::Replace { .. }
                | Action::Quarantine { .. }
                | Action::Trim { .. },
                None,
            ) => return Err(Rejection::without_detail(ErrorCode::TopicAbsent)),
            _ => {}
        }
        if writes && live.is_some_and(|live| live.stopped) {
            return Err(Rejection::without_detail(ErrorCode::Quarantined));
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
            .try_for_each(|expect| check_condition(&expect, seen, own_key))
    }

    fn create<S: ConsequenceSink + ?Sized>(
        &mut self,
        item: &Item<'_>,
        known: Option<TopicId>,
        options: &[u8],
        args: &[u8],
        stamp: &Stamp,
        sink: &mut S,
    ) -> Result<Result<RecordRange, Rejection>, ApplyError> {
        let full = Rejection {
            reason: ErrorCode::Limit,
            detail: Detail::Limit(TOPICS_MAX as u64),
        };
        let id = match known {
            Some(id) => id,
            None if self.topics.len() >= TOPICS_MAX => return Ok(Err(full)),
            None => self.assign_id(item.topic, sink)?,
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
        topic.live = Some(LiveTopic {
            incarnation: stamp.intention,
            created: offset,
            options: TopicOptions::of_item(options),
            keys: KeyIndex::new(seed),
            program: None,
            stopped: false,
        });
        Ok(Ok((offset, 1)))
    }

    fn assign_id<S: ConsequenceSink + ?Sized>(
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
        let id = TopicId(to_u32(self.topics.len(), "there are at most 2^20 topics"));
        sink.topic(id, &name);
        self.by_name.insert(name.clone(), id);
        self.topics.push(Topic {
            name_hash: hash(0, name.as_str().as_bytes()),
            name,
            last: ConsequenceOffset::ZERO,
            trimmed: ConsequenceOffset::ZERO,
            digest: Digest::default(),
            live: None,
            groups: groups::Groups::new(),
        });
        Ok(id)
    }

    /// Removes the records up to `through` from reads, but no record that a group still holds. The
    /// bound is applied here, because a group may have been moved back since the proposal.
    fn trim<S: ConsequenceSink + ?Sized>(
        &mut self,
        topic: Option<TopicId>,
        through: ConsequenceOffset,
        sink: &mut S,
    ) {
        let held = topic.and_then(|id| self.held(id)).map(ConsequenceOffset);
        let Some((id, topic)) = topic.and_then(|id| Some((id, self.topics.get_mut(id.index())?)))
        else {
            return;
        };
        let through = through.min(topic.last).min(held.unwrap_or(topic.last));
        if through > topic.trimmed {
            topic.trimmed = through;
            sink.trimmed(id, through);
        }
    }
}

fn commit(stamp: &Stamp, verdict: Result<RecordRange, Rejection>) -> Commit {
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
        Err(Rejection { reason, detail }) => {
            // Reasons are numbered by effect: 1xx is INVALID, 2xx is ERROR.
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
