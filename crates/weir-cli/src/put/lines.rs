//! `weir put -`: writes one record for each line of input.
//!
//! Lines are sent in batches of up to `--batch` lines; a batch is smaller if no
//! more input is available. Verdicts are printed in the order of the lines.
//! Invariant: every line gets a verdict or an error.

use std::collections::VecDeque;
use std::io::BufRead;
use std::process::ExitCode;

use weir::{ErrorCode, Expect, Outcome, Proposal, Weir};

use super::{InputFormat, PutArgs};
use crate::bytes::ESCAPED_BYTES_MAX;
use crate::caller::Caller;
use crate::item::{Item, Items, bad_text};
use crate::output::{Output, Shape};
use crate::place::{self, Access};
use crate::report::{Failure, FailureContext, OutcomeContext, StdoutClosed, note, usage};
use crate::verdict;
use crate::write::ensure;

/// Bytes after which a batch is sent.
const BATCH_BYTES: usize = 1 << 20;
/// Maximum number of pending batches.
const PROPOSALS_MAX: usize = 4;
/// Bytes that a line may have beyond its value.
const LINE_BYTES_SPARE: usize = 1 << 20;

/// What an error reports about the lines before an invalid one.
const BEFORE: &str = "the lines before it are written";

struct Writer<'a> {
    weir: &'a Weir,
    args: &'a PutArgs,
    items: Items,
    sent: VecDeque<Proposal>,
    out: Option<Output>,
    lines: u64,
    valid: u64,
    others: u64,
}

