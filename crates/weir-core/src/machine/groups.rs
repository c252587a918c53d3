//! Groups as part of the machine: which member has which record, and until when.
//!
//! Between the cursor and the frontier, every record is acknowledged unless it has an entry. The
//! entries are therefore the complement of the acknowledged offsets, and their number is limited by
//! `pending_max`. The only clock is the time stamp of the batch. A claim lists the records that it
//! requests. This module decides which of them the claim gets, so that no record belongs to two
//! claims at a time.

pub(super) mod saved;

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry as Slot};

use super::{Machine, RecordRange, Stamp};
use crate::digest::Digest;
use crate::effect::Detail;
use crate::effect::Rejection;
use crate::error_code::ErrorCode;
use crate::group::{GroupMode, GroupName, GroupSetup, GroupStep, Hashes, Offsets};
use crate::ids::{ConsequenceOffset, TopicId};
use crate::limits::{GROUP_DEAD_LETTERS_MAX, GROUPS_MAX, GROUPS_PENDING_MAX};

/// The groups of one topic.
pub(crate) type Groups = BTreeMap<GroupName, Group>;

/// A group, with the state after the newest intention.
#[derive(Clone, Debug)]
pub struct Group {
    mode: GroupMode,
    lease_ms: u64,
    attempts_max: u32,
    pending_max: u32,
    dead_letters: Box<str>,
    /// Intention offset at which the group was created.
    created: u64,
    cursor: u64,
    frontier: u64,
    owner: Option<Owner>,
    entries: BTreeMap<u64, Entry>,
    claims: BTreeMap<u64, Claim>,
    unwritten_dead_letters: BTreeMap<u64, DeadLetter>,
    dead_lettered: u64,
    redeliveries: u64,
    /// The log time at which each entry may be claimed, and its offset. Derived from `entries`.
    due: BTreeSet<(u64, u64)>,
    /// Offsets of the entries of each key hash. Derived from `entries`; empty unless the group is
    /// keyed.
    by_key: BTreeMap<u64, BTreeSet<u64>>,
}

/// The member that reads an exclusive group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Intention offset of the JOIN.
    pub generation: u64,
    /// Name of the member.
    pub member: Box<[u8]>,
    /// Log time from which another member may join, in milliseconds since 1970-01-01 UTC.
    pub until_ms: u64,
}

/// A record up to the frontier that is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of deliveries.
    pub attempts: u32,
    /// Hash of its key in a keyed group; 0 for none.
    pub key: u64,
    /// Whether a member has the record.
    pub state: EntryState,
}

/// State of an entry: whether a member has the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// No member has the record.
    Waiting {
        /// Log time from which it may be claimed, in milliseconds since 1970-01-01 UTC.
        from_ms: u64,
    },
    /// A member has the record.
    Leased {
        /// Number of the claim.
        claim: u64,
        /// Log time from which other members may claim it, in milliseconds since 1970-01-01 UTC.
        until_ms: u64,
    },
}

impl EntryState {
    /// Log time from which it may be claimed, in milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub const fn due_ms(self) -> u64 {
        match self {
            Self::Waiting { from_ms } => from_ms,
            Self::Leased { until_ms, .. } => until_ms,
        }
    }
}

#[derive(Clone, Debug)]
struct Claim {
    member: Box<[u8]>,
    /// Number of its current leases.
    leases: u32,
}

/// A record that reached the maximum of deliveries, until its dead letter is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Offset of the record.
    pub offset: u64,
    /// Number of deliveries.
    pub attempts: u32,
    /// Log time at which the record became a dead letter, in milliseconds since 1970-01-01 UTC.
    pub time_ms: u64,
    /// The reason that the last member gave; empty if its lease expired.
    pub reason: Box<str>,
}

/// Position and time of a step.
#[derive(Clone, Copy, Debug)]
struct StepContext {
    intention: u64,
    time_ms: u64,
    /// Newest record of the topic.
    last: u64,
    /// Number of entries that all groups together may still add.
    entries_free: usize,
}

