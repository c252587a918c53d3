//! `weir group`: durable positions that readers of a topic share.
//!
//! The claim that created a lease identifies it, so a command can acknowledge
//! records that an earlier command claimed. Invariant: only printed records are
//! acknowledged, and if the output is a pipe, only those that its reader has read.

mod options;

use std::borrow::Cow;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use weir::{
    ErrorCode, GroupInfo, GroupMode, GroupOffsets, GroupSetup, GroupStep, Intention, Operation,
    ReadFrom, Record, Topic, Weir, Work,
};

use crate::arguments::position;
use crate::caller::Caller;
use crate::confirm::confirm;
use crate::follower::open_now;
use crate::output::{Cell, Field, Output, Shape, field, wide};
use crate::place::{self, Access};
use crate::query::{check_consumer, wait_until_read};
use crate::record;
use crate::report::{Failure, FailureContext, usage};
use crate::write::{answer, propose_one};
use crate::{settings, verdict};

/// Default name of a member.
const MEMBER: &str = "cli";
/// Records in one claim of `weir tail --group`.
const TAIL_RECORDS: usize = 100;
/// How long a claim waits for records before the member renews its ownership.
const FOLLOW_WAIT: Duration = Duration::from_secs(10);
/// Pause of `weir group claim --wait` between two reads of a directory.
const CLAIM_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct GroupArgs {
    #[command(subcommand)]
    verb: Verb,
}

/// Claimed records of a group.
#[derive(Debug, Args)]
struct ClaimedRecords {
    /// Name of the topic
    topic: String,
    /// Name of the group
    group: String,
    /// Offsets of the claimed records
    #[arg(required = true, value_name = "OFFSET")]
    offsets: Vec<u64>,
    /// Number of the claim that returned the records (field `claim`)
    #[arg(long, value_name = "CLAIM")]
    claim: u64,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Create a group
    #[command(after_long_help = "\
Options, which cannot be changed later:
  mode=shared         work queue: each record is delivered to one member (default)
  mode=keyed          as shared, but one member at a time gets the records of a key, in order
  mode=exclusive      position in the topic that one member moves
  from=POSITION       first record: start (default), end, an offset, -N for the last N records,
                      or a time
  lease=TIME          time until a claimed record is delivered again, or until an exclusive
                      member that sends no request loses the position (default 30s)
  attempts-max=N      deliveries after which a record becomes a dead letter (default no limit)
  dead-letters=TOPIC  topic for dead letters; set it together with attempts-max
  pending-max=N       maximum records that are claimed or wait for redelivery (default 100000)

Examples:
  weir put jobs x && weir group create jobs work
  weir put jobs y && weir group create jobs mail mode=exclusive from=end
  weir put jobs z && weir group create jobs hard attempts-max=3 dead-letters=dead")]
    Create {
        /// Name of the topic
        topic: String,
        /// Name: A-Z a-z 0-9 . _ -
        group: String,
        /// Options of the group
        #[arg(value_name = "OPTION=VALUE")]
        options: Vec<String>,
    },
    /// List the groups of a topic, or of all topics
    #[command(after_long_help = "Examples:\n  \
        weir put jobs x && weir group create jobs work && weir group ls jobs\n  \
        weir group ls -o json")]
    Ls {
        /// Name of the topic
        topic: Option<String>,
    },
    /// Show a group: its position, members and pending records
    #[command(after_long_help = "Examples:\n  \
        weir put jobs x && weir group create jobs work && weir group show jobs work\n  \
        weir group show jobs work -o json")]
    Show {
        /// Name of the topic
        topic: String,
        /// Name of the group
        group: String,
    },
    /// Claim records; a record is delivered again if its lease ends without an acknowledgement
    #[command(after_long_help = "\
Prints a line for each record. `weir group ack` and `nack` need the number in the field `claim`. One
call claims at most 10,000 records, or 1,000 at a server.

Without --wait, the command returns at once, also if there is no record. With --wait, a server answers
as soon as there is a record. A directory is opened once a second, so that other commands can write.

Examples:
  weir put jobs x && weir group create jobs work && weir group claim jobs work --wait 1m
  weir put jobs y && weir group claim jobs work --max 10 --lease 1m -o json")]
    Claim {
        /// Name of the topic
        topic: String,
        /// Name of the group
        group: String,
        /// Maximum number of records
        #[arg(long, default_value = "1", value_name = "N")]
        max: usize,
        /// Name of the member
        #[arg(long, default_value = MEMBER, value_name = "NAME")]
        member: String,
        /// Lease of the records, at most 24h [default: lease of the group]
        #[arg(long, value_parser = settings::duration, value_name = "TIME")]
        lease: Option<Duration>,
        /// Maximum wait for the first record
        #[arg(long, default_value = "0s", value_parser = settings::duration, value_name = "TIME")]
        wait: Duration,
    },
    /// Acknowledge records, so that they are not delivered again
    #[command(after_long_help = "Examples:\n  \
        weir put j x && weir group create j w && weir group claim j w && \
        weir group ack j w 2 --claim 4\n  \
        weir group ack j w 2 --claim 4 -o json")]
    Ack(ClaimedRecords),
    /// Return records to the group, so that they are delivered again
    #[command(after_long_help = "Examples:\n  \
        weir put j x && weir group create j w && weir group claim j w && \
        weir group nack j w 2 --claim 4\n  \
        weir put j y && weir group claim j w && weir group nack j w 2 --claim 7 --delay 1m")]
    Nack {
        #[command(flatten)]
        records: ClaimedRecords,
        /// Delay before the records can be claimed again, at most 24h
        #[arg(long, default_value = "0s", value_parser = settings::duration, value_name = "TIME")]
        delay: Duration,
        /// Reason, which a dead letter of the record contains
        #[arg(long, default_value = "", value_name = "TEXT")]
        reason: String,
    },
    /// Move a group to a position; its members lose their claims
    #[command(after_long_help = "\
POSITION is the record that is delivered next: start, end, an offset, -N for the last N records, or
a time (10m, 2026-11-01).

Examples:
  weir put jobs x && weir group create jobs work && weir group reset jobs work end
  weir group reset jobs work -1")]
    Reset {
        /// Name of the topic
        topic: String,
        /// Name of the group
        group: String,
        /// Record that is delivered next
        #[arg(value_parser = position, value_name = "POSITION", allow_hyphen_values = true)]
        to: ReadFrom,
    },
    /// Remove a group and its position
    #[command(after_long_help = "Examples:\n  \
        weir put jobs x && weir group create jobs work && weir group rm jobs work --yes\n  \
        weir group create jobs work && weir group rm jobs work -y -o json")]
    Rm {
        /// Name of the topic
        topic: String,
        /// Name of the group
        group: String,
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
    },
}

