//! `weir import`: writes many values from a file, each exactly once.
//!
//! A file is imported under its own session. The client id is derived from the store, the topic,
//! the incarnation of the topic, the path, and the options that determine keys and values. The
//! nonce of an item is its number among the usable items of the file. The next run resumes a run
//! that ended in any way: the store returns the last executed nonce, and returns the stored verdict
//! of an item that is sent again. The fingerprint of each item is a hash over all items up to it.
//! Sending the last executed item again proves that no item before it has changed.
//!
//! The first Ctrl-C ends the reading; the items already read are written and counted. A second
//! Ctrl-C, or a kill, ends the process at once and needs no cleanup.
//!
//! Invariants:
//! - An unusable item gets no number, because a later run may accept it or reject it.
//! - Every usable item has a number.

mod dead_letters;
mod input_item;
mod item_validator;
mod key_path;
mod lines;
mod scan;
mod send;
mod source;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use weir::ErrorCode;

use self::item_validator::{ItemValidator, OnError};
use self::key_path::KeyPath;
use self::send::{Counts, Sender};
use self::source::Source;
use crate::caller::Caller;
use crate::interrupt::Interrupt;
use crate::output::{Cell, Field, Output, Shape, field};
use crate::place::{self, Access};
use crate::report::{Failure, FailureContext, counted, note};
use crate::verdict;
use crate::write::ensure;

/// Items between two updates of the progress bar.
const SHOW_EVERY: u64 = 500;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Each value is stored byte for byte as it is in the file. The format jsonl has one JSON value per line.
The format json is one array, or with --path an array inside an object.

To resume after an interruption, or to import lines that were added to the file, run the same
command again. It does not write an item twice. Input that is not a file, such as a pipe, cannot be
resumed: a second run writes all items again.

The first Ctrl-C stops reading, writes the items that were read, and ends with exit code 130. A
second Ctrl-C ends the process at once. The items of --records must not have conditions (`expect`).

Examples:
  printf '{\"id\":1}\\n{\"id\":2}\\n' > data.ndjson && weir import data.ndjson -t things -k '$.id'
  printf '{\"list\":[{\"n\":1},{\"n\":2}]}' | weir import - -t numbers --path '$.list'
  printf '{\"id\":3}\\noops\\n' | weir import - -t things --on-error skip")]
#[allow(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub(crate) struct ImportArgs {
    /// File to read; `-` is standard input
    file: PathBuf,
    /// Topic to write to; created if it does not exist
    #[arg(short, long)]
    topic: String,
    /// Path to the key in each item, such as `$.id` [else records have no keys]
    #[arg(short, long, value_name = "PATH")]
    key: Option<KeyPath>,
    /// Format of the input
    #[arg(long, value_enum, default_value_t = InputFormat::Auto)]
    format: InputFormat,
    /// Path to the array in a JSON document: `$.features`
    #[arg(long, value_name = "PATH")]
    path: Option<KeyPath>,
    /// Read items as `weir export` prints them, with keys and metadata
    #[arg(long, conflicts_with = "key")]
    records: bool,
    /// Action for an invalid item: stop, skip or dead-letter=FILE
    #[arg(long, value_name = "ACTION", default_value = "stop")]
    on_error: OnError,
    /// Number of items in one call
    #[arg(long, value_name = "N", default_value_t = 1000, hide_short_help = true)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000))]
    batch: u64,
    /// Import the whole file again, as new records
    #[arg(long, hide_short_help = true)]
    again: bool,
    /// Read and check the input without writing
    #[arg(long)]
    dry_run: bool,
    /// Do not create the topic
    #[arg(long)]
    no_create: bool,
    /// Exit with code 0 even if a verdict is not VALID
    #[arg(long, hide_short_help = true)]
    accept_invalid: bool,
}

/// Formats of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum InputFormat {
    /// JSON if the input begins with `[` or --path is given, else JSON Lines
    Auto,
    /// One JSON value per line
    Jsonl,
    /// One JSON array, or an object with the array at --path
    Json,
}

/// Fields of the result of an import.
pub(crate) const FIELDS: &[Field] = &[
    field("topic", "text", "name of the topic"),
    field("imported", "number", "items written by this run"),
    field("already", "number", "items that earlier runs imported"),
    field("broken", "number", "invalid items that were skipped"),
    field("rejected", "number", "items whose verdict is not VALID"),
    field("bytes", "number", "bytes of input read"),
    field("ms", "number", "duration of this run in milliseconds"),
    field("complete", "bool", "whether the input was read to its end"),
];