impl Machine {
    /// A group; `None` if the topic or the group does not exist.
    #[must_use]
    pub fn group(&self, topic: &str, group: &str) -> Option<&Group> {
        let id = *self.by_name.get(topic)?;
        self.topics.get(id.index())?.groups.get(group)
    }

    /// The groups of a topic, in order of their names.
    pub fn groups(&self, id: TopicId) -> impl Iterator<Item = (&GroupName, &Group)> {
        let topic = self.topics.get(id.index());
        topic.into_iter().flat_map(|topic| &topic.groups)
    }

    /// The offset that all groups in the option `hold_for_groups` of the topic have passed. `None`
    /// if the option is empty.
    #[must_use]
    pub fn held(&self, id: TopicId) -> Option<u64> {
        let topic = self.topics.get(id.index())?;
        let hold = &topic.live.as_ref()?.options.retention.hold_for_groups;
        hold.iter()
            .map(|name| topic.groups.get(name).map_or(0, Group::passed))
            .min()
    }

    pub(super) fn cursor(
        &mut self,
        topic: Option<TopicId>,
        group: &str,
        step: &GroupStep<'_>,
        stamp: &Stamp,
    ) -> Result<RecordRange, Rejection> {
        let entries_free = GROUPS_PENDING_MAX.saturating_sub(self.pending);
        let known = topic.and_then(|id| self.topics.get_mut(id.index()));
        let topic = known.ok_or(Rejection::without_detail(ErrorCode::TopicAbsent))?;
        let context = StepContext {
            intention: stamp.intention.0,
            time_ms: stamp.time_ms,
            last: topic.last.0,
            entries_free,
        };
        let done = Ok((ConsequenceOffset::ZERO, 0));
        let name =
            GroupName::new(group).ok_or(Rejection::without_detail(ErrorCode::GroupAbsent))?;
        let count = topic.groups.len();
        match (topic.groups.entry(name), step) {
            (Slot::Occupied(_), GroupStep::Open(_)) => {
                Err(Rejection::without_detail(ErrorCode::GroupExists))
            }
            (Slot::Vacant(slot), GroupStep::Open(setup)) => {
                if topic.live.is_none() {
                    return Err(Rejection::without_detail(ErrorCode::TopicAbsent));
                }
                if count >= GROUPS_MAX {
                    return Err(Rejection::limit(ErrorCode::Quota, GROUPS_MAX as u64));
                }
                slot.insert(Group::new(setup, &context));
                done
            }
            (Slot::Vacant(_), _) => Err(Rejection::without_detail(ErrorCode::GroupAbsent)),
            (Slot::Occupied(slot), GroupStep::Delete) => {
                self.pending -= slot.remove().entries.len();
                done
            }
            (Slot::Occupied(mut slot), step) => {
                let group = slot.get_mut();
                let before = group.entries.len();
                let changed = group.step(step, &context);
                self.pending = self.pending - before + group.entries.len();
                changed.and(done)
            }
        }
    }
}

fn conflict(reason: ErrorCode, actual: u64) -> Rejection {
    Rejection {
        reason,
        detail: Detail::Actual(actual),
    }
}

impl Group {
    fn new(setup: &GroupSetup<'_>, context: &StepContext) -> Self {
        let start = setup.start.min(context.last);
        Self {
            mode: setup.mode,
            lease_ms: setup.lease_ms,
            attempts_max: setup.attempts_max,
            pending_max: setup.pending_max,
            dead_letters: setup.dead_letters.into(),
            created: context.intention,
            cursor: start,
            frontier: start,
            owner: None,
            entries: BTreeMap::new(),
            claims: BTreeMap::new(),
            unwritten_dead_letters: BTreeMap::new(),
            dead_lettered: 0,
            redeliveries: 0,
            due: BTreeSet::new(),
            by_key: BTreeMap::new(),
        }
    }

    /// How the members share the topic.
    #[must_use]
    pub fn mode(&self) -> GroupMode {
        self.mode
    }

