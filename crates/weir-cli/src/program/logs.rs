//! `weir program logs`: prints the log lines of programs by replaying the log.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use weir::program::trace::{HostCall, RecordedCalls, Tracer};
use weir::{ErrorCode, IntentionOffset};

use super::calls::log_text;
use super::trace::history;
use crate::caller::Caller;
use crate::output::{Cell, Field, Shape, field};
use crate::report::{Failure, FailureContext, note};

/// Arguments of `weir program logs`.
#[derive(Debug, Args)]
pub(super) struct LogsArgs {
    /// Name of the topic [else all topics]
    topic: Option<String>,
    /// Maximum number of lines; the newest ones are printed
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    last: u32,
    /// First intention to replay [else the first one that can be replayed]
    #[arg(long, value_name = "INTENTION")]
    from: Option<u64>,
}

pub(super) const FIELDS: &[Field] = &[
    field("topic", "text", "topic whose program wrote the line"),
    field(
        "intention",
        "number",
        "position of the intention that the program processed",
    ),
    field("time", "time", "timestamp of the intention, RFC 3339 UTC"),
    field("level", "text", "error, warn, info, debug or trace"),
    field("text", "text", "text of the line, at most 1 KiB"),
];

/// Runs `weir program logs`.
pub(super) fn run(caller: &Caller, args: &LogsArgs) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::Stream, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let wanted = args.topic.as_deref();
    let failed = || match wanted {
        Some(topic) => format!("cannot replay the history of {topic}"),
        None => "cannot replay the history".to_owned(),
    };
    let is_wanted = |topic: &str| wanted.is_none_or(|wanted| wanted == topic);
    let all = IntentionOffset(0)..=IntentionOffset(u64::MAX);
    let tracer = Arc::new(Tracer::new(RecordedCalls::Log, &all));
    let history = history(caller, &tracer)?;
    let first = match args.from {
        Some(from) => IntentionOffset(from.max(1)),
        None => history.first().failed(failed)?,
    };
    let range = first..=IntentionOffset(u64::MAX);
    tracer.watch(&range);
    let (mut waiting, mut lines) = (VecDeque::new(), VecDeque::<HostCall>::new());
    let (mut known, mut left_out) = (false, 0);
    let replayed = history.replay(range, &mut |replayed| {
        known |= is_wanted(replayed.topic) && replayed.machine.topic(replayed.topic).is_some();
        let seen = tracer.take();
        waiting.extend(seen.calls);
        left_out += seen.left_out;
        // Lines and intentions arrive in the order of the log.
        while let Some(line) =
            waiting.pop_front_if(|line: &mut HostCall| line.intention <= replayed.commit.intention)
        {
            if is_wanted(&line.topic) && line.intention == replayed.commit.intention {
                if lines.len() >= args.last as usize {
                    lines.pop_front();
                }
                lines.push_back(line);
            }
        }
    });
    replayed.failed(failed)?;
    if let Some(topic) = wanted
        && !known
    {
        let what = format!("no intention of topic {topic} was replayed");
        let failure = match args.from {
            Some(_) => Failure::new(ErrorCode::RecordAbsent, what)
                .because(format!("the log has no intention of it from {first} on"))
                .advise("give a smaller number with `--from`, or check the name of the topic"),
            None => Failure::new(ErrorCode::TopicUnknown, what),
        };
        return Err(failure.into());
    }
    if left_out > 0 {
        let text =
            format!("{left_out} lines were omitted, because their calls wrote too many lines");
        note(caller.quiet, &text);
    }
    for line in &lines {
        let (level, text) = log_text(line);
        out.row(&[
            Cell::Text(line.topic.as_ref().into()),
            Cell::Count(line.intention.0),
            Cell::Time(line.time_ms),
            Cell::Text(level.into()),
            Cell::Text(text.into()),
        ])?;
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
