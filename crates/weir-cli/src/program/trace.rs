//! `weir program trace`: replays a past intention, and shows what its program did.
//!
//! Invariant: the store is neither written nor locked.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use weir::program::WasmtimeHost;
use weir::program::script;
use weir::program::trace::{FRAMES_MAX, Frame, RecordedCalls, Traced, Tracer};
use weir::{
    Agreement, CodeHash, Commit, ConsequenceOffset, Effect, ErrorCode, History, IntentionOffset,
    OwnedRecord, ProgramHost, RecordKind, Replayed,
};

use super::calls::{self, short};
use crate::bytes::{json_bytes, json_string, json_value, printable};
use crate::caller::Caller;
use crate::output::{Cell, Field, Shape, field, time, wide};
use crate::paint::{DIM, paint};
use crate::place::{self, Access, Location};
use crate::report::{self, Failure, FailureContext};
use crate::verdict;

/// Arguments of `weir program trace`.
#[derive(Debug, Args)]
pub(super) struct TraceArgs {
    /// Name of the topic
    topic: String,
    /// Number of the intention, as in verdicts (`intention`)
    #[arg(value_name = "INTENTION", required_unless_present = "record")]
    offset: Option<u64>,
    /// Trace the intention that wrote the record with this offset
    #[arg(long, value_name = "OFFSET", conflicts_with = "offset")]
    record: Option<u64>,
}

pub(super) const FIELDS: &[Field] = &[
    field("topic", "text", "name of the topic"),
    field(
        "intention",
        "number",
        "position of the intention in the order of the store",
    ),
    field("operation", "text", "CREATE, PUT, DELETE, TXN or REPLACE"),
    field("key", "bytes", "key of the write; null: none"),
    field(
        "value",
        "bytes",
        "value of the write as JSON; named `text` or `value64` (base64) if it is not JSON",
    ),
    field("time", "time", "timestamp of the intention, RFC 3339 UTC"),
    field(
        "principal",
        "bytes",
        "authenticated name of the caller; null: none",
    ),
    field("effect", "text", "VALID, INVALID or ERROR"),
    field(
        "reason",
        "text",
        "why the verdict is not VALID; null if it is VALID",
    ),
    field("detail", "text", "details of the reason, null: none"),
    field("fuel", "number", "fuel used by the call"),
    field("fuel_host", "number", "fuel used by host calls"),
    field("fuel_code", "number", "fuel used by instructions"),
    field("calls", "list", "host calls: name, arguments, result, fuel"),
    field(
        "stack",
        "list",
        "functions in which the call failed, the innermost first: function, name",
    ),
    field("records", "list", "records: offset, kind, key, value"),
    wide(
        "calls_left_out",
        "number",
        "host calls beyond the first 100,000",
    ),
    field(
        "stored",
        "text",
        "equal or differs: comparison with the files of the topic; unknown: not in the files",
    ),
    wide(
        "sha256",
        "text",
        "SHA-256 of the module that ran; null: none",
    ),
];

/// The traced execution of an intention.
struct TracedIntention {
    topic: String,
    operation: &'static str,
    key: Vec<u8>,
    value: Vec<u8>,
    steps: u32,
    principal: Vec<u8>,
    time_ms: u64,
    commit: Commit,
    records: Vec<OwnedRecord>,
    code: Option<CodeHash>,
    agreement: Agreement,
    traced: Traced,
}

/// Opens the history of the call's store on a host with a tracer.
pub(super) fn history(caller: &Caller, tracer: &Arc<Tracer>) -> anyhow::Result<History> {
    let host = Arc::new(WasmtimeHost::traced(Arc::clone(tracer)));
    history_on(caller, host)
}

/// Opens the history of the call's store; programs run on `host`.
pub(super) fn history_on(caller: &Caller, host: Arc<dyn ProgramHost>) -> anyhow::Result<History> {
    match place::location(caller)? {
        Location::Directory(at) => {
            let history = History::open(Path::new(at), Some(host));
            history.failed(|| format!("cannot read the store in {at}"))
        }
        Location::Server(url) => {
            let weir = place::open(caller, Access::Read)?;
            let history = weir.history(Some(host));
            history.map_err(|error| {
                Failure::weir(format!("cannot read the store at {url}"), &error).into()
            })
        }
    }
}