    /// Settings of the group; `start` is the current cursor.
    #[must_use]
    pub fn setup(&self) -> GroupSetup<'_> {
        GroupSetup {
            mode: self.mode,
            start: self.cursor,
            lease_ms: self.lease_ms,
            attempts_max: self.attempts_max,
            pending_max: self.pending_max,
            dead_letters: &self.dead_letters,
        }
    }

    /// Intention offset at which the group was created.
    #[must_use]
    pub fn created(&self) -> u64 {
        self.created
    }

    /// All records up to this offset are acknowledged.
    #[must_use]
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// All records after this offset are new to the group.
    #[must_use]
    pub fn frontier(&self) -> u64 {
        self.frontier
    }

    /// All records up to this offset are acknowledged, and no unwritten dead letter needs them.
    #[must_use]
    pub fn passed(&self) -> u64 {
        let letters = self.unwritten_dead_letters.values();
        let before = letters.map(|letter| letter.offset - 1);
        before.fold(self.cursor, u64::min)
    }

    /// Number of acknowledged offsets above the cursor.
    #[must_use]
    pub fn acknowledged_above(&self) -> u64 {
        (self.frontier - self.cursor).saturating_sub(self.entries.len() as u64)
    }

    /// The owner of an exclusive group.
    #[must_use]
    pub fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    /// The entries: records up to the frontier that are not acknowledged, by offset.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (u64, &Entry)> {
        self.entries.iter().map(|(offset, entry)| (*offset, entry))
    }

    /// The entry of an offset.
    #[must_use]
    pub fn entry(&self, offset: u64) -> Option<&Entry> {
        self.entries.get(&offset)
    }

    /// The log times at which entries may be claimed, earliest first, with their offsets.
    pub fn due(&self) -> impl Iterator<Item = (u64, u64)> {
        self.due.iter().copied()
    }

    /// Claims that still have leases: number, member, number of leases.
    pub fn claims(&self) -> impl Iterator<Item = (u64, &[u8], u32)> {
        let claims = self.claims.iter();
        claims.map(|(id, claim)| (*id, &*claim.member, claim.leases))
    }

    /// Offsets of the entries with this key hash, in a keyed group.
    pub fn of_key(&self, key: u64) -> impl Iterator<Item = u64> {
        let offsets = self.by_key.get(&key);
        offsets.into_iter().flatten().copied()
    }

    /// The member of a claim that still has leases.
    #[must_use]
    pub fn member_of(&self, claim: u64) -> Option<&[u8]> {
        self.claims.get(&claim).map(|claim| &*claim.member)
    }

    /// Dead letters that are not written yet, by number.
    pub fn unwritten_dead_letters(&self) -> impl ExactSizeIterator<Item = (u64, &DeadLetter)> {
        self.unwritten_dead_letters
            .iter()
            .map(|(number, letter)| (*number, letter))
    }

    /// Number of records that became dead letters since the creation of the group.
    #[must_use]
    pub fn dead_lettered(&self) -> u64 {
        self.dead_lettered
    }

    /// Number of deliveries after the first one of each record, since the creation of the group.
    #[must_use]
    pub fn redeliveries(&self) -> u64 {
        self.redeliveries
    }

    /// Whether the group admits claims of new records now.
    #[must_use]
    pub fn admits_new(&self) -> bool {
        self.mode != GroupMode::Exclusive
            && self.acknowledged_above() < u64::from(self.pending_max)
            && self.entries.len() < self.pending_max as usize
    }

    pub(super) fn fold(&self, digest: Digest) -> Digest {
        digest
            .fold(self.created)
            .fold(self.cursor)
            .fold(self.frontier)
            .fold(self.entries.len() as u64)
            .fold(self.dead_lettered)
            .fold(self.owner.as_ref().map_or(0, |owner| owner.generation))
    }

    fn step(&mut self, step: &GroupStep<'_>, context: &StepContext) -> Result<(), Rejection> {
        match *step {
            GroupStep::Open(_) | GroupStep::Delete => Ok(()),
            GroupStep::Reset { offset } => {
                self.reset(offset.min(context.last));
                Ok(())
            }
            GroupStep::Join { member, takeover } => self.join(member, takeover, context),
            GroupStep::Renew { generation } => self.check_owner(generation, context).map(drop),
            GroupStep::Leave { generation } => {
                self.check_owner(generation, context)?;
                self.owner = None;
                Ok(())
            }
            GroupStep::Move { generation, offset } => {
                if generation == 0 {
                    self.check_no_owner(context)?;
                } else {
                    self.check_owner(generation, context)?;
                }
                self.cursor = self.cursor.max(offset.min(context.last));
                self.frontier = self.cursor;
                Ok(())
            }
            GroupStep::Claim {
                member,
                lease_ms,
                seen,
                through,
                offsets,
                keys,
            } => {
                if self.mode == GroupMode::Exclusive
                    || keys.is_some() != (self.mode == GroupMode::Keyed)
                {
                    return Err(Rejection::without_detail(ErrorCode::GroupMode));
                }
                if seen > self.frontier {
                    return Err(conflict(ErrorCode::Conflict, self.frontier));
                }
                let until_ms = match lease_ms {
                    0 => context.time_ms.saturating_add(self.lease_ms),
                    ms => context.time_ms.saturating_add(ms),
                };
                self.claim(member, until_ms, through, (offsets, keys), context);
                Ok(())
            }
            GroupStep::Ack { claim, offsets } => {
                self.check_leases(claim, offsets, true)?;
                for offset in offsets.iter() {
                    self.remove(offset);
                }
                self.update_cursor();
                Ok(())
            }
            GroupStep::Nack {
                claim,
                delay_ms,
                reason,
                offsets,
            } => {
                self.check_leases(claim, offsets, true)?;
                for offset in offsets.iter() {
                    self.nack_record(offset, delay_ms, reason, context);
                }
                self.update_cursor();
                Ok(())
            }
            GroupStep::Extend {
                claim,
                lease_ms,
                offsets,
            } => {
                self.check_leases(claim, offsets, false)?;
                let until_ms = context.time_ms.saturating_add(lease_ms);
                for offset in offsets.iter() {
                    self.set_state(offset, EntryState::Leased { claim, until_ms });
                }
                Ok(())
            }
            GroupStep::DeadLettersWritten { numbers } => {
                let newest = numbers.iter().last().unwrap_or(0);
                if newest > self.dead_lettered {
                    return Err(conflict(ErrorCode::Conflict, self.dead_lettered));
                }
                for number in numbers.iter() {
                    self.unwritten_dead_letters.remove(&number);
                }
                Ok(())
            }
        }
    }

    fn reset(&mut self, offset: u64) {
        self.owner = None;
        self.entries.clear();
        self.claims.clear();
        self.due.clear();
        self.by_key.clear();
        self.cursor = offset;
        self.frontier = offset;
    }

    fn join(
        &mut self,
        member: &[u8],
        takeover: bool,
        context: &StepContext,
    ) -> Result<(), Rejection> {
        if self.mode != GroupMode::Exclusive {
            return Err(Rejection::without_detail(ErrorCode::GroupMode));
        }
        if let Some(owner) = &self.owner
            && owner.until_ms > context.time_ms
            && *owner.member != *member
            && !takeover
        {
            return Err(conflict(ErrorCode::NotOwner, owner.generation));
        }
        self.owner = Some(Owner {
            generation: context.intention,
            member: member.into(),
            until_ms: context.time_ms.saturating_add(self.lease_ms),
        });
        Ok(())
    }

    /// Checks the owner of an exclusive group and renews its lease.
    fn check_owner(&mut self, generation: u64, context: &StepContext) -> Result<(), Rejection> {
        if self.mode != GroupMode::Exclusive {
            return Err(Rejection::without_detail(ErrorCode::GroupMode));
        }
        let until_ms = context.time_ms.saturating_add(self.lease_ms);
        match &mut self.owner {
            Some(owner) if owner.generation == generation => {
                owner.until_ms = owner.until_ms.max(until_ms);
                Ok(())
            }
            other => {
                let actual = other.as_ref().map_or(0, |owner| owner.generation);
                Err(conflict(ErrorCode::NotOwner, actual))
            }
        }
    }

    /// Checks that an exclusive group has no owner. Removes an owner whose lease has expired.
    fn check_no_owner(&mut self, context: &StepContext) -> Result<(), Rejection> {
        if self.mode != GroupMode::Exclusive {
            return Err(Rejection::without_detail(ErrorCode::GroupMode));
        }
        if let Some(owner) = self.owner.take_if(|owner| owner.until_ms > context.time_ms) {
            let generation = owner.generation;
            self.owner = Some(owner);
            return Err(conflict(ErrorCode::NotOwner, generation));
        }
        self.owner = None;
        Ok(())
    }

    /// Checks that the claim has leases of all these offsets. With `or_acknowledged`, acknowledged
    /// offsets pass too: the response to an earlier request may have been lost.
    fn check_leases(
        &self,
        claim: u64,
        offsets: Offsets<'_>,
        or_acknowledged: bool,
    ) -> Result<(), Rejection> {
        if self.mode == GroupMode::Exclusive {
            return Err(Rejection::without_detail(ErrorCode::GroupMode));
        }
        let is_valid = |offset: &u64| match self.entries.get(offset).map(|entry| entry.state) {
            Some(EntryState::Leased { claim: holder, .. }) => holder == claim,
            Some(EntryState::Waiting { .. }) => false,
            None => or_acknowledged && *offset <= self.frontier,
        };
        match offsets.iter().find(|offset| !is_valid(offset)) {
            Some(offset) => Err(conflict(ErrorCode::NotOwner, offset)),
            None => Ok(()),
        }
    }

    fn claim(
        &mut self,
        member: &[u8],
        until_ms: u64,
        through: u64,
        (offsets, keys): (Offsets<'_>, Option<Hashes<'_>>),
        context: &StepContext,
    ) {
        let start = self.frontier;
        let mut through = through.min(context.last).max(start);
        let paused = self.acknowledged_above() >= u64::from(self.pending_max);
        if paused {
            through = start;
        }
        // All groups together may add at most `context.entries_free` entries.
        let entries_max = self.entries.len().saturating_add(context.entries_free);
        let entries_max = entries_max.min(self.pending_max as usize);
        self.claims.insert(
            context.intention,
            Claim {
                member: member.into(),
                leases: 0,
            },
        );
        let mut gate = KeyGate::default();
        let mut hashes = keys.as_ref().map(Hashes::iter);
        for offset in offsets.iter() {
            let key = match &mut hashes {
                None => 0,
                Some(hashes) => {
                    let Some(key) = hashes.next() else {
                        unreachable!("a claim by key has one hash for each offset");
                    };
                    key
                }
            };
            if offset > start {
                if paused || self.entries.len() >= entries_max || offset > context.last {
                    through = through.min(offset - 1);
                    break;
                }
                through = through.max(offset);
                self.insert(offset, key);
            }
            let Some(entry) = self.entries.get(&offset).copied() else {
                continue; // acknowledged
            };
            if entry.state.due_ms() > context.time_ms {
                continue;
            }
            if self.attempts_max > 0
                && entry.attempts >= self.attempts_max
                && self.dead_letter(offset, "", context)
            {
                continue;
            }
            if self.admits(&mut gate, offset, entry.key, member, context.time_ms) {
                self.lease(offset, context.intention, until_ms);
            }
        }
        self.frontier = through.max(start);
        if let Slot::Occupied(claim) = self.claims.entry(context.intention)
            && claim.get().leases == 0
        {
            claim.remove();
        }
        self.update_cursor();
    }

    /// Whether the member may get a record of this key. No other member may have a record of the
    /// key, and the member must have every earlier record of the key that is not acknowledged. Must
    /// be called in ascending order of offsets.
    #[must_use]
    pub fn admits(
        &self,
        gate: &mut KeyGate,
        offset: u64,
        key: u64,
        member: &[u8],
        time_ms: u64,
    ) -> bool {
        if key == 0 {
            return true;
        }
        let (Some(all), gate) = (self.by_key.get(&key), &mut gate.0) else {
            return true;
        };
        let lease = |offset: &u64| match self.entries.get(offset)?.state {
            EntryState::Leased { claim, until_ms } if until_ms > time_ms => self.claims.get(&claim),
            _ => None,
        };
        let checked = gate.entry(key).or_insert_with(|| {
            let others = all
                .iter()
                .filter(|one| **one != offset)
                .any(|one| lease(one).is_some_and(|claim| *claim.member != *member));
            (!others).then_some(0)
        });
        let Some(from) = *checked else { return false };
        let before = all.range(from..offset).all(|one| lease(one).is_some());
        *checked = before.then_some(offset);
        before
    }

    fn insert(&mut self, offset: u64, key: u64) {
        let state = EntryState::Waiting { from_ms: 0 };
        let entry = Entry {
            attempts: 0,
            key,
            state,
        };
        self.entries.insert(offset, entry);
        self.due.insert((0, offset));
        if key != 0 {
            self.by_key.entry(key).or_default().insert(offset);
        }
    }

    fn lease(&mut self, offset: u64, claim: u64, until_ms: u64) {
        let Some(entry) = self.entries.get_mut(&offset) else {
            unreachable!("a claimed record has an entry")
        };
        entry.attempts = entry.attempts.saturating_add(1);
        self.redeliveries += u64::from(entry.attempts > 1);
        self.set_state(offset, EntryState::Leased { claim, until_ms });
    }

    /// Changes the state of an entry, and updates the data derived from it.
    fn set_state(&mut self, offset: u64, state: EntryState) {
        let Some(entry) = self.entries.get_mut(&offset) else {
            unreachable!("a record whose state changes has an entry")
        };
        let before = std::mem::replace(&mut entry.state, state);
        self.due.remove(&(before.due_ms(), offset));
        self.due.insert((state.due_ms(), offset));
        if let EntryState::Leased { claim, .. } = state
            && let Some(claim) = self.claims.get_mut(&claim)
        {
            claim.leases += 1;
        }
        self.release(before);
    }

    /// Removes a lease from the claim of this state. Removes the claim with its last lease.
    fn release(&mut self, state: EntryState) {
        if let EntryState::Leased { claim, .. } = state
            && let Slot::Occupied(mut slot) = self.claims.entry(claim)
        {
            slot.get_mut().leases -= 1;
            if slot.get().leases == 0 {
                slot.remove();
            }
        }
    }

    fn remove(&mut self, offset: u64) -> Option<Entry> {
        let entry = self.entries.remove(&offset)?;
        self.due.remove(&(entry.state.due_ms(), offset));
        if let Slot::Occupied(mut slot) = self.by_key.entry(entry.key) {
            slot.get_mut().remove(&offset);
            if slot.get().is_empty() {
                slot.remove();
            }
        }
        self.release(entry.state);
        Some(entry)
    }

    fn nack_record(&mut self, offset: u64, delay_ms: u64, reason: &str, context: &StepContext) {
        let Some(entry) = self.entries.get(&offset) else {
            return;
        };
        let is_exhausted = self.attempts_max > 0 && entry.attempts >= self.attempts_max;
        if is_exhausted && self.dead_letter(offset, reason, context) {
            return;
        }
        let from_ms = context.time_ms.saturating_add(delay_ms);
        self.set_state(offset, EntryState::Waiting { from_ms });
    }

    /// Turns a record into a dead letter if the table of dead letters is not full. Returns whether
    /// it did.
    fn dead_letter(&mut self, offset: u64, reason: &str, context: &StepContext) -> bool {
        if self.unwritten_dead_letters.len() >= GROUP_DEAD_LETTERS_MAX {
            return false;
        }
        let Some(entry) = self.remove(offset) else {
            return false;
        };
        self.dead_lettered += 1;
        let letter = DeadLetter {
            offset,
            attempts: entry.attempts,
            time_ms: context.time_ms,
            reason: reason.into(),
        };
        self.unwritten_dead_letters
            .insert(self.dead_lettered, letter);
        true
    }

    /// Sets the cursor to the offset before the first entry.
    fn update_cursor(&mut self) {
        let first = self.entries.first_key_value();
        self.cursor = first.map_or(self.frontier, |(offset, _)| offset - 1);
    }
}

/// Results of a claim of a keyed group, by key hash. `None`: the claim must skip the key. `Some`:
/// the offset up to which the records of the key were checked.
#[derive(Clone, Debug, Default)]
pub struct KeyGate(BTreeMap<u64, Option<u64>>);
