//! Groups in a snapshot: one section of a topic (docs/formats/snapshot.md).

use std::collections::{BTreeMap, BTreeSet};

use super::{Claim, DeadLetter, Entry, EntryState, Group, Groups, Owner};
use crate::codec::{Reader, Short, put_short_bytes, put_varint};
use crate::group::{self, GroupMode, GroupName, GroupSetup, GroupStep};
use crate::ids::ConsequenceOffset;
use crate::limits::{
    GROUP_DEAD_LETTERS_MAX, GROUP_MEMBER_BYTES_MAX, GROUPS_MAX, GROUPS_PENDING_MAX,
};
use crate::snapshot::{Input, SnapshotError, Writer};

/// Tag of a topic's section with its groups.
pub(in crate::machine) const GROUPS: u64 = 60;
const SECTION_BYTES_MAX: u64 = 4 << 30;
/// Maximum bytes of a group with its name, without its entries and dead letters.
const GROUP_BYTES_MAX: u64 = 512;
/// Maximum bytes of an entry, with a claim of its own.
const ENTRY_BYTES_MAX: u64 = 120;
/// Maximum bytes of a dead letter that is not written yet.
const DEAD_LETTER_BYTES_MAX: u64 = 300;
const MALFORMED: SnapshotError = SnapshotError::Malformed("the groups of a topic");

// Every section that can be written can be read.
const _: () = assert!(
    GROUPS_MAX as u64 * (GROUP_BYTES_MAX + GROUP_DEAD_LETTERS_MAX as u64 * DEAD_LETTER_BYTES_MAX)
        + GROUPS_PENDING_MAX as u64 * ENTRY_BYTES_MAX
        <= SECTION_BYTES_MAX
);

pub(in crate::machine) fn save(groups: &Groups, out: &mut Writer<'_>) -> Result<(), SnapshotError> {
    let mut bytes = Vec::new();
    put_varint(&mut bytes, groups.len() as u64);
    for (name, group) in groups {
        put_short_bytes(&mut bytes, name.as_str().as_bytes());
        put(group, &mut bytes);
    }
    out.number(GROUPS)?;
    out.bytes(&bytes)
}

fn put(group: &Group, out: &mut Vec<u8>) {
    out.push(group.mode as u8);
    put_varint(out, group.created);
    put_varint(out, group.lease_ms);
    put_varint(out, group.cursor);
    if group.mode == GroupMode::Exclusive {
        out.push(u8::from(group.owner.is_some()));
        if let Some(owner) = &group.owner {
            put_varint(out, owner.generation);
            put_short_bytes(out, &owner.member);
            put_varint(out, owner.until_ms);
        }
        return;
    }
    put_varint(out, u64::from(group.attempts_max));
    put_varint(out, u64::from(group.pending_max));
    put_short_bytes(out, group.dead_letters.as_bytes());
    put_varint(out, group.frontier - group.cursor);
    put_varint(out, group.redeliveries);
    put_varint(out, group.claims.len() as u64);
    let mut last = 0;
    for (id, claim) in &group.claims {
        put_varint(out, id - last);
        put_short_bytes(out, &claim.member);
        last = *id;
    }
    put_varint(out, group.entries.len() as u64);
    let mut last = group.cursor;
    for (offset, entry) in &group.entries {
        put_varint(out, offset - last);
        put_varint(out, u64::from(entry.attempts));
        match entry.state {
            EntryState::Waiting { from_ms } => {
                put_varint(out, 0);
                put_varint(out, from_ms);
            }
            EntryState::Leased { claim, until_ms } => {
                put_varint(out, claim);
                put_varint(out, until_ms);
            }
        }
        if group.mode == GroupMode::Keyed {
            out.extend_from_slice(&entry.key.to_le_bytes());
        }
        last = *offset;
    }
    put_varint(out, group.dead_lettered);
    put_varint(out, group.unwritten_dead_letters.len() as u64);
    let mut last = 0;
    for (number, letter) in &group.unwritten_dead_letters {
        put_varint(out, number - last);
        put_varint(out, letter.offset);
        put_varint(out, u64::from(letter.attempts));
        put_varint(out, letter.time_ms);
        put_short_bytes(out, letter.reason.as_bytes());
        last = *number;
    }
}

