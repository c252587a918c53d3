//! `weir psyc list|dict|index|update|uniform`: print the parts of one value.

use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::process::ExitCode;

use clap::Args;
use weir_psyc::{
    Escaped, ListPrinter, ListStep, ListStream, Uniform, print_dict, print_index, print_update,
};

#[derive(Debug, Args)]
pub(crate) struct ValueArgs {
    /// The value [else standard input]
    #[arg(allow_hyphen_values = true)]
    value: Option<OsString>,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  weir psyc list '_nick| north| south'
  printf '|5 a|b|c| d' | weir psyc list -b 1")]
pub(crate) struct ListArgs {
    /// Feed pieces of N bytes; 0 feeds everything at once
    #[arg(short = 'b', long, value_name = "N", default_value_t = 0)]
    pieces: usize,
    /// The value [else standard input]
    #[arg(allow_hyphen_values = true)]
    value: Option<OsString>,
}

/// Runs `weir psyc list`.
pub(crate) fn list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let input = super::input(args.value.as_ref())?;
    let mut stream = ListStream::new();
    let mut printer = ListPrinter::new();
    let mut text = String::new();
    let mut start = 0;
    let mut end = 0;
    let is_valid = loop {
        let window = input.get(start..end).unwrap_or_default();
        let step = stream.step(window, end == input.len());
        printer.print(&step, &mut text)?;
        super::flush_if_full(&mut text)?;
        match step {
            ListStep::Error(_) => break false,
            ListStep::End => break true,
            ListStep::NeedMore => {
                start += stream.release();
                end = match args.pieces {
                    0 => input.len(),
                    pieces => input.len().min(end.saturating_add(pieces)),
                };
            }
            _ => {}
        }
    };
    super::print(&text)?;
    Ok(super::exit(is_valid))
}

/// Runs `weir psyc dict`.
pub(crate) fn dict(args: &ValueArgs) -> anyhow::Result<ExitCode> {
    printed(args, print_dict)
}

/// Runs `weir psyc index`.
pub(crate) fn index(args: &ValueArgs) -> anyhow::Result<ExitCode> {
    printed(args, print_index)
}

/// Runs `weir psyc update`.
pub(crate) fn update(args: &ValueArgs) -> anyhow::Result<ExitCode> {
    printed(args, print_update)
}

type Printer = fn(&[u8], &mut dyn fmt::Write) -> Result<bool, fmt::Error>;

fn printed(args: &ValueArgs, printer: Printer) -> anyhow::Result<ExitCode> {
    let input = super::input(args.value.as_ref())?;
    let mut text = String::new();
    let is_valid = printer(&input, &mut text)?;
    super::print(&text)?;
    Ok(super::exit(is_valid))
}

/// Runs `weir psyc uniform`.
pub(crate) fn uniform(args: &ValueArgs) -> anyhow::Result<ExitCode> {
    let input = super::input(args.value.as_ref())?;
    let mut text = String::new();
    let parsed = Uniform::parse(&input);
    match &parsed {
        Err(error) => writeln!(text, "error\t{}", error.name())?,
        Ok(uniform) => {
            for (name, part) in uniform.parts() {
                match part {
                    Some(part) => writeln!(text, "{name}\t{}", Escaped(part))?,
                    None => writeln!(text, "{name}\t~")?,
                }
            }
            writeln!(text, "kind\t{}", uniform.kind().name())?;
        }
    }
    super::print(&text)?;
    Ok(super::exit(parsed.is_ok()))
}
