//! A member of a group: takes records, says what became of them.
//!
//! Works on a store that this process has open. What must never happen here: a
//! record that counts as done before its `ack` was answered.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_core::group::Offsets;
use weir_core::{
    ConsequenceOffset, ErrorCode, GroupMode, GroupSetup, GroupStep, Record, RecordKind,
};
use weir_store::{Ask, Delivery, GroupInfo, Page, Store, StoreError};

use crate::error::WeirError;
use crate::place::Place;
use crate::topic::Topic;
use crate::value::Value;
use crate::verdict::Verdict;

/// How long to wait at most before looking again while somebody else may give
/// something back.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Records that the iterator claims together.
const ITER_RECORDS: usize = 100;

/// A member of a group. Two members have two names; a member that comes back
/// under its name is the same one.
#[derive(Debug)]
pub struct Group {
    store: Arc<Store>,
    topic: String,
    name: String,
    mode: GroupMode,
    member: Vec<u8>,
    /// Keyed and shared: of a claim; 0: the group's own.
    lease_ms: u64,
    /// Exclusive: the ownership; 0 without.
    generation: u64,
    /// Exclusive: the last record that was looked at.
    after: ConsequenceOffset,
    /// Exclusive: the last one that was handed out, and the last one that is
    /// done.
    handed: ConsequenceOffset,
    done: ConsequenceOffset,
}

/// A record that the member has.
#[derive(Clone, Debug)]
pub struct Work {
    value: Value,
    claim: u64,
    attempts: u32,
}

impl Work {
    /// The record.
    #[must_use]
    pub fn record(&self) -> Record<'_> {
        self.value.record()
    }

    /// How often it was delivered, this time included; 1 in an exclusive
    /// group.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// What it was claimed with.
    #[must_use]
    pub fn claim(&self) -> u64 {
        self.claim
    }
}

impl Topic {
    /// The group of this name, made from the first record on if it is not
    /// there. The topic must live then.
    ///
    /// # Errors
    /// `Group` when the group has another mode, or cannot be made; `Far` with
    /// `Unsupported` for a store behind a server.
    pub fn group(&self, name: &str, mode: GroupMode) -> Result<Group, WeirError> {
        self.group_with(name, &GroupSetup::new(mode))
    }

    /// The same, made like this.
    ///
    /// # Errors
    /// As for [`group`](Self::group).
    pub fn group_with(&self, name: &str, setup: &GroupSetup<'_>) -> Result<Group, WeirError> {
        let store = match self.place() {
            Place::Near(store) => Arc::clone(store),
            Place::Far(_) => {
                return Err(WeirError::Store(StoreError::Far {
                    code: ErrorCode::Unsupported,
                    text: "groups of a store behind a server are not there yet".to_owned(),
                }));
            }
        };
        let topic = self.name().as_str().to_owned();
        if store.group(&topic, name).is_none() {
            let opened = store.group_step(&topic, name, GroupStep::Open(*setup))?;
            // Somebody else may have been faster.
            if let Some(code) = opened.reason.filter(|code| *code != ErrorCode::GroupExists) {
                return Err(WeirError::Group { code });
            }
        }
        let info = store.group(&topic, name).ok_or(WeirError::Group {
            code: ErrorCode::GroupUnknown,
        })?;
        if info.mode != setup.mode {
            return Err(WeirError::Group {
                code: ErrorCode::GroupMode,
            });
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = since.map_or(0, |since| since.as_nanos());
        Ok(Group {
            store,
            topic,
            name: name.to_owned(),
            mode: info.mode,
            member: format!("{}-{nanos:x}", std::process::id()).into_bytes(),
            lease_ms: 0,
            generation: 0,
            after: ConsequenceOffset::ZERO,
            handed: ConsequenceOffset::ZERO,
            done: ConsequenceOffset::ZERO,
        })
    }
}

impl Group {
    /// The same under this name, 1 to 64 bytes. Without it the name is made of
    /// the process and the time.
    #[must_use]
    pub fn member(mut self, name: impl AsRef<[u8]>) -> Self {
        self.member = name.as_ref().to_vec();
        self.generation = 0;
        self
    }

    /// The same with another lease for what it claims from a keyed or shared
    /// group; `None`: that of the group.
    #[must_use]
    pub fn lease(mut self, lease: Option<Duration>) -> Self {
        self.lease_ms = lease.map_or(0, |lease| millis(lease).max(1));
        self
    }

