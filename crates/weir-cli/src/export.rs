//! `weir export`: prints the records of a topic as text that `weir import --records` reads.

use std::process::ExitCode;

use clap::Args;
use weir::{ErrorCode, IntentionOffset, ReadFrom, RecordKind, SCAN_KEYS_MAX, Topic};

use crate::caller::Caller;
use crate::output::{Format, Output, Shape};
use crate::place::{self, Access};
use crate::record;
use crate::report::{Failure, FailureContext};

#[derive(Debug, Args)]
#[command(after_long_help = "\
Prints every PUT and DELETE since the creation of the topic, in order, one JSON object on each line. With
-o json, prints one array; with -o raw, only the values. `weir import --records` reads both JSON forms.
If the reader of the output pauses, the command closes the directory until the reader continues. It
then also prints records that were written meanwhile.

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
    let mut weir = place::open(caller, Access::Read)?;
    let name = args.topic.as_str();
    let failed = || format!("cannot export {name}");
    let info = weir.topic(name).failed(failed)?.try_info().failed(failed)?;
    let info = info.ok_or_else(|| Failure::new(ErrorCode::TopicUnknown, failed()))?;
    let since = info.incarnation.unwrap_or_default();
    let (mut from, mut after) = (ReadFrom::Start, None);
    loop {
        let topic = weir.topic(name).failed(failed)?;
        out.detect_stalls(place::holds_lock(&weir))?;
        let is_complete = if args.latest {
            latest(name, &topic, &mut after, &mut out)?
        } else {
            log(name, &topic, since, &mut from, &mut out)?
        };
        out.detect_stalls(false)?;
        // A flush can block. Other processes can write meanwhile.
        drop(topic);
        drop(weir);
        if is_complete {
            break;
        }
        out.flush()?;
        weir = place::open(caller, Access::Read)?;
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Exports the records from `from` on. Returns `false` if the output is stalled; `from` is then the
/// position to continue at.
fn log(
    name: &str,
    topic: &Topic,
    since: IntentionOffset,
    from: &mut ReadFrom,
    out: &mut Output,
) -> anyhow::Result<bool> {
    let failed = || format!("cannot export {name}");
    for page in topic.pages(*from).failed(failed)? {
        for record in &page.failed(failed)? {
            let record = record.failed(failed)?;
            let write = matches!(record.kind, RecordKind::Put | RecordKind::Delete);
            if write && record.intention >= since {
                out.row(&record::row(name, &record))?;
            }
            if out.is_stalled()? {
                *from = ReadFrom::After(record.offset);
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Exports the current values of the keys after `after`. Returns `false` if the output is stalled;
/// `after` is then the last exported key.
fn latest(
    name: &str,
    topic: &Topic,
    after: &mut Option<Box<[u8]>>,
    out: &mut Output,
) -> anyhow::Result<bool> {
    let failed = || format!("cannot export {name}");
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
            if out.is_stalled()? {
                *after = Some(entry.key.clone());
                return Ok(false);
            }
        }
        match keys.into_iter().next_back() {
            Some(last) => *after = Some(last.key),
            None => return Ok(true),
        }
    }
}
