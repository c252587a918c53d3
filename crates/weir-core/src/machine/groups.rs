//! Groups as part of the machine: who has which record until when.
//!
//! Between the cursor and the frontier everything is done but what is listed,
//! so the list is the set of acknowledged offsets, turned round: its length is
//! bounded by what members hold. The only clock is the stamp of the batch. A
//! claim names what it would like to have; what it gets is decided here, so
//! two claims never have one record at a time.

pub(super) mod saved;

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry as Slot};

use super::{Emitted, Machine, Stamp};
use crate::digest::Digest;
use crate::effect::Detail;
use crate::effect::Rejection;
use crate::error_code::ErrorCode;
use crate::group::{GroupMode, GroupName, GroupSetup, GroupStep, Hashes, Offsets};
use crate::ids::{ConsequenceOffset, TopicId};
use crate::limits::{GROUP_LETTERS_MAX, GROUPS_MAX, GROUPS_PENDING_MAX};

/// The groups of one topic.
pub(crate) type Groups = BTreeMap<GroupName, Group>;

/// A group, as it is after the newest intention.
#[derive(Clone, Debug)]
pub struct Group {
    mode: GroupMode,
    lease_ms: u64,
    attempts_max: u32,
    pending_max: u32,
    dead_letters: Box<str>,
    /// Intention that made it.
    created: u64,
    cursor: u64,
    frontier: u64,
    owner: Option<Owner>,
    entries: BTreeMap<u64, Entry>,
    claims: BTreeMap<u64, Claim>,
    letters: BTreeMap<u64, Letter>,
    deaths: u64,
    redeliveries: u64,
    /// When each entry may be claimed, and its offset. Derived.
    due: BTreeSet<(u64, u64)>,
    /// Offsets of the entries of each key. Derived; empty but in keyed groups.
    by_key: BTreeMap<u64, BTreeSet<u64>>,
}

/// Who reads an exclusive group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Intention offset of the JOIN.
    pub generation: u64,
    /// Name the member gave.
    pub member: Box<[u8]>,
    /// Log time at which somebody else may join.
    pub until_ms: u64,
}

/// A record that is neither done nor new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// How often it was delivered.
    pub attempts: u32,
    /// Hash of its key in a keyed group, 0 for none.
    pub key: u64,
    /// Where it is.
    pub place: EntryState,
}

/// Where a record is that was seen and is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// With nobody; may be claimed from this log time on.
    Waiting {
        /// Milliseconds since 1970-01-01 UTC.
        from_ms: u64,
    },
    /// With a member.
    Leased {
        /// The claim.
        claim: u64,
        /// Log time at which others may claim it.
        until_ms: u64,
    },
}

impl EntryState {
    /// Log time from which it may be claimed.
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
    /// Leases that it still has.
    leases: u32,
}

/// A record that was delivered too often, until its letter is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Offset of the record.
    pub offset: u64,
    /// How often it was delivered.
    pub attempts: u32,
    /// Log time at which it was given up.
    pub time_ms: u64,
    /// What the last member said; empty: its lease ran out.
    pub reason: Box<str>,
}

/// When a step happens.
#[derive(Clone, Copy, Debug)]
struct Moment {
    intention: u64,
    time_ms: u64,
    /// Newest record of the topic.
    last: u64,
    /// New entries that all groups together may take.
    room: usize,
}

impl Machine {
    /// A group; `None` when the topic or the group is not there.
    #[must_use]
    pub fn group(&self, topic: &str, group: &str) -> Option<&Group> {
        let id = *self.by_name.get(topic)?;
        self.topics.get(id.index())?.groups.get(group)
    }

    /// The groups of a topic, by name.
    pub fn groups(&self, id: TopicId) -> impl Iterator<Item = (&GroupName, &Group)> {
        let topic = self.topics.get(id.index());
        topic.into_iter().flat_map(|topic| &topic.groups)
    }