    /// The group as it is now.
    ///
    /// # Errors
    /// `GroupUnknown` when it was deleted.
    pub fn info(&self) -> Result<GroupInfo, WeirError> {
        let found = self.store.group(&self.topic, &self.name);
        found.ok_or_else(|| {
            WeirError::Store(StoreError::GroupUnknown {
                topic: self.topic.clone(),
                group: self.name.clone(),
            })
        })
    }

    /// Everything up to here is done.
    ///
    /// # Errors
    /// As for [`info`](Self::info).
    pub fn cursor(&self) -> Result<ConsequenceOffset, WeirError> {
        Ok(self.info()?.cursor)
    }

    /// Offsets that are not done.
    ///
    /// # Errors
    /// As for [`info`](Self::info).
    pub fn lag(&self) -> Result<u64, WeirError> {
        Ok(self.info()?.lag)
    }

    fn step(&self, step: GroupStep<'_>) -> Result<Verdict, WeirError> {
        let commit = self.store.group_step(&self.topic, &self.name, step)?;
        Ok(Verdict::of(commit))
    }

    /// Takes up to `max` records, waiting up to `wait` for the first one. In an
    /// exclusive group the member becomes the owner first, as soon as nobody
    /// else is.
    ///
    /// # Errors
    /// `Group` when the group is not what it was; those of reading.
    pub fn claim(&mut self, max: usize, wait: Duration) -> Result<Vec<Work>, WeirError> {
        let deadline = Instant::now().checked_add(wait);
        loop {
            let (found, behind, due) = match self.mode {
                GroupMode::Exclusive => self.read(max)?,
                _ => self.ask(max)?,
            };
            let now = Instant::now();
            if !found.is_empty() || deadline.is_some_and(|deadline| deadline <= now) {
                return Ok(found);
            }
            let soon = now.checked_add(due.unwrap_or(LOOK_EVERY).min(LOOK_EVERY));
            let until = [deadline, soon].into_iter().flatten().min();
            // Whether there is one is found out by asking again.
            let _ = self.store.listen(&self.topic, behind).wait(until);
        }
    }

    /// Takes over an exclusive group from whoever owns it.
    ///
    /// # Errors
    /// `Group`; those of writing.
    pub fn take_over(&mut self) -> Result<(), WeirError> {
        self.join(true).map(drop)
    }

    fn join(&mut self, takeover: bool) -> Result<bool, WeirError> {
        let member = &self.member;
        let verdict = self.step(GroupStep::Join { member, takeover })?;
        match verdict.reason() {
            None => {
                self.generation = verdict.intention().0;
                self.after = self.cursor()?;
                (self.handed, self.done) = (self.after, self.after);
                Ok(true)
            }
            Some(ErrorCode::NotOwner) => Ok(false),
            Some(code) => Err(WeirError::Group { code }),
        }
    }

    fn read(&mut self, max: usize) -> Result<Found, WeirError> {
        if self.generation == 0 && !self.join(false)? {
            let info = self.info()?;
            let until = info.owner.map_or(0, |owner| owner.until_ms);
            return Ok((Vec::new(), info.last, Some(left(until))));
        }
        let reader = self.store.read(&self.topic, self.after)?;
        let mut reader = reader.or_earliest();
        let mut found = Vec::new();
        while found.len() < max
            && let Some(page) = reader.next_page()?
        {
            for record in &page {
                let record = record?;
                if found.len() >= max {
                    break;
                }
                self.after = record.offset;
                if !matches!(record.kind, RecordKind::Put | RecordKind::Delete) {
                    continue;
                }
                self.handed = record.offset;
                if let Some(value) = Value::new(page.starting(record.offset))? {
                    found.push(Work {
                        value,
                        claim: self.generation,
                        attempts: 1,
                    });
                }
            }
        }
        if found.is_empty() && self.handed <= self.done && self.after > self.done {
            // Nothing behind what is done but records that groups pass.
            self.done = self.after;
            let generation = self.generation;
            self.store
                .move_cursor(&self.topic, &self.name, generation, self.after)?;
        }
        Ok((found, self.after, None))
    }

