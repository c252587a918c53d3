//! Groups of an open store: finds the records that a claim can request, and reads the claimed
//! records.
//!
//! When a claim is applied, the machine decides which records it gets; this module only proposes
//! claims. Claims of one group run one after the other, so that they rarely propose the same
//! records. Invariant: a record is returned only after its lease is in the log.

use std::collections::{BTreeMap, BTreeSet};

use weir_core::group::{Hashes, Offsets, key_hash};
use weir_core::limits::{GROUP_DEAD_LETTERS_MAX, GROUP_LIST_MAX};
use weir_core::machine::groups::{EntryState, Group, KeyGate, Owner};
use weir_core::{
    Commit, ConsequenceOffset, Effect, ErrorCode, GroupMode, GroupName, GroupStep, Intention,
    Operation, Outcome, Record, RecordKind,
};

use crate::error::StoreError;
use crate::reader::{Page, TopicReader};
use crate::store::Store;

/// Maximum number of attempts of a claim that conflicts because the group was reset meanwhile.
const ATTEMPTS_MAX: usize = 3;

/// The current state of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupInfo {
    /// Topic that the group reads.
    pub topic: String,
    /// Name of the group.
    pub name: String,
    /// How its members share the topic.
    pub mode: GroupMode,
    /// All records up to this offset are done.
    pub cursor: ConsequenceOffset,
    /// All records after this offset are new.
    pub frontier: ConsequenceOffset,
    /// Newest record of the topic.
    pub last: ConsequenceOffset,
    /// Number of offsets that are not done, including gaps and records that groups do not deliver.
    pub lag: u64,
    /// Records that members have claimed.
    pub leased: u64,
    /// Records up to the frontier that wait to be claimed.
    pub waiting: u64,
    /// Stamp of the first record that is not done, in milliseconds since 1970-01-01 UTC.
    pub oldest_ms: Option<u64>,
    /// Number of deliveries beyond the first delivery of each record.
    pub redeliveries: u64,
    /// Number of records that became dead letters.
    pub dead_lettered: u64,
    /// Dead letters that are not written yet.
    pub unwritten_dead_letters: u64,
    /// Owner of the group, if its mode is exclusive.
    pub owner: Option<Owner>,
    /// Number of claimed records of each member that has any.
    pub members: BTreeMap<Box<[u8]>, u64>,
    /// Duration of a lease in milliseconds.
    pub lease_ms: u64,
    /// Deliveries after which a record becomes a dead letter; 0 for no limit.
    pub attempts_max: u32,
    /// Maximum number of claimed records, and of records above the cursor that are done.
    pub pending_max: u32,
    /// Topic for dead letters; empty for none.
    pub dead_letters: String,
}

/// A request of a member for records.
#[derive(Clone, Copy, Debug)]
pub struct ClaimRequest<'a> {
    /// Name of the member, 1 to 64 bytes.
    pub member: &'a [u8],
    /// Maximum number of records. A claim may return more only if keys become free during the call.
    pub max: usize,
    /// Duration of the lease in milliseconds; 0 for the group's setting.
    pub lease_ms: u64,
    /// Maximum total bytes of keys, values and metadata. The first record is returned even if
    /// it is larger.
    pub bytes_max: usize,
}

/// A claimed record.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Number of the claim, which acknowledges the record.
    pub claim: u64,
    /// Offset of the record.
    pub offset: ConsequenceOffset,
    /// Number of deliveries of the record, including this one.
    pub attempts: u32,
    /// A page that starts with the record.
    pub page: Page,
}

/// The result of a claim.
#[derive(Clone, Debug, Default)]
pub struct Claimed {
    /// The verdict; `None` if there was nothing to claim.
    pub commit: Option<Commit>,
    /// The records, by offset.
    pub deliveries: Vec<Delivery>,
    /// When the next leased or waiting record may be claimed, in milliseconds since 1970-01-01 UTC.
    pub due_ms: Option<u64>,
    /// Records after this offset were not examined.
    pub frontier: ConsequenceOffset,
}

