//! Requests to groups. A group is a durable position in a topic that several readers share
//! (docs/formats/batch.md, "Groups").
//!
//! Lists of offsets are read in place from the batch, and a declared count allocates no memory.
//!
//! Invariant: each request has exactly one encoding.

use std::fmt;

use crate::codec::{Reader, Short, put_short_bytes, put_varint};
use crate::ids::TopicName;
use crate::limits::{
    GROUP_ATTEMPTS_MAX, GROUP_LEASE_MS_MAX, GROUP_LIST_MAX, GROUP_MEMBER_BYTES_MAX,
    GROUP_NAME_BYTES_MAX, GROUP_PENDING_MAX,
};

/// Name of a group within its topic: 1 to 64 bytes of `A-Z a-z 0-9 . _ -`, without a leading dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(Box<str>);

impl GroupName {
    /// Checks a name; `None` if it is not valid.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let bytes = name.as_bytes();
        let fits = (1..=GROUP_NAME_BYTES_MAX).contains(&bytes.len()) && !name.starts_with('.');
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
        (fits && bytes.iter().all(allowed)).then(|| Self(name.into()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for GroupName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How the members of a group share its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum GroupMode {
    /// One member reads the topic; another member can take over.
    Exclusive = 1,
    /// A work queue in which one member at a time has the records of a key, in order.
    Keyed = 2,
    /// A work queue in which each record goes to one member.
    Shared = 3,
}

impl GroupMode {
    /// The mode with this number; `None` if there is none.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Exclusive,
            2 => Self::Keyed,
            3 => Self::Shared,
            _ => return None,
        })
    }

    /// Lower-case name, as typed and printed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Keyed => "keyed",
            Self::Shared => "shared",
        }
    }
}

/// Settings of a group, fixed at its creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSetup<'a> {
    /// How its members share the topic.
    pub mode: GroupMode,
    /// Records up to this offset count as acknowledged. An offset after the newest record means the
    /// newest record.
    pub start: u64,
    /// Milliseconds of log time after which a lease expires, from 1 to 86,400,000 (24 hours).
    pub lease_ms: u64,
    /// Maximum number of deliveries of a record, after which it goes to `dead_letters`. 0: no
    /// maximum. Must be 0 in an exclusive group.
    pub attempts_max: u32,
    /// Maximum number of entries, and maximum number of acknowledged records above the first entry.
    /// Not encoded for an exclusive group.
    pub pending_max: u32,
    /// Topic for records that reached the maximum of deliveries. Empty exactly if `attempts_max` is
    /// 0.
    pub dead_letters: &'a str,
}

impl GroupSetup<'_> {
    /// Default settings for a mode, starting at the first record.
    #[must_use]
    pub const fn new(mode: GroupMode) -> Self {
        Self {
            mode,
            start: 0,
            lease_ms: crate::limits::GROUP_LEASE_MS_DEFAULT,
            attempts_max: 0,
            pending_max: crate::limits::GROUP_PENDING_DEFAULT,
            dead_letters: "",
        }
    }
}