/// Fields of a group.
pub(crate) const FIELDS: &[Field] = &[
    field("topic", "text", "topic of the group"),
    field("group", "text", "name of the group"),
    field("mode", "text", "exclusive, keyed or shared"),
    field(
        "cursor",
        "number",
        "all records up to this offset are acknowledged or dead letters",
    ),
    field("last", "number", "offset of the newest record"),
    field("lag", "number", "offsets that are not acknowledged yet"),
    field(
        "leased",
        "number",
        "records that members have claimed and not acknowledged",
    ),
    field(
        "waiting",
        "number",
        "records that were returned to the group, or wait for other records",
    ),
    field(
        "oldest",
        "time",
        "when the oldest record that is not acknowledged was written, null: none",
    ),
    field(
        "members",
        "text",
        "each member with the number of its claimed records, or the owner of an exclusive group",
    ),
    wide(
        "redeliveries",
        "number",
        "deliveries after the first one of each record",
    ),
    wide(
        "dead_lettered",
        "number",
        "records that became dead letters",
    ),
    wide(
        "unwritten_dead_letters",
        "number",
        "dead letters that are not written yet",
    ),
    wide("lease_ms", "number", "duration of a lease in milliseconds"),
    wide(
        "attempts_max",
        "number",
        "maximum deliveries of a record, null: no limit",
    ),
    wide(
        "dead_letters",
        "text",
        "topic for records that reached attempts_max, null: none",
    ),
];