/// The records that a claim will request.
struct Plan {
    mode: GroupMode,
    frontier: u64,
    admits_new: bool,
    /// Offsets that were seen before and can be claimed now.
    again: Vec<u64>,
    /// Key hash of each offset in `again`.
    again_keys: Vec<u64>,
    /// Number of offsets in `again` that still have attempts.
    count: usize,
    due_ms: Option<u64>,
}

/// New records of a claim.
#[derive(Default)]
struct NewRecords {
    offsets: Vec<u64>,
    keys: Vec<u64>,
    pages: BTreeMap<u64, Page>,
    through: u64,
    /// Total bytes of the requested records.
    bytes: usize,
}

impl NewRecords {
    /// Counts a record. Returns `false`, and counts nothing, if the record exceeds `bytes_max`.
    fn fits(&mut self, record: &Record<'_>, bytes_max: usize) -> bool {
        let size = record.key.len() + record.value.len() + record.meta.len();
        let bytes = self.bytes.saturating_add(size);
        let fits = self.pages.is_empty() || bytes <= bytes_max;
        if fits {
            self.bytes = bytes;
        }
        fits
    }
}

impl Store {
    /// A group of a topic; `None` if the group does not exist.
    #[must_use]
    pub fn group(&self, topic: &str, group: &str) -> Option<GroupInfo> {
        let mut info = {
            let machine = self.engine.machine.read();
            let last = machine.topic(topic)?.last;
            group_info(topic, group, machine.group(topic, group)?, last)
        };
        info.oldest_ms = self.oldest(&info);
        Some(info)
    }

    /// Returns `info` with the stamp of the oldest record, which this call reads.
    #[must_use]
    pub fn with_oldest(&self, info: GroupInfo) -> GroupInfo {
        let oldest_ms = self.oldest(&info);
        GroupInfo { oldest_ms, ..info }
    }

    /// The groups of a topic, by name.
    ///
    /// # Errors
    /// `TopicUnknown`.
    pub fn groups(&self, topic: &str) -> Result<Vec<GroupInfo>, StoreError> {
        let mut infos: Vec<GroupInfo> = {
            let machine = self.engine.machine.read();
            let view = machine.topic(topic).ok_or_else(|| unknown(topic))?;
            let groups = machine.groups(view.id);
            groups
                .map(|(name, group)| group_info(topic, name.as_str(), group, view.last))
                .collect()
        };
        for info in &mut infos {
            info.oldest_ms = self.oldest(info);
        }
        Ok(infos)
    }

    /// The names of the groups of a topic that are greater than `after`, in ascending order.
    ///
    /// # Errors
    /// `TopicUnknown`.
    pub fn group_names(&self, topic: &str, after: &str) -> Result<Vec<GroupName>, StoreError> {
        let machine = self.engine.machine.read();
        let view = machine.topic(topic).ok_or_else(|| unknown(topic))?;
        let names = machine.groups(view.id).map(|(name, _)| name);
        Ok(names
            .filter(|name| name.as_str() > after)
            .cloned()
            .collect())
    }

    /// At most `limit` groups, ordered by topic number, and the total number of groups. `oldest_ms`
    /// is not set.
    #[must_use]
    pub fn all_groups(&self, limit: usize) -> (Vec<GroupInfo>, usize) {
        let machine = self.engine.machine.read();
        let (mut infos, mut count) = (Vec::new(), 0);
        for view in machine.topics() {
            for (name, group) in machine.groups(view.id) {
                count += 1;
                if infos.len() < limit {
                    let topic = view.name.as_str();
                    infos.push(group_info(topic, name.as_str(), group, view.last));
                }
            }
        }
        (infos, count)
    }

