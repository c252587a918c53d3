//! Times the parser on packet files: `cargo run --release -p weir-psyc --example bench -- FILE…`
#![allow(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a measuring program"
)]
use std::hint::black_box;
use std::time::Instant;

use weir_psyc::{Mode, ParseStep, Parser};

const ROUNDS: usize = 5;

/// Reads the first and the last byte of a slice, so that the compiler cannot remove the slice.
#[inline]
fn touch(slice: &[u8]) -> u64 {
    match (slice.first(), slice.last()) {
        (Some(first), Some(last)) => slice.len() as u64 + u64::from(*first) + u64::from(*last),
        _ => 0,
    }
}

/// Parses one packet and reads a part of each slice that the parser returns.
#[inline]
fn parse(packet: &[u8]) -> Option<u64> {
    let mut parser = Parser::new(Mode::Full);
    let mut sum = 0u64;
    loop {
        match parser.step(packet) {
            ParseStep::Routing(variable) | ParseStep::Entity(variable) => {
                sum = sum
                    .wrapping_add(u64::from(variable.operator.byte()))
                    .wrapping_add(touch(variable.name))
                    .wrapping_add(touch(variable.value));
            }
            ParseStep::Body { method, data, .. } => {
                sum = sum.wrapping_add(touch(method)).wrapping_add(touch(data));
            }
            ParseStep::Complete => return Some(sum),
            _ => return None,
        }
    }
}

fn time(count: u32, mut work: impl FnMut()) -> (f64, f64) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..count {
                work();
            }
            start.elapsed().as_nanos() as f64 / f64::from(count)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    (rounds[0], rounds[ROUNDS / 2])
}

fn main() {
    for file in std::env::args().skip(1) {
        let Ok(packet) = std::fs::read(&file) else {
            println!("{file}: cannot be read");
            continue;
        };
        let Some(sum) = parse(&packet) else {
            println!("{file}: not one packet");
            continue;
        };
        let count = std::env::var("COUNT")
            .ok()
            .and_then(|count| count.parse().ok())
            .unwrap_or(1_000_000);
        let (min, median) = time(count, || {
            black_box(parse(black_box(&packet)));
        });
        let mut terminated = packet.clone();
        terminated.retain(|&byte| byte != 0);
        terminated.push(0);
        let (strlen, _) = time(count, || {
            let text = std::ffi::CStr::from_bytes_until_nul(black_box(&terminated));
            black_box(text.map_or(0, std::ffi::CStr::count_bytes));
        });
        let name = file.rsplit('/').next().unwrap_or(&file);
        println!(
            "{name:24} sum {sum:5}  min {min:6.1} ns  median {median:6.1} ns  strlen {strlen:5.1} ns"
        );
    }
}
