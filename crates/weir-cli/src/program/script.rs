//! `weir program test`: runs a script, and shows where the results differ from it.

use std::cell;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use weir::program::WasmtimeHost;
use weir::program::script::{self, Block, RunOptions, StepResult};
use weir::program::trace::{HostCall, RecordedCalls, Tracer};
use weir::{ErrorCode, IntentionOffset, ProgramHost};

use super::calls::log_text;
use super::{module, read};
use crate::bytes::{json_string, printable};
use crate::caller::Caller;
use crate::output::{Cell, Field, Shape, field};
use crate::paint::{DIM, GREEN, RED, paint};
use crate::report::{self, Failure, FailureContext};
use crate::verdict;

/// Arguments of `weir program test`.
#[derive(Debug, Args)]
pub(super) struct TestArgs {
    /// Module, a .wasm file
    file: PathBuf,
    /// Script with writes and their expected outcomes
    #[arg(required_unless_present = "from_topic")]
    script: Option<PathBuf>,
    /// Write the actual outcomes into the script
    #[arg(long)]
    write: bool,
    /// Run the history of this topic instead of a script
    #[arg(long, value_name = "TOPIC", conflicts_with_all = ["script", "write"])]
    from_topic: Option<String>,
}

pub(super) const FIELDS: &[Field] = &[
    field("line", "number", "line of the command in the script"),
    field("command", "text", "command in the script"),
    field(
        "ok",
        "bool",
        "whether the actual outcome equals the expected one",
    ),
    field("expected", "text", "expected outcome, from the script"),
    field("actual", "text", "actual outcome"),
    field("log", "list", "log lines of the program: level and text"),
];

/// All possible intentions.
const ALL: std::ops::RangeInclusive<IntentionOffset> =
    IntentionOffset(0)..=IntentionOffset(u64::MAX);

/// Runs `weir program test`.
pub(super) fn run(caller: &Caller, args: &TestArgs) -> anyhow::Result<ExitCode> {
    let path = match (&args.from_topic, &args.script) {
        (Some(topic), _) => return super::replay::compare(caller, topic, &args.file, None),
        (None, Some(path)) => path.as_path(),
        (None, None) => unreachable!("one of the two is required"),
    };
    let code = module(&args.file)?;
    let text = String::from_utf8_lossy(&read(path)?).into_owned();
    let tracer = Arc::new(Tracer::new(RecordedCalls::Log, &ALL));
    let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::traced(Arc::clone(&tracer)));
    let missing = cell::Cell::new(None);
    let ran = script::run(&text, &host, RunOptions::default(), &|name| {
        let found = module_of(&args.file, &code, name);
        if found.is_none() {
            missing.set(Some(module_path(&args.file, name)));
        }
        found
    });
    let (blocks, _) = ran.map_err(|error| {
        let what = format!("cannot run {}", path.display());
        let failure = Failure::new(ErrorCode::BadRequest, what).because(error);
        match missing.take() {
            Some(place) => failure.advise(format!(
                "programs must be in the directory of the module, which has no {}",
                place.display()
            )),
            None => failure,
        }
    })?;
    if blocks.is_empty() {
        let what = format!("cannot run {}", path.display());
        let failure = Failure::new(ErrorCode::BadRequest, what);
        return Err(failure.because("the script has no step").into());
    }
    if args.write {
        let text = script::rewritten(&text, &blocks);
        std::fs::write(path, text).failed(|| format!("cannot write {}", path.display()))?;
        let wrote = report::counted(blocks.len() as u64, "block", "blocks");
        report::note(caller.quiet, &format!("wrote {wrote}"));
        return Ok(ExitCode::SUCCESS);
    }
    let lines = tracer.take().calls;
    if caller.style.format.is_some() {
        rows(caller, &blocks, &lines)?;
    } else {
        let text = shown(path, &blocks, &lines);
        report::stdout(stdout().write_all(text.as_bytes()))?;
    }
    let steps = blocks.iter().map(|block| block.steps.len()).sum::<usize>();
    let differ = blocks.iter().flat_map(|block| &block.steps);
    let differ = differ.filter(|step| step.expected != step.actual).count();
    let steps = report::counted(steps as u64, "step", "steps");
    report::note(
        caller.quiet && differ == 0,
        &format!("{}: {steps}, {differ} differ", path.display()),
    );
    Ok(if differ > 0 {
        ExitCode::from(verdict::NOT_VALID)
    } else {
        ExitCode::SUCCESS
    })
}

