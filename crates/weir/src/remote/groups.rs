//! Groups of a store at a server.

use std::time::Duration;

use bytes::Bytes;
use weir_core::intention::IntentionError;
use weir_core::limits::{GROUP_MEMBER_BYTES_MAX, GROUPS_MAX};
use weir_core::machine::groups::Owner;
use weir_core::{ConsequenceOffset, ErrorCode, GroupName};
use weir_protocol::{CLAIM_RECORDS_MAX, GroupClaim, GroupLine, GroupLines, Message};
use weir_store::{ClaimRequest, GroupInfo, Page, StoreError};

use super::link::packet_of;
use super::{Remote, append_page, error_of, refused, unexpected};
use crate::error::WeirError;

use crate::reply::block_on;
use crate::work::{ClaimResult, Work};

/// Longest time that a server is asked to wait for a record. Its response must arrive before the
/// client considers the connection lost.
const WAIT_MAX: Duration = Duration::from_secs(10);

impl Remote {
    pub(crate) fn group(&self, topic: &str, group: &str) -> Result<Option<GroupInfo>, StoreError> {
        // A server closes the connection when it receives an invalid name.
        if GroupName::new(group).is_none() {
            return Ok(None);
        }
        let bytes = block_on(self.request(&Message::Group { topic, group }))?;
        match packet_of(&bytes)?.message {
            Message::GroupsResponse { lines, .. } => Ok(infos(topic, lines)?.pop()),
            Message::Refusal(refusal) => match refusal.code() {
                Some(ErrorCode::GroupUnknown | ErrorCode::TopicUnknown) => Ok(None),
                _ => Err(refused(&refusal)),
            },
            _ => Err(unexpected()),
        }
    }

    pub(crate) fn groups(&self, topic: &str) -> Result<Vec<GroupInfo>, StoreError> {
        let mut found: Vec<GroupInfo> = Vec::new();
        loop {
            let after = found.last().map_or("", |info| &info.name).to_owned();
            let after = after.as_str();
            let bytes = block_on(self.request(&Message::Groups { topic, after }))?;
            let (more, lines) = match packet_of(&bytes)?.message {
                Message::GroupsResponse { more, lines } => (more, lines),
                Message::Refusal(refusal) if refusal.code() == Some(ErrorCode::TopicUnknown) => {
                    let name = topic.to_owned();
                    return Err(StoreError::TopicUnknown { name });
                }
                _ => return Err(error_of(&bytes)),
            };
            let page = infos(topic, lines)?;
            if !append_page(&mut found, page, GROUPS_MAX, |info| &info.name)? || !more {
                return Ok(found);
            }
        }
    }

    /// Claims records. Waits up to `wait` for the first one, and at most `WAIT_MAX`.
    pub(crate) fn claim(
        &self,
        topic: &str,
        group: &str,
        request: &ClaimRequest<'_>,
        wait: Duration,
    ) -> Result<ClaimResult, WeirError> {
        // A server ends the connection when it receives an invalid name.
        if !(1..=GROUP_MEMBER_BYTES_MAX).contains(&request.member.len()) {
            let error = IntentionError::Group("name of a member");
            return Err(StoreError::Refused { index: 0, error }.into());
        }
        let wait = wait.min(WAIT_MAX).min(self.patience / 2);
        let message = Message::GroupClaim(GroupClaim {
            topic,
            group,
            member: request.member,
            max: (request.max as u64).clamp(1, CLAIM_RECORDS_MAX),
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(0),
            lease_ms: request.lease_ms,
        });
        let bytes = Bytes::from(block_on(self.request(&message))?);
        if let Message::Refusal(refusal) = packet_of(&bytes)?.message {
            return Err(match refusal.code() {
                Some(ErrorCode::TopicUnknown) => StoreError::TopicUnknown {
                    name: topic.to_owned(),
                },
                Some(ErrorCode::GroupUnknown) => StoreError::GroupUnknown {
                    topic: topic.to_owned(),
                    group: group.to_owned(),
                },
                _ => refused(&refusal),
            }
            .into());
        }
        let Message::GroupRecords(answer) = packet_of(&bytes)?.message else {
            return Err(error_of(&bytes).into());
        };
        let (attempts, page) = answer.records().ok_or_else(unexpected)?;
        let mut works = Vec::new();
        if !page.is_empty() {
            let page = Page::read_from(&bytes.slice_ref(page), 0)?;
            for (record, attempts) in page.iter().zip(&attempts) {
                let page = page.starting(record?.offset);
                works.extend(Work::new(page, answer.claim, *attempts)?);
            }
        }
        if works.len() != attempts.len() {
            return Err(unexpected().into());
        }
        let code = u16::try_from(answer.reason).ok();
        let reason = match answer.reason {
            0 => None,
            _ => Some(
                code.and_then(ErrorCode::from_number)
                    .ok_or_else(unexpected)?,
            ),
        };
        Ok(ClaimResult {
            works,
            reason,
            frontier: ConsequenceOffset(answer.frontier),
            due_ms: answer.due_ms,
        })
    }
}

fn infos(topic: &str, lines: &[u8]) -> Result<Vec<GroupInfo>, StoreError> {
    GroupLines::new(lines)
        .map(|line| Ok(info(topic, line.ok_or_else(unexpected)?)))
        .collect()
}

fn info(topic: &str, line: GroupLine<'_>) -> GroupInfo {
    GroupInfo {
        topic: topic.to_owned(),
        name: line.name.to_owned(),
        mode: line.mode,
        cursor: ConsequenceOffset(line.cursor),
        frontier: ConsequenceOffset(line.frontier),
        last: ConsequenceOffset(line.last),
        lag: line.lag,
        leased: line.leased,
        waiting: line.waiting,
        oldest_ms: line.oldest_ms,
        redeliveries: line.redeliveries,
        dead_lettered: line.dead_lettered,
        unwritten_dead_letters: line.unwritten_dead_letters,
        owner: line.owner.map(|owner| Owner {
            generation: owner.generation,
            member: owner.member.into(),
            until_ms: owner.until_ms,
        }),
        members: line
            .members
            .into_iter()
            .map(|(member, records)| (member.into(), records))
            .collect(),
        lease_ms: line.lease_ms,
        attempts_max: line.attempts_max,
        pending_max: line.pending_max,
        dead_letters: line.dead_letters.to_owned(),
    }
}
