//! `weir export`: prints the records of a topic as text that `weir import --records` reads.

use std::process::ExitCode;

use clap::Args;
use weir::{ErrorCode, ReadFrom, RecordKind, SCAN_KEYS_MAX, Topic};

use crate::caller::Caller;
use crate::output::{Format, Output, Shape};
use crate::place::{self, Access};
use crate::record;
use crate::report::{Failure, FailureContext};

#[derive(Debug, Args)]
#[command(after_long_help = "\
Prints every PUT and DELETE since the creation of the topic, in order, one JSON object on each line. With
-o json, prints one array; with -o raw, only the values. `weir import --records` reads both JSON forms.

Examples:
  weir put orders '{\"id\":1}' -k 1 && weir export orders > orders.ndjson
  weir put orders '{\"id\":2}' -k 2 && weir export orders | weir import - -t copy --records
  weir put orders '{\"id\":3}' -k 3 && weir export orders --latest -o raw")]
pub(crate) struct ExportArgs {
    /// Topic to export
    topic: String,
    /// Only the current value of each key, in the order of the keys
    #[arg(long)]
    latest: bool,
}

/// Runs `weir export`.
pub(crate) fn run(caller: &Caller, args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let mut style = caller.style.clone();
    style.format = style.format.or(Some(Format::Jsonl));
    let Some(mut out) = style.open(Shape::Stream, record::FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let weir = place::open(caller, Access::Read)?;
    let name = args.topic.as_str();
    let failed = || format!("cannot export {name}");
    let topic = weir.topic(name).failed(failed)?;
    let info = topic.try_info().failed(failed)?;
    let info = info.ok_or_else(|| Failure::new(ErrorCode::TopicUnknown, failed()))?;
    if args.latest {
        latest(name, &topic, &mut out)?;
    } else {
        let since = info.incarnation.unwrap_or_default();
        for page in topic.pages(ReadFrom::Start).failed(failed)? {
            for record in &page.failed(failed)? {
                let record = record.failed(failed)?;
                let write = matches!(record.kind, RecordKind::Put | RecordKind::Delete);
                if write && record.intention >= since {
                    out.row(&record::row(name, &record))?;
                }
            }
        }
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn latest(name: &str, topic: &Topic, out: &mut Output) -> anyhow::Result<()> {
    let failed = || format!("cannot export {name}");
    let mut after: Option<Box<[u8]>> = None;
    loop {
        let keys = topic
            .scan(b"", after.as_deref(), SCAN_KEYS_MAX)
            .failed(failed)?;
        for entry in &keys {
            // A key that was written since the scan has another record.
            let value = match topic.value(entry).failed(failed)? {
                None => topic.get(&entry.key).failed(failed)?,
                found => found,
            };
            if let Some(value) = value {
                out.row(&record::row(name, &value.record()))?;
            }
        }
        match keys.into_iter().next_back() {
            Some(last) => after = Some(last.key),
            None => return Ok(()),
        }
    }
}