/// Reads the groups of a topic. `last` is the topic's newest record, `applied` the machine's newest
/// intention.
pub(in crate::machine) fn load(
    input: &mut Input<'_>,
    topic: &str,
    last: ConsequenceOffset,
    applied: u64,
) -> Result<Groups, SnapshotError> {
    let bytes = input.section(SECTION_BYTES_MAX, "a section of at most 4 GiB")?;
    let mut r = Reader::new(&bytes);
    let groups = read_all(&mut r, topic, last.0, applied).map_err(|Short| MALFORMED)?;
    if groups.is_empty() || !r.is_empty() {
        return Err(MALFORMED);
    }
    Ok(groups)
}

fn read_all(r: &mut Reader<'_>, topic: &str, last: u64, applied: u64) -> Result<Groups, Short> {
    let mut groups = Groups::new();
    let count = r.varint()?;
    if count > GROUPS_MAX as u64 {
        return Err(Short);
    }
    for _ in 0..count {
        let name = GroupName::new(text(r.short_bytes()?)?).ok_or(Short)?;
        if groups
            .last_key_value()
            .is_some_and(|(before, _)| *before >= name)
        {
            return Err(Short);
        }
        let group = read(r, topic, last, applied)?;
        let step = GroupStep::Open(group.setup());
        group::check(topic, name.as_str(), &step).map_err(|_| Short)?;
        groups.insert(name, group);
    }
    Ok(groups)
}

fn text(bytes: &[u8]) -> Result<&str, Short> {
    std::str::from_utf8(bytes).map_err(|_| Short)
}

fn small(number: u64) -> Result<u32, Short> {
    u32::try_from(number).map_err(|_| Short)
}

fn within(number: u64, low: u64, high: u64) -> Result<u64, Short> {
    if (low..=high).contains(&number) {
        Ok(number)
    } else {
        Err(Short)
    }
}

fn member(r: &mut Reader<'_>) -> Result<Box<[u8]>, Short> {
    let member = r.short_bytes()?;
    within(member.len() as u64, 1, GROUP_MEMBER_BYTES_MAX as u64)?;
    Ok(member.into())
}

fn read(r: &mut Reader<'_>, topic: &str, last: u64, applied: u64) -> Result<Group, Short> {
    let mode = GroupMode::from_number(r.u8()?).ok_or(Short)?;
    let mut setup = GroupSetup::new(mode);
    let created = within(r.varint()?, 1, applied)?;
    setup.lease_ms = r.varint()?;
    let cursor = within(r.varint()?, 0, last)?;
    let mut owner = None;
    if mode == GroupMode::Exclusive {
        if within(u64::from(r.u8()?), 0, 1)? == 1 {
            owner = Some(Owner {
                generation: within(r.varint()?, created + 1, applied)?,
                member: member(r)?,
                until_ms: r.varint()?,
            });
        }
    } else {
        setup.attempts_max = small(r.varint()?)?;
        setup.pending_max = small(r.varint()?)?;
        setup.dead_letters = text(r.short_bytes()?)?;
    }
    group::check(topic, "g", &GroupStep::Open(setup)).map_err(|_| Short)?;
    let mut group = Group {
        mode,
        lease_ms: setup.lease_ms,
        attempts_max: setup.attempts_max,
        pending_max: setup.pending_max,
        dead_letters: setup.dead_letters.into(),
        created,
        cursor,
        frontier: cursor,
        owner,
        entries: BTreeMap::new(),
        claims: BTreeMap::new(),
        unwritten_dead_letters: BTreeMap::new(),
        dead_lettered: 0,
        redeliveries: 0,
        due: BTreeSet::new(),
        by_key: BTreeMap::new(),
    };
    if mode != GroupMode::Exclusive {
        group.frontier = within(cursor.checked_add(r.varint()?).ok_or(Short)?, cursor, last)?;
        group.redeliveries = within(r.varint()?, 0, 1 << 62)?;
        read_entries(r, &mut group, applied)?;
        read_dead_letters(r, &mut group, last)?;
    }
    Ok(group)
}