    /// Stamp of the first record after the cursor that the group delivers.
    fn oldest(&self, info: &GroupInfo) -> Option<u64> {
        let mut reader = self.read(&info.topic, info.cursor).ok()?.or_earliest();
        while let Ok(Some(page)) = reader.next_page() {
            for record in &page {
                let record = record.ok()?;
                if delivers(record.kind) {
                    return Some(record.time_ms);
                }
            }
        }
        None
    }

    /// Executes one step of a group and blocks until the verdict is known.
    pub fn group_step(
        &self,
        topic: &str,
        group: &str,
        step: GroupStep<'_>,
    ) -> Result<Commit, StoreError> {
        let intention = Intention::new(topic, Operation::Cursor { group, step });
        let outcomes = self.propose_inline(&[intention])?.wait()?;
        match outcomes.iter().next() {
            Some(Outcome::Committed(commit) | Outcome::Replayed(commit)) => Ok(commit),
            _ => Err(StoreError::Closed),
        }
    }

    /// Schedules a move of the cursor of an exclusive group, and does not return the verdict. The
    /// cursor is written within [`OpenOptions::cursor_flush`](crate::OpenOptions), at most once per
    /// group in this time. [`flush_cursors`](Self::flush_cursors) and a close write it earlier.
    /// [`group_step`](Self::group_step) moves the cursor at once. If the write fails and a later
    /// attempt can succeed, the store retries it.
    ///
    /// A later reset or delete of the group through this store discards the scheduled move, also if
    /// the reset or delete fails after it was queued, for example on a full disk. The group then
    /// delivers the records again.
    ///
    /// A reset ends the generation of an owner. A scheduled move of generation 0 is applied after the
    /// reset if the reset is made through another node of a cluster, or if the move already waits in
    /// the slow lane.
    pub fn move_cursor(
        &self,
        topic: &str,
        group: &str,
        generation: u64,
        offset: ConsequenceOffset,
    ) -> Result<(), StoreError> {
        let handle = self.maintenance_handle();
        let name = (topic, group);
        if self
            .background
            .defer_cursor(&handle, name, generation, offset.0)
        {
            return Ok(());
        }
        let offset = offset.0;
        let step = GroupStep::Move { generation, offset };
        self.group_step(topic, group, step).map(drop)
    }

    /// Moves the cursor and blocks until the verdict is known. If the verdict is VALID, discards a
    /// deferred cursor of this group that is not newer.
    pub fn move_cursor_now(
        &self,
        topic: &str,
        group: &str,
        generation: u64,
        offset: ConsequenceOffset,
    ) -> Result<Commit, StoreError> {
        let offset = offset.0;
        let step = GroupStep::Move { generation, offset };
        let commit = self.group_step(topic, group, step)?;
        if commit.effect == Effect::Valid {
            self.background
                .discard_cursor((topic, group), generation, offset);
        }
        Ok(commit)
    }

    /// Writes all deferred cursors. Blocks until these cursors, including those that are already
    /// being written, are in the log. Does not wait for cursors that are moved later. Cursors of
    /// topics with costly programs wait after the calls that were proposed before.
    ///
    /// # Errors
    /// The first error of a write. A cursor that is not in the log remains deferred, unless it is
    /// invalid. So every later call returns an error too, until the cursor is written.
    pub fn flush_cursors(&self) -> Result<(), StoreError> {
        self.background.flush(&self.maintenance_handle(), None)
    }

    /// Like `flush_cursors`, for the cursor of one group. Does not write the cursors of other
    /// groups.
    ///
    /// # Errors
    /// As for [`flush_cursors`](Self::flush_cursors).
    pub fn flush_cursor(&self, topic: &str, group: &str) -> Result<(), StoreError> {
        let only = Some((topic, group));
        self.background.flush(&self.maintenance_handle(), only)
    }

