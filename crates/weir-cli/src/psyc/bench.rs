//! `weir psyc bench`: measures the time of one packet.
//!
//! A parse is complete when every name, value, method and data slice was produced and read. To
//! compare with other parsers, use `weir lab run wire-parse`.

use std::ffi::CStr;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use weir_psyc::{Length, Mode, Modifier, Packet, ParseStep, Parser, Renderer, StateOperation};

use crate::report::FailureContext as _;

/// Rounds of a measurement. Their minimum and median are printed.
const ROUNDS: usize = 5;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Each file has one packet. Prints the file, the operation, the minimum and median of 5
rounds in ns per packet, and the minimum of strlen over these bytes.

Examples:
  printf ':_tag\\t7\\n\\n_ping\\n|\\n' > a.psyc && weir psyc bench --count 10000 a.psyc
  printf '\\n_ping\\n|\\n' > b.psyc && weir psyc bench --count 10000 --render *.psyc")]
pub(crate) struct BenchArgs {
    /// Packets in a round
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Measure rendering too
    #[arg(long)]
    render: bool,
    /// Files with one packet each
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Runs `weir psyc bench`.
pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    crate::report::note(
        !cfg!(debug_assertions),
        "this is a debug build; its figures are not those of a release build",
    );
    let mut is_valid = true;
    for file in &args.files {
        let name = file.display();
        let packet = std::fs::read(file).failed(|| format!("cannot read {name}"))?;
        let mut again = Vec::with_capacity(packet.len() * 2);
        if parse(&packet).is_none() || !render(&packet, &mut again) {
            super::print(&format!("{name}\terror\tnot one whole packet\n"))?;
            is_valid = false;
            continue;
        }
        let (what, rounds) = if args.render {
            let rounds = time(args.count, || {
                again.clear();
                black_box(render(black_box(&packet), &mut again));
            });
            ("parse+render", rounds)
        } else {
            let rounds = time(args.count, || {
                black_box(parse(black_box(&packet)));
            });
            ("parse", rounds)
        };
        let mut text = packet.clone();
        text.iter_mut()
            .filter(|byte| **byte == 0)
            .for_each(|byte| *byte = 1);
        text.push(0);
        let strlen = time(args.count, || {
            black_box(CStr::from_bytes_until_nul(black_box(&text)).map_or(0, CStr::count_bytes));
        });
        let [min, median] = [rounds[0], rounds[ROUNDS / 2]];
        let line = format!(
            "{name}\t{what}\t{min:.1}\t{median:.1}\tstrlen\t{:.1}\n",
            strlen[0]
        );
        super::print(&line)?;
    }
    Ok(super::exit(is_valid))
}

/// Nanoseconds for one execution of `work` in each round, sorted.
fn time(count: u32, mut work: impl FnMut()) -> [f64; ROUNDS] {
    let mut rounds = [0.0; ROUNDS];
    for round in &mut rounds {
        let start = Instant::now();
        for _ in 0..count {
            work();
        }
        *round = start.elapsed().as_secs_f64() * 1e9 / f64::from(count);
    }
    rounds.sort_by(f64::total_cmp);
    rounds
}

fn checksum(slice: &[u8]) -> u64 {
    let ends = slice.first().zip(slice.last());
    ends.map_or(0, |(first, last)| {
        slice.len() as u64 + u64::from(*first) + u64::from(*last)
    })
}

/// Parses one packet and reads every slice; `None` if it is not a packet.
fn parse(packet: &[u8]) -> Option<u64> {
    let mut parser = Parser::new(Mode::Full);
    let mut sum = 0u64;
    loop {
        match parser.step(packet) {
            ParseStep::Routing(variable) | ParseStep::Entity(variable) => {
                sum = sum
                    .wrapping_add(checksum(variable.name))
                    .wrapping_add(checksum(variable.value));
            }
            ParseStep::Body { method, data, .. } => {
                sum = sum
                    .wrapping_add(checksum(method))
                    .wrapping_add(checksum(data));
            }
            ParseStep::StateReset | ParseStep::StateResync => sum = sum.wrapping_add(1),
            ParseStep::Complete if parser.consumed() == packet.len() => return Some(sum),
            _ => return None,
        }
    }
}

/// Parses one packet and renders it with the parsed lengths.
fn render(packet: &[u8], out: &mut Vec<u8>) -> bool {
    let mut parser = Parser::new(Mode::Full);
    let (mut routing, mut entity) = (Vec::new(), Vec::new());
    let (mut state, mut method, mut data, mut sized) = (None, &b""[..], &b""[..], false);
    loop {
        match parser.step(packet) {
            ParseStep::Routing(variable) => routing.push(Modifier::from(variable)),
            ParseStep::Entity(variable) => entity.push(Modifier::from(variable)),
            ParseStep::StateReset => state = Some(StateOperation::Reset),
            ParseStep::StateResync => state = Some(StateOperation::Resync),
            ParseStep::Body {
                method: found,
                data: bytes,
                ..
            } => (method, data) = (found, bytes),
            ParseStep::Complete => break,
            _ => return false,
        }
        sized = parser.content_length().is_some();
    }
    let mut rendered = Packet::new(&routing, &entity, method, data);
    if let Some(state) = state {
        rendered = rendered.with_state(state);
    }
    Renderer::new()
        .append(&rendered.with_length(Length::as_parsed(sized)), out)
        .is_ok()
}