fn row(info: &GroupInfo) -> [Cell<'_>; 16] {
    let name = |bytes: &[u8]| crate::bytes::printable(bytes);
    let mut members: Vec<String> = info
        .members
        .iter()
        .map(|(member, leases)| format!("{}:{leases}", name(member)))
        .collect();
    members.extend(info.owner.as_ref().map(|owner| name(&owner.member)));
    let dead = (!info.dead_letters.is_empty()).then_some(info.dead_letters.as_str());
    [
        Cell::Text(Cow::Borrowed(&info.topic)),
        Cell::Text(Cow::Borrowed(&info.name)),
        Cell::Text(Cow::Borrowed(info.mode.name())),
        Cell::Count(info.cursor.0),
        Cell::Count(info.last.0),
        Cell::Count(info.lag),
        Cell::Count(info.leased),
        Cell::Count(info.waiting),
        info.oldest_ms.map_or(Cell::Nothing, Cell::Time),
        Cell::Text(Cow::Owned(members.join(" "))),
        Cell::Count(info.redeliveries),
        Cell::Count(info.dead_lettered),
        Cell::Count(info.unwritten_dead_letters),
        Cell::Count(info.lease_ms),
        match info.attempts_max {
            0 => Cell::Nothing,
            max => Cell::Count(u64::from(max)),
        },
        dead.map_or(Cell::Nothing, |dead| Cell::Text(Cow::Borrowed(dead))),
    ]
}

/// Fields of a claimed record.
pub(crate) const CLAIM_FIELDS: &[Field] = &[
    field("claim", "number", "number of the claim, for ack and nack"),
    field(
        "offset",
        "number",
        "position of the record in the topic, from 1",
    ),
    field(
        "attempts",
        "number",
        "number of deliveries of the record, including this one",
    ),
    field("time", "time", "when the record was written, RFC 3339 UTC"),
    field("kind", "text", "PUT or DELETE"),
    field(
        "key",
        "bytes",
        "the key; named `key64`, in base64, if it is not UTF-8; null: none",
    ),
    field(
        "value",
        "bytes",
        "the value as JSON; named `text` or `value64` (base64) if it is not JSON",
    ),
];

fn claim_row<'a>(claim: u64, attempts: u32, record: &Record<'a>) -> [Cell<'a>; 7] {
    let [_, offset, time, kind, key, value, ..] = record::row("", record);
    [
        Cell::Count(claim),
        offset,
        Cell::Count(u64::from(attempts)),
        time,
        kind,
        key,
        value,
    ]
}

/// Runs `weir group`.
pub(crate) fn run(caller: &Caller, args: &GroupArgs) -> anyhow::Result<ExitCode> {
    match &args.verb {
        Verb::Create {
            topic,
            group,
            options,
        } => {
            let options = options::parse(options)?;
            let mut setup = GroupSetup::new(options.mode);
            setup.lease_ms = options.lease_ms.unwrap_or(setup.lease_ms);
            setup.attempts_max = options.attempts_max.unwrap_or(setup.attempts_max);
            setup.pending_max = options.pending_max.unwrap_or(setup.pending_max);
            setup.dead_letters = options.dead_letters.as_deref().unwrap_or_default();
            step(caller, topic, group, |handle, _| {
                setup.start = offset_before(handle, options.from)?;
                Ok(GroupStep::Open(setup))
            })
        }
        Verb::Ls { topic } => list(caller, topic.as_deref()),
        Verb::Show { topic, group } => show(caller, topic, group),
        Verb::Claim {
            topic,
            group,
            max,
            member,
            lease,
            wait,
        } => claim(caller, (topic, group), (*max, member, *lease), *wait),
        Verb::Ack(records) => {
            let offsets = sorted(&records.offsets);
            let claim = records.claim;
            step(caller, &records.topic, &records.group, |_, info| {
                // In an exclusive group, the claim number is that of the ownership.
                if info.is_some_and(|info| info.mode == GroupMode::Exclusive) {
                    let offset = offsets.last().copied().unwrap_or(0);
                    let generation = claim;
                    return Ok(GroupStep::Move { generation, offset });
                }
                let offsets = GroupOffsets::Plain(&offsets);
                Ok(GroupStep::Ack { claim, offsets })
            })
        }
        Verb::Nack {
            records,
            delay,
            reason,
        } => {
            let offsets = sorted(&records.offsets);
            step(caller, &records.topic, &records.group, |_, _| {
                Ok(GroupStep::Nack {
                    claim: records.claim,
                    delay_ms: millis(*delay),
                    reason,
                    offsets: GroupOffsets::Plain(&offsets),
                })
            })
        }
        Verb::Reset { topic, group, to } => step(caller, topic, group, |handle, _| {
            let offset = offset_before(handle, *to)?;
            Ok(GroupStep::Reset { offset })
        }),
        Verb::Rm { topic, group, yes } => {
            if !yes {
                confirm("group", group)?;
            }
            step(caller, topic, group, |_, _| Ok(GroupStep::Delete))
        }
    }
}

