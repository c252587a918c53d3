//! `weir topic`: creates, lists, changes and removes topics.

use std::borrow::Cow;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use weir::{ErrorCode, Operation, ReadFrom, TopicInfo, Weir};

use crate::caller::Caller;
use crate::confirm::confirm;
use crate::output::{Cell, Field, Shape, field, wide};
use crate::place::{self, Access};
use crate::report::{self, Failure, FailureContext, note};
use crate::topic_options as options;
use crate::write::change;

#[derive(Debug, Args)]
pub(crate) struct TopicArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Create a topic
    #[command(after_long_help = "\
Options: compaction=off|latest, tombstone-ttl=TIME, compaction-lag=TIME, key-bytes-max=SIZE,
value-bytes-max=SIZE, keys-max=N, retention-age=TIME, retention-bytes=SIZE, retention-records=N,
hold-for-groups=NAME,...; `none` takes an option back. Retention removes what is over any of its
limits, whole segments at a time, but no record that one of the groups has not done. A topic with
retention-records=0 and a group to hold for keeps only the records that are not done. The options of a
topic with a program are in `weir program deploy --help`.

Examples:
  weir topic create orders
  weir topic create state compaction=latest keys-max=1000000
  weir topic create jobs retention-records=0 hold-for-groups=work")]
    Create {
        /// Name: A-Z a-z 0-9 . _ -
        name: String,
        /// Options of the topic
        #[arg(value_name = "OPTION=VALUE")]
        options: Vec<String>,
    },
    /// List the topics
    #[command(after_long_help = "Examples:\n  \
        weir put orders x && weir topic ls\n  \
        weir put orders x && weir topic ls -o json")]
    Ls {
        /// Include removed topics
        #[arg(short, long)]
        all: bool,
    },
    /// Show one topic
    #[command(after_long_help = "Examples:\n  \
        weir put orders x && weir topic show orders\n  \
        weir put orders x && weir topic show orders -o json --columns name,last")]
    Show {
        /// Name of the topic
        #[arg(value_name = "TOPIC")]
        name: String,
    },
    /// Change options of a topic; options that are not given keep their values
    #[command(after_long_help = "Examples:\n  \
        weir topic create state && weir topic set state compaction=latest\n  \
        weir topic create sized && weir topic set sized value-bytes-max=64KiB keys-max=none")]
    Set {
        /// Name of the topic
        #[arg(value_name = "TOPIC")]
        name: String,
        /// Options of the topic
        #[arg(required = true, value_name = "OPTION=VALUE")]
        options: Vec<String>,
    },
    /// Destroy a topic: its keys are deleted, its records remain readable by offset
    #[command(after_long_help = "Examples:\n  \
        weir topic create old && weir topic rm old --yes\n  \
        weir topic create older && weir topic rm older -y -o json")]
    Rm {
        /// Name of the topic
        #[arg(value_name = "TOPIC")]
        name: String,
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
    },
    /// Remove the records that are past the retention of the topic
    #[command(after_long_help = "\
A server does this by itself, once a minute. Offsets stay as they are; a reader that would miss
something is told so.

Examples:
  weir topic create log retention-records=0 && weir put log x && weir topic retain log
  weir topic retain log -o json")]
    Retain {
        /// Name of the topic
        #[arg(value_name = "TOPIC")]
        name: String,
    },
    /// Read a topic from end to end and check every byte
    #[command(after_long_help = "Examples:\n  \
        weir put orders x && weir topic verify orders\n  \
        weir put orders x && weir topic verify orders -o json")]
    Verify {
        /// Name of the topic
        #[arg(value_name = "TOPIC")]
        name: String,
    },
}

/// Fields of a topic.
pub(crate) const FIELDS: &[Field] = &[
    field("name", "text", "name of the topic"),
    field("live", "bool", "whether it can be written to"),
    field(
        "first",
        "number",
        "offset of the oldest record that is there, 0: none",
    ),
    field("last", "number", "offset of the newest record"),
    field("keys", "number", "keys that have a value"),
    field("bytes", "number", "bytes of its records as stored"),
    field(
        "compaction",
        "text",
        "what a compaction may remove: off or latest",
    ),
    wide("id", "number", "number of the topic in this store"),
    wide(
        "incarnation",
        "number",
        "intention that created it, null when it is not live",
    ),
    wide(
        "tombstone_ttl_ms",
        "number",
        "how long compaction keeps a DELETE, null: for ever",
    ),
    wide(
        "compaction_lag_ms",
        "number",
        "how young a record must be to be kept, null: 0",
    ),
    wide(
        "key_bytes_max",
        "number",
        "limit of a key, null: that of the store",
    ),
    wide(
        "value_bytes_max",
        "number",
        "limit of a value, null: that of the store",
    ),
    wide("keys_max", "number", "limit of keys, null: none"),
    wide(
        "retention_age_ms",
        "number",
        "how old a record may get, null: any age",
    ),
    wide(
        "retention_bytes",
        "number",
        "bytes of records that stay, null: all",
    ),
    wide(
        "retention_records",
        "number",
        "records that stay, null: all",
    ),
    wide(
        "hold_for_groups",
        "text",
        "groups that must have done a record before it goes, null: none",
    ),
];