fn read_entries(r: &mut Reader<'_>, group: &mut Group, applied: u64) -> Result<(), Short> {
    let claims = within(r.varint()?, 0, u64::from(group.pending_max))?;
    let mut before = group.created;
    let mut base = 0_u64;
    for _ in 0..claims {
        base = base.checked_add(r.varint()?).ok_or(Short)?;
        before = within(base, before + 1, applied)?;
        let claim = Claim {
            member: member(r)?,
            leases: 0,
        };
        group.claims.insert(before, claim);
    }
    let entries = within(r.varint()?, 0, u64::from(group.pending_max))?;
    let mut offset = group.cursor;
    for _ in 0..entries {
        let next = offset.checked_add(r.varint()?).ok_or(Short)?;
        offset = within(next, offset + 1, group.frontier)?;
        let attempts = small(r.varint()?)?;
        let (claim, time_ms) = (r.varint()?, r.varint()?);
        let state = if claim == 0 {
            EntryState::Waiting { from_ms: time_ms }
        } else {
            let claims = group.claims.get_mut(&claim).filter(|_| attempts > 0);
            claims.ok_or(Short)?.leases += 1;
            EntryState::Leased {
                claim,
                until_ms: time_ms,
            }
        };
        let key = match group.mode {
            GroupMode::Keyed => r.u64()?,
            _ => 0,
        };
        let entry = Entry {
            attempts,
            key,
            state,
        };
        group.entries.insert(offset, entry);
        group.due.insert((state.due_ms(), offset));
        if key != 0 {
            group.by_key.entry(key).or_default().insert(offset);
        }
    }
    // Each state has exactly one encoding: the cursor follows from the entries, and every claim has
    // a lease.
    let first = group.entries.first_key_value();
    let cursor = first.map_or(group.frontier, |(offset, _)| offset - 1);
    if cursor != group.cursor || group.claims.values().any(|claim| claim.leases == 0) {
        return Err(Short);
    }
    Ok(())
}

fn read_dead_letters(r: &mut Reader<'_>, group: &mut Group, last: u64) -> Result<(), Short> {
    group.dead_lettered = within(r.varint()?, 0, 1 << 62)?;
    let mut before = 0_u64;
    for _ in 0..within(r.varint()?, 0, GROUP_DEAD_LETTERS_MAX as u64)? {
        let number = before.checked_add(r.varint()?).ok_or(Short)?;
        before = within(number, before + 1, group.dead_lettered)?;
        let letter = DeadLetter {
            offset: within(r.varint()?, 1, last)?,
            attempts: small(r.varint()?)?,
            time_ms: r.varint()?,
            reason: text(r.short_bytes()?)?.into(),
        };
        group.unwritten_dead_letters.insert(before, letter);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::StepContext;
    use super::*;

    fn bytes(group: &Group) -> u64 {
        let mut out = Vec::new();
        put(group, &mut out);
        out.len() as u64
    }

    #[test]
    fn the_largest_parts_of_a_group_have_at_most_their_maximum_of_bytes() {
        let dead_letters = "d".repeat(255);
        let setup = GroupSetup {
            lease_ms: u64::MAX,
            attempts_max: u32::MAX,
            pending_max: u32::MAX,
            dead_letters: &dead_letters,
            ..GroupSetup::new(GroupMode::Keyed)
        };
        let context = StepContext {
            intention: u64::MAX,
            time_ms: u64::MAX,
            last: u64::MAX,
            entries_free: 0,
        };
        let mut group = Group::new(&setup, &context);
        group.frontier = u64::MAX;
        group.redeliveries = u64::MAX;
        group.dead_lettered = u64::MAX;
        let empty = bytes(&group);
        let counts_and_cursor = 4 * 10;
        let name = 1 + 64;
        assert!(empty + counts_and_cursor + name <= GROUP_BYTES_MAX);
        let letter = DeadLetter {
            offset: u64::MAX,
            attempts: u32::MAX,
            time_ms: u64::MAX,
            reason: "r".repeat(255).into(),
        };
        group.unwritten_dead_letters.insert(u64::MAX, letter);
        let with_letter = bytes(&group);
        assert!(with_letter - empty <= DEAD_LETTER_BYTES_MAX);
        let claim = Claim {
            member: [b'm'; GROUP_MEMBER_BYTES_MAX].into(),
            leases: 1,
        };
        group.claims.insert(u64::MAX, claim);
        let entry = Entry {
            attempts: u32::MAX,
            key: u64::MAX,
            state: EntryState::Leased {
                claim: u64::MAX,
                until_ms: u64::MAX,
            },
        };
        group.entries.insert(u64::MAX, entry);
        assert!(bytes(&group) - with_letter <= ENTRY_BYTES_MAX);
    }
}
