//! A member of a group: claims records and acknowledges, rejects or extends them.
//!
//! Invariant: no record counts as acknowledged before the store has acknowledged its `ack`.

mod work;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_core::group::Offsets;
use weir_core::intention::IntentionError;
use weir_core::{ConsequenceOffset, ErrorCode, GroupMode, GroupSetup, GroupStep, RecordKind};
use weir_store::{ClaimRequest, GroupInfo, Page, ReadFrom, StoreError};

pub use self::work::{Settle, Works};
use crate::work::{Claim, POLL_INTERVAL, Work, sleep, time_until};

use self::work::GroupOutcome;
use crate::backend::{Backend, TopicReader};
use crate::error::WeirError;
use crate::topic::Topic;
use crate::verdict::Verdict;

/// Records that the iterator claims at a time.
const ITER_RECORDS: usize = 100;

/// A member of a group. Each member needs its own name. A process that reconnects under the same
/// name continues as the same member.
#[derive(Debug)]
pub struct Group {
    backend: Backend,
    topic: String,
    name: String,
    mode: GroupMode,
    member: Vec<u8>,
    /// Keyed and shared groups: the lease of a claim, in milliseconds; 0: the lease of the group.
    lease_ms: u64,
    /// Exclusive groups: the generation of the ownership; 0 if this member is not the owner.
    generation: u64,
    /// Exclusive groups: the last record that was read.
    after: ConsequenceOffset,
    /// Exclusive groups: a reader that continues after `after`, and a page of which a part was not
    /// returned yet.
    reader: Option<(TopicReader, Option<Page>)>,
    /// Exclusive groups: the last record that was returned, and the last one that was
    /// acknowledged.
    returned: ConsequenceOffset,
    acknowledged: ConsequenceOffset,
}

impl Topic {
    /// Returns the group of this name. If it does not exist, creates it at the first record of the
    /// topic; this fails if the topic does not exist.
    ///
    /// # Errors
    /// `GroupModeDiffers` when the group has another mode; `GroupTopicAbsent`, `GroupSetup` or `Group`
    /// when it cannot be created.
    pub fn group(&self, name: &str, mode: GroupMode) -> Result<Group, WeirError> {
        self.group_with(name, &GroupSetup::new(mode))
    }

    /// Returns the group of this name. Creates it with `setup` if it does not exist.
    ///
    /// # Errors
    /// As for [`group`](Self::group).
    pub fn group_with(&self, name: &str, setup: &GroupSetup<'_>) -> Result<Group, WeirError> {
        let backend = self.backend().clone();
        let topic = self.name().as_str().to_owned();
        let existing = backend.group(&topic, name)?;
        let info = if let Some(info) = existing {
            info
        } else {
            let opened = backend.group_step(&topic, name, GroupStep::Open(*setup));
            match opened.map_err(setup_error)?.reason {
                // Another client may have created the group first.
                None | Some(ErrorCode::GroupExists) => {}
                Some(ErrorCode::TopicAbsent) => return Err(WeirError::GroupTopicAbsent { topic }),
                Some(code) => return Err(WeirError::Group { code }),
            }
            let code = ErrorCode::GroupUnknown;
            let created = backend.group(&topic, name)?;
            created.ok_or(WeirError::Group { code })?
        };
        if info.mode != setup.mode {
            return Err(WeirError::GroupModeDiffers {
                group: name.to_owned(),
                actual: info.mode,
                needed: setup.mode,
            });
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = since.map_or(0, |since| since.as_nanos());
        Ok(Group {
            backend,
            topic,
            name: name.to_owned(),
            mode: info.mode,
            member: format!("{}-{nanos:x}", std::process::id()).into_bytes(),
            lease_ms: 0,
            generation: 0,
            after: ConsequenceOffset::ZERO,
            reader: None,
            returned: ConsequenceOffset::ZERO,
            acknowledged: ConsequenceOffset::ZERO,
        })
    }

    /// The state of the group; `None` if the group does not exist.
    ///
    /// # Errors
    /// Errors of a server.
    pub fn group_info(&self, name: &str) -> Result<Option<GroupInfo>, WeirError> {
        Ok(self.backend().group(self.name().as_str(), name)?)
    }

    /// The offset before the first record at a position. It is the `start` of a group that begins
    /// at that position.
    ///
    /// # Errors
    /// Errors of reads.
    pub fn offset_before(&self, from: ReadFrom) -> Result<ConsequenceOffset, WeirError> {
        offset_before(self.backend(), self.name().as_str(), from)
    }

    /// The groups of the topic, by name. A server returns at most the first 1,000 members of each
    /// group.
    ///
    /// # Errors
    /// `TopicUnknown`; errors of a server.
    pub fn groups(&self) -> Result<Vec<GroupInfo>, WeirError> {
        Ok(self.backend().groups(self.name().as_str())?)
    }
}

/// The error of a step that creates a group. Its caller passed options, not an intention.
fn setup_error(error: StoreError) -> WeirError {
    match error {
        StoreError::Refused {
            error: IntentionError::Group(what),
            ..
        } => WeirError::GroupSetup(what),
        error => error.into(),
    }
}

fn offset_before(
    backend: &Backend,
    topic: &str,
    from: ReadFrom,
) -> Result<ConsequenceOffset, WeirError> {
    Ok(match from {
        ReadFrom::Start => ConsequenceOffset::ZERO,
        // The machine replaces this offset by the newest one.
        ReadFrom::End => ConsequenceOffset(u64::MAX),
        ReadFrom::After(offset) => offset,
        from => {
            let reader = backend.read(topic)?.starting(from)?;
            ConsequenceOffset(reader.position().0 - 1)
        }
    })
}

impl Group {
    /// Sets the name of this member, 1 to 64 bytes. The default contains the process id and the
    /// time.
    #[must_use]
    pub fn member(mut self, name: impl AsRef<[u8]>) -> Self {
        self.member = name.as_ref().to_vec();
        self.generation = 0;
        self
    }