/// Runs `weir put TOPIC -`.
pub(super) fn run(caller: &Caller, args: &PutArgs) -> anyhow::Result<ExitCode> {
    if args.session.is_some() {
        return Err(usage("--session is for single values"));
    }
    let Some(out) = caller.style.open(Shape::Stream, verdict::FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let shown = args.format == InputFormat::Jsonl || caller.style.format.is_some();
    let weir = place::open(caller, Access::Write)?;
    ensure(caller, &weir, &args.topic, args.no_create)?;
    let mut writer = Writer {
        weir: &weir,
        args,
        items: Items::default(),
        sent: VecDeque::new(),
        out: shown.then_some(out),
        lines: 0,
        valid: 0,
        others: 0,
    };
    let factor = match args.format {
        InputFormat::Lines => 1,
        InputFormat::Jsonl => ESCAPED_BYTES_MAX,
    };
    let value_bytes_max = caller.limits.value_bytes_max.saturating_mul(factor);
    let read = writer.read(value_bytes_max + LINE_BYTES_SPARE);
    // Lines before an error are written first, and their verdicts are printed.
    let rest = writer.send().and_then(|()| writer.await_verdicts(0));
    let Writer {
        out, valid, others, ..
    } = writer;
    let printed = out.map_or(Ok(()), Output::finish);
    let closed = weir.close().failed(|| "cannot close the store".to_owned());
    if !shown {
        let text = format!(
            "{valid} records written to {}, {others} not valid",
            args.topic
        );
        note(caller.quiet, &text);
    }
    // The first error is reported.
    read.and(rest).and(closed)?;
    if others > 0 && !args.accept_invalid {
        return Ok(ExitCode::from(verdict::NOT_VALID));
    }
    printed.map(|()| ExitCode::SUCCESS)
}

impl Writer<'_> {
    fn read(&mut self, line_bytes_max: usize) -> anyhow::Result<()> {
        let mut input = std::io::BufReader::with_capacity(1 << 16, std::io::stdin());
        let mut line = Vec::new();
        loop {
            line.clear();
            let limit = line_bytes_max as u64 + 1;
            let read = std::io::Read::take(&mut input, limit).read_until(b'\n', &mut line);
            if read.failed(|| "cannot read the input".to_owned())? == 0 {
                return Ok(());
            }
            self.lines += 1;
            let ended = line.pop_if(|byte| *byte == b'\n').is_some();
            if ended {
                line.pop_if(|byte| *byte == b'\r');
            } else if line.len() > line_bytes_max {
                let what = format!("line {} of the input is too long", self.lines);
                let why = format!("it has more than {line_bytes_max} bytes");
                return Err(Failure::new(ErrorCode::TooLarge, what).because(why).into());
            }
            self.line(&line)?;
            let full = self.items.len() as u64 >= self.args.batch;
            if full || self.items.bytes() >= BATCH_BYTES || input.buffer().is_empty() {
                self.send()?;
            }
            if input.buffer().is_empty() {
                // More input may take long, so the verdicts of the earlier lines are printed now.
                self.await_verdicts(0)?;
                self.print(Output::flush)?;
            }
        }
    }

    fn line(&mut self, line: &[u8]) -> anyhow::Result<()> {
        if self.args.format == InputFormat::Lines {
            let key = self.args.key.bytes().unwrap_or_default();
            let meta = self.args.meta.as_deref().unwrap_or_default();
            self.items.put(key, line, meta.as_bytes());
            return Ok(());
        }
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let number = self.lines;
        let item = Item::parse(line).map_err(|error| bad_text(number, &error, BEFORE))?;
        self.items
            .item(&item)
            .map_err(|why| bad_text(number, &why.into(), BEFORE))?;
        if self.items.last_is_nothing() {
            let why = "there is neither a value nor a delete".to_owned();
            return Err(bad_text(number, &why.into(), BEFORE).into());
        }
        Ok(())
    }

    fn send(&mut self) -> anyhow::Result<()> {
        if self.items.is_empty() {
            return Ok(());
        }
        let shared = self.args.conditions.list();
        let own = self.items.conditions(true);
        let mut intentions = self.items.intentions(&self.args.topic, &own);
        // The conditions of the line and of the command must both hold.
        let both: Vec<Vec<Expect<'_>>> = if shared.is_empty() {
            Vec::new()
        } else {
            let lists = intentions.iter();
            lists
                .map(|intention| [intention.expect, &shared].concat())
                .collect()
        };
        for (intention, both) in intentions.iter_mut().zip(&both) {
            intention.expect = both;
        }
        let topic = &self.args.topic;
        let proposal = self.weir.propose(&intentions);
        let proposal = proposal.failed(|| {
            let last = self.lines;
            format!("cannot write the lines up to {last} to {topic}")
        })?;
        self.sent.push_back(proposal);
        self.items.clear();
        self.await_verdicts(PROPOSALS_MAX)
    }

    /// Waits for verdicts until at most `left` batches are pending.
    fn await_verdicts(&mut self, left: usize) -> anyhow::Result<()> {
        while self.sent.len() > left {
            let Some(proposal) = self.sent.pop_front() else {
                return Ok(());
            };
            let outcomes = proposal.wait();
            let topic = self.args.topic.as_str();
            let again = "read the topic to check which lines were written";
            let outcomes = outcomes.answered(|| format!("cannot write to {topic}"), again)?;
            for outcome in outcomes.iter() {
                let Some(commit) = outcome.commit() else {
                    return Err(
                        Failure::new(ErrorCode::Internal, "a refusal without session").into(),
                    );
                };
                let valid = commit.effect == weir::Effect::Valid;
                *if valid {
                    &mut self.valid
                } else {
                    &mut self.others
                } += 1;
                let replayed = matches!(outcome, Outcome::Replayed(_));
                let row = verdict::row(topic, commit, replayed);
                self.print(|out| out.row(&row))?;
            }
        }
        Ok(())
    }

    /// Prints rows. If standard output is closed, lines are still written to the store.
    fn print(&mut self, how: impl FnOnce(&mut Output) -> anyhow::Result<()>) -> anyhow::Result<()> {
        match self.out.as_mut().map_or(Ok(()), how) {
            Err(error) if error.is::<StdoutClosed>() => {
                self.out = None;
                Ok(())
            }
            result => result,
        }
    }
}
