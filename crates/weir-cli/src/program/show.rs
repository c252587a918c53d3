//! `weir program ls` and `show`: the current programs of topics.

use std::process::ExitCode;

use weir::program::script;
use weir::{ErrorCode, ProgramInfo};

use crate::caller::Caller;
use crate::output::{Cell, Field, Shape, field, wide};
use crate::place::{self, Access};
use crate::report::{Failure, FailureContext};

pub(super) const FIELDS: &[Field] = &[
    field("topic", "text", "name of the topic"),
    field(
        "state",
        "text",
        "state mode of the program: none, kv or memory",
    ),
    field("entries", "count", "entries of the state"),
    field("bytes", "bytes", "bytes of the state"),
    field(
        "args",
        "text",
        "arguments of the program, in the syntax of scripts",
    ),
    field(
        "calls",
        "count",
        "calls since the newest snapshot, including replayed calls",
    ),
    field(
        "rejects",
        "count",
        "number of these calls that rejected the write",
    ),
    field(
        "traps",
        "count",
        "number of these calls that trapped, ran out of fuel or exceeded a limit",
    ),
    wide("fuel", "number", "total fuel of these calls"),
    field("sha256", "text", "SHA-256 of the module"),
];

fn row<'a>(topic: &'a str, program: &ProgramInfo) -> [Cell<'a>; 10] {
    let counts = program.counts;
    [
        Cell::Text(topic.into()),
        Cell::Text(program.mode.name().into()),
        Cell::Count(program.state_entries),
        Cell::Size(program.state_bytes),
        Cell::Text(script::show(&program.args).into()),
        Cell::Count(counts.calls),
        Cell::Count(counts.rejects),
        Cell::Count(counts.traps),
        Cell::Count(counts.fuel),
        Cell::Text(program.code.to_string().into()),
    ]
}

/// Runs `weir program ls`.
pub(super) fn list(caller: &Caller) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::List, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let weir = place::open(caller, Access::Read)?;
    let programs = weir.programs();
    for (topic, program) in programs.failed(|| "cannot list the programs".to_owned())? {
        out.row(&row(&topic, &program))?;
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `weir program show`.
pub(super) fn run(caller: &Caller, topic: &str) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let weir = place::open(caller, Access::Read)?;
    let found = weir.program(topic);
    let found = found.failed(|| format!("cannot read the program of {topic}"))?;
    let program = found.ok_or_else(|| {
        let what = format!("topic {topic} has no program");
        let failure = Failure::new(ErrorCode::TopicUnknown, what);
        match weir.topic(topic).and_then(|topic| topic.try_info()) {
            Ok(Some(info)) if info.live => failure
                .because("the topic was created without a program")
                .advise("`weir program ls` lists the topics with programs"),
            _ => failure,
        }
    })?;
    out.row(&row(topic, &program))?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