/// Runs `weir import`.
pub(crate) fn run(caller: &Caller, args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let Some(out) = caller.style.open(Shape::One, FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let started = Instant::now();
    let no_signals = || "cannot install the handler for Ctrl-C".to_owned();
    let interrupt = Interrupt::new().failed(no_signals)?;
    let mut source = Source::open(args, caller.limits.value_bytes_max, &interrupt)?;
    if args.dry_run {
        let validator = ItemValidator::new(args, caller, None);
        let mut run = Run::new(caller, args, validator, None, &interrupt);
        let end = run.read(&mut source);
        let counts = run.counts(source.bytes());
        let printed = print(out, args, &counts, started, end.is_ok());
        return end.and(printed).map(|()| ExitCode::SUCCESS);
    }
    let weir = place::open(caller, Access::Write)?;
    // From here on, an interrupted import must be completed in order.
    interrupt.watch().failed(no_signals)?;
    ensure(caller, &weir, &args.topic, args.no_create)?;
    let sender = Sender::new(&weir, args, source.identity())?;
    let imported_before = sender.last();
    if imported_before > 0 {
        note(
            caller.quiet,
            &format!(
                "resuming after {} that earlier runs imported",
                counted(imported_before, "item", "items")
            ),
        );
    }
    let validator = ItemValidator::new(args, caller, sender.name());
    let mut run = Run::new(caller, args, validator, Some(sender), &interrupt);
    let read = run.read(&mut source);
    // The items already read are written, whatever ended the reading.
    let written = run.finish();
    run.bar.finish_and_clear();
    let counts = run.counts(source.bytes());
    drop(run);
    let closed = weir.close().failed(|| "cannot close the store".to_owned());
    let complete = read.is_ok() && written.is_ok();
    let printed = print(out, args, &counts, started, complete);
    let read = read.map_err(|error| {
        let known = error.downcast_ref::<Failure>();
        match known.map(|failure| failure.code) {
            Some(ErrorCode::Cancelled) => interrupted(args, &source, &counts).into(),
            _ => error,
        }
    });
    // A failed write is reported first, even if standard output is closed.
    written.and(read).and(closed)?;
    if counts.rejected > 0 && !args.accept_invalid {
        return Ok(ExitCode::from(verdict::NOT_VALID));
    }
    printed.map(|()| ExitCode::SUCCESS)
}

/// The failure that reports a Ctrl-C.
fn interrupted(args: &ImportArgs, source: &Source, counts: &Counts) -> Failure {
    let written = counted(counts.imported + counts.rejected, "item", "items");
    let failure = Failure::new(
        ErrorCode::Cancelled,
        format!("the import of {} was interrupted", args.file.display()),
    )
    .because(format!("this run wrote {written}"));
    match source.identity() {
        Some(_) if args.again => failure.advise("to resume, run the same command without --again"),
        Some(_) => failure.advise("run the same command again: it resumes after these items"),
        None => failure.advise("this input cannot be resumed: import only the items after these"),
    }
}

fn print(
    mut out: Output,
    args: &ImportArgs,
    counts: &Counts,
    started: Instant,
    complete: bool,
) -> anyhow::Result<()> {
    let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    out.row(&[
        Cell::Text(args.topic.as_str().into()),
        Cell::Count(counts.imported),
        Cell::Count(counts.already),
        Cell::Count(counts.broken),
        Cell::Count(counts.rejected),
        Cell::Size(counts.bytes),
        Cell::Count(ms),
        Cell::Flag(complete),
    ])?;
    out.finish()
}

struct Run<'a> {
    args: &'a ImportArgs,
    validator: ItemValidator<'a>,
    sender: Option<Sender<'a>>,
    /// Usable items so far.
    usable: u64,
    bar: ProgressBar,
    interrupt: &'a Interrupt,
}

impl<'a> Run<'a> {
    fn new(
        caller: &Caller,
        args: &'a ImportArgs,
        validator: ItemValidator<'a>,
        sender: Option<Sender<'a>>,
        interrupt: &'a Interrupt,
    ) -> Self {
        let bar = bar(&args.file, caller.quiet);
        Self {
            args,
            validator,
            sender,
            usable: 0,
            bar,
            interrupt,
        }
    }

    fn read(&mut self, source: &mut Source) -> anyhow::Result<()> {
        let mut item = Vec::new();
        let mut seen = 0_u64;
        loop {
            let next = source.next(&mut item);
            if self.interrupt.is_requested() {
                // The item is not written, so the next run starts with it.
                return Err(Failure::new(ErrorCode::Cancelled, "interrupted").into());
            }
            let Some(found) = next? else { break };
            seen += 1;
            if seen.is_multiple_of(SHOW_EVERY) {
                self.bar.set_position(source.bytes());
                self.bar.set_message(format!("{} items", self.usable));
            }
            let Some(usable) = self.validator.item(&item, &found)? else {
                continue;
            };
            self.usable += 1;
            if let Some(sender) = &mut self.sender
                && sender.item(&usable, found.line)?
            {
                // The next run skips the items before these, so their dead letters must be durable
                // now.
                self.validator.flush()?;
                sender.send()?;
            }
        }
        if let Some(sender) = &self.sender
            && self.usable < sender.last()
        {
            let why = format!(
                "earlier runs imported {} items of the file, but it now has only {}",
                sender.last(),
                self.usable
            );
            return Err(send::changed_input(&self.args.file).because(why).into());
        }
        Ok(())
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.validator.flush()?;
        self.sender.as_mut().map_or(Ok(()), Sender::finish)
    }

    fn counts(&self, bytes: u64) -> Counts {
        let mut counts = match &self.sender {
            Some(sender) => sender.counts(),
            None => Counts {
                imported: self.usable,
                ..Counts::default()
            },
        };
        counts.already = counts.already.min(self.usable);
        counts.broken = self.validator.broken();
        counts.bytes = bytes;
        counts
    }
}

/// The name of the input in an error.
fn input_name(file: &Path) -> String {
    if file == Path::new("-") {
        "the input".to_owned()
    } else {
        file.display().to_string()
    }
}

/// A progress bar on standard error, if that is a terminal.
fn bar(file: &Path, quiet: bool) -> ProgressBar {
    let len = std::fs::metadata(file)
        .ok()
        .filter(std::fs::Metadata::is_file);
    let target = if quiet {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    let bar = ProgressBar::with_draw_target(len.as_ref().map(std::fs::Metadata::len), target);
    let template = match len {
        Some(_) => {
            "{bar:30} {percent:>3}%  {msg}  {bytes}/{total_bytes}  {bytes_per_sec}  ETA {eta}  (after Ctrl-C, run the command again to resume)"
        }
        None => "{spinner} {msg}  {bytes}  {bytes_per_sec}",
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