/// Fields of a check.
pub(crate) const VERIFY_FIELDS: &[Field] = &[
    field("name", "text", "name of the topic"),
    field("records", "number", "records read"),
    field("first", "number", "offset of the first one, 0: none"),
    field("last", "number", "offset of the last one"),
    field("bytes", "number", "bytes of keys, values and metadata"),
];

/// Fields of a removal.
pub(crate) const RETAIN_FIELDS: &[Field] = &[
    field("name", "text", "name of the topic"),
    field("segments", "number", "files that were removed"),
    field("records", "number", "records that were in them"),
    field("bytes", "number", "their bytes, as stored"),
    field(
        "first",
        "number",
        "offset of the oldest record that is left, 0: none",
    ),
];

fn row(info: &TopicInfo) -> [Cell<'_>; 18] {
    let count = |n: Option<u64>| n.map_or(Cell::Nothing, Cell::Count);
    let options = &info.options;
    [
        Cell::Text(Cow::Borrowed(&info.name)),
        Cell::Flag(info.live),
        Cell::Count(info.first.0),
        Cell::Count(info.last.0),
        Cell::Count(info.keys),
        Cell::Size(info.bytes),
        Cell::Text(Cow::Borrowed(options::compaction(options))),
        Cell::Count(u64::from(info.id.0)),
        count(info.incarnation.map(|offset| offset.0)),
        count(options.tombstone_ttl_ms),
        count(options.compaction_lag_ms),
        count(options.key_bytes_max),
        count(options.value_bytes_max),
        count(options.keys_max),
        count(options.retention.age_ms),
        count(options.retention.bytes),
        count(options.retention.records),
        options::hold(options).map_or(Cell::Nothing, |names| Cell::Text(Cow::Owned(names))),
    ]
}

/// Runs `weir topic`.
pub(crate) fn run(caller: &Caller, args: &TopicArgs) -> anyhow::Result<ExitCode> {
    match &args.verb {
        Verb::Ls { all } => list(caller, *all),
        Verb::Show { name } => describe(caller, name),
        Verb::Verify { name } => verify(caller, name).map_err(report::tool),
        Verb::Retain { name } => retain(caller, name),
        Verb::Create { name, options } => {
            let options = options::parse(options, &weir::TopicOptions::default())?;
            let operation = Operation::Create { options: &options };
            let weir = place::open(caller, Access::Write)?;
            change(caller, &weir, name, operation)
        }
        Verb::Set { name, options } => {
            let weir = place::open(caller, Access::Change)?;
            let now = info(&weir, name)?.options;
            let options = options::parse(options, &now)?;
            change(caller, &weir, name, Operation::Alter { options: &options })
        }
        Verb::Rm { name, yes } => {
            if !yes {
                confirm("topic", name)?;
            }
            let weir = place::open(caller, Access::Change)?;
            change(caller, &weir, name, Operation::Destroy)
        }
    }
}

fn list(caller: &Caller, all: bool) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::List, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let weir = place::open(caller, Access::Read)?;
    let failure = weir.failure();
    if let Some(failure) = failure.failed(|| "cannot list the topics".to_owned())? {
        note(false, &format!("warning: {failure}"));
    }
    let topics = weir.topics(all);
    for info in topics.failed(|| "cannot list the topics".to_owned())? {
        out.row(&row(&info))?;
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn describe(caller: &Caller, name: &str) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let weir = place::open(caller, Access::Read)?;
    let info = info(&weir, name)?;
    out.row(&row(&info))?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn info(weir: &Weir, name: &str) -> anyhow::Result<TopicInfo> {
    let topic = weir
        .topic(name)
        .failed(|| format!("cannot use topic {name}"))?;
    let missing = || Failure::new(ErrorCode::TopicUnknown, format!("there is no topic {name}"));
    let info = topic
        .try_info()
        .failed(|| format!("cannot ask about topic {name}"))?;
    Ok(info.ok_or_else(missing)?)
}

fn retain(caller: &Caller, name: &str) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, RETAIN_FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let weir = place::open_files(
        caller,
        Access::Change,
        "weir topic retain",
        "a server does it by itself; or run it there, with `--at DIR`, while nothing serves it",
    )?;
    let failed = || format!("cannot remove records of {name}");
    weir.topic(name).failed(failed)?;
    let report = weir.store()?.retain(Some(name)).failed(failed)?;
    out.row(&[
        Cell::Text(name.into()),
        Cell::Count(report.segments),
        Cell::Count(report.records),
        Cell::Size(report.bytes),
        Cell::Count(info(&weir, name)?.first.0),
    ])?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn verify(caller: &Caller, name: &str) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, VERIFY_FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let weir = place::open(caller, Access::Read)?;
    let failed = || format!("cannot read {name}");
    let topic = weir.topic(name).failed(failed)?;
    let (mut records, mut first, mut last, mut bytes) = (0, 0, 0, 0);
    for page in topic.pages(ReadFrom::Start).failed(failed)? {
        for record in &page.failed(failed)? {
            let record = record.failed(failed)?;
            if records == 0 {
                first = record.offset.0;
            }
            records += 1;
            last = record.offset.0;
            bytes += (record.key.len() + record.value.len() + record.meta.len()) as u64;
        }
    }
    out.row(&[
        Cell::Text(name.into()),
        Cell::Count(records),
        Cell::Count(first),
        Cell::Count(last),
        Cell::Size(bytes),
    ])?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