/// The offset of the last record before the position `from`. The group counts all records up to
/// that offset as acknowledged.
fn offset_before(topic: &Topic, from: ReadFrom) -> anyhow::Result<u64> {
    let failed = || format!("cannot read {}", topic.name());
    Ok(topic.offset_before(from).failed(failed)?.0)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn sorted(offsets: &[u64]) -> Vec<u64> {
    let mut offsets = offsets.to_vec();
    offsets.sort_unstable();
    offsets.dedup();
    offsets
}

/// Sends one step of a group, and prints the verdict.
fn step<'a>(
    caller: &Caller,
    topic: &'a str,
    group: &'a str,
    make: impl FnOnce(&Topic, Option<&GroupInfo>) -> anyhow::Result<GroupStep<'a>>,
) -> anyhow::Result<ExitCode> {
    let Some(out) = caller.style.open(Shape::One, verdict::FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let weir = place::open(caller, Access::Change)?;
    let failed = || format!("cannot change group {group} of {topic}");
    let handle = weir.topic(topic).failed(failed)?;
    let info = handle.group_info(group).failed(failed)?;
    let step = make(&handle, info.as_ref())?;
    let intention = Intention::new(topic, Operation::Cursor { group, step });
    let outcome = propose_one(&weir, intention, failed)?;
    let exit = answer(out, &weir, topic, &outcome, false)?;
    weir.close().failed(failed)?;
    Ok(exit)
}

/// The group. Fails if it does not exist.
fn find(weir: &Weir, topic: &str, group: &str) -> anyhow::Result<GroupInfo> {
    let failed = || format!("cannot read group {group} of {topic}");
    let handle = weir.topic(topic).failed(failed)?;
    let missing = || {
        let what = format!("topic {topic} has no group {group}");
        Failure::new(ErrorCode::GroupUnknown, what)
    };
    let info = handle.group_info(group).failed(failed)?;
    Ok(info.ok_or_else(missing)?)
}

fn list(caller: &Caller, topic: Option<&str>) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::List, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let weir = place::open(caller, Access::Read)?;
    let topics = if let Some(topic) = topic {
        vec![topic.to_owned()]
    } else {
        let known = weir.topics(true);
        let known = known.failed(|| "cannot list the topics".to_owned())?;
        known.into_iter().map(|info| info.name).collect()
    };
    for topic in topics {
        let failed = || format!("cannot read {topic}");
        let groups = weir.topic(&topic).failed(failed)?.groups();
        let groups = groups.failed(failed)?;
        for info in &groups {
            out.row(&row(info))?;
        }
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn show(caller: &Caller, topic: &str, group: &str) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let weir = place::open(caller, Access::Read)?;
    out.row(&row(&find(&weir, topic, group)?))?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// The largest number of records, the member, and the lease of a claim.
type ClaimSetup<'a> = (usize, &'a str, Option<Duration>);

fn claim(
    caller: &Caller,
    names: (&str, &str),
    setup: ClaimSetup<'_>,
    wait: Duration,
) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::Stream, CLAIM_FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    if setup.0 == 0 {
        return Err(usage("--max must be at least 1"));
    }
    let deadline = Instant::now().checked_add(wait);
    let mut opened = Some(place::open(caller, Access::Change)?);
    let mut is_first = true;
    loop {
        if let Some(weir) = opened.take() {
            let works = claim_from(&weir, names, setup, (deadline, is_first))?;
            for work in &works {
                out.row(&claim_row(work.claim(), work.attempts(), &work.record()))?;
            }
            let is_done = !works.is_empty() || time_left(deadline).is_zero();
            if is_done {
                out.finish()?;
                weir.close().failed(|| cannot_claim(names))?;
                return Ok(ExitCode::SUCCESS);
            }
            weir.close().failed(|| cannot_claim(names))?;
            is_first = false;
        }
        if time_left(deadline).is_zero() {
            // Another process still has the directory open.
            out.finish()?;
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(time_left(deadline).min(CLAIM_PAUSE));
        check_consumer()?;
        opened = open_now(caller, Access::Change)?;
    }
}

fn cannot_claim((topic, group): (&str, &str)) -> String {
    format!("cannot claim from group {group} of {topic}")
}

/// The time until the deadline. Without a deadline there is no limit.
fn time_left(deadline: Option<Instant>) -> Duration {
    deadline.map_or(Duration::MAX, |end| {
        end.saturating_duration_since(Instant::now())
    })
}

/// Claims records. At a server, waits for the first one until the deadline. `is_first`: this is the
/// first attempt of the command.
fn claim_from(
    weir: &Weir,
    names: (&str, &str),
    (max, member, lease): ClaimSetup<'_>,
    (deadline, is_first): (Option<Instant>, bool),
) -> anyhow::Result<Vec<Work>> {
    let failed = || cannot_claim(names);
    let (topic, group) = names;
    let info = find(weir, topic, group)?;
    if info.lag == 0 && !is_first && weir.local().is_some() {
        // In an exclusive group, a claim joins the group, which is written to the log.
        return Ok(Vec::new());
    }
    let handle = weir.topic(topic).failed(failed)?;
    let handle = handle.group(group, info.mode).failed(failed)?;
    let mut handle = handle.member(member).lease(lease);
    loop {
        let wait = if weir.local().is_some() {
            Duration::ZERO
        } else {
            time_left(deadline).min(FOLLOW_WAIT)
        };
        let works = handle.claim(max, wait).failed(failed)?;
        if !works.is_empty() || wait.is_zero() {
            return Ok(works);
        }
        check_consumer()?;
        // The owner of an exclusive group is still active, so it renews its ownership.
        handle.extend(&works, wait).failed(failed)?;
    }
}

/// When `weir tail --group` ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// At the end of the topic.
    End,
    /// At the end of the topic. Joins the group only if there are records to read.
    EndIfAny,
    /// Never.
    Never,
}

