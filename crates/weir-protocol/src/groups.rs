//! Groups (docs/formats/native.md, "Groups"): claims, their answers, and the lines that
//! describe groups.
//!
//! Invariant: an announced number of records or members allocates no memory by itself.

use crate::fields::{hex, number, put_hex, put_number};
use crate::{CLAIM_RECORDS_MAX, GROUP_MEMBERS_MAX};
use weir_core::TopicName;
use weir_core::codec::{Reader, put_varint};
use weir_core::group::{GroupMode, GroupName};
use weir_core::limits::GROUP_MEMBER_BYTES_MAX;

/// A claim: a member requests records of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupClaim<'a> {
    /// Topic name.
    pub topic: &'a str,
    /// Name of the group.
    pub group: &'a str,
    /// Name of the claiming member, 1 to 64 bytes.
    pub member: &'a [u8],
    /// Maximum number of records to claim, 1 to [`CLAIM_RECORDS_MAX`].
    pub max: u64,
    /// Longest time to wait for the first record, in milliseconds.
    pub wait_ms: u64,
    /// Duration of the lease in milliseconds; 0: the default of the group.
    pub lease_ms: u64,
}

/// The answer to a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupAnswer<'a> {
    /// Number of the claim, for the acknowledgement of its records; 0 if there is no claim.
    pub claim: u64,
    /// Number of the error of a claim that was not VALID; 0 for VALID.
    pub reason: u64,
    /// All records after this offset are new.
    pub frontier: u64,
    /// Earliest time at which a leased or waiting record may be claimed, in milliseconds
    /// since 1970; `None`: never.
    pub due_ms: Option<u64>,
    /// Deliveries and page; see [`records`](Self::records).
    pub data: &'a [u8],
}

impl<'a> GroupAnswer<'a> {
    /// Appends the data of an answer: the number of deliveries of each record, and the
    /// page. The page must be empty exactly if there is no record.
    pub fn write(out: &mut Vec<u8>, attempts: &[u32], page: &[u8]) {
        put_varint(out, attempts.len() as u64);
        for attempts in attempts {
            put_varint(out, u64::from(*attempts));
        }
        out.extend_from_slice(page);
    }

    /// Returns the number of deliveries of each record, and the page; `None` if the data is
    /// malformed.
    #[must_use]
    pub fn records(&self) -> Option<(Vec<u32>, &'a [u8])> {
        let mut reader = Reader::new(self.data);
        let count = reader.varint().ok()?;
        if count > CLAIM_RECORDS_MAX || count > self.data.len() as u64 {
            return None;
        }
        let mut attempts = Vec::new();
        for _ in 0..count {
            attempts.push(u32::try_from(reader.varint().ok()?).ok()?);
        }
        let page = self.data.get(reader.at()..)?;
        (page.is_empty() == attempts.is_empty()).then_some((attempts, page))
    }
}

/// The owner of an exclusive group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOwner {
    /// Name of the member.
    pub member: Vec<u8>,
    /// Intention offset of its JOIN.
    pub generation: u64,
    /// Log time from which another member may join, in milliseconds since 1970.
    pub until_ms: u64,
}

/// State of a group, as one line describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLine<'a> {
    /// Name.
    pub name: &'a str,
    /// How its members share the topic.
    pub mode: GroupMode,
    /// All records up to this offset are acknowledged.
    pub cursor: u64,
    /// All records after this offset are new.
    pub frontier: u64,
    /// Offset of the newest record of the topic.
    pub last: u64,
    /// Number of offsets that are not acknowledged.
    pub lag: u64,
    /// Number of records that members have leased.
    pub leased: u64,
    /// Number of records that wait for another claim.
    pub waiting: u64,
    /// Time stamp of the first record that is not acknowledged, in milliseconds since 1970.
    pub oldest_ms: Option<u64>,
    /// Number of deliveries, without the first delivery of each record.
    pub redeliveries: u64,
    /// Number of records that became dead letters.
    pub dead_lettered: u64,
    /// Number of dead letters that are not written yet.
    pub unwritten_dead_letters: u64,
    /// Default duration of a lease in milliseconds.
    pub lease_ms: u64,
    /// Deliveries after which a record becomes a dead letter; 0 for no limit.
    pub attempts_max: u32,
    /// Maximum number of acknowledged records after the cursor, and maximum number of leased or
    /// waiting records.
    pub pending_max: u32,
    /// Topic for dead letters; empty for none.
    pub dead_letters: &'a str,
    /// Owner of an exclusive group.
    pub owner: Option<GroupOwner>,
    /// Members with leased records, and the number of these records.
    pub members: Vec<(Vec<u8>, u64)>,
}

