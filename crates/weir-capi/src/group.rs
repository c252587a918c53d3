//! Groups: a handle is a member, which claims records and acknowledges them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir::{Claim, ConsequenceOffset, ErrorCode, GroupMode, GroupSetup, Settle};

use crate::deadline::{CHECK_INTERVAL, CancelToken};
use crate::error::{Fail, Kind};
use crate::handle::{Caller, zeroed};
use crate::page::Page;
use crate::raw;
use crate::read::position_of;
use crate::registry::{self, Exclusive};
use crate::store::{check_flags, get_store};

/// Flag of `weir_group_options`.
const EXISTING: u32 = 1;
/// How often a claim at a server checks whether it must end. The server waits as long for a record.
const REMOTE_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Time limit for the response after that. Records in a late response stay claimed until their
/// leases expire.
const UNANSWERED: Duration = Duration::from_secs(1);
/// Largest number of records in a claim.
const CLAIM_MAX: u64 = 10_000;

/// A member, as a handle of the caller.
#[derive(Debug)]
pub(crate) struct Group {
    member: Exclusive<weir::Group>,
    cancel_token: Arc<CancelToken>,
    local: bool,
}

pub(crate) fn open(
    c: &Caller,
    store: *mut raw::Weir,
    topic: raw::Slice,
    group: raw::Slice,
    options: *const raw::GroupOptions,
    out: *mut *mut raw::Group,
) -> Result<Kind, Fail> {
    let store = get_store(store)?;
    c.check_output(out, 1)?;
    let topic = c.text(topic, "the topic")?;
    let name = c.text(group, "the name of the group")?;
    let given = c.options(options)?;
    check_flags(given.flags, EXISTING, "flags")?;
    let mode = u8::try_from(given.mode).ok();
    let mode = mode.and_then(GroupMode::from_number);
    let mode = mode.ok_or_else(|| Fail::option("the mode", given.mode))?;
    let mut setup = GroupSetup::new(mode);
    if given.lease_ms != 0 {
        setup.lease_ms = given.lease_ms;
    }
    if given.pending_max != 0 {
        setup.pending_max = given.pending_max;
    }
    setup.attempts_max = given.attempts_max;
    setup.dead_letters = c.text(given.dead_letters, "the topic for dead letters")?;
    let from = position_of(given.from, given.value)?;
    let member_name = c.short(given.member)?;
    let slot = registry::reserve()?;
    let mut member = store.wait_context().write(|| {
        let topic = store.weir.topic(topic)?;
        if given.flags & EXISTING != 0 && topic.group_info(name)?.is_none() {
            return Err(Fail::of(ErrorCode::GroupUnknown));
        }
        setup.start = topic.offset_before(from)?.0;
        Ok(topic.group_with(name, &setup)?)
    })?;
    if !member_name.is_empty() {
        member = member.member(member_name);
    }
    if given.claim_lease_ms != 0 {
        member = member.lease(Some(Duration::from_millis(given.claim_lease_ms)));
    }
    let local = store.is_local();
    let (every, unanswered) = if local {
        (CHECK_INTERVAL, None)
    } else {
        (REMOTE_CHECK_INTERVAL, Some(UNANSWERED))
    };
    let group = Group {
        member: Exclusive::new(member),
        cancel_token: store.cancel_token(every, unanswered),
        local,
    };
    c.write(out, slot.fill(Arc::new(group))?)?;
    Ok(Kind::Ok)
}

/// A member whose store is open.
fn get_group(group: *mut raw::Group) -> Result<Arc<Group>, Fail> {
    let group = registry::get::<Group, _>(group)?;
    group.cancel_token.check_open()?;
    Ok(group)
}

impl Group {
    /// Executes a step that writes. A local store waits only for its disk.
    fn write<T>(&self, step: impl FnOnce() -> Result<T, Fail>) -> Result<T, Fail> {
        if self.local {
            return step();
        }
        self.cancel_token.wait_context().write(step)
    }
}

/// Calls `action` with the member.
fn with_member<T>(
    group: &Group,
    action: impl FnOnce(&mut weir::Group) -> Result<T, Fail>,
) -> Result<T, Fail> {
    action(&mut *group.member.lock()?)
}