    /// Sets the lease of records that this member claims from a keyed or shared group: 1 ms to
    /// 24 hours, in whole milliseconds. A shorter lease counts as 1 ms. For a longer lease,
    /// [`claim`](Self::claim) fails. The default, `None`, is the lease of the group. An exclusive
    /// group ignores the lease.
    #[must_use]
    pub fn lease(mut self, lease: Option<Duration>) -> Self {
        self.lease_ms = lease.map_or(0, |lease| millis(lease).max(1));
        self
    }

    /// The group as it is now.
    ///
    /// # Errors
    /// `GroupUnknown` if the group was deleted.
    pub fn info(&self) -> Result<GroupInfo, WeirError> {
        let found = self.backend.group(&self.topic, &self.name)?;
        found.ok_or_else(|| {
            WeirError::Store(StoreError::GroupUnknown {
                topic: self.topic.clone(),
                group: self.name.clone(),
            })
        })
    }

    /// The cursor: every record up to this offset is acknowledged.
    ///
    /// # Errors
    /// As for [`info`](Self::info).
    pub fn cursor(&self) -> Result<ConsequenceOffset, WeirError> {
        Ok(self.info()?.cursor)
    }

    /// The number of offsets that are not acknowledged.
    ///
    /// # Errors
    /// As for [`info`](Self::info).
    pub fn lag(&self) -> Result<u64, WeirError> {
        Ok(self.info()?.lag)
    }

    fn step(&self, step: GroupStep<'_>) -> Result<Verdict, WeirError> {
        let commit = self.backend.group_step(&self.topic, &self.name, step)?;
        Ok(Verdict::of(commit))
    }