/// One change of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupStep<'a> {
    /// Creates the group.
    Open(GroupSetup<'a>),
    /// Deletes the group and its position.
    Delete,
    /// Sets the cursor to any offset. Ends all leases and the ownership.
    Reset {
        /// Records up to this offset count as acknowledged.
        offset: u64,
    },
    /// Exclusive: requests the ownership. Its generation is the intention offset of this step.
    Join {
        /// Name of the member, 1 to 64 bytes.
        member: &'a [u8],
        /// Whether to take over while the lease of another owner runs.
        takeover: bool,
    },
    /// Exclusive: renews the lease of the owner.
    Renew {
        /// Generation of the owner.
        generation: u64,
    },
    /// Exclusive: ends the ownership.
    Leave {
        /// Generation of the owner.
        generation: u64,
    },
    /// Exclusive: moves the cursor forward, never back.
    Move {
        /// Generation of the owner; 0 if there is no owner.
        generation: u64,
        /// Records up to this offset are acknowledged.
        offset: u64,
    },
    /// Keyed and shared: claims records. The number of the claim is the intention offset of this
    /// step.
    Claim {
        /// Name of the member, 1 to 64 bytes.
        member: &'a [u8],
        /// Lease in milliseconds; 0: the default of the group.
        lease_ms: u64,
        /// Frontier of the group when the list was made.
        seen: u64,
        /// Last offset that was considered for the list. Records between the frontier and this
        /// offset that are not in the list count as acknowledged.
        through: u64,
        /// Offsets of the requested records, ascending.
        offsets: Offsets<'a>,
        /// Keyed: the hash of each record's key, 0 for none.
        keys: Option<Hashes<'a>>,
    },
    /// Acknowledges records.
    Ack {
        /// Number of the claim that leased them.
        claim: u64,
        /// Their offsets, ascending.
        offsets: Offsets<'a>,
    },
    /// Returns records to the group, for another delivery.
    Nack {
        /// Number of the claim that leased them.
        claim: u64,
        /// Milliseconds before they may be claimed again.
        delay_ms: u64,
        /// Reason for the dead letter, at most 255 bytes.
        reason: &'a str,
        /// Their offsets, ascending.
        offsets: Offsets<'a>,
    },
    /// Extends leases: they expire `lease_ms` after the time of this step.
    Extend {
        /// Number of the claim that leased them.
        claim: u64,
        /// Lease in milliseconds.
        lease_ms: u64,
        /// Their offsets, ascending.
        offsets: Offsets<'a>,
    },
    /// Reports that dead letters were written.
    DeadLettersWritten {
        /// Their numbers, ascending.
        numbers: Offsets<'a>,
    },
}

/// Ascending numbers above 0: a slice, or in their encoding in a batch.
#[derive(Clone, Copy)]
pub enum Offsets<'a> {
    /// Numbers from a caller; checked when they are pushed into a batch.
    Plain(&'a [u64]),
    /// Numbers read from a batch, already checked.
    Coded(Coded<'a>),
}

/// A list of numbers in its encoding.
#[derive(Clone, Copy)]
pub struct Coded<'a> {
    bytes: &'a [u8],
    count: u32,
}

/// Hashes of keys: a slice, or in their encoding in a batch.
#[derive(Clone, Copy)]
pub enum Hashes<'a> {
    /// Hashes from a caller.
    Plain(&'a [u64]),
    /// Hashes read from a batch, 8 bytes each.
    Coded(&'a [u8]),
}

impl<'a> Offsets<'a> {
    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Plain(list) => list.len(),
            Self::Coded(coded) => coded.count as usize,
        }
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + use<'a> {
        let (plain, coded): (&[u64], _) = match self {
            Self::Plain(list) => (list, None),
            Self::Coded(coded) => (&[], Some(*coded)),
        };
        let mut reader = Reader::new(coded.map_or(&[], |coded| coded.bytes));
        let mut last = 0_u64;
        let count = coded.map_or(0, |coded| coded.count);
        let decoded = (0..count).map_while(move |_| {
            last = last.checked_add(reader.varint().ok()?)?;
            Some(last)
        });
        plain.iter().copied().chain(decoded)
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        let mut before = 0_u64;
        for offset in self.iter() {
            put_varint(out, offset.wrapping_sub(before));
            before = offset;
        }
    }

    fn read(r: &mut Reader<'a>, least: u64) -> Result<Self, Short> {
        let count = r.varint()?;
        if count < least || count > GROUP_LIST_MAX as u64 {
            return Err(Short);
        }
        let (bytes, at) = (r.rest(), r.at());
        let mut before = 0_u64;
        for _ in 0..count {
            let step = r.varint()?;
            let next = before.checked_add(step).filter(|_| step > 0);
            before = next.ok_or(Short)?;
        }
        let bytes = bytes.get(..r.at() - at).ok_or(Short)?;
        let count = u32::try_from(count).map_err(|_| Short)?;
        Ok(Self::Coded(Coded { bytes, count }))
    }

    fn check(&self, least: usize) -> Result<(), &'static str> {
        if self.len() < least || self.len() > GROUP_LIST_MAX {
            return Err("number of offsets in a list");
        }
        let mut before = 0;
        for offset in self.iter() {
            if offset <= before {
                return Err("order of offsets in a list, which must ascend");
            }
            before = offset;
        }
        Ok(())
    }
}