/// Runs `weir program trace`.
pub(super) fn run(caller: &Caller, args: &TraceArgs) -> anyhow::Result<ExitCode> {
    // Checked before the store is opened: `-o help` needs no store.
    let rows = match caller.style.format {
        Some(_) => match caller.style.open(Shape::One, FIELDS)? {
            Some(out) => Some(out),
            None => return Ok(ExitCode::SUCCESS),
        },
        None => None,
    };
    let nothing = IntentionOffset(1)..=IntentionOffset(0);
    let tracer = Arc::new(Tracer::new(RecordedCalls::All, &nothing));
    let history = history(caller, &tracer)?;
    let offset = match (args.offset, args.record) {
        (Some(offset), _) => IntentionOffset(offset),
        (None, record) => {
            let record = record.unwrap_or_default();
            of_record(&history, &tracer, &args.topic, record)?
        }
    };
    let seen = trace_intention(&history, &tracer, &args.topic, offset)?;
    match rows {
        Some(mut out) => {
            out.row(&row(&seen))?;
            out.finish()?;
        }
        None => report::stdout(stdout().write_all(text(&seen).as_bytes()))?,
    }
    if seen.agreement == Agreement::Differs {
        let what = format!("the replay of intention {offset} differs from the stored records");
        return Err(Failure::new(ErrorCode::Diverged, what).into());
    }
    Ok(ExitCode::SUCCESS)
}

fn of_record(
    history: &History,
    tracer: &Tracer,
    topic: &str,
    offset: u64,
) -> anyhow::Result<IntentionOffset> {
    let failed = || format!("cannot find record {offset} of {topic}");
    let found = history.intention_of(topic, ConsequenceOffset(offset));
    if let Some(found) = found.failed(failed)? {
        return Ok(found);
    }
    let first = history.first().failed(failed)?;
    let failure = absent_topic_failure(history, tracer, topic, first).unwrap_or_else(|| {
        let what = format!("there is no record {offset} in {topic}");
        Failure::new(ErrorCode::RecordAbsent, what)
            .because("no intention in the retained log creates this record")
    });
    Err(failure.into())
}

/// The failure for a topic that does not exist in a replay of the log from an intention on. `None`
/// if it exists.
fn absent_topic_failure(
    history: &History,
    tracer: &Tracer,
    topic: &str,
    from: IntentionOffset,
) -> Option<Failure> {
    tracer.watch(&(IntentionOffset(1)..=IntentionOffset(0)));
    let mut known = false;
    let ran = history.replay(from..=IntentionOffset(u64::MAX), &mut |replayed| {
        known |= replayed.machine.topic(topic).is_some();
    });
    // If the log cannot be replayed, the topic may still exist.
    let missing = ran.is_ok() && !known;
    missing.then(|| {
        Failure::new(
            ErrorCode::TopicUnknown,
            format!("there is no topic {topic}"),
        )
    })
}

fn trace_intention(
    history: &History,
    tracer: &Tracer,
    topic: &str,
    offset: IntentionOffset,
) -> anyhow::Result<TracedIntention> {
    let failed = || format!("cannot replay intention {offset}");
    let range = offset..=offset;
    tracer.watch(&range);
    let mut seen = None;
    let newest = history.replay(range, &mut |replayed| {
        seen = Some(traced_intention(history, &replayed));
    });
    let newest = newest.failed(failed)?;
    let missing = |why: String, advice: String| {
        absent_topic_failure(history, tracer, topic, offset.min(newest)).unwrap_or_else(|| {
            let what = format!("there is no intention {offset} of topic {topic}");
            let failure = Failure::new(ErrorCode::RecordAbsent, what);
            failure.because(why).advise(advice)
        })
    };
    let numbers =
        format!("verdicts and `weir tail {topic} -o jsonl` contain the number as `intention`");
    let Some(seen) = seen else {
        let why = match offset {
            IntentionOffset(0) => "the first intention is 1".to_owned(),
            _ => format!("the newest intention is {newest}"),
        };
        return Err(missing(why, numbers).into());
    };
    let mut seen = seen.failed(failed)?;
    seen.traced = tracer.take();
    if seen.topic != topic {
        let (why, advice) = match seen.topic.as_str() {
            "" => ("the intention belongs to no topic".to_owned(), numbers),
            other => (
                format!("the intention belongs to topic {other}"),
                format!("`weir program trace {other} {offset}` shows it; {numbers}"),
            ),
        };
        return Err(missing(why, advice).into());
    }
    let has_run = seen.commit.fuel > 0 || !seen.traced.calls.is_empty();
    if seen.code.is_none() && !has_run && matches!(seen.operation, "PUT" | "DELETE" | "TXN") {
        let what = format!("topic {topic} has no program");
        let failure = Failure::new(ErrorCode::TopicUnknown, what);
        return Err(failure
            .because("no program processed this intention")
            .into());
    }
    Ok(seen)
}