pub(crate) fn claim(
    c: &Caller,
    group: *mut raw::Group,
    limit: u64,
    timeout_ms: u64,
    out: *mut *mut raw::Page,
) -> Result<Kind, Fail> {
    let group = get_group(group)?;
    c.check_output(out, 1)?;
    if limit == 0 {
        return Err(Fail::option("the limit", limit));
    }
    let slot = registry::reserve()?;
    let limit = usize::try_from(limit.min(CLAIM_MAX)).unwrap_or(usize::MAX);
    let works = with_member(&group, |member| {
        group.cancel_token.wait(timeout_ms, |until| {
            let now = Instant::now();
            let wait = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
            let works = member.claim(limit, wait)?;
            Ok((!works.is_empty()).then_some(works))
        })
    })?;
    match works {
        Some(works) => {
            Page::works(&works).into_slot(slot, c, out)?;
            Ok(Kind::Ready)
        }
        None => Ok(Kind::Timeout),
    }
}

#[allow(clippy::too_many_arguments, reason = "the header has these parameters")]
pub(crate) fn settle(
    c: &Caller,
    group: *mut raw::Group,
    claims: *const raw::Claim,
    count: usize,
    verb: u32,
    time_ms: u64,
    reason: raw::Slice,
    lost: *mut u64,
    lost_count: *mut usize,
) -> Result<Kind, Fail> {
    let group = get_group(group)?;
    let time = Duration::from_millis(time_ms);
    let action = match verb {
        1 => Settle::Done,
        2 => Settle::DoneSoon,
        3 => Settle::Fail {
            delay: time,
            reason: c.text(reason, "the reason")?,
        },
        4 => Settle::Extend { lease: time },
        other => return Err(Fail::option("the verb", other)),
    };
    if lost.is_null() != lost_count.is_null() && count > 0 {
        return Err(Fail::of(ErrorCode::NullPointer));
    }
    if !lost_count.is_null() {
        c.check_output(lost, count)?;
        c.check_output(lost_count, 1)?;
    }
    let claims: Vec<Claim> = c
        .array(claims, count)?
        .iter()
        .map(|claim| Claim {
            claim: claim.claim,
            offset: ConsequenceOffset(claim.offset),
        })
        .collect();
    let lost_offsets = with_member(&group, |member| {
        group.write(|| Ok(member.settle(&claims, action)?))
    })?;
    if !lost_count.is_null() {
        let offsets = lost_offsets.iter().map(|offset| offset.0);
        let offsets: Vec<u64> = offsets.take(count).collect();
        c.write_all(lost, &offsets)?;
        c.write(lost_count, offsets.len())?;
    }
    Ok(Kind::Ok)
}

pub(crate) fn step(
    _: &Caller,
    group: *mut raw::Group,
    verb: u32,
    from: u32,
    value: u64,
) -> Result<Kind, Fail> {
    let group = get_group(group)?;
    let to = position_of(from, value)?;
    let verdict = with_member(&group, |member| {
        group.write(|| {
            Ok(match verb {
                1 => {
                    member.take_over()?;
                    return Ok(None);
                }
                2 => {
                    member.leave()?;
                    return Ok(None);
                }
                3 => member.reset(to)?,
                4 => member.delete()?,
                other => return Err(Fail::option("the verb", other)),
            }
            .reason())
        })
    })?;
    match verdict {
        None => Ok(Kind::Ok),
        Some(code) => Err(Fail::of(code)),
    }
}

pub(crate) fn describe(
    c: &Caller,
    group: *mut raw::Group,
    out: *mut raw::GroupInfo,
) -> Result<Kind, Fail> {
    let group = get_group(group)?;
    c.info_size(out)?;
    let found = with_member(&group, |member| {
        if group.local {
            return Ok(member.info()?);
        }
        group.cancel_token.wait_context().run(|| Ok(member.info()?))
    })?;
    let mut info = zeroed::<raw::GroupInfo>();
    info.mode = found.mode as u32;
    info.cursor = found.cursor.0;
    info.frontier = found.frontier.0;
    info.last = found.last.0;
    info.lag = found.lag;
    info.leased = found.leased;
    info.waiting = found.waiting;
    info.redeliveries = found.redeliveries;
    info.dead_lettered = found.dead_lettered;
    info.unwritten_dead_letters = found.unwritten_dead_letters;
    c.write_info(out, &info)?;
    Ok(Kind::Ok)
}

pub(crate) fn cancel(group: *mut raw::Group) -> Result<Kind, Fail> {
    registry::get::<Group, _>(group)?.cancel_token.cancel();
    Ok(Kind::Ok)
}

pub(crate) fn free(group: *mut raw::Group) {
    if let Ok(group) = registry::remove::<Group, _>(group) {
        group.cancel_token.free();
    }
}