/// Appends the line of a group, without LF. Omits members beyond the first
/// [`GROUP_MEMBERS_MAX`].
pub fn write_group(out: &mut Vec<u8>, group: &GroupLine<'_>) {
    fn numbers(out: &mut Vec<u8>, numbers: &[u64]) {
        for number in numbers {
            out.push(b' ');
            put_number(out, *number);
        }
    }
    out.extend_from_slice(group.name.as_bytes());
    numbers(
        out,
        &[
            group.mode as u64,
            group.cursor,
            group.frontier,
            group.last,
            group.lag,
            group.leased,
            group.waiting,
        ],
    );
    match group.oldest_ms {
        Some(ms) => numbers(out, &[ms]),
        None => out.extend_from_slice(b" -"),
    }
    numbers(
        out,
        &[
            group.redeliveries,
            group.dead_lettered,
            group.unwritten_dead_letters,
            group.lease_ms,
            u64::from(group.attempts_max),
            u64::from(group.pending_max),
        ],
    );
    out.push(b' ');
    match group.dead_letters {
        "" => out.push(b'-'),
        topic => out.extend_from_slice(topic.as_bytes()),
    }
    out.push(b' ');
    match &group.owner {
        None => out.push(b'-'),
        Some(owner) => {
            put_hex(out, &owner.member);
            out.push(b':');
            put_number(out, owner.generation);
            out.push(b':');
            put_number(out, owner.until_ms);
        }
    }
    out.push(b' ');
    if group.members.is_empty() {
        out.push(b'-');
    }
    for (index, (member, records)) in group.members.iter().take(GROUP_MEMBERS_MAX).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        put_hex(out, member);
        out.push(b':');
        put_number(out, *records);
    }
}

/// Reads lines about groups.
#[derive(Clone, Debug)]
pub struct GroupLines<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> GroupLines<'a> {
    /// Reads the lines of a message; an empty message has no lines.
    #[must_use]
    pub fn new(lines: &'a [u8]) -> Self {
        Self {
            rest: Some(lines).filter(|lines| !lines.is_empty()),
        }
    }
}

impl<'a> Iterator for GroupLines<'a> {
    /// `None` for a malformed line.
    type Item = Option<GroupLine<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.rest?;
        let end = text.iter().position(|&byte| byte == b'\n');
        self.rest = end.and_then(|end| text.get(end + 1..));
        let read = group(text.get(..end.unwrap_or(text.len()))?);
        if read.is_none() {
            self.rest = None;
        }
        Some(read)
    }
}

fn member(digits: &[u8]) -> Option<Vec<u8>> {
    hex(digits).filter(|name| (1..=GROUP_MEMBER_BYTES_MAX).contains(&name.len()))
}