    /// Claims up to `max` records. Waits up to `wait` for the first one. In an exclusive group the
    /// member first becomes the owner, as soon as no other member is. In a keyed or shared group, a
    /// call returns at most 10,000 records. A server returns at most 1,000 records and 256 KiB at a
    /// time, or one longer record. If the connection breaks before the response arrives, the
    /// records are delivered again after their leases expire.
    ///
    /// # Errors
    /// `TooLong` if the group is keyed or shared and the [`lease`](Self::lease) of this member is
    /// longer than 24 hours; `Group` if the group was deleted or has another mode; errors of reads.
    pub fn claim(&mut self, max: usize, wait: Duration) -> Result<Vec<Work>, WeirError> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let deadline = Instant::now().checked_add(wait);
        if self.mode != GroupMode::Exclusive {
            let lease_ms = at_most_a_day("lease", self.lease_ms)?;
            let request = ClaimRequest {
                member: &self.member,
                max,
                lease_ms,
                bytes_max: usize::MAX,
            };
            return self
                .backend
                .claim(&self.topic, &self.name, &request, deadline);
        }
        loop {
            let due = if self.generation != 0 || self.join(false)? {
                let found = self.read(max)?;
                if !found.is_empty() {
                    return Ok(found);
                }
                None
            } else {
                let owner = self.info()?.owner;
                Some(time_until(owner.map_or(0, |owner| owner.until_ms)))
            };
            let now = Instant::now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Ok(Vec::new());
            }
            let soon = now.checked_add(due.unwrap_or(POLL_INTERVAL).min(POLL_INTERVAL));
            let until = [deadline, soon].into_iter().flatten().min();
            match (&mut self.reader, due) {
                // The next read shows whether a new record exists.
                (Some((reader, _)), None) => drop(reader.wait(until)),
                _ => sleep(until),
            }
        }
    }

    /// Makes this member the owner of an exclusive group, in place of the present owner.
    ///
    /// # Errors
    /// `Group`; errors of writes.
    pub fn take_over(&mut self) -> Result<(), WeirError> {
        self.join(true).map(drop)
    }

    fn join(&mut self, takeover: bool) -> Result<bool, WeirError> {
        let member = &self.member;
        let verdict = self.step(GroupStep::Join { member, takeover })?;
        match verdict.reason() {
            None => {
                // If the position cannot be read, the next claim joins again.
                self.generation = 0;
                self.reader = None;
                self.after = self.cursor()?;
                (self.returned, self.acknowledged) = (self.after, self.after);
                self.generation = verdict.intention().0;
                Ok(true)
            }
            Some(ErrorCode::NotOwner) => Ok(false),
            Some(code) => Err(WeirError::Group { code }),
        }
    }

    /// Returns the next records for the owner.
    fn read(&mut self, max: usize) -> Result<Vec<Work>, WeirError> {
        let (mut reader, mut page) = match self.reader.take() {
            Some(reading) => reading,
            None => (self.backend.read_remaining(&self.topic, self.after)?, None),
        };
        let mut found = Vec::new();
        while found.len() < max {
            let Some(now) = page.take() else {
                page = match reader.next_page() {
                    // Returns the records that were found. The next read fails again.
                    Err(_) if !found.is_empty() => None,
                    read => read?,
                };
                match page {
                    None => break,
                    Some(_) => continue,
                }
            };
            for record in &now {
                let record = match record {
                    // As above: the next read begins after `self.after` again.
                    Err(_) if !found.is_empty() => return Ok(found),
                    record => record?,
                };
                if found.len() >= max {
                    page = Some(now.starting(record.offset));
                    break;
                }
                if matches!(record.kind, RecordKind::Put | RecordKind::Delete) {
                    match Work::new(now.starting(record.offset), self.generation, 1) {
                        Err(_) if !found.is_empty() => return Ok(found),
                        works => found.extend(works?),
                    }
                    self.returned = record.offset;
                }
                self.after = record.offset;
            }
        }
        self.reader = Some((reader, page));
        if found.is_empty() && self.returned <= self.acknowledged && self.after > self.acknowledged
        {
            // All records after the last acknowledged one are of kinds that a group does not
            // deliver.
            self.acknowledged = self.after;
            let generation = self.generation;
            self.backend
                .move_cursor(&self.topic, &self.name, generation, self.after)?;
        }
        Ok(found)
    }

    /// Acknowledges records. The acknowledgement is durable when this returns. Returns the offsets
    /// of records that now belong to another member. In an exclusive group, acknowledges everything
    /// up to the last of these records. In the other groups, a record that is already done stays
    /// done and is not returned, also if another member acknowledged it or it is a dead letter.
    ///
    /// # Errors
    /// Errors of writes; `Group` with the reason of any other verdict.
    pub fn ack(&mut self, works: &[Work]) -> Result<Vec<ConsequenceOffset>, WeirError> {
        self.settle(&claims(works), Settle::Done)
    }

    /// Acknowledges records of an exclusive group without blocking. The acknowledgement is written
    /// soon, together with later ones, or on close. After a crash, a lost connection to a server,
    /// or a reset or delete of the group that failed, the records may be delivered again.
    ///
    /// # Errors
    /// `Group` with `GroupMode` for a group of another mode.
    pub fn ack_soon(&mut self, works: &[Work]) -> Result<(), WeirError> {
        self.settle(&claims(works), Settle::DoneSoon).map(drop)
    }

    /// Rejects records: they may be claimed again after `delay`, at most 24 hours. In an exclusive
    /// group the member reads again from the first of them. Returns the offsets of records that now
    /// belong to another member.
    ///
    /// # Errors
    /// `TooLong` for a longer delay in a keyed or shared group; as for [`ack`](Self::ack).
    pub fn nack(
        &mut self,
        works: &[Work],
        delay: Duration,
        reason: &str,
    ) -> Result<Vec<ConsequenceOffset>, WeirError> {
        self.settle(&claims(works), Settle::Fail { delay, reason })
    }

    /// Extends the leases of records to `lease` from now: 1 ms to 24 hours, in whole milliseconds.
    /// A shorter lease counts as 1 ms. In an exclusive group, renews the ownership and ignores
    /// `lease`. Returns the offsets of records that no longer belong to this member.
    ///
    /// # Errors
    /// `TooLong` for a longer lease in a keyed or shared group; as for [`ack`](Self::ack).
    pub fn extend(
        &mut self,
        works: &[Work],
        lease: Duration,
    ) -> Result<Vec<ConsequenceOffset>, WeirError> {
        self.settle(&claims(works), Settle::Extend { lease })
    }

    /// Acknowledges, rejects or extends records that the caller identifies by their [`Claim`].
    /// Returns the offsets of records that now belong to another member.
    ///
    /// # Errors
    /// As for [`ack`](Self::ack), [`ack_soon`](Self::ack_soon), [`nack`](Self::nack) and
    /// [`extend`](Self::extend).
    pub fn settle(
        &mut self,
        claims: &[Claim],
        how: Settle<'_>,
    ) -> Result<Vec<ConsequenceOffset>, WeirError> {
        let exclusive = self.mode == GroupMode::Exclusive;
        match how {
            Settle::Done if exclusive => self.move_to(claims),
            Settle::Done => self.each(claims, GroupOutcome::Ack),
            Settle::DoneSoon if exclusive => {
                let Some(last) = claims.iter().max_by_key(|claim| claim.offset) else {
                    return Ok(Vec::new());
                };
                self.acknowledged = self.acknowledged.max(last.offset);
                self.backend
                    .move_cursor(&self.topic, &self.name, last.claim, last.offset)?;
                Ok(Vec::new())
            }
            Settle::DoneSoon => Err(WeirError::GroupModeDiffers {
                group: self.name.clone(),
                actual: self.mode,
                needed: GroupMode::Exclusive,
            }),
            Settle::Fail { .. } if exclusive => {
                if let Some(first) = claims.iter().map(|claim| claim.offset).min() {
                    self.reader = None;
                    self.after = ConsequenceOffset(self.after.0.min(first.0.saturating_sub(1)));
                }
                Ok(Vec::new())
            }
            Settle::Fail { delay, reason } => {
                let delay_ms = at_most_a_day("delay", millis(delay))?;
                self.each(claims, GroupOutcome::Nack { delay_ms, reason })
            }
            Settle::Extend { .. } if exclusive => {
                let generation = self.generation;
                let verdict = self.step(GroupStep::Renew { generation })?;
                if verdict.is_valid() {
                    return Ok(Vec::new());
                }
                // The next claim joins again.
                self.generation = 0;
                Ok(claims.iter().map(|claim| claim.offset).collect())
            }
            Settle::Extend { lease } => {
                let lease_ms = at_most_a_day("lease", millis(lease).max(1))?;
                self.each(claims, GroupOutcome::Extend { lease_ms })
            }
        }
    }

    fn move_to(&mut self, claims: &[Claim]) -> Result<Vec<ConsequenceOffset>, WeirError> {
        let Some(last) = claims.iter().max_by_key(|claim| claim.offset) else {
            return Ok(Vec::new());
        };
        let moved =
            self.backend
                .move_cursor_now(&self.topic, &self.name, last.claim, last.offset)?;
        match moved.reason {
            None => {
                self.acknowledged = self.acknowledged.max(last.offset);
                Ok(Vec::new())
            }
            Some(ErrorCode::NotOwner) => {
                self.generation = 0;
                Ok(claims.iter().map(|claim| claim.offset).collect())
            }
            Some(code) => Err(WeirError::Group { code }),
        }
    }

    /// Executes one step for all records of a claim. If that fails because another member has some
    /// of them, repeats the step for each record.
    fn each(
        &self,
        claims: &[Claim],
        outcome: GroupOutcome<'_>,
    ) -> Result<Vec<ConsequenceOffset>, WeirError> {
        let mut all: Vec<(u64, u64)> = claims
            .iter()
            .map(|claim| (claim.claim, claim.offset.0))
            .collect();
        all.sort_unstable();
        all.dedup();
        let mut lost = Vec::new();
        for same_claim in all.chunk_by(|a, b| a.0 == b.0) {
            for part in same_claim.chunks(weir_core::limits::GROUP_LIST_MAX) {
                let Some((claim, _)) = part.first() else {
                    continue;
                };
                let offsets: Vec<u64> = part.iter().map(|(_, offset)| *offset).collect();
                if self.try_step(outcome.step(*claim, Offsets::Plain(&offsets)))? {
                    continue;
                }
                for offset in offsets {
                    if !self.try_step(outcome.step(*claim, Offsets::Plain(&[offset])))? {
                        lost.push(ConsequenceOffset(offset));
                    }
                }
            }
        }
        Ok(lost)
    }

    /// Executes a step. Returns `false` if the member no longer has all records of the step.
    fn try_step(&self, step: GroupStep<'_>) -> Result<bool, WeirError> {
        match self.step(step)?.reason() {
            None => Ok(true),
            Some(ErrorCode::NotOwner) => Ok(false),
            Some(code) => Err(WeirError::Group { code }),
        }
    }

    /// Moves the group to a position: every earlier record counts as acknowledged, and no later
    /// one. Members lose the records that they have claimed.
    ///
    /// # Errors
    /// Errors of writes, and of the read that finds the position.
    pub fn reset(&mut self, to: ReadFrom) -> Result<Verdict, WeirError> {
        let offset = offset_before(&self.backend, &self.topic, to)?.0;
        self.generation = 0;
        self.step(GroupStep::Reset { offset })
    }

    /// Deletes the group and its position. A call that failed can be repeated: the verdict for a
    /// group that does not exist is `GroupAbsent`. If another client has created a group of this
    /// name in the meantime, the repeated call deletes that group.
    ///
    /// # Errors
    /// Errors of writes.
    pub fn delete(&mut self) -> Result<Verdict, WeirError> {
        let verdict = self.step(GroupStep::Delete)?;
        self.generation = 0;
        Ok(verdict)
    }

    /// Ends the ownership of an exclusive group, so that another member can become the owner
    /// immediately.
    ///
    /// # Errors
    /// Errors of writes. If the pending acknowledgements were not written, the member is still the
    /// owner, and the call can be repeated.
    pub fn leave(&mut self) -> Result<(), WeirError> {
        if self.generation == 0 {
            return Ok(());
        }
        // Only the owner may write the pending acknowledgements.
        self.backend.flush_cursor(&self.topic, &self.name)?;
        let generation = std::mem::take(&mut self.generation);
        self.step(GroupStep::Leave { generation }).map(drop)
    }

    /// Returns the records one by one. Ends when none arrives within `patience`. Records that were
    /// returned and not acknowledged remain claimed by the member.
    pub fn works(&mut self, patience: Duration) -> Works<'_> {
        Works {
            group: self,
            patience,
            ready: Vec::new().into_iter(),
        }
    }
}

fn claims(works: &[Work]) -> Vec<Claim> {
    works.iter().map(Claim::from).collect()
}

/// The whole milliseconds of a time.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns `ms`. Fails if it is longer than a store accepts.
fn at_most_a_day(what: &'static str, ms: u64) -> Result<u64, WeirError> {
    let max_ms = weir_core::limits::GROUP_LEASE_MS_MAX;
    if ms > max_ms {
        return Err(WeirError::TooLong { what, ms, max_ms });
    }
    Ok(ms)
}
