//! The output of the demo: a line for each step, a bar during long steps, and the text of a
//! failure.
//!
//! Steps are printed to standard output. Bars are printed to standard error, and only to a
//! terminal. No meaning depends on colour alone; colour is off in pipes and with `NO_COLOR`. If
//! standard output is closed, the demo continues without output.

use std::cell::Cell;
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::time::Duration;

use anyhow::{Context, ensure};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::interrupt::Interrupt;
use crate::paint::{GREEN, RED, paint};

/// Columns of a step's name.
const NAME_COLUMNS: usize = 9;
/// Columns before the text of a step: its number, its tick and its name.
const INDENT_COLUMNS: usize = NAME_COLUMNS + 5;
/// Columns of a line.
const LINE_COLUMNS: usize = 80;
/// Minimum time between two steps on a terminal, so that people can read each one.
const STEP_PAUSE: Duration = Duration::from_millis(400);

/// What the demo prints to standard output.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutputOptions {
    /// A line for each step, and a text at the end.
    pub(super) steps: bool,
    /// One object of facts at the end.
    pub(super) json: bool,
}

/// Prints the steps of the demo.
#[derive(Debug)]
pub(super) struct DemoOutput {
    shown: Cell<bool>,
    steps: u32,
    interrupt: Interrupt,
}

impl DemoOutput {
    /// Without steps, only failures are printed. From this call on, Ctrl-C sets a flag that long
    /// steps check.
    pub(super) fn new(show: OutputOptions) -> anyhow::Result<Self> {
        let interrupt = Interrupt::new()?;
        interrupt.watch()?;
        Ok(Self {
            shown: Cell::new(show.steps),
            steps: 0,
            interrupt,
        })
    }

    /// The flag that Ctrl-C sets.
    pub(super) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Prints a line of text.
    pub(super) fn print_line(&self, text: &str) -> anyhow::Result<()> {
        if !self.shown.get() {
            return Ok(());
        }
        self.shown.set(print(&text)?);
        Ok(())
    }

    /// Whether standard output is a terminal, so that steps pause for people.
    pub(super) fn is_watched(&self) -> bool {
        self.shown.get() && io::stdout().is_terminal()
    }

    /// Runs a step and prints its line. The name is one short verb. The closure returns the line,
    /// and the values that later steps need.
    pub(super) fn step<T>(
        &mut self,
        name: &'static str,
        work: impl FnOnce(&Self) -> anyhow::Result<(String, T)>,
    ) -> anyhow::Result<T> {
        self.steps += 1;
        check_interrupt(&self.interrupt)?;
        let (line, value) = work(self).with_context(|| FailedStep {
            step: self.steps,
            name,
        })?;
        let is_terminal = io::stdout().is_terminal();
        let tick = paint("✓", GREEN, is_terminal);
        let line = wrapped(&line);
        self.print_line(&format!(
            "{:2} {tick} {name:NAME_COLUMNS$}{line}",
            self.steps
        ))?;
        if self.is_watched() {
            self.interrupt.pause(STEP_PAUSE);
        }
        Ok(value)
    }

    /// A progress bar over `total` units, removed when it is dropped. Invisible unless standard
    /// error is a terminal.
    pub(super) fn bar(&self, what: &'static str, total: u64) -> ProgressBar {
        let target = if self.shown.get() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let style =
            ProgressStyle::with_template("   {msg:10} {bar:40} {human_pos}/{human_len} {eta}");
        let bar = ProgressBar::with_draw_target(Some(total), target).with_message(what);
        match style {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        }
    }

    /// Number of steps so far.
    pub(super) fn steps(&self) -> u32 {
        self.steps
    }
}

/// Wraps the text of a step to the columns beside its name. Line breaks in the text remain.
fn wrapped(text: &str) -> String {
    let mut lines = text.split('\n');
    let first = lines.next().unwrap_or_default();
    let mut out = String::new();
    let mut columns = INDENT_COLUMNS;
    for word in first.split(' ') {
        let more = word.chars().count();
        if columns > INDENT_COLUMNS && columns + 1 + more > LINE_COLUMNS {
            out.push('\n');
            out.push_str(&" ".repeat(INDENT_COLUMNS));
            columns = INDENT_COLUMNS;
        } else if columns > INDENT_COLUMNS {
            out.push(' ');
            columns += 1;
        }
        out.push_str(word);
        columns += more;
    }
    for line in lines {
        out.push('\n');
        out.push_str(line);
    }
    out
}

/// Fails if Ctrl-C was pressed.
pub(super) fn check_interrupt(interrupt: &Interrupt) -> anyhow::Result<()> {
    ensure!(!interrupt.is_requested(), "interrupted");
    Ok(())
}

/// Prints a line to standard output. Returns `false` if the output is closed.
pub(super) fn print(line: &impl Display) -> anyhow::Result<bool> {
    match writeln!(io::stdout(), "{line}") {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}

/// The outermost context of an error in a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailedStep {
    pub(super) step: u32,
    pub(super) name: &'static str,
}

impl std::fmt::Display for FailedStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "step {} ({}) failed", self.step, self.name)
    }
}

/// Prints what failed, why, and what to try, to standard error.
pub(super) fn explain(error: &anyhow::Error, advice: &str) {
    let cross = paint("✗", RED, io::stderr().is_terminal());
    let what = match error.downcast_ref::<FailedStep>() {
        Some(failed) => format!("{:2} {cross} {} failed", failed.step, failed.name),
        None => format!("   {cross} the demo failed"),
    };
    let text = format!("{what}\n     why: {}\n     try: {advice}\n", cause(error));
    // If this write fails, only the exit code reports the failure.
    drop(io::stderr().write_all(text.as_bytes()));
}

/// The causes of the error below the step, in one sentence.
pub(super) fn cause(error: &anyhow::Error) -> String {
    let skip = usize::from(error.downcast_ref::<FailedStep>().is_some());
    let causes: Vec<String> = error.chain().skip(skip).map(ToString::to_string).collect();
    causes.join(": ")
}

/// `1,234,567`.
pub(super) fn count(n: u64) -> String {
    indicatif::HumanCount(n).to_string()
}

/// Formats bytes in powers of 1,000.
pub(super) fn bytes(n: u64) -> String {
    indicatif::DecimalBytes(n).to_string()
}

/// Formats a duration in a suitable unit.
pub(super) fn time(time: std::time::Duration) -> String {
    let us = time.as_secs_f64() * 1e6;
    if us < 1_000.0 {
        format!("{us:.0} us")
    } else if us < 1_000_000.0 {
        format!("{:.1} ms", us / 1e3)
    } else {
        format!("{:.2} s", us / 1e6)
    }
}

/// Units per second over a duration, rounded down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a rate for display; counts of a demo are far below 2^52"
)]
pub(super) fn rate(n: u64, time: std::time::Duration) -> u64 {
    (n as f64 / time.as_secs_f64().max(1e-9)) as u64
}