fn traced_intention(
    history: &History,
    replayed: &Replayed<'_>,
) -> Result<TracedIntention, weir::StoreError> {
    let view = replayed.machine.topic(replayed.topic);
    Ok(TracedIntention {
        topic: replayed.topic.to_owned(),
        operation: replayed.operation,
        key: replayed.key.to_vec(),
        value: replayed.value.to_vec(),
        steps: replayed.steps,
        principal: replayed.principal.to_vec(),
        time_ms: replayed.time_ms,
        commit: replayed.commit.clone(),
        records: replayed.records.to_vec(),
        code: view
            .and_then(|view| view.program)
            .map(|program| program.code),
        agreement: history.compare(replayed)?,
        traced: Traced::default(),
    })
}

impl TracedIntention {
    fn fuel_host(&self) -> u64 {
        // When a program runs out of fuel, its last call is charged more than the remaining fuel.
        // So the sum is limited to the total.
        let sum: u64 = self.traced.calls.iter().map(|call| call.fuel).sum();
        (sum + self.traced.left_out_fuel).min(self.commit.fuel)
    }

    /// The functions in which the call failed, the innermost one first.
    fn stack(&self) -> &[Frame] {
        let stack = self.traced.stack.as_ref();
        stack.map_or(&[], |stack| stack.frames.as_slice())
    }

    fn agreement_text(&self) -> &'static str {
        match self.agreement {
            Agreement::Equal => "equal",
            Agreement::Differs => "differs",
            Agreement::Unknown => "unknown",
        }
    }
}

fn row(seen: &TracedIntention) -> [Cell<'_>; 19] {
    let commit = &seen.commit;
    let (host, text) = (seen.fuel_host(), verdict::detail(&commit.detail));
    let calls = seen.traced.calls.iter().map(|call| {
        let (given, answer) = calls::line(call);
        (calls::json(call), with_answer(given, &answer))
    });
    [
        Cell::Text(seen.topic.as_str().into()),
        Cell::Count(commit.intention.0),
        Cell::Text(seen.operation.into()),
        Cell::Bytes(seen.key.as_slice().into()),
        Cell::Value(seen.value.as_slice().into()),
        Cell::Time(seen.time_ms),
        Cell::Bytes(seen.principal.as_slice().into()),
        Cell::Text(commit.effect.name().into()),
        commit
            .reason
            .map_or(Cell::Nothing, |reason| Cell::Text(reason.name().into())),
        text.map_or(Cell::Nothing, |text| Cell::Text(text.into())),
        Cell::Count(commit.fuel),
        Cell::Count(host),
        Cell::Count(commit.fuel - host),
        Cell::Many(calls.collect()),
        Cell::Many(
            seen.stack()
                .iter()
                .map(|frame| (frame_json(frame), frame_name(frame)))
                .collect(),
        ),
        Cell::Many(
            seen.records
                .iter()
                .map(|r| (record_json(r), record(r)))
                .collect(),
        ),
        Cell::Count(seen.traced.left_out),
        Cell::Text(seen.agreement_text().into()),
        seen.code
            .map_or(Cell::Nothing, |code| Cell::Text(code.to_string().into())),
    ]
}

fn with_answer(given: String, answer: &str) -> String {
    if answer.is_empty() {
        given
    } else {
        format!("{given} -> {answer}")
    }
}

/// The function name for people.
fn frame_name(frame: &Frame) -> String {
    match &frame.name {
        Some(name) => printable(name.as_bytes()),
        None => format!("function {}", frame.function),
    }
}