/// The module that a script names: `file` itself, or a file in its directory.
pub(super) fn module_of(file: &Path, code: &[u8], name: &str) -> Option<Vec<u8>> {
    if file.file_stem().is_some_and(|stem| stem == name) {
        return Some(code.to_vec());
    }
    read(&module_path(file, name)).ok()
}

/// The path of the module that a script names.
fn module_path(file: &Path, name: &str) -> PathBuf {
    let place = file.with_file_name(format!("{name}.wasm"));
    std::path::absolute(&place).unwrap_or(place)
}

fn rows(caller: &Caller, blocks: &[Block], lines: &[HostCall]) -> anyhow::Result<()> {
    let Some(mut out) = caller.style.open(Shape::List, FIELDS)? else {
        return Ok(());
    };
    for step in blocks.iter().flat_map(|block| &block.steps) {
        let log = log_of(step, lines).map(|line| {
            let (level, text) = log_text(line);
            let json = format!(
                "{{\"level\":{},\"text\":{}}}",
                json_string(level),
                json_string(&text)
            );
            (json, format!("{level}: {text}"))
        });
        out.row(&[
            Cell::Count(step.line as u64),
            Cell::Text(step.command.trim_end().into()),
            Cell::Flag(step.expected == step.actual),
            Cell::Text(step.expected.trim_end().into()),
            Cell::Text(step.actual.trim_end().into()),
            Cell::Many(log.collect()),
        ])?;
    }
    out.finish()
}

/// Log lines of the programs in a step. The result of a step starts with the offset of its
/// intention.
fn log_of<'a>(step: &StepResult, lines: &'a [HostCall]) -> impl Iterator<Item = &'a HostCall> {
    let intention = step.actual.split(' ').next();
    let intention: Option<u64> = intention.and_then(|word| word.parse().ok());
    let lines = lines.iter();
    lines.filter(move |line| Some(line.intention.0) == intention)
}

/// Each step that differs, with its position: expected lines with `-`, actual lines with `+`, and
/// the log lines of programs.
fn shown(path: &Path, blocks: &[Block], lines: &[HostCall]) -> String {
    let terminal = stdout().is_terminal();
    let mut out = String::new();
    let path = path.display();
    for step in blocks.iter().flat_map(|block| &block.steps) {
        let mut log = log_of(step, lines).peekable();
        let differs = step.expected != step.actual;
        if !differs && log.peek().is_none() {
            continue;
        }
        let command = printable(step.command.trim_end().as_bytes());
        let _ = writeln!(out, "{path}:{}: {command}", step.line);
        for line in log {
            let (level, text) = log_text(line);
            let text = format!("         log {level}: {}", printable(text.as_bytes()));
            let _ = writeln!(out, "{}", paint(&text, DIM, terminal));
        }
        if differs {
            difference(step, terminal, &mut out);
        }
    }
    out
}

/// The difference of the expected and actual lines of a step. Equal lines are printed once.
fn difference(step: &StepResult, terminal: bool, out: &mut String) {
    let (mut old, mut new) = (step.expected.lines(), step.actual.lines());
    let mut number = step.expected_line;
    loop {
        let (old, new) = (old.next(), new.next());
        if old.is_none() && new.is_none() {
            return;
        }
        let place = old.map_or(String::new(), |_| number.to_string());
        number += 1;
        if old == new {
            let line = printable(old.unwrap_or_default().as_bytes());
            let _ = writeln!(out, "{place:>6}   {line}");
            continue;
        }
        if let Some(old) = old {
            let line = format!("{place:>6} - {}", printable(old.as_bytes()));
            let _ = writeln!(out, "{}", paint(&line, RED, terminal));
        }
        if let Some(new) = new {
            let line = format!("{:>6} + {}", "", printable(new.as_bytes()));
            let _ = writeln!(out, "{}", paint(&line, GREEN, terminal));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_difference_has_control_characters() {
        let step = StepResult {
            line: 1,
            command: "state t".to_owned(),
            expected_line: 3,
            expected: "equal\u{1b}[1m\nold\u{1b}[1m\n".to_owned(),
            actual: "equal\u{1b}[1m\nnew\u{1b}[1m\n".to_owned(),
        };
        let mut out = String::new();
        difference(&step, false, &mut out);
        assert!(out.starts_with("     3   equal\\u{1b}[1m\n"), "{out}");
        assert!(!out.contains("\u{1b}[1m"), "{out}");
    }
}