fn group(line: &[u8]) -> Option<GroupLine<'_>> {
    let mut fields = line.split(|&byte| byte == b' ');
    let name = std::str::from_utf8(fields.next()?).ok()?;
    GroupName::new(name)?;
    let mut next = || number(fields.next()?);
    let mode = GroupMode::from_number(u8::try_from(next()?).ok()?)?;
    let [cursor, frontier, last] = [next()?, next()?, next()?];
    let [lag, leased, waiting] = [next()?, next()?, next()?];
    let oldest_ms = match fields.next()? {
        b"-" => None,
        digits => Some(number(digits)?),
    };
    let mut next = || number(fields.next()?);
    let [redeliveries, dead_lettered, unwritten_dead_letters] = [next()?, next()?, next()?];
    let lease_ms = next()?;
    let attempts_max = u32::try_from(next()?).ok()?;
    let pending_max = u32::try_from(next()?).ok()?;
    let dead_letters = match fields.next()? {
        b"-" => "",
        topic => {
            let topic = std::str::from_utf8(topic).ok()?;
            TopicName::any(topic).ok()?;
            topic
        }
    };
    let owner = match fields.next()? {
        b"-" => None,
        owner => {
            let mut parts = owner.split(|&byte| byte == b':');
            let owner = GroupOwner {
                member: member(parts.next()?)?,
                generation: number(parts.next()?)?,
                until_ms: number(parts.next()?)?,
            };
            Some(parts.next().is_none().then_some(owner)?)
        }
    };
    let mut members = Vec::new();
    match fields.next()? {
        b"-" => {}
        pairs => {
            for pair in pairs.split(|&byte| byte == b',') {
                let at = pair.iter().position(|&byte| byte == b':')?;
                members.push((member(pair.get(..at)?)?, number(pair.get(at + 1..)?)?));
            }
        }
    }
    if fields.next().is_some() || members.len() > GROUP_MEMBERS_MAX {
        return None;
    }
    Some(GroupLine {
        name,
        mode,
        cursor,
        frontier,
        last,
        lag,
        leased,
        waiting,
        oldest_ms,
        redeliveries,
        dead_lettered,
        unwritten_dead_letters,
        lease_ms,
        attempts_max,
        pending_max,
        dead_letters,
        owner,
        members,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    fn line() -> GroupLine<'static> {
        GroupLine {
            name: "jobs",
            mode: GroupMode::Keyed,
            cursor: 1,
            frontier: 9,
            last: u64::MAX,
            lag: 4,
            leased: 2,
            waiting: 3,
            oldest_ms: Some(7),
            redeliveries: 5,
            dead_lettered: 6,
            unwritten_dead_letters: 1,
            lease_ms: 30_000,
            attempts_max: 3,
            pending_max: 10,
            dead_letters: "jobs.dead",
            owner: None,
            members: vec![(b"anna".to_vec(), 1), (vec![0, 255, b' ', b'\n'], 1)],
        }
    }

    #[test]
    fn lines_round_trip() {
        let mut plain = line();
        (plain.oldest_ms, plain.dead_letters) = (None, "");
        plain.members.clear();
        plain.owner = Some(GroupOwner {
            member: b"x:y,z".to_vec(),
            generation: 8,
            until_ms: 9,
        });
        let given = [line(), plain];
        let mut out = Vec::new();
        write_group(&mut out, &given[0]);
        out.push(b'\n');
        write_group(&mut out, &given[1]);
        let read: Vec<_> = GroupLines::new(&out).map(Option::unwrap).collect();
        assert_eq!(read, given);
        assert!(GroupLines::new(b"").next().is_none());
        let text = String::from_utf8(out).unwrap();
        let first = text.lines().next().unwrap();
        assert_eq!(
            first,
            "jobs 2 1 9 18446744073709551615 4 2 3 7 5 6 1 30000 3 10 jobs.dead - \
             616e6e61:1,00ff200a:1"
        );
        for (from, to) in [
            ("jobs 2", "jobs 4"),
            ("jobs 2", "jo/bs 2"),
            (" 30000 ", " -1 "),
            ("616e6e61:1", "616e6e61"),
            ("616e6e61:1", ":1"),
            (" - ", " 61:1 "),
            (" 10 ", " "),
        ] {
            let wrong = first.replacen(from, to, 1);
            assert_eq!(
                GroupLines::new(wrong.as_bytes()).next(),
                Some(None),
                "{wrong}"
            );
        }
    }

    #[test]
    fn deliveries_and_pages_belong_together() {
        let mut data = Vec::new();
        GroupAnswer::write(&mut data, &[1, 300], b"page");
        let read = |data: &[u8]| {
            let answer = GroupAnswer {
                data,
                ..GroupAnswer::default()
            };
            let read = answer.records();
            read.map(|(attempts, page)| (attempts, page.to_vec()))
        };
        assert_eq!(read(&data), Some((vec![1, 300], b"page".to_vec())));
        assert_eq!(read(&[0]), Some((Vec::new(), Vec::new())));
        assert_eq!(read(&[0, 1]), None, "a page without records");
        assert_eq!(read(&[1, 1]), None, "a record without page");
        assert_eq!(read(b""), None);
        assert_eq!(
            read(&[0xff, 0xff, 0xff, 0xff, 0x0f, 1]),
            None,
            "a number alone"
        );
    }
}