impl PartialEq for Offsets<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for Offsets<'_> {}

impl fmt::Debug for Offsets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> Hashes<'a> {
    /// Number of hashes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Plain(list) => list.len(),
            Self::Coded(bytes) => bytes.len() / 8,
        }
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The hashes in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + use<'a> {
        let (plain, coded): (&[u64], &[u8]) = match self {
            Self::Plain(list) => (list, &[]),
            Self::Coded(bytes) => (&[], bytes),
        };
        let words = coded.as_chunks::<8>().0;
        let decoded = words.iter().map(|word| u64::from_le_bytes(*word));
        plain.iter().copied().chain(decoded)
    }
}

impl PartialEq for Hashes<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Hashes<'_> {}

impl fmt::Debug for Hashes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Hash of a key for claims of a keyed group; 0 only for the empty key.
#[must_use]
pub fn key_hash(key: &[u8]) -> u64 {
    if key.is_empty() {
        return 0;
    }
    crate::digest::hash(0, key).max(1)
}

mod verb {
    pub(super) const OPEN: u8 = 1;
    pub(super) const DELETE: u8 = 2;
    pub(super) const RESET: u8 = 3;
    pub(super) const JOIN: u8 = 4;
    pub(super) const RENEW: u8 = 5;
    pub(super) const LEAVE: u8 = 6;
    pub(super) const MOVE: u8 = 7;
    pub(super) const CLAIM: u8 = 8;
    pub(super) const ACK: u8 = 9;
    pub(super) const NACK: u8 = 10;
    pub(super) const EXTEND: u8 = 11;
    pub(super) const DEAD_LETTERS_WRITTEN: u8 = 12;
}