    /// Claims records for a member of a keyed or shared group. Never waits for records. If no
    /// record is returned, `due_ms` and `frontier` specify when a new claim can succeed.
    ///
    /// # Errors
    /// `TopicUnknown`, `GroupUnknown`, and the errors of a write. A verdict other than VALID is a
    /// part of the result. An error of the write of dead letters, and damage of a record, are
    /// returned only if no record is. A dead letter whose record cannot be read stays unwritten.
    pub fn claim(
        &self,
        topic: &str,
        group: &str,
        request: &ClaimRequest<'_>,
    ) -> Result<Claimed, StoreError> {
        let claim_guard = self.claim_locks.lock(topic, group);
        for _ in 1..ATTEMPTS_MAX {
            let claimed = self.claim_once(topic, group, request)?;
            let reason = claimed.commit.as_ref().and_then(|commit| commit.reason);
            if reason != Some(ErrorCode::Conflict) {
                drop(claim_guard);
                match self.write_readable_dead_letters(topic, group) {
                    Ok((_, None)) => {}
                    // With an error, damage would fail every later claim. The state of the group
                    // counts the letters that are not written.
                    Ok((_, Some(error))) if claimed.deliveries.is_empty() => {
                        tracing::warn!(%error, topic, group, "a dead letter cannot be read");
                    }
                    Err(error) if claimed.deliveries.is_empty() => return Err(error),
                    // With an error, the member would not get the records of which it has leases.
                    // The next claim writes the letters. Claims may be many: no warning for each.
                    Ok((_, Some(error))) | Err(error) => {
                        tracing::debug!(%error, topic, group, "dead letters were not written");
                    }
                }
                return Ok(claimed);
            }
        }
        self.claim_once(topic, group, request)
    }

    fn claim_once(
        &self,
        topic: &str,
        group: &str,
        request: &ClaimRequest<'_>,
    ) -> Result<Claimed, StoreError> {
        let now_ms = self.engine.now_ms();
        let max = request.max.clamp(1, GROUP_LIST_MAX);
        let mut plan = {
            let machine = self.engine.machine.read();
            machine.topic(topic).ok_or_else(|| unknown(topic))?;
            let found = machine.group(topic, group);
            let found = found.ok_or_else(|| no_group(topic, group))?;
            plan(found, request.member, max, now_ms.max(machine.time_ms()))
        };
        let mut new_records = NewRecords {
            through: plan.frontier,
            ..NewRecords::default()
        };
        let fits = self.read_seen(topic, request.bytes_max, &mut plan, &mut new_records)?;
        if fits && plan.admits_new && plan.count < max {
            let found = self.find_new(
                topic,
                group,
                request,
                (max, now_ms),
                &plan,
                &mut new_records,
            );
            // The records before one that cannot be read are claimed.
            if plan.again.is_empty() && new_records.offsets.is_empty() {
                found?;
            }
        }
        let mut claimed = Claimed {
            due_ms: plan.due_ms,
            frontier: ConsequenceOffset(new_records.through),
            ..Claimed::default()
        };
        let empty = plan.again.is_empty() && new_records.through == plan.frontier;
        if empty && plan.mode != GroupMode::Exclusive {
            return Ok(claimed);
        }
        let offsets = [plan.again, new_records.offsets].concat();
        let keys = [plan.again_keys, new_records.keys].concat();
        let step = GroupStep::Claim {
            member: request.member,
            lease_ms: request.lease_ms,
            seen: plan.frontier,
            through: new_records.through,
            offsets: Offsets::Plain(&offsets),
            keys: (plan.mode == GroupMode::Keyed).then_some(Hashes::Plain(&keys)),
        };
        let commit = self.group_step(topic, group, step)?;
        let claim = commit.intention.0;
        claimed.commit = Some(commit);
        self.fetch(
            topic,
            group,
            claim,
            &offsets,
            &new_records.pages,
            &mut claimed,
        )?;
        Ok(claimed)
    }