/// `weir tail --group`: prints the records that the group has not acknowledged, and acknowledges
/// them, at most `left` records. Subtracts their number from `left`, also if it fails later.
pub(crate) fn tail(
    weir: &Weir,
    (topic, group): (&str, &str),
    left: &mut u64,
    until: Until,
    out: &mut Output,
) -> anyhow::Result<()> {
    let follow = until == Until::Never;
    let failed = || format!("cannot read {topic} as group {group}");
    let handle = weir.topic(topic).failed(failed)?;
    let info = handle.group_info(group).failed(failed)?;
    let is_at_end = info.as_ref().is_some_and(|info| info.lag == 0);
    if let Some(other) = info.filter(|info| info.mode != GroupMode::Exclusive) {
        let why = format!(
            "the mode of the group is {}, but `weir tail` needs an exclusive group",
            other.mode.name()
        );
        let advice = format!(
            "claim the records with `weir group claim {topic} {group}`, or name a new group: \
             `weir tail` creates it as exclusive"
        );
        let failure = Failure::new(ErrorCode::GroupMode, failed());
        return Err(failure.because(why).advise(advice).into());
    }
    if is_at_end && until == Until::EndIfAny {
        // A join is written to the log, and would wake all followers.
        return Ok(());
    }
    let mut handle = handle
        .group(group, GroupMode::Exclusive)
        .failed(failed)?
        .member(MEMBER);
    while *left > 0 {
        let max = usize::try_from(*left)
            .unwrap_or(TAIL_RECORDS)
            .min(TAIL_RECORDS);
        let wait = if follow { FOLLOW_WAIT } else { Duration::ZERO };
        let works = handle.claim(max, wait).failed(failed)?;
        if works.is_empty() && follow {
            check_consumer()?;
            // This member is still active, so it renews its ownership.
            handle.extend(&works, wait).failed(failed)?;
            continue;
        }
        if works.is_empty() {
            break;
        }
        for work in &works {
            out.row(&record::row(topic, &work.record()))?;
        }
        out.flush()?;
        wait_until_read()?;
        let lost = handle.ack(&works).failed(failed)?;
        if !lost.is_empty() {
            let failure = Failure::new(ErrorCode::NotOwner, failed());
            return Err(failure.because("another member took over the group").into());
        }
        *left -= works.len() as u64;
    }
    handle.leave().failed(failed)?;
    // The acknowledged records must be printed before the caller relies on them.
    std::io::stdout().flush().failed(failed)
}
