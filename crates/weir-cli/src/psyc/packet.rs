//! `weir psyc packet`: prints the events of a stream.

use std::process::ExitCode;

use clap::Args;
use weir_psyc::{EventPrinter, Mode, ParseStep, Parser};

#[derive(Debug, Args)]
#[command(after_long_help = "\
The parts of a value are joined unless -1 is given; `len` marks a value with an announced
length. The last line shows whether the input ended after a packet.

Examples:
  printf '|\\n' | weir psyc packet
  printf ':_tag\\t7\\n\\n_ping\\nhello\\n|\\n' | weir psyc packet -b 1 -1
  printf ':_tag\\t7\\n\\n_ping\\nhello\\n|\\n' | weir psyc packet -r")]
pub(crate) struct PacketArgs {
    /// Pass contents through as raw bytes
    #[arg(short, long, conflicts_with = "content")]
    routing_only: bool,
    /// The input is one bare content
    #[arg(short, long)]
    content: bool,
    /// Feed pieces of N bytes; 0 feeds everything at once
    #[arg(short = 'b', long, value_name = "N", default_value_t = 0)]
    pieces: usize,
    /// Print the parts of a value when they are parsed
    #[arg(short = '1', long)]
    raw: bool,
}

/// Runs `weir psyc packet`.
pub(crate) fn run(args: &PacketArgs) -> anyhow::Result<ExitCode> {
    let input = super::input(None)?;
    let mode = match (args.routing_only, args.content) {
        (true, _) => Mode::RoutingOnly,
        (_, true) => Mode::Content {
            length: input.len() as u64,
        },
        _ => Mode::Full,
    };
    let mut parser = Parser::new(mode);
    let mut printer = if args.raw {
        EventPrinter::raw()
    } else {
        EventPrinter::joined()
    };
    let mut text = String::new();
    // A window over the input. Consumed bytes leave the window; each piece extends it.
    let mut start = 0;
    let mut end = 0;
    loop {
        let window = input.get(start..end).unwrap_or_default();
        let step = parser.step(window);
        printer.print(&step, &mut text)?;
        super::flush_if_full(&mut text)?;
        match step {
            ParseStep::Error(_) => {
                super::print(&text)?;
                return Ok(super::exit(false));
            }
            ParseStep::NeedMore(_) if end == input.len() => break,
            ParseStep::NeedMore(_) => {
                start += parser.release();
                end = match args.pieces {
                    0 => input.len(),
                    pieces => input.len().min(end.saturating_add(pieces)),
                };
            }
            _ => {}
        }
    }
    let clean = parser.is_clean();
    text.push_str(if clean {
        "eof\tclean\n"
    } else {
        "eof\tpartial\n"
    });
    super::print(&text)?;
    Ok(super::exit(clean))
}