    fn ask(&self, max: usize) -> Result<Found, WeirError> {
        let ask = Ask {
            member: &self.member,
            max,
            lease_ms: self.lease_ms,
        };
        let claimed = self.store.claim(&self.topic, &self.name, &ask)?;
        let reason = claimed.commit.and_then(|commit| commit.reason);
        if let Some(code) = reason.filter(|code| *code != ErrorCode::Conflict) {
            return Err(WeirError::Group { code });
        }
        let works = claimed.deliveries.into_iter().map(work);
        let found = works.collect::<Result<Vec<_>, _>>()?;
        Ok((found, claimed.frontier, claimed.due_ms.map(left)))
    }

    /// These are done, for good when this returns. Returns the offsets of those
    /// that are with somebody else by now. In an exclusive group everything up
    /// to the last of them is done.
    ///
    /// # Errors
    /// Those of writing; a verdict for another reason.
    pub fn ack(&mut self, works: &[Work]) -> Result<Vec<ConsequenceOffset>, WeirError> {
        if self.mode == GroupMode::Exclusive {
            return self.move_to(works);
        }
        self.each(works, Word::Ack)
    }

    /// The same for an exclusive group, without waiting: written soon, together
    /// with what follows, or by a close. A crash can bring them again.
    ///
    /// # Errors
    /// `Group` with `GroupMode` in the other modes.
    pub fn ack_soon(&mut self, works: &[Work]) -> Result<(), WeirError> {
        if self.mode != GroupMode::Exclusive {
            let code = ErrorCode::GroupMode;
            return Err(WeirError::Group { code });
        }
        let Some(last) = works.iter().max_by_key(|work| work.record().offset) else {
            return Ok(());
        };
        let (offset, generation) = (last.record().offset, last.claim);
        self.done = self.done.max(offset);
        Ok(self
            .store
            .move_cursor(&self.topic, &self.name, generation, offset)?)
    }

    fn move_to(&mut self, works: &[Work]) -> Result<Vec<ConsequenceOffset>, WeirError> {
        let Some(last) = works.iter().max_by_key(|work| work.record().offset) else {
            return Ok(Vec::new());
        };
        let offset = last.record().offset;
        let moved = self
            .store
            .move_cursor_now(&self.topic, &self.name, last.claim, offset)?;
        match moved.reason {
            None => {
                self.done = self.done.max(offset);
                Ok(Vec::new())
            }
            Some(ErrorCode::NotOwner) => {
                self.generation = 0;
                Ok(works.iter().map(|work| work.record().offset).collect())
            }
            Some(code) => Err(WeirError::Group { code }),
        }
    }

    /// These are given back: they may be claimed again after `delay`. In an
    /// exclusive group the member reads again from the first of them. Returns
    /// the offsets of those that are with somebody else by now.
    ///
    /// # Errors
    /// As for [`ack`](Self::ack).
    pub fn nack(
        &mut self,
        works: &[Work],
        delay: Duration,
        reason: &str,
    ) -> Result<Vec<ConsequenceOffset>, WeirError> {
        if self.mode == GroupMode::Exclusive {
            let first = works.iter().map(|work| work.record().offset).min();
            if let Some(first) = first {
                self.after = ConsequenceOffset(self.after.0.min(first.0.saturating_sub(1)));
            }
            return Ok(Vec::new());
        }
        let delay_ms = millis(delay);
        self.each(works, Word::Nack { delay_ms, reason })
    }

    /// The member is still at them: their leases end so long from now. In an
    /// exclusive group its ownership is renewed. Returns the offsets of those
    /// that it has not any more.
    ///
    /// # Errors
    /// As for [`ack`](Self::ack).
    pub fn extend(
        &mut self,
        works: &[Work],
        lease: Duration,
    ) -> Result<Vec<ConsequenceOffset>, WeirError> {
        if self.mode == GroupMode::Exclusive {
            let generation = self.generation;
            let verdict = self.step(GroupStep::Renew { generation })?;
            return Ok(match verdict.reason() {
                None => Vec::new(),
                Some(_) => works.iter().map(|work| work.record().offset).collect(),
            });
        }
        let lease_ms = millis(lease).max(1);
        self.each(works, Word::Extend { lease_ms })
    }