    /// Reads the records that were seen before, and removes from the plan those that do not fit.
    /// Returns whether all records fit. A damaged record stays in the plan, without a page: its
    /// lease lets the next claims request other records.
    fn read_seen(
        &self,
        topic: &str,
        bytes_max: usize,
        plan: &mut Plan,
        new_records: &mut NewRecords,
    ) -> Result<bool, StoreError> {
        let mut last: Option<Page> = None;
        for (at, &offset) in plan.again.iter().enumerate() {
            let offset = ConsequenceOffset(offset);
            // Adjacent records are often in one page.
            let near = last.take().filter(|page| page.last() >= offset);
            let near = near.map(|page| page.starting(offset));
            let page = match near {
                Some(page) if first_offset(&page)? == Some(offset) => Some(page),
                _ => match self.page_at(topic, offset) {
                    Err(error) if error.is_damage() => None,
                    found => found?,
                },
            };
            let Some(page) = page else { continue };
            if let Some(record) = page.iter().next().transpose()?
                && !new_records.fits(&record, bytes_max)
            {
                plan.again.truncate(at);
                plan.again_keys.truncate(at);
                return Ok(false);
            }
            new_records.pages.insert(offset.0, page.clone());
            last = Some(page);
        }
        Ok(true)
    }

    /// Searches for new records after the frontier.
    fn find_new(
        &self,
        topic: &str,
        group: &str,
        request: &ClaimRequest<'_>,
        (max, now_ms): (usize, u64),
        plan: &Plan,
        new_records: &mut NewRecords,
    ) -> Result<(), StoreError> {
        let after = ConsequenceOffset(plan.frontier);
        let mut reader = self.read(topic, after)?.or_earliest();
        // Records after the last page, up to `end`, were removed.
        let end = reader.last().0;
        let mut left = max - plan.count;
        let list_max = GROUP_LIST_MAX - plan.again.len();
        let mut free: BTreeMap<u64, bool> = BTreeMap::new();
        let again: BTreeSet<u64> = plan.again.iter().copied().collect();
        while left > 0 && new_records.offsets.len() < list_max {
            let Some(page) = reader.next_page()? else {
                new_records.through = new_records.through.max(end);
                return Ok(());
            };
            for record in &page {
                let record = record?;
                if left == 0 || new_records.offsets.len() >= list_max {
                    return Ok(());
                }
                let offset = record.offset.0;
                if !delivers(record.kind) {
                    new_records.through = offset;
                    continue;
                }
                let key = match plan.mode {
                    GroupMode::Keyed => key_hash(record.key),
                    _ => 0,
                };
                let is_claimable = key == 0
                    || *free.entry(key).or_insert_with(|| {
                        let machine = self.engine.machine.read();
                        let now_ms = now_ms.max(machine.time_ms());
                        machine
                            .group(topic, group)
                            .is_none_or(|group| is_free(group, key, request.member, now_ms, &again))
                    });
                if is_claimable && !new_records.fits(&record, request.bytes_max) {
                    return Ok(());
                }
                new_records.through = offset;
                left -= usize::from(is_claimable);
                new_records.offsets.push(offset);
                new_records.keys.push(key);
                if is_claimable {
                    new_records
                        .pages
                        .insert(offset, page.starting(record.offset));
                }
            }
        }
        Ok(())
    }