fn frame_json(frame: &Frame) -> String {
    let name = frame.name.as_deref().map(json_string);
    format!(
        "{{\"function\":{},\"name\":{}}}",
        frame.function,
        name.as_deref().unwrap_or("null")
    )
}

fn record(record: &OwnedRecord) -> String {
    let (offset, kind) = (record.offset, record.kind.name());
    let key = short(&record.key, record.key.len());
    match record.kind {
        RecordKind::Put => {
            let value = short(&record.value, record.value.len());
            format!("{offset} {kind} {key}={value}")
        }
        RecordKind::Delete => format!("{offset} {kind} {key}"),
        _ => format!("{offset} {kind}"),
    }
}

fn record_json(record: &OwnedRecord) -> String {
    format!(
        "{{\"offset\":{},\"kind\":{},{},{}}}",
        record.offset,
        json_string(record.kind.name()),
        json_bytes("key", &record.key),
        json_value(&record.value),
    )
}

/// Formats the whole trace for people, in the order of events.
fn text(seen: &TracedIntention) -> String {
    let terminal = stdout().is_terminal();
    let commit = &seen.commit;
    let mut out = String::new();
    let request = match seen.operation {
        "PUT" => {
            let (key, value) = (&seen.key, &seen.value);
            format!(
                "PUT {}={}",
                short(key, key.len()),
                short(value, value.len())
            )
        }
        "DELETE" => format!("DELETE {}", short(&seen.key, seen.key.len())),
        "TXN" => format!("TXN of {} steps", seen.steps),
        other => other.to_owned(),
    };
    let (intention, topic) = (commit.intention, &seen.topic);
    let _ = writeln!(
        out,
        "{topic} intention {intention} at {}",
        time(seen.time_ms)
    );
    let _ = writeln!(out, "  asked    {request}");
    if !seen.principal.is_empty() {
        let _ = writeln!(out, "  by       {}", script::show(&seen.principal));
    }
    let mut step = None;
    for call in &seen.traced.calls {
        if seen.operation == "TXN" && step != Some(call.step) {
            step = Some(call.step);
            let _ = writeln!(out, "  step {}", call.step);
        }
        let (given, answer) = calls::line(call);
        let fuel = paint(&format!("{:>6}", call.fuel), DIM, terminal);
        let line = printable(with_answer(given, &answer).as_bytes());
        let _ = writeln!(out, "  {fuel}   {line}");
    }
    if seen.traced.left_out > 0 {
        let _ = writeln!(out, "  and {} more calls", seen.traced.left_out);
    }
    let mut verdict = commit.effect.name().to_owned();
    if let Some(reason) = commit.reason {
        let _ = write!(verdict, " {}", reason.name());
    }
    if let Some(detail) = verdict::detail(&commit.detail) {
        let _ = write!(verdict, " {}", printable(detail.as_bytes()));
    }
    let _ = writeln!(out, "  verdict  {verdict}");
    for (at, frame) in seen.stack().iter().enumerate() {
        let head = if at == 0 { "in" } else { "" };
        let _ = writeln!(out, "  {head:<8} {}", frame_name(frame));
    }
    if seen.stack().len() == FRAMES_MAX {
        let _ = writeln!(out, "           there may be more calling functions");
    }
    for made in &seen.records {
        let _ = writeln!(out, "  record   {}", record(made));
    }
    let host = seen.fuel_host();
    let _ = writeln!(
        out,
        "  fuel     {}: {host} in {} host calls, {} in instructions",
        commit.fuel,
        seen.traced.calls.len() as u64 + seen.traced.left_out,
        commit.fuel - host,
    );
    let stored = match seen.agreement {
        Agreement::Equal => "equal: the files of the store contain the same records",
        Agreement::Differs => {
            "differs: the files of the store contain other records; run `weir verify`"
        }
        Agreement::Unknown if commit.effect == Effect::Valid => {
            "not compared: the records are only in the log so far, or were compacted; this is not damage"
        }
        Agreement::Unknown => {
            "not compared: the intention wrote no record, and the files have no later record yet; this is not damage"
        }
    };
    let _ = writeln!(out, "  stored   {stored}");
    out
}
