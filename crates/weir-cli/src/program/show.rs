//! `weir program show`: the program of a topic as it is now.

use std::process::ExitCode;

use weir::ErrorCode;
use weir::program::script;

use crate::cli::Caller;
use crate::output::{Cell, Field, Shape, field};
use crate::place::{self, Access};
use crate::report::Failure;

const SHOWN: &[Field] = &[
    field("topic", "text", "name of the topic"),
    field("state", "text", "what the program keeps: none, kv, memory"),
    field("entries", "count", "of its state"),
    field("bytes", "bytes", "of its state"),
    field("args", "text", "arguments, as in scripts"),
    field("sha256", "text", "identity of its module"),
];

/// Carries out `weir program show`.
pub(super) fn run(caller: &Caller, topic: &str) -> anyhow::Result<ExitCode> {
    let Some(mut out) = caller.style.open(Shape::One, SHOWN)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let weir = place::open(caller, Access::Read)?;
    let program = weir.store().program(topic).ok_or_else(|| {
        let what = format!("there is no program in topic {topic}");
        Failure::new(ErrorCode::TopicUnknown, what)
    })?;
    out.row(&[
        Cell::Text(topic.into()),
        Cell::Text(program.mode.name().into()),
        Cell::Count(program.state_entries),
        Cell::Size(program.state_bytes),
        Cell::Text(script::show(&program.args).into()),
        Cell::Text(program.code.to_string().into()),
    ])?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