    /// Everything up to here was passed by all groups that the topic's options
    /// wait for; `None` when they wait for none.
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
    ) -> Result<Emitted, Rejection> {
        let room = GROUPS_PENDING_MAX.saturating_sub(self.pending);
        let known = topic.and_then(|id| self.topics.get_mut(id.index()));
        let topic = known.ok_or(Rejection::bare(ErrorCode::TopicAbsent))?;
        let moment = Moment {
            intention: stamp.intention.0,
            time_ms: stamp.time_ms,
            last: topic.last.0,
            room,
        };
        let done = Ok((ConsequenceOffset::ZERO, 0));
        let name = GroupName::new(group).ok_or(Rejection::bare(ErrorCode::GroupAbsent))?;
        let count = topic.groups.len();
        match (topic.groups.entry(name), step) {
            (Slot::Occupied(_), GroupStep::Open(_)) => Err(Rejection::bare(ErrorCode::GroupExists)),
            (Slot::Vacant(slot), GroupStep::Open(setup)) => {
                if topic.live.is_none() {
                    return Err(Rejection::bare(ErrorCode::TopicAbsent));
                }
                if count >= GROUPS_MAX {
                    return Err(Rejection::limit(ErrorCode::Quota, GROUPS_MAX as u64));
                }
                slot.insert(Group::new(setup, &moment));
                done
            }
            (Slot::Vacant(_), _) => Err(Rejection::bare(ErrorCode::GroupAbsent)),
            (Slot::Occupied(slot), GroupStep::Delete) => {
                self.pending -= slot.remove().entries.len();
                done
            }
            (Slot::Occupied(mut slot), step) => {
                let group = slot.get_mut();
                let before = group.entries.len();
                let changed = group.step(step, &moment);
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
    fn new(setup: &GroupSetup<'_>, moment: &Moment) -> Self {
        let start = setup.start.min(moment.last);
        Self {
            mode: setup.mode,
            lease_ms: setup.lease_ms,
            attempts_max: setup.attempts_max,
            pending_max: setup.pending_max,
            dead_letters: setup.dead_letters.into(),
            created: moment.intention,
            cursor: start,
            frontier: start,
            owner: None,
            entries: BTreeMap::new(),
            claims: BTreeMap::new(),
            letters: BTreeMap::new(),
            deaths: 0,
            redeliveries: 0,
            due: BTreeSet::new(),
            by_key: BTreeMap::new(),
        }
    }

    /// How its members share the topic.
    #[must_use]
    pub fn mode(&self) -> GroupMode {
        self.mode
    }

    /// How it was made; `start` is where it is now.
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

    /// Intention that made it.
    #[must_use]
    pub fn created(&self) -> u64 {
        self.created
    }

    /// Everything up to here is done.
    #[must_use]
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Everything after here is new.
    #[must_use]
    pub fn frontier(&self) -> u64 {
        self.frontier
    }

    /// Everything up to here is done, and no dead letter needs it any more.
    #[must_use]
    pub fn passed(&self) -> u64 {
        let letters = self.letters.values().map(|letter| letter.offset - 1);
        letters.fold(self.cursor, u64::min)
    }

    /// Offsets above the cursor that are done.
    #[must_use]
    pub fn done_above(&self) -> u64 {
        (self.frontier - self.cursor).saturating_sub(self.entries.len() as u64)
    }

    /// Who reads an exclusive group.
    #[must_use]
    pub fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    /// What is neither done nor new, by offset.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (u64, &Entry)> {
        self.entries.iter().map(|(offset, entry)| (*offset, entry))
    }

    /// One of these.
    #[must_use]
    pub fn entry(&self, offset: u64) -> Option<&Entry> {
        self.entries.get(&offset)
    }

    /// When entries may be claimed, earliest first, with their offsets.
    pub fn due(&self) -> impl Iterator<Item = (u64, u64)> {
        self.due.iter().copied()
    }

    /// Claims that still have leases: number, member, leases.
    pub fn claims(&self) -> impl Iterator<Item = (u64, &[u8], u32)> {
        let claims = self.claims.iter();
        claims.map(|(id, claim)| (*id, &*claim.member, claim.leases))
    }

    /// Offsets of the entries of a key, by its hash, in a keyed group.
    pub fn of_key(&self, key: u64) -> impl Iterator<Item = u64> {
        let offsets = self.by_key.get(&key);
        offsets.into_iter().flatten().copied()
    }

    /// Who made a claim that still has leases.
    #[must_use]
    pub fn member_of(&self, claim: u64) -> Option<&[u8]> {
        self.claims.get(&claim).map(|claim| &*claim.member)
    }

    /// Dead letters that are not written yet, by number.
    pub fn letters(&self) -> impl ExactSizeIterator<Item = (u64, &Letter)> {
        self.letters
            .iter()
            .map(|(number, letter)| (*number, letter))
    }

    /// Records that were given up since it was made.
    #[must_use]
    pub fn deaths(&self) -> u64 {
        self.deaths
    }

    /// Deliveries beyond the first of a record, since it was made.
    #[must_use]
    pub fn redeliveries(&self) -> u64 {
        self.redeliveries
    }

    /// Whether new records may be claimed, for now.
    #[must_use]
    pub fn takes_new(&self) -> bool {
        self.mode != GroupMode::Exclusive
            && self.done_above() < u64::from(self.pending_max)
            && self.entries.len() < self.pending_max as usize
    }

    pub(super) fn fold(&self, digest: Digest) -> Digest {
        digest
            .fold(self.created)
            .fold(self.cursor)
            .fold(self.frontier)
            .fold(self.entries.len() as u64)
            .fold(self.deaths)
            .fold(self.owner.as_ref().map_or(0, |owner| owner.generation))
    }

    fn step(&mut self, step: &GroupStep<'_>, moment: &Moment) -> Result<(), Rejection> {
        match *step {
            GroupStep::Open(_) | GroupStep::Delete => Ok(()),
            GroupStep::Reset { offset } => {
                self.reset(offset.min(moment.last));
                Ok(())
            }
            GroupStep::Join { member, takeover } => self.join(member, takeover, moment),
            GroupStep::Renew { generation } => self.owned(generation, moment).map(drop),
            GroupStep::Leave { generation } => {
                self.owned(generation, moment)?;
                self.owner = None;
                Ok(())
            }
            GroupStep::Move { generation, offset } => {
                if generation == 0 {
                    self.unowned(moment)?;
                } else {
                    self.owned(generation, moment)?;
                }
                self.cursor = self.cursor.max(offset.min(moment.last));
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
                    return Err(Rejection::bare(ErrorCode::GroupMode));
                }
                if seen > self.frontier {
                    return Err(conflict(ErrorCode::Conflict, self.frontier));
                }
                let until_ms = match lease_ms {
                    0 => moment.time_ms.saturating_add(self.lease_ms),
                    ms => moment.time_ms.saturating_add(ms),
                };
                self.claim(member, until_ms, through, (offsets, keys), moment);
                Ok(())
            }
            GroupStep::Ack { claim, offsets } => {
                self.all_leased(claim, offsets, true)?;
                for offset in offsets.iter() {
                    self.remove(offset);
                }
                self.settle();
                Ok(())
            }
            GroupStep::Nack {
                claim,
                delay_ms,
                reason,
                offsets,
            } => {
                self.all_leased(claim, offsets, true)?;
                for offset in offsets.iter() {
                    self.give_back(offset, delay_ms, reason, moment);
                }
                self.settle();
                Ok(())
            }
            GroupStep::Extend {
                claim,
                lease_ms,
                offsets,
            } => {
                self.all_leased(claim, offsets, false)?;
                let until_ms = moment.time_ms.saturating_add(lease_ms);
                for offset in offsets.iter() {
                    self.put_at(offset, EntryState::Leased { claim, until_ms });
                }
                Ok(())
            }
            GroupStep::Buried { letters } => {
                let newest = letters.iter().last().unwrap_or(0);
                if newest > self.deaths {
                    return Err(conflict(ErrorCode::Conflict, self.deaths));
                }
                for number in letters.iter() {
                    self.letters.remove(&number);
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

    fn join(&mut self, member: &[u8], takeover: bool, moment: &Moment) -> Result<(), Rejection> {
        if self.mode != GroupMode::Exclusive {
            return Err(Rejection::bare(ErrorCode::GroupMode));
        }
        if let Some(owner) = &self.owner
            && owner.until_ms > moment.time_ms
            && *owner.member != *member
            && !takeover
        {
            return Err(conflict(ErrorCode::NotOwner, owner.generation));
        }
        self.owner = Some(Owner {
            generation: moment.intention,
            member: member.into(),
            until_ms: moment.time_ms.saturating_add(self.lease_ms),
        });
        Ok(())
    }

    /// The owner says something, so it is there.
    fn owned(&mut self, generation: u64, moment: &Moment) -> Result<(), Rejection> {
        if self.mode != GroupMode::Exclusive {
            return Err(Rejection::bare(ErrorCode::GroupMode));
        }
        let until_ms = moment.time_ms.saturating_add(self.lease_ms);
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

    /// Somebody acts without owning; an owner whose time is over is one no
    /// more.
    fn unowned(&mut self, moment: &Moment) -> Result<(), Rejection> {
        if self.mode != GroupMode::Exclusive {
            return Err(Rejection::bare(ErrorCode::GroupMode));
        }
        if let Some(owner) = self.owner.take_if(|owner| owner.until_ms > moment.time_ms) {
            let generation = owner.generation;
            self.owner = Some(owner);
            return Err(conflict(ErrorCode::NotOwner, generation));
        }
        self.owner = None;
        Ok(())
    }

    /// Whether all these are with the claim; if `done` counts, also those that
    /// are done: an answer may have been lost.
    fn all_leased(&self, claim: u64, offsets: Offsets<'_>, done: bool) -> Result<(), Rejection> {
        if self.mode == GroupMode::Exclusive {
            return Err(Rejection::bare(ErrorCode::GroupMode));
        }
        let fine = |offset: &u64| match self.entries.get(offset).map(|entry| entry.place) {
            Some(EntryState::Leased { claim: holder, .. }) => holder == claim,
            Some(EntryState::Waiting { .. }) => false,
            None => done && *offset <= self.frontier,
        };
        match offsets.iter().find(|offset| !fine(offset)) {
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
        moment: &Moment,
    ) {
        let start = self.frontier;
        let mut through = through.min(moment.last).max(start);
        let paused = self.done_above() >= u64::from(self.pending_max);
        if paused {
            through = start;
        }
        // Of all groups together, so many more may be listed.
        let full = self.entries.len().saturating_add(moment.room);
        let full = full.min(self.pending_max as usize);
        self.claims.insert(
            moment.intention,
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
                if paused || self.entries.len() >= full || offset > moment.last {
                    through = through.min(offset - 1);
                    break;
                }
                through = through.max(offset);
                self.insert(offset, key);
            }
            let Some(entry) = self.entries.get(&offset).copied() else {
                continue; // done
            };
            if entry.place.due_ms() > moment.time_ms {
                continue;
            }
            if self.attempts_max > 0
                && entry.attempts >= self.attempts_max
                && self.bury(offset, "", moment)
            {
                continue;
            }
            if self.admits(&mut gate, offset, entry.key, member, moment.time_ms) {
                self.lease(offset, moment.intention, until_ms);
            }
        }
        self.frontier = through.max(start);
        if let Slot::Occupied(claim) = self.claims.entry(moment.intention)
            && claim.get().leases == 0
        {
            claim.remove();
        }
        self.settle();
    }

    /// Whether a record of this key may go to the member: nobody else has one
    /// of the key, and everything before it is with the member or done. Asked
    /// in ascending order of offsets.
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
        let lease = |offset: &u64| match self.entries.get(offset)?.place {
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
        let place = EntryState::Waiting { from_ms: 0 };
        let entry = Entry {
            attempts: 0,
            key,
            place,
        };
        self.entries.insert(offset, entry);
        self.due.insert((0, offset));
        if key != 0 {
            self.by_key.entry(key).or_default().insert(offset);
        }
    }

    fn lease(&mut self, offset: u64, claim: u64, until_ms: u64) {
        let Some(entry) = self.entries.get_mut(&offset) else {
            return;
        };
        entry.attempts = entry.attempts.saturating_add(1);
        self.redeliveries += u64::from(entry.attempts > 1);
        self.put_at(offset, EntryState::Leased { claim, until_ms });
    }

    /// Moves an entry, and keeps what is derived from its place.
    fn put_at(&mut self, offset: u64, place: EntryState) {
        let Some(entry) = self.entries.get_mut(&offset) else {
            return;
        };
        let before = std::mem::replace(&mut entry.place, place);
        self.due.remove(&(before.due_ms(), offset));
        self.due.insert((place.due_ms(), offset));
        if let EntryState::Leased { claim, .. } = place
            && let Some(claim) = self.claims.get_mut(&claim)
        {
            claim.leases += 1;
        }
        self.release(before);
    }

    /// One lease less for the claim that had this place.
    fn release(&mut self, place: EntryState) {
        if let EntryState::Leased { claim, .. } = place
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
        self.due.remove(&(entry.place.due_ms(), offset));
        if let Slot::Occupied(mut slot) = self.by_key.entry(entry.key) {
            slot.get_mut().remove(&offset);
            if slot.get().is_empty() {
                slot.remove();
            }
        }
        self.release(entry.place);
        Some(entry)
    }

    fn give_back(&mut self, offset: u64, delay_ms: u64, reason: &str, moment: &Moment) {
        let Some(entry) = self.entries.get(&offset) else {
            return;
        };
        let spent = self.attempts_max > 0 && entry.attempts >= self.attempts_max;
        if spent && self.bury(offset, reason, moment) {
            return;
        }
        let from_ms = moment.time_ms.saturating_add(delay_ms);
        self.put_at(offset, EntryState::Waiting { from_ms });
    }

    /// Gives a record up, if there is room for its letter.
    fn bury(&mut self, offset: u64, reason: &str, moment: &Moment) -> bool {
        if self.letters.len() >= GROUP_LETTERS_MAX {
            return false;
        }
        let Some(entry) = self.remove(offset) else {
            return false;
        };
        self.deaths += 1;
        let letter = Letter {
            offset,
            attempts: entry.attempts,
            time_ms: moment.time_ms,
            reason: reason.into(),
        };
        self.letters.insert(self.deaths, letter);
        true
    }

    /// The cursor is where the first record begins that is not done.
    fn settle(&mut self) {
        let first = self.entries.first_key_value();
        self.cursor = first.map_or(self.frontier, |(offset, _)| offset - 1);
    }
}

/// What a claim of a keyed group has found out about keys so far: none when
/// the key is with somebody else, else up to where its records were looked at.
#[derive(Clone, Debug, Default)]
pub struct KeyGate(BTreeMap<u64, Option<u64>>);