    /// Reads the claimed records. Claimed records that no longer exist are marked as done. Fails if
    /// none of the others can be read.
    fn fetch(
        &self,
        topic: &str,
        group: &str,
        claim: u64,
        offsets: &[u64],
        pages: &BTreeMap<u64, Page>,
        claimed: &mut Claimed,
    ) -> Result<(), StoreError> {
        let leased: Vec<(u64, u32)> = {
            let machine = self.engine.machine.read();
            let found = machine.group(topic, group);
            let entry = |offset: &u64| {
                let entry = found?.entry(*offset)?;
                let is_own =
                    matches!(entry.state, EntryState::Leased { claim: by, .. } if by == claim);
                is_own.then_some((*offset, entry.attempts))
            };
            offsets.iter().filter_map(entry).collect()
        };
        let mut missing = Vec::new();
        let mut unread = None;
        for (offset, attempts) in leased {
            let found = match pages.get(&offset) {
                Some(page) => Ok(Some(page.clone())),
                None => self.page_at(topic, ConsequenceOffset(offset)),
            };
            let page = match found {
                Ok(page) => page,
                Err(error) => {
                    unread.get_or_insert(error);
                    continue;
                }
            };
            let Some(page) = page else {
                missing.push(offset);
                continue;
            };
            claimed.deliveries.push(Delivery {
                claim,
                offset: ConsequenceOffset(offset),
                attempts,
                page,
            });
        }
        if !missing.is_empty() {
            let offsets = Offsets::Plain(&missing);
            self.group_step(topic, group, GroupStep::Ack { claim, offsets })?;
        }
        match unread {
            None => Ok(()),
            Some(error) if claimed.deliveries.is_empty() => Err(error),
            Some(error) => {
                tracing::warn!(%error, topic, group, "a claimed record cannot be read");
                Ok(())
            }
        }
    }

    /// The page that starts with the record at `offset`, if the record still exists.
    pub(crate) fn page_at(
        &self,
        topic: &str,
        offset: ConsequenceOffset,
    ) -> Result<Option<Page>, StoreError> {
        let before = ConsequenceOffset(offset.0.saturating_sub(1));
        let mut reader: TopicReader = self.read(topic, before)?.or_earliest();
        let Some(page) = reader.next_page()? else {
            return Ok(None);
        };
        Ok((first_offset(&page)? == Some(offset)).then_some(page))
    }
}

fn first_offset(page: &Page) -> Result<Option<ConsequenceOffset>, StoreError> {
    Ok(page.iter().next().transpose()?.map(|record| record.offset))
}

fn unknown(topic: &str) -> StoreError {
    StoreError::TopicUnknown {
        name: topic.to_owned(),
    }
}

pub(crate) fn no_group(topic: &str, group: &str) -> StoreError {
    StoreError::GroupUnknown {
        topic: topic.to_owned(),
        group: group.to_owned(),
    }
}

/// Whether groups deliver records of this kind; other kinds are skipped.
fn delivers(kind: RecordKind) -> bool {
    matches!(kind, RecordKind::Put | RecordKind::Delete)
}

/// Selects the records that were seen before and can be claimed now.
fn plan(group: &Group, member: &[u8], max: usize, now_ms: u64) -> Plan {
    let mut again: Vec<u64> = Vec::new();
    let mut later = group.due().skip_while(|(due, _)| *due <= now_ms);
    let due_ms = later.next().map(|(due, _)| due);
    let mut ready: Vec<u64> = group
        .due()
        .take_while(|(due, _)| *due <= now_ms)
        .map(|(_, offset)| offset)
        .collect();
    ready.sort_unstable();
    let attempts_max = group.setup().attempts_max;
    // While the table of dead letters is full, records without attempts left are delivered again.
    let unwritten = group.unwritten_dead_letters().len();
    let mut letters_left = GROUP_DEAD_LETTERS_MAX.saturating_sub(unwritten);
    let (mut gate, mut count, mut again_keys) = (KeyGate::default(), 0, Vec::new());
    for offset in ready {
        if count >= max || again.len() >= GROUP_LIST_MAX {
            break;
        }
        let Some(entry) = group.entry(offset) else {
            continue;
        };
        // A record without attempts left is requested too: only a claim makes it a dead letter. The
        // claim does not return it.
        let is_exhausted = attempts_max > 0 && entry.attempts >= attempts_max && letters_left > 0;
        letters_left -= usize::from(is_exhausted);
        if !is_exhausted && !group.admits(&mut gate, offset, entry.key, member, now_ms) {
            continue;
        }
        count += usize::from(!is_exhausted);
        again.push(offset);
        again_keys.push(entry.key);
    }
    Plan {
        mode: group.mode(),
        frontier: group.frontier(),
        admits_new: group.admits_new(),
        again,
        again_keys,
        count,
        due_ms,
    }
}

