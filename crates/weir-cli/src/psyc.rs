//! `weir psyc`: the codec on the command line, for people who inspect bytes and for tests that
//! compare implementations.
//!
//! The input is standard input or an argument, read byte for byte. The output has one event on each
//! line. TAB separates the fields of an event; a backslash, and each byte outside 0x20 to 0x7e, is
//! `\xhh`. All rules of the syntax are in `weir-psyc`.

#![allow(clippy::doc_markdown, reason = "they are help texts")]

use std::ffi::{OsStr, OsString};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::report::{self, FailureContext as _};

mod bench;
mod names;
mod packet;
mod render;
mod text;
mod value;

/// Exit code after an error event, or when the input ends inside a packet.
const BROKEN: u8 = 1;
/// Maximum bytes of buffered output.
const BUFFER_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  printf ':_tag\\t7\\n\\n_ping\\nhello\\n|\\n' | weir psyc packet
  weir psyc list '_nick| north|5 a|b|c'
  weir psyc uniform psyc://lock.example:4405d/@gauge#north

Exit codes: 0 the input ended after a packet, 1 an error event or an input that
ends inside a packet, 2 usage.")]
pub(crate) struct PsycArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the events of a stream of packets
    Packet(packet::PacketArgs),
    /// Print the elements of a list
    List(value::ListArgs),
    /// Print the keys and values of a dict
    #[command(
        after_long_help = "Examples:\n  weir psyc dict '_amount{north} 21{5 so}th} 19'\n  weir psyc dict '{a} 1{b} 2'"
    )]
    Dict(value::ValueArgs),
    /// Print the steps of an index
    #[command(
        after_long_help = "Examples:\n  weir psyc index '#1{foo}._bar'\n  printf '._bar' | weir psyc index"
    )]
    Index(value::ValueArgs),
    /// Print the parts of an update expression
    #[command(
        after_long_help = "Examples:\n  weir psyc update '{gate} - shut'\n  weir psyc update '._total + 5'"
    )]
    Update(value::ValueArgs),
    /// Print the parts of a uniform
    #[command(
        after_long_help = "Examples:\n  weir psyc uniform 'psyc://lock.example/~heron'\n  weir psyc uniform psyc://lock.example:4405d/@gauge#north"
    )]
    Uniform(value::ValueArgs),
    /// Fill in a text template
    Text(text::TextArgs),
    /// Render a packet from a description
    Render(render::RenderArgs),
    /// Check whether a keyword has the subwords of another, in order
    #[command(
        after_long_help = "Prints 0 if it has them, 1 if not, -1 if an argument is not a keyword.\n\n\
        Examples:\n  weir psyc match _failure_delivery _failure_unsuccessful_delivery\n  \
        weir psyc match _notice _failure_delivery"
    )]
    Match(names::KeywordPair),
    /// Check whether one keyword extends another
    #[command(
        after_long_help = "Prints 0 if it does, 1 if not, -1 if an argument is not a keyword.\n\n\
        Examples:\n  weir psyc inherits _notice _notice_context_enter\n  \
        weir psyc inherits _notice_context _notice"
    )]
    Inherits(names::KeywordPair),
    /// Print the number of a variable's type, 0 for none
    #[command(
        after_long_help = "Examples:\n  weir psyc vartype _amount_fragments\n  weir psyc vartype _list_gates"
    )]
    Vartype(names::Name),
    /// Print the number of a routing variable, 0 for an unknown one
    #[command(
        after_long_help = "Examples:\n  weir psyc routingvar _source\n  weir psyc routingvar _nick"
    )]
    Routingvar(names::Name),
    /// Print whether a variable is a list: 1 or 0
    #[command(
        after_long_help = "Examples:\n  weir psyc islist _list_gates\n  weir psyc islist _nick"
    )]
    Islist(names::Name),
    /// Print number, family and flags of a method, 0 for an unknown one
    #[command(
        after_long_help = "Flags: template 1, reply 2, visible 4, loggable 8, manual 16.\n\n\
        Examples:\n  weir psyc method _notice_context_enter\n  weir psyc method _message"
    )]
    Method(names::Name),
    /// Render a packet id
    Packetid(names::PacketIdArgs),
    /// Measure parsing and rendering on one thread
    Bench(bench::BenchArgs),
}

/// Runs `weir psyc`.
pub(crate) fn run(args: &PsycArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Packet(args) => packet::run(args),
        Command::List(args) => value::list(args),
        Command::Dict(args) => value::dict(args),
        Command::Index(args) => value::index(args),
        Command::Update(args) => value::update(args),
        Command::Uniform(args) => value::uniform(args),
        Command::Text(args) => text::run(args),
        Command::Render(args) => render::run(args),
        Command::Match(pair) => names::matches(pair),
        Command::Inherits(pair) => names::inherits(pair),
        Command::Vartype(name) => names::vartype(name),
        Command::Routingvar(name) => names::routingvar(name),
        Command::Islist(name) => names::islist(name),
        Command::Method(name) => names::method(name),
        Command::Packetid(args) => names::packetid(args),
        Command::Bench(args) => bench::run(args),
    }
}

/// The bytes of `argument`, or those of standard input.
fn input(argument: Option<&OsString>) -> anyhow::Result<Vec<u8>> {
    if let Some(argument) = argument {
        return Ok(argument.as_bytes().to_vec());
    }
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .read_to_end(&mut bytes)
        .failed(|| "cannot read standard input".to_owned())?;
    Ok(bytes)
}

/// The bytes of an argument.
fn bytes(argument: &OsStr) -> &[u8] {
    argument.as_bytes()
}

/// Writes `text` to standard output.
fn print(text: &str) -> anyhow::Result<()> {
    report::stdout(std::io::stdout().lock().write_all(text.as_bytes()))
}

/// Writes the buffered output if it exceeds the limit.
fn flush_if_full(buffer: &mut String) -> anyhow::Result<()> {
    if buffer.len() >= BUFFER_BYTES_MAX {
        print(buffer)?;
        buffer.clear();
    }
    Ok(())
}

/// The exit code: success if the input was valid.
fn exit(is_valid: bool) -> ExitCode {
    if is_valid {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(BROKEN)
    }
}