/// Checks a step before it is pushed into a batch. The error names the invalid field.
pub(crate) fn check(topic: &str, group: &str, step: &GroupStep<'_>) -> Result<(), &'static str> {
    if GroupName::new(group).is_none() {
        return Err("name of a group");
    }
    let require = |is_valid: bool, what| if is_valid { Ok(()) } else { Err(what) };
    let lease = |ms: u64, least: u64| {
        let is_valid = (least..=GROUP_LEASE_MS_MAX).contains(&ms);
        require(is_valid, "number of milliseconds")
    };
    let named = |member: &[u8]| {
        let is_valid = (1..=GROUP_MEMBER_BYTES_MAX).contains(&member.len());
        require(is_valid, "name of a member")
    };
    match step {
        GroupStep::Open(setup) => {
            lease(setup.lease_ms, 1)?;
            check_setup(topic, setup)
        }
        GroupStep::Join { member, .. } => named(member),
        GroupStep::Claim {
            member,
            lease_ms,
            offsets,
            keys,
            ..
        } => {
            named(member)?;
            lease(*lease_ms, 0)?;
            if keys.is_some_and(|keys| keys.len() != offsets.len()) {
                return Err("number of keys of a claim");
            }
            offsets.check(0)
        }
        GroupStep::Ack { offsets, .. } => offsets.check(1),
        GroupStep::Nack {
            delay_ms,
            reason,
            offsets,
            ..
        } => {
            lease(*delay_ms, 0)?;
            if reason.len() > 255 {
                return Err("reason of more than 255 bytes");
            }
            offsets.check(1)
        }
        GroupStep::Extend {
            lease_ms, offsets, ..
        } => {
            lease(*lease_ms, 1)?;
            offsets.check(1)
        }
        GroupStep::DeadLettersWritten { numbers } => numbers.check(1),
        _ => Ok(()),
    }
}

fn check_setup(topic: &str, setup: &GroupSetup<'_>) -> Result<(), &'static str> {
    let dead = setup.dead_letters;
    if dead.is_empty() != (setup.attempts_max == 0) {
        return Err("number of attempts: set `attempts` and `dead_letters` together, or neither");
    }
    if setup.attempts_max > GROUP_ATTEMPTS_MAX {
        return Err("number of attempts: at most 1,000,000");
    }
    if setup.mode == GroupMode::Exclusive {
        return match setup.attempts_max {
            0 => Ok(()),
            _ => Err("number of attempts of an exclusive group"),
        };
    }
    if setup.pending_max == 0 || setup.pending_max > GROUP_PENDING_MAX {
        return Err("number of pending records");
    }
    if !dead.is_empty() && (TopicName::new(dead).is_err() || dead == topic) {
        return Err("topic for dead letters");
    }
    Ok(())
}

/// Appends the payload of a CURSOR.
pub(crate) fn put(out: &mut Vec<u8>, group: &str, step: &GroupStep<'_>) {
    put_short_bytes(out, group.as_bytes());
    match step {
        GroupStep::Open(setup) => {
            out.extend_from_slice(&[verb::OPEN, setup.mode as u8]);
            put_varint(out, setup.start);
            put_varint(out, setup.lease_ms);
            if setup.mode != GroupMode::Exclusive {
                put_varint(out, u64::from(setup.attempts_max));
                put_varint(out, u64::from(setup.pending_max));
                put_short_bytes(out, setup.dead_letters.as_bytes());
            }
        }
        GroupStep::Delete => out.push(verb::DELETE),
        GroupStep::Reset { offset } => put_numbers(out, verb::RESET, &[*offset]),
        GroupStep::Join { member, takeover } => {
            out.push(verb::JOIN);
            put_short_bytes(out, member);
            out.push(u8::from(*takeover));
        }
        GroupStep::Renew { generation } => put_numbers(out, verb::RENEW, &[*generation]),
        GroupStep::Leave { generation } => put_numbers(out, verb::LEAVE, &[*generation]),
        GroupStep::Move { generation, offset } => {
            put_numbers(out, verb::MOVE, &[*generation, *offset]);
        }
        GroupStep::Claim {
            member,
            lease_ms,
            seen,
            through,
            offsets,
            keys,
        } => {
            out.push(verb::CLAIM);
            put_short_bytes(out, member);
            for number in [lease_ms, seen, through] {
                put_varint(out, *number);
            }
            out.push(u8::from(keys.is_some()));
            offsets.put(out);
            for hash in keys.iter().flat_map(Hashes::iter) {
                out.extend_from_slice(&hash.to_le_bytes());
            }
        }
        GroupStep::Ack { claim, offsets } => {
            put_numbers(out, verb::ACK, &[*claim]);
            offsets.put(out);
        }
        GroupStep::Nack {
            claim,
            delay_ms,
            reason,
            offsets,
        } => {
            put_numbers(out, verb::NACK, &[*claim, *delay_ms]);
            put_short_bytes(out, reason.as_bytes());
            offsets.put(out);
        }
        GroupStep::Extend {
            claim,
            lease_ms,
            offsets,
        } => {
            put_numbers(out, verb::EXTEND, &[*claim, *lease_ms]);
            offsets.put(out);
        }
        GroupStep::DeadLettersWritten { numbers } => {
            out.push(verb::DEAD_LETTERS_WRITTEN);
            numbers.put(out);
        }
    }
}

fn put_numbers(out: &mut Vec<u8>, verb: u8, numbers: &[u64]) {
    out.push(verb);
    for number in numbers {
        put_varint(out, *number);
    }
}

/// Reads the payload of a CURSOR for the topic with this name. Rejects every step that cannot be
/// pushed into a batch.
pub(crate) fn read<'a>(
    r: &mut Reader<'a>,
    topic: &[u8],
) -> Result<(&'a str, GroupStep<'a>), &'static str> {
    let (group, step) = read_step(r).map_err(|Short| "a step of a group")?;
    let topic = std::str::from_utf8(topic).map_err(|_| "a topic name")?;
    check(topic, group, &step)?;
    Ok((group, step))
}