/// Whether a new record of this key can be claimed: the member has every earlier record of the key,
/// or requests it in this claim.
fn is_free(group: &Group, key: u64, member: &[u8], now_ms: u64, again: &BTreeSet<u64>) -> bool {
    group.of_key(key).all(|offset| {
        let held = group.entry(offset).and_then(|entry| match entry.state {
            EntryState::Leased { claim, until_ms } if until_ms > now_ms => Some(claim),
            _ => None,
        });
        match held {
            Some(claim) => group.member_of(claim) == Some(member),
            None => again.contains(&offset),
        }
    })
}

fn group_info(topic: &str, name: &str, group: &Group, last: ConsequenceOffset) -> GroupInfo {
    let mut members: BTreeMap<Box<[u8]>, u64> = BTreeMap::new();
    for (_, member, leases) in group.claims() {
        *members.entry(member.into()).or_default() += u64::from(leases);
    }
    let leased: u64 = members.values().sum();
    let setup = group.setup();
    let open = group.entries().len() as u64;
    GroupInfo {
        topic: topic.to_owned(),
        name: name.to_owned(),
        mode: group.mode(),
        cursor: ConsequenceOffset(group.cursor()),
        frontier: ConsequenceOffset(group.frontier()),
        last,
        lag: last.0.saturating_sub(group.frontier()) + open,
        leased,
        waiting: open.saturating_sub(leased),
        oldest_ms: None,
        redeliveries: group.redeliveries(),
        dead_lettered: group.dead_lettered(),
        unwritten_dead_letters: group.unwritten_dead_letters().len() as u64,
        owner: group.owner().cloned(),
        members,
        lease_ms: setup.lease_ms,
        attempts_max: setup.attempts_max,
        pending_max: setup.pending_max,
        dead_letters: setup.dead_letters.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use weir_core::{GroupSetup, TopicOptions};

    use super::*;
    use crate::options::{Durability, OpenOptions};

    #[test]
    fn a_plan_has_at_most_its_maximum_while_the_table_of_dead_letters_is_full() {
        let directory = tempfile::tempdir().unwrap();
        let options = OpenOptions {
            durability: Durability::Memory,
            ..OpenOptions::default()
        };
        let store = Store::open(directory.path(), &options).unwrap();
        let options = &TopicOptions::default();
        let (key, value) = (&b"k"[..], &b"v"[..]);
        let create = [Intention::new("t", Operation::Create { options })];
        store.propose(&create).unwrap().wait().unwrap();
        let puts = vec![Intention::new("t", Operation::Put { key, value }); 5_002];
        for _ in 0..2 {
            store.propose(&puts).unwrap().wait().unwrap();
        }
        let run = |step: GroupStep<'_>| {
            let commit = store.group_step("t", "g", step).unwrap();
            assert_eq!(commit.effect, Effect::Valid);
            commit.intention.0
        };
        let mut setup = GroupSetup::new(GroupMode::Shared);
        (setup.attempts_max, setup.dead_letters) = (1, "dead");
        run(GroupStep::Open(setup));
        let all: Vec<u64> = (2..=10_005).collect();
        for list in all.chunks(GROUP_LIST_MAX) {
            let offsets = Offsets::Plain(list);
            let claim = run(GroupStep::Claim {
                member: b"anna",
                lease_ms: 0,
                seen: 0,
                through: 0,
                offsets,
                keys: None,
            });
            run(GroupStep::Nack {
                claim,
                delay_ms: 0,
                reason: "no",
                offsets,
            });
        }
        let machine = store.engine.machine.read();
        let group = machine.group("t", "g").unwrap();
        let unwritten = group.unwritten_dead_letters().len();
        assert_eq!(unwritten, GROUP_DEAD_LETTERS_MAX);
        assert_eq!(plan(group, b"anna", 1, u64::MAX).again.len(), 1);
    }
}