    /// Does a step for all of a claim together, and one by one where somebody
    /// else has some of them.
    fn each(&self, works: &[Work], word: Word<'_>) -> Result<Vec<ConsequenceOffset>, WeirError> {
        let mut all: Vec<(u64, u64)> = works
            .iter()
            .map(|work| (work.claim, work.record().offset.0))
            .collect();
        all.sort_unstable();
        all.dedup();
        let mut lost = Vec::new();
        for of_claim in all.chunk_by(|a, b| a.0 == b.0) {
            for part in of_claim.chunks(weir_core::limits::GROUP_LIST_MAX) {
                let Some((claim, _)) = part.first() else {
                    continue;
                };
                let offsets: Vec<u64> = part.iter().map(|(_, offset)| *offset).collect();
                if self.done(word.step(*claim, Offsets::Plain(&offsets)))? {
                    continue;
                }
                for offset in offsets {
                    if !self.done(word.step(*claim, Offsets::Plain(&[offset])))? {
                        lost.push(ConsequenceOffset(offset));
                    }
                }
            }
        }
        Ok(lost)
    }

    fn done(&self, step: GroupStep<'_>) -> Result<bool, WeirError> {
        match self.step(step)?.reason() {
            None => Ok(true),
            Some(ErrorCode::NotOwner) => Ok(false),
            Some(code) => Err(WeirError::Group { code }),
        }
    }

    /// Puts the group anywhere: everything up to `offset` counts as done.
    /// Whoever has something loses it.
    ///
    /// # Errors
    /// Those of writing.
    pub fn reset(&mut self, offset: ConsequenceOffset) -> Result<Verdict, WeirError> {
        self.generation = 0;
        self.step(GroupStep::Reset { offset: offset.0 })
    }

    /// Ends the group; its position is forgotten.
    ///
    /// # Errors
    /// Those of writing.
    pub fn delete(self) -> Result<Verdict, WeirError> {
        self.step(GroupStep::Delete)
    }

    /// Gives up the ownership of an exclusive group, so that another member
    /// need not wait.
    ///
    /// # Errors
    /// Those of writing.
    pub fn leave(&mut self) -> Result<(), WeirError> {
        let generation = std::mem::take(&mut self.generation);
        if generation != 0 {
            // What waits to be written is the owner's to write.
            self.store.flush_cursors();
            self.step(GroupStep::Leave { generation })?;
        }
        Ok(())
    }

    /// One record after the other, until none came for `patience`. What was
    /// handed out and is not acknowledged stays with the member.
    pub fn works(&mut self, patience: Duration) -> Works<'_> {
        Works {
            group: self,
            patience,
            ready: Vec::new().into_iter(),
        }
    }
}

/// Records, the offset behind which to wait, and when one is due.
type Found = (Vec<Work>, ConsequenceOffset, Option<Duration>);

/// See [`Group::works`].
#[derive(Debug)]
pub struct Works<'a> {
    group: &'a mut Group,
    patience: Duration,
    ready: std::vec::IntoIter<Work>,
}

impl Works<'_> {
    /// The group, to say what became of a record.
    pub fn group(&mut self) -> &mut Group {
        self.group
    }
}

impl Iterator for Works<'_> {
    type Item = Result<Work, WeirError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(work) = self.ready.next() {
            return Some(Ok(work));
        }
        match self.group.claim(ITER_RECORDS, self.patience) {
            Ok(works) => self.ready = works.into_iter(),
            Err(error) => return Some(Err(error)),
        }
        self.ready.next().map(Ok)
    }
}

/// What a member says about records.
#[derive(Clone, Copy)]
enum Word<'a> {
    Ack,
    Nack { delay_ms: u64, reason: &'a str },
    Extend { lease_ms: u64 },
}

impl<'a> Word<'a> {
    fn step(self, claim: u64, offsets: Offsets<'a>) -> GroupStep<'a> {
        match self {
            Self::Ack => GroupStep::Ack { claim, offsets },
            Self::Nack { delay_ms, reason } => GroupStep::Nack {
                claim,
                delay_ms,
                reason,
                offsets,
            },
            Self::Extend { lease_ms } => GroupStep::Extend {
                claim,
                lease_ms,
                offsets,
            },
        }
    }
}

fn work(delivery: Delivery) -> Result<Work, WeirError> {
    let missing = || WeirError::Store(StoreError::Closed);
    let page: Page = delivery.page;
    Ok(Work {
        value: Value::new(page)?.ok_or_else(missing)?,
        claim: delivery.claim,
        attempts: delivery.attempts,
    })
}

fn millis(time: Duration) -> u64 {
    let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    ms.min(weir_core::limits::GROUP_LEASE_MS_MAX)
}

/// Time until then.
fn left(until_ms: u64) -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    });
    Duration::from_millis(until_ms.saturating_sub(now).max(1))
}