fn read_step<'a>(r: &mut Reader<'a>) -> Result<(&'a str, GroupStep<'a>), Short> {
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| Short);
    let group = text(r.short_bytes()?)?;
    let flag = |byte: u8| match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Short),
    };
    let small = |number: u64| u32::try_from(number).map_err(|_| Short);
    let step = match r.u8()? {
        verb::OPEN => {
            let mode = GroupMode::from_number(r.u8()?).ok_or(Short)?;
            let mut setup = GroupSetup::new(mode);
            setup.start = r.varint()?;
            setup.lease_ms = r.varint()?;
            if mode != GroupMode::Exclusive {
                setup.attempts_max = small(r.varint()?)?;
                setup.pending_max = small(r.varint()?)?;
                setup.dead_letters = text(r.short_bytes()?)?;
            }
            GroupStep::Open(setup)
        }
        verb::DELETE => GroupStep::Delete,
        verb::RESET => GroupStep::Reset {
            offset: r.varint()?,
        },
        verb::JOIN => GroupStep::Join {
            member: r.short_bytes()?,
            takeover: flag(r.u8()?)?,
        },
        verb::RENEW => GroupStep::Renew {
            generation: r.varint()?,
        },
        verb::LEAVE => GroupStep::Leave {
            generation: r.varint()?,
        },
        verb::MOVE => GroupStep::Move {
            generation: r.varint()?,
            offset: r.varint()?,
        },
        verb::CLAIM => {
            let member = r.short_bytes()?;
            let (lease_ms, seen, through) = (r.varint()?, r.varint()?, r.varint()?);
            let keyed = flag(r.u8()?)?;
            let offsets = Offsets::read(r, 0)?;
            let keys = if keyed {
                Some(Hashes::Coded(r.take(offsets.len() * 8)?))
            } else {
                None
            };
            GroupStep::Claim {
                member,
                lease_ms,
                seen,
                through,
                offsets,
                keys,
            }
        }
        verb::ACK => GroupStep::Ack {
            claim: r.varint()?,
            offsets: Offsets::read(r, 1)?,
        },
        verb::NACK => GroupStep::Nack {
            claim: r.varint()?,
            delay_ms: r.varint()?,
            reason: text(r.short_bytes()?)?,
            offsets: Offsets::read(r, 1)?,
        },
        verb::EXTEND => GroupStep::Extend {
            claim: r.varint()?,
            lease_ms: r.varint()?,
            offsets: Offsets::read(r, 1)?,
        },
        verb::DEAD_LETTERS_WRITTEN => GroupStep::DeadLettersWritten {
            numbers: Offsets::read(r, 1)?,
        },
        _ => return Err(Short),
    };
    Ok((group, step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_groups_are_checked_at_every_rule() {
        let long = "x".repeat(GROUP_NAME_BYTES_MAX);
        assert!(GroupName::new(&long).is_some());
        for bad in ["", ".a", "a b", "a/b", &format!("{long}x")] {
            assert_eq!(GroupName::new(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn lists_round_trip_and_have_one_encoding() {
        let list = [1, 2, 9, u64::MAX];
        let mut bytes = Vec::new();
        Offsets::Plain(&list).put(&mut bytes);
        let read = |bytes: &[u8]| {
            let mut r = Reader::new(bytes);
            Offsets::read(&mut r, 1).map(|list| list.iter().collect::<Vec<_>>())
        };
        assert_eq!(read(&bytes), Ok(list.to_vec()));
        assert_eq!(read(&[0]), Err(Short), "empty");
        assert_eq!(read(&[1, 0]), Err(Short), "offset 0");
        assert_eq!(read(&[2, 1, 0]), Err(Short), "twice the same");
        assert_eq!(read(&[2, 5]), Err(Short), "ends early");
        let mut over = vec![2];
        put_varint(&mut over, u64::MAX);
        over.push(1);
        assert_eq!(read(&over), Err(Short), "over the last number");
        assert!(Offsets::Plain(&[2, 2]).check(1).is_err());
        assert!(Offsets::Plain(&[0]).check(1).is_err());
    }
}
