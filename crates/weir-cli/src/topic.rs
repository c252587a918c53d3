//! `weir topic`: creates, lists, changes and removes topics.

use std::borrow::Cow;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use weir::{ErrorCode, Operation, ReadFrom, TopicInfo, Weir};

use crate::caller::Caller;
use crate::confirm::confirm_if;
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
Options; the value `none` restores the default:
  compaction=off|latest    `latest` keeps the newest record of each key (default off)
  tombstone-ttl=TIME       how long compaction keeps a DELETE (default for ever)
  compaction-lag=TIME      minimum age of a record that compaction removes (default 0)
  key-bytes-max=SIZE       maximum size of a key (default: limit of the store)
  value-bytes-max=SIZE     maximum size of a value (default: limit of the store)
  keys-max=N               maximum number of keys that have a value (default no limit)
  retention-age=TIME       maximum age of a record (default no limit)
  retention-bytes=SIZE     maximum bytes of all records, as stored (default no limit)
  retention-records=N      maximum number of records (default no limit)
  hold-for-groups=NAME,... remove a record only after these groups acknowledged it

Retention removes the oldest records that exceed any of the retention limits, in whole segments.
With retention-records=0 and hold-for-groups, all records that the groups acknowledged may be
removed.
`weir program deploy --help` lists the options of a topic with a program.

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
    /// Change options of a topic; the other options keep their values
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
    /// Destroy a topic: delete its keys; its records remain readable by offset
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
    /// Remove the records that exceed the retention limits of a topic
    #[command(after_long_help = "\
A server does this automatically once a minute. The offsets of other records do not change. A read
from an offset that was removed fails with GONE (E313).

Examples:
  weir topic create log retention-records=0 && weir put log x && weir topic retain log
  weir topic retain log -o json")]
    Retain {
        /// Name of the topic
        #[arg(value_name = "TOPIC")]
        name: String,
    },
    /// Read all records of a topic and check every byte
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
    field(
        "live",
        "bool",
        "whether the topic exists; false after its removal",
    ),
    field(
        "first",
        "number",
        "offset of the oldest record that remains, 0: none",
    ),
    field("last", "number", "offset of the newest record"),
    field("keys", "number", "number of keys that have a value"),
    field("bytes", "number", "bytes of the stored records"),
    field(
        "compaction",
        "text",
        "off: removes nothing; latest: keeps the newest record of each key",
    ),
    wide("id", "number", "number of the topic in this store"),
    wide(
        "incarnation",
        "number",
        "intention that created the topic, null: not live",
    ),
    wide(
        "tombstone_ttl_ms",
        "number",
        "milliseconds for which compaction keeps a DELETE, null: for ever",
    ),
    wide(
        "compaction_lag_ms",
        "number",
        "minimum age of a record that compaction removes, in milliseconds, null: 0",
    ),
    wide(
        "key_bytes_max",
        "number",
        "maximum bytes of a key, null: limit of the store",
    ),
    wide(
        "value_bytes_max",
        "number",
        "maximum bytes of a value, null: limit of the store",
    ),
    wide(
        "keys_max",
        "number",
        "maximum number of keys that have a value, null: no limit",
    ),
    wide(
        "retention_age_ms",
        "number",
        "maximum age of a record in milliseconds, null: no limit",
    ),
    wide(
        "retention_bytes",
        "number",
        "maximum bytes of all records, as stored, null: no limit",
    ),
    wide(
        "retention_records",
        "number",
        "maximum number of records, null: no limit",
    ),
    wide(
        "hold_for_groups",
        "text",
        "groups that must acknowledge a record before it is removed, null: none",
    ),
];

/// Fields of a check.
pub(crate) const VERIFY_FIELDS: &[Field] = &[
    field("name", "text", "name of the topic"),
    field("records", "number", "records read"),
    field("first", "number", "offset of the first record, 0: none"),
    field("last", "number", "offset of the last record, 0: none"),
    field("bytes", "number", "bytes of keys, values and metadata"),
];

/// Fields of a removal.
pub(crate) const RETAIN_FIELDS: &[Field] = &[
    field("name", "text", "name of the topic"),
    field("segments", "number", "segment files that were removed"),
    field("records", "number", "records in these files"),
    field("bytes", "number", "bytes of these records, as stored"),
    field(
        "first",
        "number",
        "offset of the oldest record that remains, 0: none",
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
        options::hold_for_groups(options)
            .map_or(Cell::Nothing, |names| Cell::Text(Cow::Owned(names))),
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
                confirm_if("topic", name, || exists(caller, name))?;
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
        .failed(|| format!("cannot read the state of topic {name}"))?;
    Ok(info.ok_or_else(missing)?)
}

/// Fails if the topic does not exist. Does not keep the store open.
fn exists(caller: &Caller, name: &str) -> anyhow::Result<()> {
    let weir = place::open(caller, Access::Change)?;
    if info(&weir, name)?.live {
        return Ok(());
    }
    Err(Failure::new(ErrorCode::TopicUnknown, format!("there is no topic {name}")).into())
}

fn retain(caller: &Caller, name: &str) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, RETAIN_FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let weir = place::open_files(
        caller,
        Access::Change,
        "weir topic retain",
        "a server removes such records once a minute; or stop the server, then run the command on \
         its machine with `--at DIR`",
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
